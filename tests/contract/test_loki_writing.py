"""The behaviour that pushes to Loki rely on: labels from OTLP, metadata, duplicates, refusals."""

from __future__ import annotations

import time

import pytest

from konductor_like_sandbox.loki import LokiLimits, LokiServer, otlp_record
from tests.contract.loki_target import (
    HOUR_NS,
    MINUTE_NS,
    SECOND_NS,
    XID,
    Answer,
    Target,
    around,
    kernel_resource,
    of,
)

PROTOBUF = "application/octet-stream"


# Labels


def test_attributes_of_the_collector_become_labels(loki: Target, namespace: str, at_ns: int) -> None:
    resource = kernel_resource(namespace, "gpu-7", k8s_daemonset_name="dmesg")
    loki.push_otlp(
        resource,
        [otlp_record(XID, at_ns, at_ns + 5, {"log.iostream": "stdout", "log.file.path": "/a/0.log"})],
    )

    assert loki.query_range(of(namespace), *around(at_ns)).streams == [
        {
            "detected_level": "unknown",
            "k8s_container_name": "dmesg",
            "k8s_daemonset_name": "dmesg",
            "k8s_namespace_name": namespace,
            "k8s_node_name": "gpu-7",
            "k8s_pod_name": "dmesg-gpu-7",
            "log_file_path": "/a/0.log",
            "log_iostream": "stdout",
            "observed_timestamp": str(at_ns + 5),
            "service_name": "dmesg",
        }
    ]


def test_the_node_is_no_index_label_unless_it_is_promoted(loki: Target, namespace: str, at_ns: int) -> None:
    loki.write(kernel_resource(namespace, "gpu-7"), (at_ns, XID))
    start, end = around(at_ns)

    names = loki.get("/loki/api/v1/labels", query=of(namespace), start=start, end=end).data

    if loki.is_real and "k8s_node_name" in names:
        pytest.skip("this Loki promotes k8s.node.name")
    assert names == ["k8s_container_name", "k8s_namespace_name", "k8s_pod_name", "service_name"]


def test_a_promoted_node_is_an_index_label(loki: Target, at_ns: int) -> None:
    if loki.is_real:
        pytest.skip("needs a Loki that promotes k8s.node.name")
    with LokiServer(limits=LokiLimits(promoted_attributes=frozenset({"k8s.node.name"}))) as server:
        promoting = Target(server.url, server)
        promoting.write(kernel_resource("any", "gpu-7"), (at_ns, XID), observed=False)
        found = promoting.query_range('{k8s_node_name="gpu-7"}', *around(at_ns))

    assert found.texts == [XID]
    assert found.streams[0]["k8s_node_name"] == "gpu-7"


def test_early_lines_lack_what_the_collector_has_not_looked_up_yet(
    loki: Target, namespace: str, at_ns: int
) -> None:
    """Rule 12: selectors use labels from the file's path."""
    loki.write(kernel_resource(namespace, "a"), (at_ns, "early"))
    loki.write(kernel_resource(namespace, "a", k8s_daemonset_name="dmesg"), (at_ns + 1, "later"))

    by_path = f'{{k8s_namespace_name="{namespace}", k8s_container_name="dmesg"}}'
    by_lookup = f'{{k8s_namespace_name="{namespace}", k8s_daemonset_name="dmesg"}}'

    assert loki.query_range(by_path, *around(at_ns)).texts == ["early", "later"]
    assert loki.query_range(by_lookup, *around(at_ns)).texts == ["later"]


def test_the_observed_time_makes_each_line_a_stream_of_its_own(
    loki: Target, namespace: str, at_ns: int
) -> None:
    loki.write(kernel_resource(namespace, "a"), (at_ns, "one"), (at_ns + 1, "two"))
    loki.write(kernel_resource(namespace, "b"), (at_ns, "one"), (at_ns + 1, "two"), observed=False)

    streams = loki.query_range(of(namespace), *around(at_ns)).data["result"]

    assert [len(stream["values"]) for stream in streams] == [1, 1, 2]
    assert [stream["stream"]["k8s_node_name"] for stream in streams] == ["a", "a", "b"]
    assert "observed_timestamp" not in streams[2]["stream"]


# Lines


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("pid='<unknown>', name=<unknown> & more", id="escaped by Go's JSON"),
        pytest.param("GPU überhitzt — 96 °C €", id="beyond ASCII"),
        pytest.param("a\0b\x1b[31m\ttab", id="control characters"),
        pytest.param('{"level":"error","msg":"\\"quoted\\""}', id="JSON in a line"),
        pytest.param("x" * 200_000, id="200 kB"),
        pytest.param("[1.000000] first\n second", id="two lines in one"),
    ],
)
def test_a_line_comes_out_as_it_went_in(loki: Target, namespace: str, at_ns: int, text: str) -> None:
    loki.write(kernel_resource(namespace, "a"), (at_ns, text))

    assert loki.query_range(of(namespace), *around(at_ns)).texts == [text]


def test_a_line_sent_twice_is_stored_once(loki: Target, namespace: str, at_ns: int) -> None:
    for _ in range(2):
        loki.write(kernel_resource(namespace, "a"), (at_ns, XID), (at_ns + 1, XID))

    assert loki.query_range(of(namespace), *around(at_ns)).lines == [(at_ns, XID), (at_ns + 1, XID)]


def test_equal_lines_of_two_nodes_are_two_lines(loki: Target, namespace: str, at_ns: int) -> None:
    for node in ("a", "b"):
        loki.write(kernel_resource(namespace, node), (at_ns, XID))

    nodes = {labels["k8s_node_name"] for labels in loki.query_range(of(namespace), *around(at_ns)).streams}

    assert nodes == {"a", "b"}


def test_late_lines_are_taken_into_a_stream_out_of_order(loki: Target) -> None:
    namespace, now_ns = loki.namespace(), time.time_ns()
    loki.write(kernel_resource(namespace, "a"), (now_ns, "newest"))
    loki.write(kernel_resource(namespace, "a"), (now_ns - 50 * MINUTE_NS, "late"))

    assert loki.query_range(of(namespace), now_ns - HOUR_NS, now_ns + 1).texts == ["late", "newest"]


# Refusals


def refused(answer: Answer, *words: str) -> bool:
    return answer.status == 400 and all(word in answer.text for word in words)


def test_a_line_more_than_an_hour_behind_its_stream_is_refused_and_the_good_ones_kept(loki: Target) -> None:
    namespace, now_ns = loki.namespace(), time.time_ns()
    behind = now_ns - 2 * HOUR_NS
    records = [
        otlp_record("newest", now_ns),
        otlp_record("behind", behind),
        otlp_record("good", now_ns - SECOND_NS),
    ]

    answer = loki.push_otlp(kernel_resource(namespace, "a"), records)

    assert answer.content_type == PROTOBUF
    assert refused(answer, "reason: 'entry too far behind", "total ignored: 1 out of 3 for stream: {")
    stored = loki.query_range(of(namespace), now_ns - 3 * HOUR_NS, now_ns + 1)
    assert stored.texts == ["good", "newest"]
