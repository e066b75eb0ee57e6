"""Store pushed lines, or refuse them in Loki's words.

The good lines of a push are stored even if another line is refused and the answer is an error.
Sources: pkg/distributor/validator.go, pkg/ingester/stream.go and instance.go; bodies seen on a real Loki.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from konductor_like_sandbox.loki.labels import (
    DETECTED_LEVEL,
    Labels,
    detected_level,
    label_set,
    normalized,
    written,
)
from konductor_like_sandbox.loki.limits import SECOND_NS, LokiError, LokiLimits
from konductor_like_sandbox.loki.messages import check_push
from konductor_like_sandbox.loki.store import Entry, Store, Stream

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_TOLD = 10
"""Refused lines of a stream that Loki names (``max_returned_stream_errors``); it counts the others."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The lines of one push for one stream, as the sender gave them."""

    labels: Labels
    entries: list[Entry]


def ingest(store: Store, pushed: Iterable[Pushed], limits: LokiLimits, now_ns: int, tenant: str) -> None:
    """Store the acceptable lines. Raises ``LokiError`` if any line was refused.

    As in Loki, the error names only the last stream if several have lines that are too old. There is no error
    if the last stream of the push was fine.
    """
    streams = list(pushed)
    if not streams:
        raise LokiError(422, "error at least one valid stream is required for ingestion")
    refusals: Counter[str] = Counter()
    refused: LokiError | None = None
    with store.lock:
        accepted = [(one.labels, _accepted(one, limits, now_ns, refusals)) for one in streams]
        _check_rate(store, [entry for _, entries in accepted for entry in entries], limits, now_ns, tenant)
        check_push(accepted, limits)
        for labels, entries in accepted:
            if entries:
                refused = _append(store, store.stream(labels), entries, limits, tenant)
    if refused:
        raise refused
    if refusals:
        raise LokiError(400, _grouped(refusals))


def _accepted(pushed: Pushed, limits: LokiLimits, now_ns: int, refusals: Counter[str]) -> list[Entry]:
    stream = written(pushed.labels)
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
            f"entry for stream '{stream}' has timestamp too old: {_rfc3339(entry.timestamp_ns)}, "
            f"oldest acceptable timestamp is: {_rfc3339(oldest_ns)}"
        )
    if entry.timestamp_ns > now_ns + limits.creation_grace_period_seconds * SECOND_NS:
        return f"entry for stream '{stream}' has timestamp too new: {_rfc3339(entry.timestamp_ns)}"
    length = len(entry.line.encode())
    if length > limits.max_line_size_bytes:
        return (
            f"max entry size '{limits.max_line_size_bytes}' bytes exceeded for stream '{stream}' "
            f"while adding an entry with length '{length}' bytes"
        )
    return None


def _completed(entry: Entry, labels: Labels) -> Entry:
    """Return the entry with its metadata as Loki stores it: valid names, no index labels, and a level."""
    index = dict(labels)
    metadata = {normalized(name): value for name, value in entry.metadata}
    metadata.setdefault(DETECTED_LEVEL, detected_level(entry.line))
    apart = {f"{name}_extracted" if name in index else name: value for name, value in metadata.items()}
    return Entry(entry.timestamp_ns, entry.line, label_set(apart))


def _metadata_size(entry: Entry) -> int:
    """Return its bytes without the level, which Loki adds itself."""
    return sum(
        len(name.encode()) + len(value.encode()) for name, value in entry.metadata if name != DETECTED_LEVEL
    )


def _size(entry: Entry) -> int:
    """Return the bytes that rate limits count."""
    return len(entry.line.encode()) + _metadata_size(entry)


def _check_rate(store: Store, entries: list[Entry], limits: LokiLimits, now_ns: int, tenant: str) -> None:
    """Raise ``LokiError`` if the tenant sends too much at once; then no line of the push is stored."""
    size, most = sum(map(_size, entries)), limits.ingestion_rate_bytes
    if not store.taken.take(size, most, limits.ingestion_burst_size_bytes, now_ns):
        raise LokiError(
            429,
            f"ingestion rate limit exceeded for user {tenant} (limit: {most} bytes/sec) while attempting to "
            f"ingest '{len(entries)}' lines totaling '{size}' bytes, reduce log volume or contact your Loki "
            "administrator to see if the limit can be increased",
        )


def _append(
    store: Store, stream: Stream, entries: list[Entry], limits: LokiLimits, tenant: str
) -> LokiError | None:
    """Add the lines that are not too much older than the stream's newest."""
    refused, kept = [], list[Entry]()
    newest_ns = stream.newest_ns or 0
    for entry in entries:
        oldest_ns = newest_ns - limits.max_behind_stream_seconds * SECOND_NS
        if entry.timestamp_ns >= oldest_ns:
            kept.append(entry)
            newest_ns = max(newest_ns, entry.timestamp_ns)
            continue
        reason = (
            f"entry too far behind, entry timestamp is: {_rfc3339(entry.timestamp_ns)}, "
            f"oldest acceptable timestamp is: {_rfc3339(oldest_ns)}"
        )
        refused.append((entry, reason))
    for entry in kept:
        store.add(stream, entry)
    if not refused:
        return None
    reasons = [
        f"entry with timestamp {_go_time(entry.timestamp_ns)} ignored, reason: '{reason}',\n"
        for entry, reason in refused[:_MOST_TOLD]
    ]
    total = f"total ignored: {len(refused)} out of {len(entries)} for stream: {stream.text}"
    return LokiError(400, f"{''.join(reasons)}user '{tenant}', {total}")


def _grouped(refusals: Counter[str]) -> str:
    """Return refusals in Loki's notation; a single one has no frame (pkg/util/errors/errors.go)."""
    if refusals.total() == 1:
        return next(iter(refusals))
    return "; ".join(f"{count} errors like: {refusal}" for refusal, count in refusals.items())


def _rfc3339(time_ns: int) -> str:
    """Return a time in whole seconds, UTC: ``2026-11-21T02:14:08Z``."""
    return f"{_EPOCH + timedelta(seconds=time_ns // SECOND_NS):%Y-%m-%dT%H:%M:%SZ}"


def _go_time(time_ns: int) -> str:
    """Return a time as Go prints it: ``2026-11-21 01:14:05.5 +0000 UTC``."""
    fraction = f"{time_ns % SECOND_NS:09d}".rstrip("0")
    moment = _EPOCH + timedelta(seconds=time_ns // SECOND_NS)
    return f"{moment:%Y-%m-%d %H:%M:%S}{'.' if fraction else ''}{fraction} +0000 UTC"
