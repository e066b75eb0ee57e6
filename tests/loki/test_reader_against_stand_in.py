"""The reader, end to end over HTTP, against the stand-in Loki."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx
import pytest

from konductor_like.detection import packaged
from konductor_like.loki.client import LokiClient, retrying
from konductor_like.loki.logql import heartbeat_query, kernel_query, of_nodes, pod_query
from konductor_like.loki.poll import PollResult
from konductor_like.loki.reader import SourceReader
from konductor_like.model import Source
from konductor_like.sandbox.loki import (
    EMPTY_ANSWER,
    LokiLimits,
    LokiServer,
    otlp_body,
    otlp_record,
    shipped,
)
from tests.loki.support import NOW, SECOND, kernel_labels, settings

KERNEL_ANCHORS = packaged().anchors(Source.KERNEL)
POD_ANCHORS = packaged().anchors(Source.POD)
QUERY_RANGE = "/loki/api/v1/query_range"


class Bench:
    """A stand-in Loki, a clock that both sides share, and a reader of its kernel lines."""

    def __init__(
        self, limits: LokiLimits | None = None, *, auth_enabled: bool = False, base_path: str = ""
    ) -> None:
        self.now_ns = NOW
        self.loki = LokiServer(
            limits=limits or LokiLimits(),
            auth_enabled=auth_enabled,
            base_path=base_path,
            now_ns=lambda: self.now_ns,
        )
        self.loki.start()
        self.settings = settings(log_endpoint=self.loki.url)
        self.client = LokiClient(self.settings, retrying(lambda _seconds: False))
        self._stamps = itertools.count(1)

    def close(self) -> None:
        """End both sides."""
        self.client.close()
        self.loki.stop()

    def reader(
        self, cursor_ns: int, source: Source = Source.KERNEL, query: str | None = None
    ) -> SourceReader:
        """A reader that starts at that cursor, as after a restart."""
        asked = query or kernel_query(self.settings, KERNEL_ANCHORS)
        return SourceReader(source, self.client, asked, self.settings, cursor_ns)

    def log(self, text: str, node: str = "gpu-a", late_seconds: float = 0.0) -> str:
        """A kernel line of that node arrives, with a stamp of its own; returns its text."""
        stamp = next(self._stamps)
        line = f"[{1000 + stamp}.000000] NVRM: Xid (PCI:0000:1b:00): {text}"
        when_ns = self.now_ns - int(late_seconds * SECOND) + stamp
        self.loki.push_otlp(shipped(node, [(when_ns, line)]))
        return line

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.now_ns += int(seconds * SECOND)

    def drain(self, reader: SourceReader) -> list[str]:
        """Poll and commit until nothing more is there."""
        texts: list[str] = []
        more = True
        while more:
            batch = reader.poll(self.now_ns)
            texts += _texts(batch)
            reader.commit(batch)
            more = batch.more
        return texts


def _texts(batch: PollResult) -> list[str]:
    return [line.text for line in batch.lines]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def test_a_flood_beyond_the_limit_is_read_in_full_although_answers_have_holes() -> None:
    bench = Bench(LokiLimits(max_entries_limit_per_query=100, sharded_results_fall_short=True))
    try:
        reader = bench.reader(bench.now_ns)
        bench.drain(reader)
        written = []
        for number in range(1200):
            bench.now_ns += 3_000_000
            written.append(bench.log(f"63, flood {number}", node=f"gpu-{number % 4}"))

        delivered = bench.drain(reader)
        bench.pass_time(1)
        delivered += bench.drain(reader)

        assert sorted(delivered) == sorted(written)
        for node in range(4):
            of_node = [line for line in written if f"flood {node}" in line]
            assert [line for line in delivered if line in of_node] == of_node
        assert reader._query.limit == 100
    finally:
        bench.close()


def test_the_collectors_own_format_is_understood(bench: Bench) -> None:
    resource = {
        "k8s.node.name": "gpu-a",
        "k8s.namespace.name": "dmesg-logging",
        "k8s.pod.name": "dmesg-x",
        "k8s.container.name": "dmesg",
        "k8s.pod.uid": "9d1c2f30-0001",
    }
    lines = [f"[{number}.5] NVRM: Xid (PCI:0000:1b:00): 79, line {number}" for number in range(3)]
    records = [otlp_record(line, NOW + number, NOW + number + 1) for number, line in enumerate(lines)]
    early = {name: value for name, value in resource.items() if name != "k8s.node.name"}
    for attributes, some in ((resource, records[:2]), (early, records[2:])):
        answer = httpx.post(
            f"{bench.loki.url}/otlp/v1/logs", json=otlp_body(attributes, some), trust_env=False
        )
        assert answer.status_code == 204

    batch = bench.reader(bench.now_ns).poll(bench.now_ns)

    assert [(line.text, line.node, line.pod) for line in batch.lines] == [
        (lines[0], "gpu-a", "dmesg-x"),
        (lines[1], "gpu-a", "dmesg-x"),
        (lines[2], None, "dmesg-x"),
    ]
    assert batch.without_node == 1
    assert batch.bytes_processed > 0


def test_each_query_finds_its_own_lines_and_no_others(bench: Bench) -> None:
    kernel = bench.log("79, pid=4021, name=python")
    heartbeat = (
        "kmsg/1 heartbeat boot=0c9fd3be-4f7c-4d0e-bd2f-0a1b2c3d4e5f seq=12 uptime=99.000001 "
        "wall=2026-11-21T05:06:40Z"
    )
    nccl = "trainer-0:71:88 [0] transport/net_ib.cc:101 NCCL WARN NET/IB : Got async event : port error"
    bench.loki.push(
        kernel_labels(), [(NOW + 1, heartbeat), (NOW + 2, "usb 1-1: new device"), (NOW + 3, nccl)]
    )
    for namespace in ("default", "training", "konductor-like", "unwatched"):
        bench.loki.push({"k8s_namespace_name": namespace, "k8s_container_name": "main"}, [(NOW + 4, nccl)])
    watching = settings(watched_namespaces="default,training,dmesg-logging,konductor-like")
    pods = pod_query(watching, POD_ANCHORS)
    assert pods is not None

    assert bench.drain(bench.reader(NOW)) == [kernel]
    assert bench.drain(bench.reader(NOW, query=heartbeat_query(bench.settings))) == [heartbeat]
    found = bench.reader(NOW, Source.POD, pods).poll(NOW)
    assert [line.namespace for line in found.lines] == ["default", "training"]
    assert found.foreign == 1


def test_another_query_is_asked_from_the_next_poll_on_and_looks_back_over_the_overlap(bench: Bench) -> None:
    reader = bench.reader(bench.now_ns)
    bench.loki.push(kernel_labels(), [(bench.now_ns - 120 * SECOND, "mlx5_core: health compromised")], {})
    line = bench.log("79, gone")
    first = reader.poll(bench.now_ns)
    reader.commit(first)
    assert [each.text for each in first.lines] == [line]

    reader.ask_for(kernel_query(bench.settings, (*KERNEL_ANCHORS, "health compromised")))
    bench.pass_time(1)  # no look over the whole overlap would be due
    second = reader.poll(bench.now_ns)

    assert [each.text for each in second.lines] == ["mlx5_core: health compromised"]


def test_lines_are_counted_without_being_fetched(bench: Bench) -> None:
    for number in range(12):
        bench.loki.push(kernel_labels(), [(NOW + number * SECOND, f"NVRM: Xid line {number}")])
    query = kernel_query(bench.settings, KERNEL_ANCHORS)

    assert bench.client.count(query, NOW, NOW + 60 * SECOND).lines == 12
    assert bench.client.count(query, NOW + SECOND, NOW + 4 * SECOND).lines == 3, "start in, end out"
    assert bench.client.count(query, NOW - 60 * SECOND, NOW).lines == 0
    assert bench.client.count(query, NOW, NOW + 60 * SECOND).bytes_processed > 0


@pytest.mark.parametrize("as_metadata", [True, False])
def test_lines_can_be_had_of_some_nodes_or_of_all_others(bench: Bench, as_metadata: bool) -> None:
    for node in ("gpu.a", "gpuxa", "gpu-b", None):
        named = {} if node is None else {"k8s_node_name": node}
        line = (NOW, f"NVRM: of {node}")
        if as_metadata:
            bench.loki.push(kernel_labels(node=None), [line], named)
        else:
            bench.loki.push({**kernel_labels(node=None), **named}, [line])
    query = kernel_query(bench.settings, KERNEL_ANCHORS)

    def of(*nodes: str, without: bool = False) -> list[str]:
        asked = of_nodes(query, "k8s_node_name", nodes, without=without)
        return sorted(entry.text for entry in bench.client.query_range(asked, NOW, NOW + 1, 10).entries)

    assert of("gpu.a") == ["NVRM: of gpu.a"]
    assert of("gpu.a", "gpu-b", without=True) == ["NVRM: of None", "NVRM: of gpuxa"]
    assert of("", without=True) == ["NVRM: of gpu-b", "NVRM: of gpu.a", "NVRM: of gpuxa"]


def test_an_empty_answer_of_a_loki_that_lost_its_ingester_loses_nothing_within_the_overlap(
    bench: Bench,
) -> None:
    reader = bench.reader(bench.now_ns)
    bench.drain(reader)
    bench.pass_time(5)
    line = bench.log("79")
    bench.loki.fail(EMPTY_ANSWER, times=10)
    for _ in range(10):
        assert bench.drain(reader) == []
        bench.pass_time(5)

    assert bench.drain(reader) == [line]
