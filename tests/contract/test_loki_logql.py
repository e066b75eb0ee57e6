"""The LogQL that we rely on: selectors, filters, refusals, counting."""

from __future__ import annotations

from typing import Any

import pytest

from konductor_like.loki.query.logql import pod_query
from konductor_like.settings import Settings
from konductor_like_sandbox.loki import LokiServer
from tests.contract.loki_target import (
    PLAIN,
    SECOND_NS,
    XID,
    Answer,
    Target,
    around,
    kernel_resource,
    of,
)

# Filters


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        pytest.param("|= `Xid`", "abe", id="a literal in backticks"),
        pytest.param('|= "Xid"', "abe", id="a literal in quotes"),
        pytest.param("|= `Xid` or `fallen`", "abce", id="an or-chain"),
        pytest.param('|= `Xid` or "fallen" or `nothing`', "abce", id="a chain of mixed quotes"),
        pytest.param("|= `xid`", "", id="upper and lower case differ"),
        pytest.param("|= `(PCI:0000:3b:00)`", "ab", id="a literal is not an expression"),
        pytest.param('|= "a \\"quoted\\" word"', "d", id="escapes in quotes"),
        pytest.param("|= ``", "abcde", id="the empty literal is everywhere"),
    ],
)
def test_line_filters(loki: Target, namespace: str, at_ns: int, rest: str, found: str) -> None:
    lines = {
        "a": "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711",
        "b": "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711",
        "c": "NVRM: GPU at PCI:0000:3b:00 has fallen off the bus",
        "d": 'a "quoted" word',
        "e": "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028",
    }
    loki.write(kernel_resource(namespace, "a"), *[(at_ns + i, text) for i, text in enumerate(lines.values())])

    texts = loki.query_range(of(namespace, rest), *around(at_ns)).texts

    assert texts == [lines[name] for name in found]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        pytest.param('k8s_container_name="dmesg"', "ab", id="equal"),
        pytest.param('k8s_container_name!="dmesg"', "c", id="not equal"),
        pytest.param('k8s_container_name=~"dm.*|x"', "ab", id="an expression"),
        pytest.param('k8s_container_name=~"dm"', "", id="an expression must match all of the value"),
        pytest.param('k8s_container_name!~"dm.*"', "c", id="an expression excluded"),
        pytest.param('k8s_pod_name=~".+", k8s_container_name="dmesg"', "ab", id="two matchers"),
        pytest.param('k8s_daemonset_name="dmesg"', "a", id="a label that some streams lack"),
        pytest.param('k8s_daemonset_name=""', "bc", id="a label that must be missing"),
        pytest.param('k8s_daemonset_name!="dmesg"', "bc", id="a missing label is not equal"),
    ],
)
def test_selectors(loki: Target, namespace: str, at_ns: int, selector: str, found: str) -> None:
    loki.write(kernel_resource(namespace, "a", k8s_daemonset_name="dmesg"), (at_ns, "a"))
    loki.write(kernel_resource(namespace, "b"), (at_ns + 1, "b"))
    pod = {"k8s.namespace.name": namespace, "k8s.pod.name": "job-0", "k8s.container.name": "trainer"}
    loki.write(pod, (at_ns + 2, "c"))

    query = f'{{k8s_namespace_name="{namespace}", {selector}}}'

    assert loki.query_range(query, *around(at_ns)).texts == list(found)


WATCHED = {
    "a": "a",
    "a,b,none": "a b",
    "*": "a b ab ac",
    "**,!ab": "a b ac",
    "?": "a b",
    "a*": "a ab ac",
    "a*,!*b": "a ac",
    "a?,b,!?c": "b ab",
    "*,!*": "",
}
"""Watched namespaces as in the setting, and those of the test that they select."""


def test_the_watched_namespaces_are_selected(loki: Target, namespace: str, at_ns: int) -> None:
    names = ["a", "b", "ab", "ac", "kube-system", "konductor-like", "dmesg-logging"]
    lines = [
        ({"k8s_namespace_name": name, "run": namespace}, [[str(at_ns + second), name]])
        for second, name in enumerate(names)
    ]
    loki.push(*lines, ({"run": namespace}, [[str(at_ns), "a line without a namespace"]]))

    def selected(watched: str) -> str:
        settings = Settings(watched_namespaces=watched, extra_matchers=f'run="{namespace}"')
        return " ".join(loki.query_range(pod_query(settings, [""]) or "", *around(at_ns)).texts)

    assert {watched: selected(watched) for watched in WATCHED} == WATCHED


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        pytest.param('| k8s_node_name=~"[ab]|i"', "abi", id="an expression"),
        pytest.param('| k8s_node_name!~"[ab]"', "ix", id="an expression excluded; a missing one differs"),
        pytest.param('| k8s_node_name=~"^$"', "x", id="missing"),
        pytest.param('| k8s_node_name=~"^$|a"', "ax", id="missing, or named"),
        pytest.param('| k8s_node_name!~"^$|a"', "bi", id="neither missing nor named"),
        pytest.param('| k8s_node_name=~".+" | k8s_node_name!~"a"', "bi", id="two filters"),
        pytest.param('|= `line` | k8s_node_name=~"b"', "b", id="after a line filter"),
    ],
)
def test_label_filters_see_index_labels_and_metadata_alike(
    loki: Target, namespace: str, at_ns: int, rest: str, found: str
) -> None:
    loki.write(kernel_resource(namespace, "a"), (at_ns, "line a"))
    loki.write(kernel_resource(namespace, "b"), (at_ns + 1, "line b"))
    index = {"k8s_namespace_name": namespace, "k8s_node_name": "i"}
    loki.push((index, [[str(at_ns + 2), "line i"]]))
    loki.push(({"k8s_namespace_name": namespace}, [[str(at_ns + 3), "line x"]]))

    texts = loki.query_range(of(namespace, rest), *around(at_ns)).texts

    assert texts == [f"line {name}" for name in found]


NO_SELECTOR = (
    "queries require at least one regexp or equality matcher that does not have an empty-compatible value. "
    'For instance, app=~".*" does not meet this requirement, but app=~".+" will'
)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ('{a="x"', ""),
        ('{a="x"} |= `b` or', ""),
        ('{a="x"} |= "\\d"', ""),
        ('{a=~"("}', ": error parsing regexp: missing "),
        ('{a="x"} | b=~`(?=c)`', ": error parsing regexp: invalid "),
        ('{a=~".*"}', f": {NO_SELECTOR}"),
    ],
)
def test_a_bad_query_is_refused_in_plain_text(loki: Target, at_ns: int, query: str, error: str) -> None:
    answer = loki.query_range(query, *around(at_ns))

    assert (answer.status, answer.content_type) == (400, PLAIN)
    assert answer.text.startswith(f"parse error {error}")


# Counting


def test_a_count_has_its_end_and_not_its_start(loki: Target, namespace: str, at_ns: int) -> None:
    loki.write(kernel_resource(namespace, "a"), (at_ns, XID), (at_ns + 5 * SECOND_NS, XID), (at_ns, "other"))
    loki.write(kernel_resource(namespace, "b"), (at_ns, XID))

    def count(milliseconds: int, at: int, of_nodes: str = "") -> list[Any]:
        lines = f"{of(namespace, '|= `Xid`')}{of_nodes}"
        data = loki.query(f"sum(count_over_time({lines} [{milliseconds}ms]))", time=at).data
        assert data["resultType"] == "vector"
        return [series["value"][1] for series in data["result"]]

    assert count(5000, at_ns) == ["2"]
    assert count(5000, at_ns + 5 * SECOND_NS) == ["1"]
    assert count(5001, at_ns + 5 * SECOND_NS) == ["3"]
    assert count(5000, at_ns, ' | k8s_node_name=~"b"') == ["1"]
    assert count(5000, at_ns - 1) == []


# Tenants


def test_tenants_do_not_see_each_others_lines(at_ns: int) -> None:
    """Only with the stand-in, which has ``auth_enabled``; a real Loki of the contract suite has not."""
    with LokiServer(auth_enabled=True) as server:
        ours, others, nobody, both = (
            Target(server.url, server, {"X-Scope-OrgID": tenant} if tenant else {})
            for tenant in ("gpu-team", "other", "", "gpu-team|other")
        )
        ours.write(kernel_resource("dmesg-logging", "a"), (at_ns, XID))
        found = [one.query_range(of("dmesg-logging"), *around(at_ns)) for one in (ours, others, nobody, both)]

    assert [found[0].texts, found[1].texts] == [[XID], []]
    assert found[2].refusal == (401, PLAIN, "no org id\n")
    assert (found[3].status, found[3].text) == (500, "multiple org IDs present")


# Volume


def test_the_volume_counts_the_bytes_of_streams_by_a_label_the_most_first(
    loki: Target, namespace: str, at_ns: int
) -> None:
    counts = {"small": 10, "large": 30, "other": 50}
    loki.push(
        *(
            (
                {"k8s_namespace_name": name, "run": namespace},
                [[str(at_ns + number), f"{number:1000}"] for number in range(count)],
            )
            for name, count in counts.items()
        )
    )

    def volume(query: str, end_ns: int = at_ns + 60 * SECOND_NS, **more: str) -> Answer:
        asked = {"query": query, "start": str(at_ns - SECOND_NS), "end": str(end_ns), **more}
        path = "/loki/api/v1/index/volume"
        return loki.send("GET", path, {**asked, "targetLabels": "k8s_namespace_name"})

    found = volume(f'{{run="{namespace}", k8s_namespace_name=~".+", k8s_namespace_name!~"other"}}').data
    sizes = [(one["metric"]["k8s_namespace_name"], int(one["value"][1])) for one in found["result"]]

    assert found["resultType"] == "vector"
    assert [name for name, _ in sizes] == ["large", "small"]
    assert [round(size / 1000) for _, size in sizes] == [30, 10]
    assert len(volume(f'{{run="{namespace}"}}', limit="1").data["result"]) == 1
    assert volume('{a="x"} |= "b"').refusal == (400, PLAIN, "only label matchers are supported")
    backwards = (400, PLAIN, "end timestamp must not be before or equal to start time")
    assert volume('{a="x"}', at_ns - 2 * SECOND_NS).refusal == backwards
