"""Loki's JSON becomes log lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from pydantic_core import from_json

from konductor_like.loki.logql import is_kernel_stream, kernel_matchers
from konductor_like.model import LogLine, Source
from konductor_like.settings import Matcher, Settings

TEXT_CHARS = 32_768
"""Of a longer line the middle is not looked at: each character may take four bytes of memory."""
CUT = "…"
"""Stands for the middle."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class NotLokisAnswerError(ValueError):
    """The body is not a log query's answer; the message says what came instead."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line as Loki gave it; ``labels`` are stream labels and structured metadata together."""

    timestamp_ns: int
    text: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What one query gave.

    ``post_filter_lines`` is Loki's own count of matching lines, never too low; None where Loki did not count.
    It may be far too high: it counts replicas, and all lines of every block that the window touches.
    ``limit`` is the number of entries that was asked for, ``shards`` into how many queries Loki made of this
    one; None where it does not say.
    """

    entries: tuple[Entry, ...]
    post_filter_lines: int | None
    bytes_processed: int
    limit: int
    shards: int | None = None
    answer_bytes: int = 0
    """How large the answer was as it travelled; 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class Count:
    """What one counting query gave."""

    lines: int
    bytes_processed: int


@dataclass(frozen=True, slots=True)
class Naming:
    """Which labels say where a line comes from, taken from the settings once."""

    node: str
    namespace: str
    pod: str
    container: str
    kernel: tuple[Matcher, ...]
    """What a stream must satisfy to be a kernel log."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The names that the settings give."""
        return cls(
            settings.node_label,
            settings.namespace_label,
            settings.pod_label,
            settings.container_label,
            kernel_matchers(settings),
        )


def log_line(entry: Entry, source: Source, naming: Naming) -> LogLine | None:
    """The entry as a line of that source; None when its labels say that it is not one (rule 15).

    A kernel line must satisfy the kernel selector, whatever the query was; a pod line must not, so that the
    kernel-log reader's own output never counts as a pod's.
    """
    labels = entry.labels
    if is_kernel_stream(labels, naming.kernel) != (source is Source.KERNEL):
        return None
    return LogLine(
        source=source,
        timestamp_ns=entry.timestamp_ns,
        text=entry.text,
        # A job is told by a pod's labels. A storm's kernel lines would hold ten times their text in labels.
        labels=labels if source is Source.POD else NO_LABELS,
        node=labels.get(naming.node) or None,
        namespace=labels.get(naming.namespace) or None,
        pod=labels.get(naming.pod) or None,
        container=labels.get(naming.container) or None,
    )


def parse(body: bytes | bytearray, limit: int) -> QueryResult:
    """Read the body of a ``query_range`` answer, tolerating invalid UTF-8 and raw control characters.

    Raises NotLokisAnswerError. Nothing is skipped: one entry of a wrong shape fails the whole answer, because
    a line that is dropped here would be lost without a word.
    """
    with _shaped("log"):
        data = _data(body, "streams", "a list of streams")
        entries = tuple(_entries(data["result"]))
        summary = _summary(data)
        counted = _count(summary, "totalPostFilterLines")
        processed = _count(summary, "totalBytesProcessed")
        shards = _count(summary, "shards")
    # Loki counts matching lines only where the query filters; fewer than it returned means that it did not.
    known = counted is not None and counted >= len(entries)
    return QueryResult(entries, counted if known else None, processed or 0, limit, shards, len(body))


def parse_count(body: bytes | bytearray) -> Count:
    """Read the body of a counting query's answer; no series at all is a count of none.

    Raises NotLokisAnswerError.
    """
    with _shaped("counting"):
        data = _data(body, "vector", "a vector")
        lines = sum(round(float(series["value"][1])) for series in data["result"])
        return Count(lines, _count(_summary(data), "totalBytesProcessed") or 0)


@contextmanager
def _shaped(kind: str) -> Iterator[None]:
    try:
        yield
    except NotLokisAnswerError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        raise NotLokisAnswerError(f"JSON of another shape than a {kind} query's answer") from error


def _data(body: bytes | bytearray, result_type: str, wanted: str) -> Mapping[str, Any]:
    answer = _json(body)
    data: Mapping[str, Any] = answer["data"]
    if answer["status"] != "success" or data["resultType"] != result_type:
        raise NotLokisAnswerError(f"JSON with status {str(answer['status'])[:40]!r}, not {wanted}")
    return data


def _json(body: bytes | bytearray) -> Any:
    """Pydantic's reader makes one string of equal ones, and of a page of lines in OTLP's way most are equal.

    What it refuses, such as a raw control character, the tolerant one may still read.
    """
    try:
        return from_json(body, cache_strings="all")
    except ValueError:
        pass
    try:
        return json.loads(body.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise NotLokisAnswerError(_not_json(body)) from error


def _summary(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return (data.get("stats") or {}).get("summary") or {}


def _count(summary: Mapping[str, Any], name: str) -> int | None:
    value = summary.get(name)
    return value if isinstance(value, int) else None


def _entries(streams: list[Any]) -> Iterator[Entry]:
    for stream in streams:
        labels = _labels(stream["stream"])
        for value in stream["values"]:
            merged = {**_metadata(value[2]), **labels} if len(value) > 2 else labels
            yield Entry(_timestamp(value[0]), cut(_text(value[1])), merged)


def cut(text: str) -> str:
    """The beginning and the end of a very long line: its prefix, and the last line of a traceback."""
    if len(text) <= TEXT_CHARS:
        return text
    return f"{text[: TEXT_CHARS // 2]} {CUT} {text[-TEXT_CHARS // 2 :]}"


def _metadata(extra: Mapping[str, Any]) -> dict[str, str]:
    """The third element of an entry: flat, or in the two groups of the ``categorize-labels`` encoding."""
    groups = [extra.get("parsed"), extra.get("structuredMetadata")]
    if any(isinstance(group, dict) for group in groups):
        return {name: value for group in groups if group for name, value in _labels(group).items()}
    return _labels(extra)


def _labels(raw: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in raw.items()}


def _timestamp(value: Any) -> int:
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or len(value) > 20:
        raise NotLokisAnswerError(f"an entry with the timestamp {str(value)[:40]!r} instead of nanoseconds")
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NotLokisAnswerError(f"an entry with {type(value).__name__} where text belongs")
    # Half a surrogate pair is valid JSON but can be written nowhere: not to a log, not to the API server.
    return value if value.isascii() else _SURROGATE.sub("�", value)


def _not_json(body: bytes | bytearray) -> str:
    start = body.lstrip()[:1]
    if start == b"<":
        return "HTML"
    if not start:
        return "an empty body"
    return "JSON that breaks off" if start in b"{[" else "text that is not JSON"
