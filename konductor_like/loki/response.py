"""Loki's JSON becomes log lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from pydantic_core import from_json

from konductor_like.catalog.patterns import fits_whole
from konductor_like.loki.logql import kernel_matchers
from konductor_like.model import LogLine, Source
from konductor_like.settings import Matcher, Settings

TEXT_CHARS = 32_768
"""Of a longer line the middle is not looked at: each character may take four bytes of memory."""
CUT = "…"
"""Stands for the middle."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_WRONG_SHAPE = (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError)


class NotLokisAnswerError(Exception):
    """The body is not a log query's answer; the message says what came instead."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line as Loki gave it; ``labels`` are stream labels and structured metadata together."""

    timestamp_ns: int
    text: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer to one query.

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
    """The answer to one counting query."""

    lines: int
    bytes_processed: int


def log_line(entry: Entry, source: Source, settings: Settings) -> LogLine | None:
    """The entry as a line of that source; None when its labels say that it is not one (rule 15).

    A kernel line must satisfy the kernel selector, whatever the query was; a pod line must not, so that the
    kernel-log reader's own output never counts as a pod's.
    """
    labels = entry.labels
    matchers = kernel_matchers(settings.kernel_selector, settings.extra_matchers)
    if is_kernel_stream(labels, matchers) != (source is Source.KERNEL):
        return None
    return LogLine(
        source=source,
        timestamp_ns=entry.timestamp_ns,
        text=entry.text,
        # A job is told by a pod's labels. A storm's kernel lines would hold ten times their text in labels.
        labels=labels if source is Source.POD else NO_LABELS,
        node=labels.get(settings.node_label) or None,
        namespace=labels.get(settings.namespace_label) or None,
        pod=labels.get(settings.pod_label) or None,
        container=labels.get(settings.container_label) or None,
    )


def log_lines(entries: Iterable[Entry], source: Source, settings: Settings) -> list[LogLine]:
    """Those of the entries that are lines of that source, oldest first."""
    found = (log_line(entry, source, settings) for entry in entries)
    return sorted((line for line in found if line is not None), key=attrgetter("timestamp_ns"))


def is_kernel_stream(labels: Mapping[str, str], matchers: Iterable[Matcher]) -> bool:
    """Whether a stream with these labels is one that ``matchers`` select; an absent label counts as empty."""
    for matcher in matchers:
        value = labels.get(matcher.name, "")
        fits = value == matcher.value if matcher.op in ("=", "!=") else fits_whole(matcher.value)(value)
        if fits != (matcher.op in ("=", "=~")):
            return False
    return True


def parse(body: bytes | bytearray, limit: int) -> QueryResult:
    """Read the body of a ``query_range`` answer, tolerating invalid UTF-8 and raw control characters.

    Raises NotLokisAnswerError. Nothing is skipped: one entry of a wrong shape fails the whole answer, because
    a line that is dropped here would be lost without a word.
    """
    try:
        streams, counts = _result(body, "streams", "a list of streams")
        entries = tuple(_entries(streams))
    except _WRONG_SHAPE as error:
        raise NotLokisAnswerError("JSON of another shape than a log query's answer") from error
    counted = counts.get("totalPostFilterLines", -1)
    # Loki counts matching lines only where the query filters; fewer than it returned means that it did not.
    return QueryResult(
        entries,
        counted if counted >= len(entries) else None,
        counts.get("totalBytesProcessed", 0),
        limit,
        counts.get("shards"),
        len(body),
    )


def parse_count(body: bytes | bytearray) -> Count:
    """Read the body of a counting query's answer; no series at all is a count of none.

    Raises NotLokisAnswerError.
    """
    try:
        series, counts = _result(body, "vector", "a vector")
        lines = sum(round(float(one["value"][1])) for one in series)
    except _WRONG_SHAPE as error:
        raise NotLokisAnswerError("JSON of another shape than a counting query's answer") from error
    return Count(lines, counts.get("totalBytesProcessed", 0))


def _result(body: bytes | bytearray, result_type: str, wanted: str) -> tuple[list[Any], dict[str, int]]:
    """The streams or series of an answer, and the numbers in Loki's summary of the query.

    Pydantic's reader makes one string of equal ones, and of a page of lines in OTLP's way most are equal.
    """
    try:
        answer = from_json(body, cache_strings="all")
    except ValueError:
        answer = _lenient_json(body)
    data = answer["data"]
    if answer["status"] != "success" or data["resultType"] != result_type:
        raise NotLokisAnswerError(f"JSON with status {str(answer['status'])[:40]!r}, not {wanted}")
    summary = (data.get("stats") or {}).get("summary") or {}
    return data["result"], {name: value for name, value in summary.items() if isinstance(value, int)}


def _lenient_json(body: bytes | bytearray) -> Any:
    """JSON that the strict reader refuses, such as a raw control character in a line."""
    try:
        return json.loads(body.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        start = body.lstrip()[:1]
        if not start:
            said = "an empty body"
        elif start in b"{[":
            said = "JSON that breaks off"
        else:
            said = "HTML" if start == b"<" else "text that is not JSON"
        raise NotLokisAnswerError(said) from error


def _entries(streams: list[Any]) -> Iterator[Entry]:
    for stream in streams:
        labels = {name: _text(value) for name, value in stream["stream"].items()}
        for value in stream["values"]:
            stamp, text = value[0], _text(value[1])
            if not isinstance(stamp, str) or not stamp.isascii() or not stamp.isdigit() or len(stamp) > 20:
                said = f"an entry with the timestamp {str(stamp)[:40]!r} instead of nanoseconds"
                raise NotLokisAnswerError(said)
            if len(text) > TEXT_CHARS:
                # Its prefix, and the last line of a traceback.
                text = f"{text[: TEXT_CHARS // 2]} {CUT} {text[-TEXT_CHARS // 2 :]}"
            yield Entry(int(stamp), text, {**_metadata(value[2]), **labels} if len(value) > 2 else labels)


def _metadata(extra: Mapping[str, Any]) -> dict[str, str]:
    """The third element of an entry: flat, or in the two groups of the ``categorize-labels`` encoding."""
    groups = [extra.get("parsed"), extra.get("structuredMetadata")]
    if any(isinstance(group, dict) for group in groups):
        extra = {name: value for group in groups if group for name, value in group.items()}
    return {name: _text(value) for name, value in extra.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NotLokisAnswerError(f"an entry with {type(value).__name__} where text belongs")
    # Half a surrogate pair is valid JSON but can be written nowhere: not to a log, not to the API server.
    return value if value.isascii() else _SURROGATE.sub("�", value)
