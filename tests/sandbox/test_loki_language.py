"""The stand-in's language: the queries that it knows, how all others are refused, and labels."""

from __future__ import annotations

import pytest

from konductor_like.sandbox.loki.labels import detected_level, label_set, normalized, with_service_name
from konductor_like.sandbox.loki.limits import LokiError
from konductor_like.sandbox.loki.logql import CountQuery, LogQuery, parse
from konductor_like.sandbox.loki.store import Entry


def log_query(text: str) -> LogQuery:
    query = parse(text)
    assert isinstance(query, LogQuery)
    return query


# Queries


def test_a_log_query_is_a_selector_with_texts_and_label_filters() -> None:
    query = log_query('{a="b", c !~ `d` } |= "Xid" or `SXid`| node=~"x|y" | node!~"z"')

    assert [(one.name, one.operator, one.value) for one in query.matchers] == [
        ("a", "=", "b"),
        ("c", "!~", "d"),
    ]
    assert query.texts == ("Xid", "SXid")
    assert [(one.operator, one.value) for one in query.label_filters] == [("=~", "x|y"), ("!~", "z")]


def test_a_count_is_a_log_query_over_milliseconds() -> None:
    assert parse('sum(count_over_time({a="b"} |= "c" [90000ms]))') == CountQuery(
        log_query('{a="b"} |= "c"'), 90_000_000_000
    )


@pytest.mark.parametrize(
    ("quoted", "meant"),
    [
        (r"`a\b`", r"a\b"),
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', r"a\b"),
        (r'"\u0042\n\t"', "B\n\t"),
        ('" or "', " or "),
    ],
)
def test_strings_are_quoted_as_in_go(quoted: str, meant: str) -> None:
    assert log_query('{a="b"} |= ' + quoted).texts == (meant,)


def test_an_empty_text_is_everywhere_alone_and_nowhere_among_others() -> None:
    assert log_query('{a="b"} |= ""').holds_text("x")
    assert not log_query('{a="b"} |= "" or "y"').holds_text("x")


@pytest.mark.parametrize(
    "query",
    [
        '{a="b"} |= "c" |= "d"',
        '{a="b"} |~ "c"',
        '{a="b"} != "c"',
        '{a="b"} | c="d"',
        '{a="b"} | c=~"d" or e=~"f"',
        '{a="b"} | json',
        '{a="b"} | keep a',
        '{a="b"} # why',
        '{a="b",}',
        '{a="b"} [5m]',
        'count_over_time({a="b"} [1000ms])',
        'sum(count_over_time({a="b"} [5m]))',
        'sum by (c) (count_over_time({a="b"} [1000ms]))',
        'sum(rate({a="b"} [1000ms]))',
    ],
)
def test_any_other_shape_is_refused_even_if_loki_knows_it(query: str) -> None:
    with pytest.raises(LokiError, match="the stand-in Loki does not know this shape of query") as refusal:
        parse(query)

    assert refusal.value.status == 400


@pytest.mark.parametrize(
    ("pattern", "value", "found"),
    [
        ("gpu-(1|2)", "gpu-1", True),
        ("gpu", "gpu-1", False),
        ("a.b", "a\nb", True),
        ("(?i)gpu", "GPU", True),
        ("gpu$", "gpu\n", False),
        ("[[:alpha:]]+", "gpu", True),
    ],
)
def test_expressions_are_re2_and_fit_the_whole_value(pattern: str, value: str, found: bool) -> None:
    query = log_query(f'{{app="x"}} | node=~"{pattern}"')

    assert query.passes((("app", "x"),), Entry(0, "line", (("node", value),))) == found


# Labels


@pytest.mark.parametrize(
    ("attribute", "label"),
    [
        ("k8s.node.name", "k8s_node_name"),
        ("a.b-c/d", "a_b_c_d"),
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
    assert label_set({"a": "", "b": "c"}) == (("b", "c"),)
    assert with_service_name({"a": "", "service_name": ""}) == (("service_name", "unknown_service"),)


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("an error: x", "error"),
        ("Warning: this is only info", "warn"),
        ("terror", "unknown"),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x", "unknown"),
    ],
)
def test_a_level_is_guessed(line: str, level: str) -> None:
    assert detected_level(line) == level
