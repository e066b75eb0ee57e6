"""The stand-in's language: queries and how bad ones are refused, expressions, labels, times."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.sandbox.loki.clock import (
    go_duration,
    go_time,
    model_duration,
    parse_duration_ns,
    parse_step_ns,
    parse_time_ns,
    rfc3339,
)
from konductor_like.sandbox.loki.labels import normalized, with_service_name
from konductor_like.sandbox.loki.lexer import Kind, tokenize
from konductor_like.sandbox.loki.limits import SECOND_NS, LokiError
from konductor_like.sandbox.loki.logql import LogQuery, RangeAggregation, Sum
from konductor_like.sandbox.loki.parser import parse
from konductor_like.sandbox.loki.regexps import RegexpError, compile_re2

AT_NS = 1_795_230_905 * SECOND_NS


# Queries


def test_a_query_is_cut_into_tokens() -> None:
    tokens = tokenize('sum by (a) (count_over_time({a=~"x.*"} |= `b` [5m]))  # done')

    assert [token.value for token in tokens if token.kind is Kind.SYMBOL][:4] == ["sum", "by", "(", ")"]
    assert [token.value for token in tokens if token.kind is Kind.STRING] == ["x.*", "b"]
    assert [token.value for token in tokens if token.kind is Kind.RANGE] == [str(300 * SECOND_NS)]
    assert tokens[-1].kind is Kind.END


@pytest.mark.parametrize(
    ("quoted", "meant"),
    [
        (r"`a\b`", r"a\b"),
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', r"a\b"),
        (r'"\x41\u0042\U00000043\104\n\t"', "ABCD\n\t"),
        ('""', ""),
        ("`a\r\nb`", "a\nb"),
    ],
)
def test_strings_are_quoted_as_in_go(quoted: str, meant: str) -> None:
    assert tokenize(quoted)[0].value == meant


def test_a_function_is_a_plain_name_where_it_is_not_called() -> None:
    query = parse('{sum="x"} | keep rate')

    assert isinstance(query, LogQuery)
    assert query.matchers[0].name == "sum"


def test_a_metric_query_is_a_sum_over_a_range_of_a_log_query() -> None:
    query = parse('sum(rate({a="b"} |= `c` [90s])) by (node, pod)')

    assert isinstance(query, Sum)
    assert (query.names, query.without) == (("node", "pod"), False)
    assert isinstance(query.inner, RangeAggregation)
    assert (query.inner.function, query.inner.range_ns) == ("rate", 90 * SECOND_NS)


@pytest.mark.parametrize(
    "query",
    [
        '{a="b"} | json',
        '{a="b"} | line_format "x"',
        '{a="b"} |> "<_>"',
        '{a="b"} |= ip("10.0.0.1")',
        '{a="b"} | size > 5',
        'topk(2, sum by (a) (count_over_time({a="b"}[5m])))',
        'sum(count_over_time({a="b"}[5m])) > 1',
        'count_over_time({a="b"}[5m] offset 1m)',
        'max_over_time({a="b"} | unwrap x [5m])',
    ],
)
def test_what_loki_knows_and_the_stand_in_does_not_is_said(query: str) -> None:
    with pytest.raises(LokiError, match="does not speak this part of LogQL") as refusal:
        parse(query)

    assert refusal.value.status == 501


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ('{a "x"}', "at line 1, col 4: syntax error: unexpected STRING, expecting = or =~ or !~ or !="),
        ('{a="x",}', "at line 1, col 8: syntax error: unexpected }, expecting IDENTIFIER"),
        ('{a="x" b="y"}', "at line 1, col 8: syntax error: unexpected IDENTIFIER, expecting } or ,"),
        ("{a='x'}", "at line 1, col 4: invalid char literal"),
        ('{1="x"}', "at line 1, col 2: syntax error: unexpected NUMBER, expecting IDENTIFIER or }"),
        ('{by="x"}', "at line 1, col 2: syntax error: unexpected by, expecting IDENTIFIER or }"),
        ('{a="x"} |= b', "at line 1, col 12: syntax error: unexpected IDENTIFIER, expecting STRING or ip"),
        ('{a="x"} |= |=', "at line 0, col 12: syntax error: unexpected |=, expecting STRING or ip"),
        ('{a="x"} | b="c" or', "at line 1, col 19: syntax error: unexpected $end, expecting IDENTIFIER or ("),
        ('{a="x"} | keep', "at line 1, col 15: syntax error: unexpected $end, expecting IDENTIFIER"),
        ('{a="x"} [5m]', "at line 0, col 9: syntax error: unexpected RANGE"),
        ('{a="x"} foo', "at line 1, col 9: syntax error: unexpected IDENTIFIER"),
        ('count_over_time({a="x"})', "at line 1, col 24: syntax error: unexpected )"),
        (
            'count_over_time({a="x"} | k="v" [5m]',
            "at line 1, col 37: syntax error: unexpected $end, expecting )",
        ),
        ("count_over_time(", "at line 1, col 17: syntax error: unexpected $end, expecting NUMBER or { or ("),
        ('count_over_time({a="x"}[5q])', 'at line 0, col 24: unknown unit "q" in duration "5q"'),
        ('count_over_time({a="x"}[5m)', "at line 0, col 24: missing closing ']' in duration"),
        ("sum by (", "at line 1, col 9: syntax error: unexpected $end, expecting IDENTIFIER or )"),
        ("sum by (a b) (x)", "at line 1, col 11: syntax error: unexpected IDENTIFIER, expecting , or )"),
        ("sum", "at line 1, col 1: syntax error: unexpected IDENTIFIER"),
        ('{a!="x"}', ": queries require at least one regexp or equality matcher"),
        ("x" * 131_073, ": input size too long (131073 > 131072)"),
    ],
)
def test_a_bad_query_is_refused_in_lokis_words(query: str, error: str) -> None:
    """The words were seen on a real Loki."""
    with pytest.raises(LokiError) as refusal:
        parse(query)

    assert refusal.value.status == 400
    assert refusal.value.message.startswith(f"parse error {error}")


# Expressions


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("x[", "missing closing ]: `[`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("y*+", "invalid nested repetition operator: `*+`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("a{1,2000}", "invalid repeat count: `{1,2000}`"),
        ("(?=x)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?!x)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?P<n>a)(?P=n)", "invalid or unsupported Perl syntax: `(?P`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"\q", r"invalid escape sequence: `\q`"),
    ],
)
def test_what_is_no_re2_is_refused_in_gos_words(pattern: str, error: str) -> None:
    """The words were seen on a real Loki; that RE2 refuses it too is shown by RE2 itself."""
    with pytest.raises(RegexpError) as refusal:
        compile_re2(pattern)

    assert str(refusal.value) == f"error parsing regexp: {error}"
    options = re2.Options()
    options.log_errors = False
    with pytest.raises(re2.error):
        re2.compile(pattern, options)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("Xid .*: (79|74)", "Xid (PCI:0000:3b:00): 79, x", True),
        ("a.b", "a\nb", True),
        (r"\bXid\b", "SXid 5", False),
        ("(?i)nvrm", "NVRM", True),
        (r"^end\z", "end", True),
        (r"(?P<code>\d+)", "79", True),
        (r"\\d", "79", False),
        ("[*+][[|]", "+[", True),
        ("x$", "x\n", False),
    ],
)
def test_expressions_find_what_re2_finds(pattern: str, text: str, found: bool) -> None:
    assert bool(compile_re2(pattern).search(text)) == found


@given(st.text("ab1.*+?|()[^]\\\\d$", max_size=8), st.text("ab1. ", max_size=8))
def test_where_both_engines_take_an_expression_they_agree(pattern: str, text: str) -> None:
    options = re2.Options()
    options.log_errors = False
    try:
        ours, theirs = compile_re2(pattern), re2.compile(pattern, options)
    except (RegexpError, re2.error):
        return
    assert bool(ours.search(text)) == bool(theirs.search(text))


# Labels


@pytest.mark.parametrize(
    ("attribute", "label"),
    [
        ("k8s.node.name", "k8s_node_name"),
        ("a.b-c/d", "a_b_c_d"),
        ("a..b", "a_b"),
        ("__y", "_y"),
        ("9z", "key_9z"),
        ("aé", "a_"),
    ],
)
def test_attributes_get_names_that_labels_may_have(attribute: str, label: str) -> None:
    assert normalized(attribute) == label


def test_an_attribute_without_a_letter_has_no_label() -> None:
    with pytest.raises(ValueError, match='label name "é" resulted in invalid name "_"'):
        normalized("é")


def test_an_empty_value_is_no_label() -> None:
    assert with_service_name({"a": "", "service_name": ""}) == (("service_name", "unknown_service"),)


# Times


@pytest.mark.parametrize(
    ("text", "meant_ns"),
    [
        ("1795230905000000007", AT_NS + 7),
        ("1795230905", AT_NS),
        ("1795230905.25", AT_NS + SECOND_NS // 4),
        ("1795230905.1236", AT_NS + 124_000_000),
        ("2026-11-21T03:15:05Z", AT_NS),
        ("2026-11-21T04:15:05.5+01:00", AT_NS + SECOND_NS // 2),
        ("2026-11-21T03:15:05.000000007Z", AT_NS + 7),
    ],
)
def test_times_are_read_in_all_of_lokis_notations(text: str, meant_ns: int) -> None:
    assert parse_time_ns(text) == meant_ns


@pytest.mark.parametrize("text", ["abc", "1.2.3", "2026-11-21", "12s"])
def test_what_is_no_time_is_refused_in_gos_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"strconv\.ParseInt: parsing .* invalid syntax"):
        parse_time_ns(text)


@given(st.integers(min_value=10**10, max_value=2**62))
def test_a_time_in_nanoseconds_is_taken_as_it_is(time_ns: int) -> None:
    assert parse_time_ns(str(time_ns)) == time_ns


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m", 300), ("1h30m", 5400), ("90s", 90), ("1d", 86400), ("2w", 1209600), ("0", 0)]
)
def test_durations_are_read_as_prometheus_does(text: str, seconds: int) -> None:
    assert parse_duration_ns(text) == seconds * SECOND_NS


@pytest.mark.parametrize("text", ["", "5", "5q", "m", "1m1x"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration_ns(text)


@pytest.mark.parametrize(
    ("text", "step_ns"), [("60", 60 * SECOND_NS), ("0.5", SECOND_NS // 2), ("1m", 60 * SECOND_NS)]
)
def test_a_step_is_seconds_or_a_duration(text: str, step_ns: int) -> None:
    assert parse_step_ns(text) == step_ns


def test_times_and_durations_are_written_as_go_does() -> None:
    assert rfc3339(AT_NS + 999_999_999) == "2026-11-21T03:15:05Z"
    assert go_time(AT_NS) == "2026-11-21 03:15:05 +0000 UTC"
    assert go_time(AT_NS + 120_000_000) == "2026-11-21 03:15:05.12 +0000 UTC"
    assert go_duration((799 * 3600 + 59 * 60 + 1) * SECOND_NS) == "799h59m1s"
    assert go_duration(61_500_000_000) == "1m1.5s"
    assert go_duration(5 * SECOND_NS) == "5s"
    assert model_duration(721 * 3600 * SECOND_NS) == "30d1h"
    assert model_duration(14 * 86400 * SECOND_NS) == "2w"
    assert model_duration(0) == "0s"
