"""Which nodes were silent, by samples of their heartbeats: what they logged meanwhile, nobody has read.

A month of heartbeats is forty million lines for a thousand nodes, so only a sample of each hour is read.
"""

from __future__ import annotations

from collections.abc import Callable

from konductor_like.backtest.reading import WIDEST_NS
from konductor_like.backtest.values import Silence, Span
from konductor_like.loki.logql import heartbeat_query
from konductor_like.loki.response import Naming
from konductor_like.loki.window_query import SECOND_NS, Queries, Window, WindowQuery, read_span
from konductor_like.settings import Settings

EVERY_NS = 3600 * SECOND_NS
"""Time between two samples; more where they would be over :data:`SAMPLES_MOST`."""
SAMPLES_MOST = 1000
WIDTH_NS = 130 * SECOND_NS
"""A heartbeat comes each minute: one may be lost."""


def silence(
    client: Queries, settings: Settings, span: Span, spent: Callable[[int], object] = lambda _: None
) -> Silence | None:
    """Who was silent in ``span``; None where nobody was ever heard: heartbeats are not shipped then.

    A node counts from the first sample in which it was heard; a moment at which nobody was heard says nothing
    about single nodes. ``spent`` is told how many bytes Loki processed for each sample. Raises a LokiError.
    """
    naming = Naming.of(settings)
    asking = WindowQuery(client, heartbeat_query(settings), naming.node, settings.loki_limit, WIDEST_NS)
    every_ns = max(EVERY_NS, -(-(span.end_ns - span.start_ns) // SAMPLES_MOST))
    first: dict[str, int] = {}
    heard: dict[str, int] = {}
    samples = nobody = 0
    for at_ns in range(span.start_ns, span.end_ns - WIDTH_NS, every_ns):
        asking.begin()
        window = Window(at_ns, at_ns + WIDTH_NS)
        names: set[str] = set()
        for piece in read_span(window, WIDTH_NS, WIDEST_NS, asking.lines_of()):
            names.update(entry.labels.get(naming.node, "") for entry in piece.entries)
        spent(asking.bytes_processed)
        names.discard("")
        for name in names:
            first.setdefault(name, samples)
            heard[name] = heard.get(name, 0) + 1
        if names:
            samples += 1
        elif first:
            nobody += 1
    missed = {name: samples - first[name] - heard[name] for name in first}
    seconds = every_ns / SECOND_NS
    silent = sorted(((name, count * seconds) for name, count in missed.items() if count), key=_longest)
    return Silence(seconds, len(first), tuple(silent), nobody * seconds) if first else None


def _longest(one: tuple[str, float]) -> tuple[float, str]:
    return -one[1], one[0]
