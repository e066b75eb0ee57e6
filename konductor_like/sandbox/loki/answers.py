"""Answers in Loki's JSON (source: pkg/util/marshal; bodies seen on a real Loki)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from konductor_like.sandbox.loki.engine import Hit, Work
from konductor_like.sandbox.loki.labels import Labels, written
from konductor_like.sandbox.wire import Reply

Points = Mapping[Labels, list[tuple[int, float]]]
_MILLISECOND_NS = 10**6
_ESCAPED = ((b"<", rb"\u003c"), (b">", rb"\u003e"), (b"&", rb"\u0026"))


def reply(value: object) -> Reply:
    """An answer over HTTP, with the escapes that Go's JSON has in strings."""
    plain = Reply.of_json(value)
    body = plain.body
    for character, escaped in _ESCAPED:
        body = body.replace(character, escaped)
    return Reply(200, body, "application/json; charset=UTF-8")


def streams(hits: Iterable[Hit], categorize: bool) -> list[dict[str, object]]:
    """Lines by their labels; streams in the order of their text, lines in the order given.

    Metadata is merged into the labels, so that every new value of ``observed_timestamp`` splits a stream;
    with ``categorize`` it comes as a third element of each line instead.
    """
    grouped: dict[Labels, list[list[object]]] = defaultdict(list)
    for hit in hits:
        value: list[object] = [str(hit.timestamp_ns), hit.line]
        if categorize:
            value.append({"structuredMetadata": dict(hit.metadata)} if hit.metadata else {})
        labels = hit.stream if categorize else tuple(sorted((*hit.stream, *hit.metadata)))
        grouped[labels].append(value)
    return [{"stream": dict(labels), "values": grouped[labels]} for labels in sorted(grouped, key=written)]


def log_answer(hits: list[Hit], categorize: bool, work: Work) -> dict[str, object]:
    """The answer to a log query."""
    data: dict[str, object] = {"resultType": "streams"}
    if categorize:
        data["encodingFlags"] = ["categorize-labels"]
    data["result"] = streams(hits, categorize)
    data["stats"] = stats(work, len(hits))
    return success(data)


def metric_answer(points: Points, instant: bool, work: Work) -> dict[str, object]:
    """The answer to a metric query: a vector at one instant, a matrix over a range."""
    result: list[dict[str, object]] = []
    for labels, values in points.items():
        samples = [[_seconds(at), _number(value)] for at, value in values]
        shown = {"value": samples[0]} if instant else {"values": samples}
        result.append({"metric": dict(labels), **shown})
    kind = "vector" if instant else "matrix"
    return success({"resultType": kind, "result": result, "stats": stats(work, len(points))})


def success(data: object) -> dict[str, object]:
    """The envelope; an empty list of names is left out, as Loki does."""
    return {"status": "success"} if data == [] else {"status": "success", "data": data}


def stats(work: Work, returned: int) -> dict[str, object]:
    """The statistics of one query. All of it is counted as read from the ingester's memory."""
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
        },
        "querier": {"store": _store_stats(Work()), "querierExecTime": 0.001},
        "ingester": {
            "totalReached": 1,
            "totalChunksMatched": 1 if work.lines else 0,
            "totalBatches": 1,
            "totalLinesSent": returned,
            "store": _store_stats(work),
            "recvWaitTime": 0,
        },
        "cache": {name: dict.fromkeys(_CACHE_COUNTERS, 0) for name in _CACHES},
        "index": {"totalChunks": 0, "postFilterChunks": 0, "shardsDuration": 0, "usedBloomFilters": False},
    }


_CACHES = (
    "chunk",
    "index",
    "result",
    "statsResult",
    "volumeResult",
    "seriesResult",
    "labelResult",
    "logResult",
)
_CACHE_COUNTERS = (
    *("entriesFound", "entriesRequested", "entriesStored", "bytesReceived"),
    *("bytesSent", "requests", "downloadTime", "queryLengthServed"),
)


def _store_stats(work: Work) -> dict[str, object]:
    return {
        "totalChunksRef": 0,
        "totalChunksDownloaded": 0,
        "chunksDownloadTime": 0,
        "queryReferencedStructuredMetadata": False,
        "chunk": {
            "headChunkBytes": work.bytes,
            "headChunkLines": work.lines,
            "decompressedBytes": 0,
            "decompressedLines": 0,
            "compressedBytes": 0,
            "totalDuplicates": 0,
            "postFilterLines": work.post_filter_lines,
            "headChunkStructuredMetadataBytes": work.metadata_bytes,
            "decompressedStructuredMetadataBytes": 0,
        },
        "chunkRefsFetchTime": 0,
    }


def _seconds(time_ns: int) -> int | float:
    milliseconds = time_ns // _MILLISECOND_NS
    return milliseconds / 1000 if milliseconds % 1000 else milliseconds // 1000


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
