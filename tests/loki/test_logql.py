"""The queries that go to Loki."""

from __future__ import annotations

import json
import re

import pytest

from konductor_like.detection import HEARTBEAT_ANCHOR, OVERRUN_ANCHOR, packaged
from konductor_like.loki.query.logql import (
    heartbeat_query,
    kernel_matchers,
    kernel_query,
    log_query,
    one_of,
    pod_query,
    quote,
)
from konductor_like.loki.query.response import is_kernel_stream
from konductor_like.model import Source
from konductor_like.selectors import Matcher, parse_matchers
from tests.loki.support import kernel_labels, settings

KERNEL_ANCHORS = packaged().anchors(Source.KERNEL)
POD_ANCHORS = packaged().anchors(Source.POD)
HEARTBEAT = (
    "kmsg/1 heartbeat boot=6b1f7f0e-5d0c-4f39-9a51-0f6a3f0d7a11 seq=20911 uptime=71233.000412 "
    "wall=2026-11-21T04:05:06Z"
)


def _anchors(query: str) -> list[str]:
    return re.findall(r'"([^"]*)"', query.partition("|=")[2])


def test_the_kernel_query_is_the_selector_and_one_line_filter() -> None:
    query = kernel_query(settings(), KERNEL_ANCHORS)

    selector, line_filter = query.split(" |= ")
    assert selector == '{k8s_namespace_name="dmesg-logging", k8s_container_name="dmesg"}'
    assert line_filter.split(" or ") == [json.dumps(anchor) for anchor in KERNEL_ANCHORS]


def test_extra_matchers_are_in_every_query() -> None:
    shared = settings(extra_matchers='k8s_cluster_name="prod", env=~"a|b"')

    for query in (
        kernel_query(shared, KERNEL_ANCHORS),
        heartbeat_query(shared),
        pod_query(shared, POD_ANCHORS),
    ):
        assert query is not None
        assert ', k8s_cluster_name="prod", env=~"a|b"} |= ' in query


@pytest.mark.parametrize(
    ("values", "selector"),
    [
        ({"watched_namespaces": "default,a,b,default"}, '{k8s_namespace_name=~"default|a|b"}'),
        ({"watched_namespaces": "default", "namespace_label": "namespace"}, '{namespace="default"}'),
        (
            {"watched_namespaces": "default,konductor-like,secret", "excluded_namespaces": "secret"},
            '{k8s_namespace_name=~"default|konductor-like"}',
        ),
        ({"watched_namespaces": ""}, None),
        ({"watched_namespaces": "konductor-like"}, None),
        ({"watched_namespaces": "kube-system"}, None),
        ({"watched_namespaces": "kube-system,ml"}, '{k8s_namespace_name="ml"}'),
        ({"watched_namespaces": "a,b,!b,c,!x*"}, '{k8s_namespace_name=~"a|c"}'),
        ({"watched_namespaces": "a,b", "excluded_namespaces": "?"}, None),
        ({"watched_namespaces": "team-*"}, '{k8s_namespace_name=~"team-.*"}'),
        ({"watched_namespaces": "te??-*,ml"}, '{k8s_namespace_name=~"te..-.*|ml"}'),
        (
            {"watched_namespaces": "team-*,team-b,!team-b,!team-?,!other", "namespace_label": "namespace"},
            '{namespace=~"team-.*", namespace!~"team-b|team-."}',
        ),
        (
            {"watched_namespaces": "*"},
            '{k8s_namespace_name=~".+", k8s_namespace_name!~"konductor-like|kube-system|dmesg-logging"}',
        ),
        (
            {"watched_namespaces": "**,!ci-*", "extra_matchers": 'c="x"', "namespace_label": "ns"},
            '{ns=~".+", ns!~"ci-.*|konductor-like|kube-system", c="x"}',
        ),
        (  # the namespace in which the controller runs, and a kernel-log reader among the jobs
            {
                "watched_namespaces": "k*,jobs",
                "namespace": "kl-system",
                "excluded_namespaces": "",
                "kernel_selector": '{k8s_namespace_name="jobs", k8s_container_name="dmesg"}',
            },
            '{k8s_namespace_name=~"k.*|jobs", k8s_namespace_name!~"kube-system|kl-system"}',
        ),
    ],
)
def test_all_watched_namespaces_but_the_excluded_ones_are_one_query(
    values: dict[str, str], selector: str | None
) -> None:
    query = pod_query(settings(**values), POD_ANCHORS)

    assert (query and query.split(" |= ")[0]) == selector
    assert query is None or _anchors(query) == list(POD_ANCHORS)


def test_the_longest_list_of_namespaces_is_a_query_that_loki_takes() -> None:
    """Loki refuses a query of more than 128 KiB (maxInputSize); ``a*`` is a pattern that grows."""
    longest = ",".join(f"{number:04}{'a*' * 29}a" for number in range(1023))

    query = pod_query(settings(watched_namespaces=longest), POD_ANCHORS)

    assert query
    assert len(query) < 128 * 1024
    with pytest.raises(ValueError, match="65,536 characters together; write patterns such as"):
        settings(watched_namespaces=f"{longest},{'x' * 63}")


def test_a_heartbeat_is_found_by_its_own_query_and_by_no_fault_query() -> None:
    assert _anchors(heartbeat_query(settings())) == [HEARTBEAT_ANCHOR, OVERRUN_ANCHOR]
    assert HEARTBEAT_ANCHOR in HEARTBEAT
    assert not [anchor for anchor in (*KERNEL_ANCHORS, *POD_ANCHORS) if anchor in HEARTBEAT]


@pytest.mark.parametrize("anchors", [KERNEL_ANCHORS, POD_ANCHORS], ids=["kernel", "pod"])
def test_anchors_are_few_short_literals(anchors: tuple[str, ...]) -> None:
    assert 0 < len(anchors) <= 20
    assert all(3 <= len(anchor) <= 40 for anchor in anchors)
    assert "NCCL" not in anchors


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        pytest.param("NVRM", '"NVRM"', id="plain"),
        pytest.param('say "no"', r'"say \"no\""', id="double quotes"),
        pytest.param(r"a\d+", r'"a\\d+"', id="backslash"),
        pytest.param("tick ` tick", '"tick ` tick"', id="backtick"),
        pytest.param("two\nlines", r'"two\nlines"', id="newline"),
        pytest.param("Grafik fällt aus 🔥", '"Grafik fällt aus 🔥"', id="beyond ASCII, as it is"),
        pytest.param("nul\x00", r'"nul\u0000"', id="control character"),
    ],
)
def test_strings_are_quoted_as_go_reads_them(text: str, quoted: str) -> None:
    assert quote(text) == quoted


def test_a_quoted_matcher_reads_back_as_it_was() -> None:
    hostile = Matcher("app", "=", r'a"} |= "x\ `')

    assert parse_matchers(log_query([hostile], ["NVRM"]).split(' |= "NVRM"')[0]) == (hostile,)


def test_names_in_an_alternation_are_taken_literally() -> None:
    matcher = one_of("label", ["a.b", "c+d|e"])

    assert matcher.op == "=~"
    assert [bool(re.fullmatch(matcher.value, text)) for text in ("a.b", "axb", "c+d|e", "ccd", "e")] == [
        True,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("selector", "labels", "is_kernel"),
    [
        pytest.param('{a="x", b="y"}', {"a": "x", "b": "y", "more": "z"}, True, id="all equal"),
        pytest.param('{a="x", b="y"}', {"a": "x", "b": "other"}, False, id="one differs"),
        pytest.param('{a="x", b="y"}', {"a": "x"}, False, id="one is missing"),
        pytest.param('{a="x", b!="y"}', {"a": "x"}, True, id="a missing label is not equal"),
        pytest.param('{a="x", b!="y"}', {"a": "x", "b": "y"}, False, id="unequal violated"),
        pytest.param('{a="x", b=~"p.*"}', {"a": "x", "b": "pq"}, True, id="expression"),
        pytest.param('{a="x", b=~"p"}', {"a": "x", "b": "pq"}, False, id="expressions are anchored"),
        pytest.param('{a="x", b=~"a|b"}', {"a": "x", "b": "bc"}, False, id="anchored around the alternation"),
        pytest.param('{a="x", b=~".*"}', {"a": "x"}, True, id="a missing label is empty"),
        pytest.param('{a="x", b=~".+"}', {"a": "x", "b": "p\nq"}, True, id="the dot matches a newline"),
        pytest.param('{a="x", b!~"p.*"}', {"a": "x", "b": "pq"}, False, id="negated expression violated"),
        pytest.param('{a="x", b!~"p.*"}', {"a": "x"}, True, id="negated expression, label missing"),
        pytest.param('{a="x", b=~"d[[:alpha:]]+"}', {"a": "x", "b": "dmesg"}, True, id="a class of POSIX"),
        pytest.param('{a="x", b=~"d[[:alpha:]]+"}', {"a": "x", "b": "d:]"}, False, id="no class of Python"),
        pytest.param('{a="x", b!~"d[[:alpha:]]+"}', {"a": "x", "b": "dmesg"}, False, id="POSIX, negated"),
        pytest.param(r'{a="x", b=~"\\pL+"}', {"a": "x", "b": "dmesg"}, True, id="a class of Unicode"),
        pytest.param(
            r'{a="x", b=~"\\pL+"}', {"a": "x", "b": "dmesg2"}, False, id="a class of Unicode violated"
        ),
        pytest.param(r'{a="x", b=~`\w+`}', {"a": "x", "b": "é"}, False, id="only ASCII is a word"),
        pytest.param('{a="x", b=~"(?i)DMESG"}', {"a": "x", "b": "dmesg"}, True, id="case does not matter"),
        pytest.param('{a="x", b=~"dmesg$"}', {"a": "x", "b": "dmesg\n"}, False, id="$ is the very end"),
    ],
)
def test_what_counts_as_a_kernel_stream(selector: str, labels: dict[str, str], is_kernel: bool) -> None:
    assert is_kernel_stream(labels, parse_matchers(selector)) is is_kernel


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ('{a="x", b=~"dmesg(?=$)"}', "'dmesg(?=$)' is not a regular expression of RE2, which Loki uses: "),
        (r'{a="x", b=~"(a)\\1"}', "is not a regular expression of RE2"),
        ('{a="x", b=~"a++"}', "is not a regular expression of RE2"),
        (r'{a="x", b!~"\\C"}', "fits half a character"),
        (r'{a="x", b=~"\w+"}', r'"\w+" has a backslash that escapes nothing'),
    ],
)
def test_an_expression_that_loki_would_refuse_is_refused(selector: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_matchers(selector)


def test_a_kernel_stream_must_satisfy_the_extra_matchers_too() -> None:
    both = kernel_matchers(settings().kernel_selector, 'k8s_cluster_name="prod"')

    assert is_kernel_stream(kernel_labels(k8s_cluster_name="prod"), both)
    assert not is_kernel_stream(kernel_labels(k8s_cluster_name="test"), both)
    assert not is_kernel_stream(kernel_labels(), both)
