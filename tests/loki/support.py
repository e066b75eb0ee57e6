"""Helpers for the tests of reading from Loki: settings, entries, answers, and a Loki in memory."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from konductor_like.loki.query.client import LokiClient, retrying
from konductor_like.loki.query.errors import LokiError, LokiRefused, LokiTimeout
from konductor_like.loki.query.response import Count, Entry, QueryResult
from konductor_like.loki.query.window_query import COUNTABLE_NS, TimeWindow
from konductor_like.loki.readers.poll import PollResult
from konductor_like.loki.readers.source import SourceReader
from konductor_like.model import Source
from konductor_like.settings import Settings

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
OVERLAP, LATENESS, SKEW, SWEEP = 180 * SECOND, HOUR, 600 * SECOND, 120 * SECOND
"""The kernel source's config by the default settings."""
NOW = 1_795_240_000 * SECOND
ENDPOINT = "http://loki.test:3100"
ENTRY_BYTES = 400
"""Bytes of labels and metadata per line in an answer of the Loki in memory."""
QUERY = '{k8s_namespace_name="dmesg-logging", k8s_container_name="dmesg"} |= "NVRM" or "SXid"'


def settings(**values: Any) -> Settings:
    """Return settings with these values only; a fixture has cleared the environment."""
    return Settings(**{"log_endpoint": ENDPOINT, **values})


def kernel_labels(node: str | None = "gpu-a", **more: str) -> dict[str, str]:
    """Return the labels of a line of the kernel-log reader's pod on that node."""
    labels = {"k8s_namespace_name": "dmesg-logging", "k8s_container_name": "dmesg"}
    if node is not None:
        labels |= {"k8s_node_name": node, "k8s_pod_name": f"dmesg-{node}"}
    return labels | more


def entry(timestamp_ns: int, text: str = "NVRM: something", node: str | None = "gpu-a", **more: str) -> Entry:
    """Return a kernel line as Loki returns it."""
    return Entry(timestamp_ns, text, kernel_labels(node, **more))


def answer(
    streams: Iterable[tuple[dict[str, str], list[list[Any]]]] = (),
    *,
    post_filter_lines: int | None = None,
    bytes_processed: int = 291,
) -> dict[str, Any]:
    """Return the JSON of a ``query_range`` answer, in Loki's form."""
    result = [{"stream": labels, "values": values} for labels, values in streams]
    returned = sum(len(stream["values"]) for stream in result)
    summary = {
        "bytesProcessedPerSecond": 64_591,
        "totalBytesProcessed": bytes_processed,
        "totalLinesProcessed": returned,
        "totalEntriesReturned": returned,
        "totalPostFilterLines": returned if post_filter_lines is None else post_filter_lines,
    }
    data = {"resultType": "streams", "result": result, "stats": {"summary": summary, "querier": {}}}
    return {"status": "success", "data": data}


def answer_bytes(*args: Any, **kwargs: Any) -> bytes:
    return json.dumps(answer(*args, **kwargs)).encode()


@dataclass(frozen=True)
class Call:
    """One query that the Loki in memory received."""

    start_ns: int
    end_ns: int
    limit: int


@dataclass
class MemoryLoki:
    """Answers any query out of a list, cut at the limit as a single unsharded Loki does.

    A query with a label filter gets the lines of those nodes, or of all others.
    """

    entries: list[Entry] = field(default_factory=list)
    allowed_limit: int = 5000
    counts: bool = True
    """Whether answers carry Loki's own count of matching lines."""
    calls: list[Call] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    counted: list[TimeWindow] = field(default_factory=list)
    """The spans of counting queries."""
    shards: int | None = None
    """The number of shards that its answers report."""
    overcount: int = 0
    """By how much the answers' count of matching lines is too high."""
    message_bytes: int = 4 * 2**20
    """Bytes above which an answer is refused, as by a Loki with its defaults."""
    too_large: LokiError = field(default_factory=lambda: LokiTimeout("no answer"))
    """The error for an answer that is too large."""
    failures: list[LokiError] = field(default_factory=list)
    """Errors that the next calls raise, one each."""
    refuse: Callable[[Call], LokiError | None] = lambda _call: None
    """Whether a call fails for good."""
    _entries: list[Entry] = field(default_factory=list)
    """The entries that :attr:`_by_time` has in their order, and :attr:`_times_ns` their times."""
    _by_time: list[Entry] = field(default_factory=list)
    _times_ns: list[int] = field(default_factory=list)

    def count(self, query: str, start_ns: int, end_ns: int) -> Count:
        """As the client's."""
        assert (end_ns - start_ns) % COUNTABLE_NS == 0
        matching = self._matching(query, start_ns, end_ns)
        self.counted.append(TimeWindow(start_ns, end_ns))
        return Count(len(matching), 100 * len(matching))

    def _matching(self, query: str, start_ns: int, end_ns: int) -> list[Entry]:
        """Return the lines of the span, of the nodes that the query selects."""
        assert start_ns < end_ns
        nodes = query.partition(" | k8s_node_name")[2]
        wanted = nodes[:2] != "!~"
        pattern = re.compile(json.loads(nodes[2:]) if nodes else ".*")
        if self._entries is not self.entries or len(self._times_ns) != len(self.entries):
            self._entries = self.entries
            self._by_time = sorted(self.entries, key=lambda entry: entry.timestamp_ns)
            self._times_ns = [entry.timestamp_ns for entry in self._by_time]
        span = self._by_time[bisect_left(self._times_ns, start_ns) : bisect_left(self._times_ns, end_ns)]
        names = {entry.labels.get("k8s_node_name", "") for entry in span}
        matching = {name for name in names if (pattern.fullmatch(name) is not None) == wanted}
        return [entry for entry in span if entry.labels.get("k8s_node_name", "") in matching]

    def query_range(self, query: str, start_ns: int, end_ns: int, limit: int) -> QueryResult:
        """As the client's."""
        call = Call(start_ns, end_ns, limit)
        self.calls.append(call)
        self.queries.append(query)
        if self.failures:
            raise self.failures.pop(0)
        if (refusal := self.refuse(call)) is not None:
            raise refusal
        if limit > self.allowed_limit:
            words = (
                "max entries limit per query exceeded, limit > max_entries_limit_per_query "
                f"({limit} > {self.allowed_limit})"
            )
            raise LokiRefused(words)
        matching = self._matching(query, start_ns, end_ns)
        answer_bytes = sum(len(entry.text.encode()) + ENTRY_BYTES for entry in matching[:limit])
        if answer_bytes > self.message_bytes:
            raise self.too_large
        return QueryResult(
            tuple(matching[:limit]),
            len(matching) + self.overcount if self.counts else None,
            100 * len(matching),
            limit,
            self.shards,
            answer_bytes,
        )


def start_reader(loki: MemoryLoki, cursor_ns: int = NOW, **values: Any) -> SourceReader:
    """Return a reader of kernel lines that has read nothing yet."""
    return SourceReader(Source.KERNEL, loki, QUERY, settings(**values), cursor_ns)


def cursor_of(reader: SourceReader) -> int:
    """Return the cursor: everything before it was read and committed."""
    return reader._state.cursor_ns


def steady_reader(loki: MemoryLoki, **values: Any) -> SourceReader:
    """Return a reader that has finished its first sweep at NOW."""
    reader = start_reader(loki, **values)
    while poll(reader, NOW).more:
        pass
    loki.calls.clear()
    return reader


def poll(reader: SourceReader, now_ns: int) -> PollResult:
    """Poll and commit, as after acting on everything in the batch."""
    batch = reader.poll(now_ns)
    reader.commit(batch)
    return batch


def texts_of(batch: PollResult) -> list[str]:
    """Return the texts that were delivered."""
    return [line.text for line in batch.lines]


def client_of(endpoint: str = ENDPOINT, **values: Any) -> LokiClient:
    """Return a client that never repeats a query."""
    return LokiClient(settings(log_endpoint=endpoint, **values), retrying(attempts=1))


def ask(client: LokiClient, query: str = QUERY) -> Any:
    with closing(client):
        return client.query_range(query, NOW, NOW + SECOND, 5000)
