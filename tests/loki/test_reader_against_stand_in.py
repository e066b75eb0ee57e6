"""The reader, end to end over HTTP, against the stand-in Loki."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from konductor_like.detection import packaged
from konductor_like.loki.query.client import LokiClient, retrying
from konductor_like.loki.query.logql import heartbeat_query, kernel_query, of_nodes, pod_query
from konductor_like.loki.readers.source import SourceReader
from konductor_like.model import Source
from konductor_like_sandbox.loki import (
    LokiServer,
    shipped,
)
from tests.loki.support import NOW, SECOND, kernel_labels, settings, texts_of

KERNEL_ANCHORS = packaged().anchors(Source.KERNEL)
POD_ANCHORS = packaged().anchors(Source.POD)
QUERY_RANGE = "/loki/api/v1/query_range"


class Bench:
    """A stand-in Loki, a clock that both sides share, and a reader of its kernel lines."""

    def __init__(self) -> None:
        self.now_ns = NOW
        self.loki = LokiServer(now_ns=lambda: self.now_ns)
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
        """Return a reader that starts at that cursor, as after a restart."""
        asked = query or kernel_query(self.settings, KERNEL_ANCHORS)
        return SourceReader(source, self.client, asked, self.settings, cursor_ns)

    def log(self, text: str, node: str = "gpu-a", late_seconds: float = 0.0) -> str:
        """Add a kernel line of that node with its own stamp; return its text."""
        stamp = next(self._stamps)
        line = f"[{1000 + stamp}.000000] NVRM: Xid (PCI:0000:1b:00): {text}"
        when_ns = self.now_ns - int(late_seconds * SECOND) + stamp
        self.loki.push_otlp(shipped(node, [(when_ns, line)]))
        return line

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.now_ns += int(seconds * SECOND)

    def drain(self, reader: SourceReader) -> list[str]:
        """Poll and commit until there is nothing more."""
        texts: list[str] = []
        more = True
        while more:
            batch = reader.poll(self.now_ns)
            texts += texts_of(batch)
            reader.commit(batch)
            more = batch.more
        return texts


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


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


def test_a_journal_entry_whose_message_is_a_list_of_bytes_is_read(bench: Bench) -> None:
    as_bytes = '{"_TRANSPORT":"kernel","MESSAGE":[78,86,82,77,58,1]}'
    bench.loki.push(kernel_labels(), [(NOW + 1, as_bytes), (NOW + 2, as_bytes.replace("MESSAGE", "CURSOR"))])

    assert bench.drain(bench.reader(NOW)) == [as_bytes]


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
