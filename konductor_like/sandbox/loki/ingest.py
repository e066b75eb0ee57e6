"""What Loki takes in and what it refuses, in its own words.

A refused line does not harm the good lines of its push: they are stored although the answer is an error.
Sources: pkg/distributor/validator.go, pkg/ingester/stream.go and instance.go; bodies seen on a real Loki.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from konductor_like.sandbox.loki.clock import go_time, rfc3339
from konductor_like.sandbox.loki.labels import SERVICE_NAME, Labels, label_set, normalized, written
from konductor_like.sandbox.loki.levels import DETECTED_LEVEL, detected_level
from konductor_like.sandbox.loki.limits import SECOND_NS, LokiError, LokiLimits
from konductor_like.sandbox.loki.store import Entry, Store, Stream

_MOST_TOLD = 10
"""Loki names so many refused lines of a stream (``max_returned_stream_errors``) and counts the rest."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The lines of one push for one stream, as the sender gave them."""

    labels: Labels
    entries: list[Entry]


def ingest(store: Store, pushed: Iterable[Pushed], limits: LokiLimits, now_ns: int, tenant: str) -> None:
    """Store what may be stored. Raises ``LokiError`` if any line was refused.

    As in Loki, of several streams with lines too far behind only the last stream is told of, and none at all
    if the last stream of the push was fine.
    """
    streams = list(pushed)
    if not streams:
        raise LokiError(422, "error at least one valid stream is required for ingestion")
    refusals: Counter[str] = Counter()
    behind: str | None = None
    with store.lock:
        for one in streams:
            accepted = _accepted(one, limits, now_ns, refusals)
            if accepted:
                behind = _append(store, store.stream(one.labels), accepted, limits, tenant)
    if behind:
        raise LokiError(400, behind)
    if refusals:
        raise LokiError(400, _grouped(refusals))


def _accepted(pushed: Pushed, limits: LokiLimits, now_ns: int, refusals: Counter[str]) -> list[Entry]:
    stream = written(pushed.labels)
    names = sum(name != SERVICE_NAME for name, _value in pushed.labels)
    if names > limits.max_label_names_per_series:
        most = limits.max_label_names_per_series
        refusals[f"entry for stream '{stream}' has {names} label names; limit {most}"] += 1
        return []
    accepted = []
    for entry in pushed.entries:
        refusal = _refusal(entry, stream, limits, now_ns)
        if refusal:
            refusals[refusal] += 1
        else:
            accepted.append(_completed(entry, pushed.labels))
    return accepted


def _refusal(entry: Entry, stream: str, limits: LokiLimits, now_ns: int) -> str | None:
    oldest_ns = now_ns - limits.reject_old_samples_max_age_seconds * SECOND_NS
    if entry.timestamp_ns < oldest_ns:
        return (
            f"entry for stream '{stream}' has timestamp too old: {rfc3339(entry.timestamp_ns)}, "
            f"oldest acceptable timestamp is: {rfc3339(oldest_ns)}"
        )
    if entry.timestamp_ns > now_ns + limits.creation_grace_period_seconds * SECOND_NS:
        return f"entry for stream '{stream}' has timestamp too new: {rfc3339(entry.timestamp_ns)}"
    length = len(entry.line.encode())
    if length > limits.max_line_size_bytes:
        return (
            f"max entry size '{limits.max_line_size_bytes}' bytes exceeded for stream '{stream}' "
            f"while adding an entry with length '{length}' bytes"
        )
    size = sum(len(name.encode()) + len(value.encode()) for name, value in entry.metadata)
    if size > limits.max_structured_metadata_size_bytes:
        most = limits.max_structured_metadata_size_bytes
        problem = f"structured metadata too large: '{size}' bytes, limit: '{most}' bytes"
        return _metadata_refusal(stream, problem, "max_structured_metadata_size")
    count = len(entry.metadata)
    if count > limits.max_structured_metadata_entries_count:
        most = limits.max_structured_metadata_entries_count
        problem = f"too many structured metadata labels: '{count}', limit: '{most}'"
        return _metadata_refusal(stream, problem, "max_structured_metadata_entries_count")
    return None


def _metadata_refusal(stream: str, problem: str, setting: str) -> str:
    return (
        f"stream '{stream}' has {problem}. Please see `limits_config.{setting}` "
        "or contact your Loki administrator to increase it"
    )


def _completed(entry: Entry, labels: Labels) -> Entry:
    """The entry with its metadata as Loki stores it: valid names, apart from index labels, and a level."""
    index = dict(labels)
    metadata = {normalized(name): value for name, value in entry.metadata}
    metadata.setdefault(DETECTED_LEVEL, detected_level(entry.line, metadata, index))
    apart = {f"{name}_extracted" if name in index else name: value for name, value in metadata.items()}
    return Entry(entry.timestamp_ns, entry.line, label_set(apart))


def _append(
    store: Store, stream: Stream, entries: list[Entry], limits: LokiLimits, tenant: str
) -> str | None:
    """Add the lines that are not too far behind the stream's newest; say which were."""
    refused = []
    for entry in entries:
        oldest_ns = (stream.newest_ns or 0) - limits.max_behind_stream_seconds * SECOND_NS
        if entry.timestamp_ns >= oldest_ns:
            store.add(stream, entry)
            continue
        refused.append(
            f"entry with timestamp {go_time(entry.timestamp_ns)} ignored, reason: 'entry too far behind, "
            f"entry timestamp is: {rfc3339(entry.timestamp_ns)}, "
            f"oldest acceptable timestamp is: {rfc3339(oldest_ns)}',\n"
        )
    if not refused:
        return None
    total = f"total ignored: {len(refused)} out of {len(entries)} for stream: {stream.text}"
    return f"{''.join(refused[:_MOST_TOLD])}user '{tenant}', {total}"


def _grouped(refusals: Counter[str]) -> str:
    """Refusals in Loki's notation; a single one stands alone (pkg/util/errors/errors.go)."""
    if refusals.total() == 1:
        return next(iter(refusals))
    return "; ".join(f"{count} errors like: {refusal}" for refusal, count in refusals.items())
