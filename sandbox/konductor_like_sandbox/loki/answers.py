"""Answers in Loki's JSON (source: pkg/util/marshal; bodies seen on a real Loki)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from konductor_like_sandbox.http import Reply
from konductor_like_sandbox.loki.engine import Hit, Work
from konductor_like_sandbox.loki.labels import Labels, written

_MILLISECOND_NS = 10**6
_ESCAPED = ((b"<", rb"\u003c"), (b">", rb"\u003e"), (b"&", rb"\u0026"))


def streams(hits: Iterable[Hit], categorize: bool) -> list[dict[str, object]]:
    """Group lines by their labels: streams in the order of their text, lines in the given order.

    Metadata is merged into the labels, so that every new value of ``observed_timestamp`` splits a stream;
    with ``categorize`` each line has its metadata as a third element instead.
    """
    grouped: dict[Labels, list[list[object]]] = defaultdict(list)
    for hit in hits:
        value: list[object] = [str(hit.timestamp_ns), hit.line]
        if categorize:
            value.append({"structuredMetadata": dict(hit.metadata)} if hit.metadata else {})
        labels = hit.stream if categorize else tuple(sorted((*hit.stream, *hit.metadata)))
        grouped[labels].append(value)
    return [{"stream": dict(labels), "values": grouped[labels]} for labels in sorted(grouped, key=written)]


def log_answer(hits: list[Hit], categorize: bool, work: Work) -> Reply:
    """Return the answer to a log query."""
    data: dict[str, object] = {"resultType": "streams"}
    if categorize:
        data["encodingFlags"] = ["categorize-labels"]
    return success({**data, "result": streams(hits, categorize), "stats": _stats(work, len(hits))})


def count_answer(count: int, at_ns: int, work: Work) -> Reply:
    """Return the answer to a count: a vector of one sample, or of none if nothing was counted."""
    milliseconds = at_ns // _MILLISECOND_NS
    seconds = milliseconds / 1000 if milliseconds % 1000 else milliseconds // 1000
    result = [{"metric": {}, "value": [seconds, str(count)]}] if count else []
    return success({"resultType": "vector", "result": result, "stats": _stats(work, len(result))})


def volume_answer(label: str, volumes: Iterable[tuple[str, int]], end_ns: int) -> Reply:
    """Return the bytes by the value of a label: a vector of one sample for each."""
    seconds = end_ns // 10**9
    result = [{"metric": {label: value}, "value": [seconds, str(size)]} for value, size in volumes]
    return success({"resultType": "vector", "result": result, "stats": _stats(Work(), len(result))})


def success(data: object) -> Reply:
    """Return the envelope, with strings escaped as in Go's JSON. An empty list of names is left out."""
    envelope = {"status": "success"} if data == [] else {"status": "success", "data": data}
    body = Reply.of_json(envelope).body
    for character, escaped in _ESCAPED:
        body = body.replace(character, escaped)
    return Reply(200, body, "application/json; charset=UTF-8")


def _stats(work: Work, returned: int) -> dict[str, object]:
    """Return the summary of the statistics. A real Loki also reports where it read the lines."""
    return {
        "summary": {
            "bytesProcessedPerSecond": work.bytes * 1000,
            "linesProcessedPerSecond": work.lines * 1000,
            "totalBytesProcessed": work.bytes,
            "totalLinesProcessed": work.lines,
            "execTime": 0.001,
            "queueTime": 0.0001,
            "subqueries": 0,
            "totalEntriesReturned": returned,
            "splits": 0,
            "shards": work.shards,
            "totalPostFilterLines": work.post_filter_lines,
            "totalStructuredMetadataBytesProcessed": work.metadata_bytes,
        }
    }
