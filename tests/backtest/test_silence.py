"""Who was silent, by samples of heartbeats in a stand-in Loki."""

from __future__ import annotations

from collections.abc import Iterable

from konductor_like.backtest.silence import silence
from konductor_like.backtest.values import Silence, Span
from konductor_like.loki.client import LokiClient
from konductor_like.sandbox.loki import LokiServer
from konductor_like.settings import Settings
from tests.backtest.histories import SECOND_NS, START_NS, Said

HOUR = 3600
SPAN = Span(START_NS, START_NS + 12 * HOUR * SECOND_NS)
BEAT = (
    "kmsg/1 heartbeat boot=0d5c9a1e-7c44-4f0a-9a5e-3c1f6f0a2b77 seq=9 uptime=5.000000 "
    "wall=2026-03-01T00:00:00.000Z"
)


def found(beats: dict[str, Iterable[int]]) -> Silence | None:
    """Of nodes that were heard each minute of these hours."""
    end_ns = SPAN.end_ns
    with LokiServer(now_ns=lambda: end_ns) as loki:
        for name, hours in beats.items():
            at = [hour * HOUR + minute * 60 + 7 for hour in hours for minute in range(60)]
            labels = Said(name, 0, "").labels
            loki.push(labels, [(START_NS + second * SECOND_NS, BEAT) for second in at])
        settings = Settings(log_endpoint=loki.url)
        with LokiClient(settings) as client:
            return silence(client, settings, SPAN)


def test_a_node_is_silent_from_when_it_was_first_heard() -> None:
    told = found({"always": range(12), "away": (*range(3), *range(8, 12)), "late": range(5, 12)})

    assert told == Silence(HOUR, 3, (("away", 5 * HOUR),), 0)


def test_when_nobody_is_heard_no_single_node_is_blamed() -> None:
    told = found({"one": (*range(4), *range(6, 12)), "two": (*range(4), *range(6, 11))})

    assert told == Silence(HOUR, 2, (("two", HOUR),), 2 * HOUR)


def test_where_no_node_sends_heartbeats_nothing_is_said() -> None:
    assert found({}) is None
