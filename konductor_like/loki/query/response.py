"""Reading Loki's JSON into log lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from pydantic_core import from_json

from konductor_like.catalog.patterns import fits_whole
from konductor_like.detection.entry import has_newline, kernel_lines
from konductor_like.loki.query.logql import kernel_matchers
from konductor_like.model import LogLine, Source
from konductor_like.selectors import Matcher
from konductor_like.settings import Settings

TEXT_CHARS = 32_768
"""Characters of a line that are kept, its start and its end: each may take four bytes of memory."""
CUT = "…"
"""Replaces the middle of a longer line."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_WRONG_SHAPE = (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError)


class NotLokisAnswerError(Exception):
    """The body is not the answer to a log query; the message says what it is."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line as Loki returned it; ``labels`` are stream labels and structured metadata together."""

    timestamp_ns: int
    text: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer to one query.

    ``post_filter_lines`` is Loki's own count of matching lines, or None where Loki did not count. It is never
    too low, but may be far too high: Loki counts replicas, and all lines of each stored block that the window
    touches. ``limit`` is the number of entries that the query asked for. ``shards`` is the number of queries
    into which Loki split this one, or None where Loki does not report it.
    """

    entries: tuple[Entry, ...]
    post_filter_lines: int | None
    bytes_processed: int
    limit: int
    shards: int | None = None
    answer_bytes: int = 0
    """Bytes of the answer as received; 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class Count:
    """The answer to one counting query."""

    lines: int
    bytes_processed: int


def log_line(entry: Entry, source: Source, settings: Settings) -> LogLine | None:
    """Return the entry as a line of ``source``, or None when its labels belong to the other source (rule 15).

    A kernel line must fit the kernel selector, whatever the query was; a pod line must not, so that the
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
        # A pod's labels name its job. A kernel line's labels would take ten times the memory of its text.
        labels=labels if source is Source.POD else NO_LABELS,
        node=labels.get(settings.node_label) or None,
        namespace=labels.get(settings.namespace_label) or None,
        pod=labels.get(settings.pod_label) or None,
        container=labels.get(settings.container_label) or None,
    )


def records_in(line: LogLine) -> Iterable[LogLine]:
    """Return the records of the kernel in a line, which is one entry of Loki; a pod's line stays as it is."""
    if line.source is Source.POD or not has_newline(line.text):
        return (line,)
    return [replace(line, text=text) for text in kernel_lines(line.text)]


def log_lines(entries: Iterable[Entry], source: Source, settings: Settings) -> list[LogLine]:
    """Return the entries that are lines of ``source``, oldest first, each record of the kernel alone."""
    found = (log_line(entry, source, settings) for entry in entries)
    lines = (each for line in found if line is not None for each in records_in(line))
    return sorted(lines, key=attrgetter("timestamp_ns"))


def is_kernel_stream(labels: Mapping[str, str], matchers: Iterable[Matcher]) -> bool:
    """Whether ``matchers`` select a stream with these labels; an absent label counts as empty."""
    for matcher in matchers:
        value = labels.get(matcher.name, "")
        fits = value == matcher.value if matcher.op in ("=", "!=") else fits_whole(matcher.value)(value)
        if fits != (matcher.op in ("=", "=~")):
            return False
    return True


def parse(body: bytes | bytearray, limit: int) -> QueryResult:
    """Read the body of a ``query_range`` answer; invalid UTF-8 and raw control characters are accepted.

    Raises NotLokisAnswerError. One entry of a wrong shape fails the whole answer, because an entry that is
    skipped here would be lost silently.
    """
    try:
        streams, counts = _result(body, "streams", "a list of streams")
        entries = tuple(_entries(streams))
    except _WRONG_SHAPE as error:
        raise NotLokisAnswerError("JSON that is not the answer to a log query") from error
    counted = counts.get("totalPostFilterLines", -1)
    # Loki counts matching lines only when the query filters; a count below the entries means that it did not.
    return QueryResult(
        entries,
        counted if counted >= len(entries) else None,
        counts.get("totalBytesProcessed", 0),
        limit,
        counts.get("shards"),
        len(body),
    )


def parse_count(body: bytes | bytearray) -> Count:
    """Read the body of a counting query's answer; without any series the count is 0.

    Raises NotLokisAnswerError.
    """
    try:
        series, counts = _result(body, "vector", "a vector")
        lines = sum(round(float(sample["value"][1])) for sample in series)
    except _WRONG_SHAPE as error:
        raise NotLokisAnswerError("JSON that is not the answer to a counting query") from error
    return Count(lines, counts.get("totalBytesProcessed", 0))


def parse_volume(body: bytes | bytearray, label: str) -> dict[str, int]:
    """Read the body of a volume query's answer: bytes by the values of ``label``.

    Raises NotLokisAnswerError.
    """
    try:
        series, _ = _result(body, "vector", "a vector")
        return {sample["metric"][label]: int(sample["value"][1]) for sample in series}
    except _WRONG_SHAPE as error:
        raise NotLokisAnswerError("JSON that is not the answer to a volume query") from error


def parse_names(body: bytes | bytearray) -> tuple[str, ...]:
    """Read the body of an answer that lists labels or values. Raises NotLokisAnswerError."""
    try:
        answer = from_json(body)
        if answer["status"] != "success":
            raise NotLokisAnswerError("JSON that is not a list of names")
        return tuple(_text(name) for name in answer.get("data") or ())  # without any stream there is no data
    except _WRONG_SHAPE as error:
        raise NotLokisAnswerError("JSON that is not a list of names") from error


def _result(body: bytes | bytearray, result_type: str, wanted: str) -> tuple[list[Any], dict[str, int]]:
    """Return the streams or series of an answer, and the numbers in Loki's summary of the query.

    Pydantic's reader keeps equal strings once; with OTLP's structured metadata most strings of a page are
    equal.
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
    """Read JSON that the strict reader refuses, such as a raw control character in a line."""
    try:
        return json.loads(body.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        start = body.lstrip()[:1]
        if not start:
            found = "an empty body"
        elif start in b"{[":
            found = "truncated JSON"
        else:
            found = "HTML" if start == b"<" else "text that is not JSON"
        raise NotLokisAnswerError(found) from error


def _entries(streams: list[Any]) -> Iterator[Entry]:
    for stream in streams:
        labels = {name: _text(value) for name, value in stream["stream"].items()}
        for value in stream["values"]:
            stamp, text = value[0], _text(value[1])
            if not isinstance(stamp, str) or not stamp.isascii() or not stamp.isdigit() or len(stamp) > 20:
                found = f"an entry with the timestamp {str(stamp)[:40]!r} instead of nanoseconds"
                raise NotLokisAnswerError(found)
            if len(text) > TEXT_CHARS:
                # A line's prefix is at its start, a traceback's last line at its end.
                text = f"{text[: TEXT_CHARS // 2]} {CUT} {text[-TEXT_CHARS // 2 :]}"
            yield Entry(int(stamp), text, {**_metadata(value[2]), **labels} if len(value) > 2 else labels)


def _metadata(extra: Mapping[str, Any]) -> dict[str, str]:
    """Return an entry's structured metadata: flat, or in the two groups of ``categorize-labels``."""
    groups = [extra.get("parsed"), extra.get("structuredMetadata")]
    if any(isinstance(group, dict) for group in groups):
        extra = {name: value for group in groups if group for name, value in group.items()}
    return {name: _text(value) for name, value in extra.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NotLokisAnswerError(f"an entry with {type(value).__name__} instead of text")
    # Half a surrogate pair is valid JSON but can be written nowhere: not to a log, not to the API server.
    return value if value.isascii() else _SURROGATE.sub("�", value)
