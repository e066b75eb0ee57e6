"""The facts that Loki shows. Every function asks with few, cheap queries, and may raise a LokiError."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from konductor_like.detection.heartbeat import parse_heartbeat
from konductor_like.doctor.facts import Beat, Heard, Limits
from konductor_like.loki.client import LokiClient
from konductor_like.loki.errors import LokiError, LokiRefused
from konductor_like.loki.logql import heartbeat_query, kernel_matchers, log_query
from konductor_like.loki.window_query import TimeWindow, WindowQuery
from konductor_like.model.time import SECOND_NS, moment_of, span_ns
from konductor_like.settings import Settings

HOUR_NS, DAY_NS = 3600 * SECOND_NS, 86_400 * SECOND_NS
_RECENT_NS = 100 * SECOND_NS
"""A healthy node beats each minute, and its heartbeat arrives within 20 s."""
_NAMES_MOST = 500
_QUERIES, _LINES = 40, 40_000
_NO_LINE = "konductor-like doctor looks for a line that nothing prints"


def labels(loki: LokiClient) -> tuple[str, ...]:
    """Return the index labels of the last ten minutes: the cheapest question that needs the tenant."""
    now_ns = loki.now_ns()
    return loki.label_names(now_ns - HOUR_NS // 6, now_ns)


def heard(loki: LokiClient, settings: Settings, gpu_nodes: Collection[str]) -> Heard:
    """Return the latest heartbeat of each node; older ones are read for silent nodes only."""
    now_ns = loki.now_ns()
    recent = TimeWindow(now_ns - _RECENT_NS, now_ns + span_ns(settings.future_skew_seconds))
    found = _read(loki, settings, recent)
    silent = set(gpu_nodes) - set(found.beats)
    earlier = TimeWindow(now_ns - span_ns(settings.heartbeat_stale_seconds), recent.start_ns)
    if (not silent and gpu_nodes) or earlier.width_ns <= 0:
        return found
    known = found.beats and len(silent) <= _NAMES_MOST
    older = _read(loki, settings, earlier, silent if known else ())
    return Heard(
        {**older.beats, **found.beats},
        found.nameless + older.nameless,
        found.labels | older.labels,
        found.complete and older.complete,
    )


def _read(loki: LokiClient, settings: Settings, span: TimeWindow, only: Collection[str] = ()) -> Heard:
    query = WindowQuery(loki, heartbeat_query(settings), settings, HOUR_NS)
    pieces = query.read(span, span.width_ns, only=only, queries=_QUERIES, lines=_LINES)
    beats: dict[str, Beat] = {}
    nameless, labels = 0, set[str]()
    for entry in (entry for piece in pieces for entry in piece.entries):
        beat = parse_heartbeat(entry.text)
        if beat is None:
            continue
        labels |= entry.labels.keys()
        if name := entry.labels.get(settings.node_label):
            beats[name] = Beat(moment_of(entry.timestamp_ns), beat.wall)
        else:
            nameless += 1
    complete = pieces[-1].window.end_ns >= span.end_ns and all(piece.complete for piece in pieces)
    return Heard(beats, nameless, frozenset(labels), complete)


def kernel_lines(loki: LokiClient, settings: Settings) -> bool:
    """Return whether the kernel's stream has any line of the last hour."""
    query = log_query(kernel_matchers(settings.kernel_selector, settings.extra_matchers), ("",))
    now_ns = loki.now_ns()
    return bool(loki.query_range(query, now_ns - HOUR_NS, now_ns, 1).entries)


def limits(loki: LokiClient, settings: Settings) -> Limits:
    """Send queries of the controller's size that find nothing; read Loki's configuration if it is shown."""
    query = log_query(kernel_matchers(settings.kernel_selector, settings.extra_matchers), (_NO_LINE,))
    now_ns, entries, refused = loki.now_ns(), None, ""
    try:
        loki.query_range(query, now_ns - SECOND_NS, now_ns, settings.loki_limit)
    except LokiRefused as error:
        if error.allowed_limit is None:
            raise
        entries = error.allowed_limit
    try:
        loki.query_range(query, now_ns - HOUR_NS, now_ns, entries or settings.loki_limit)
    except LokiRefused as error:
        if not error.asks_for_less:
            raise
        refused = str(error)
    return Limits(entries, refused, _config(loki))


def _config(loki: LokiClient) -> Mapping[str, Any]:
    import yaml  # slow, and needed by no other command that asks Loki

    try:
        found = yaml.safe_load(loki.configuration())
    except (LokiError, yaml.YAMLError, UnicodeDecodeError, RecursionError):
        return {}  # a gateway does not serve this page
    return found if isinstance(found, dict) else {}


def oldest_beat(loki: LokiClient, settings: Settings) -> datetime | None:
    """Return the time of the oldest heartbeat of the last day."""
    now_ns = loki.now_ns()
    found = loki.query_range(heartbeat_query(settings), now_ns - DAY_NS, now_ns, 1).entries
    return moment_of(found[0].timestamp_ns) if found else None


def streams(loki: LokiClient, settings: Settings) -> frozenset[str]:
    """Return the namespaces that had a stream in the last day."""
    now_ns = loki.now_ns()
    return frozenset(loki.label_values(settings.namespace_label, now_ns - DAY_NS, now_ns))
