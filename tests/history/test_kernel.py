"""The kernel log of a case: only the node's own, whatever Loki answers."""

from __future__ import annotations

from konductor_like.detection.detector import packaged
from konductor_like.history.kernel import KernelReader, KernelSpan
from konductor_like.loki.query.response import Count, Entry, QueryResult
from konductor_like.loki.query.window_query import ByteBudget, TimeWindow
from konductor_like.settings import Settings
from tests.backtest.histories import KERNEL, POD, START_NS

NODE = {"k8s_node_name": "gpu-1"}


class AnswersAnything:
    """A Loki, or a proxy before it, that does not look at the query."""

    def query_range(self, _query: str, start_ns: int, _end_ns: int, limit: int) -> QueryResult:
        entries = (
            Entry(start_ns, "the node's own", {**KERNEL, **NODE}),
            Entry(start_ns, "of a pod", {**POD, **NODE}),
            Entry(start_ns, "of another node", {**KERNEL, "k8s_node_name": "gpu-2"}),
        )
        return QueryResult(entries, None, 0, limit, 1)

    def count(self, *_: object) -> Count:
        raise AssertionError("nothing here is sharded")


def test_a_line_of_a_pod_or_of_another_node_is_left_out_whatever_loki_answers() -> None:
    settings, budget = Settings(log_endpoint="http://loki"), ByteBudget(2**30)
    reader = KernelReader(AnswersAnything(), settings, packaged(), budget, pause=lambda _: None)

    reading = reader.read("gpu-1", [KernelSpan(TimeWindow(START_NS, START_NS + 10**9), whole=True)])

    assert [line.text for line in reading.lines] == ["the node's own"]
