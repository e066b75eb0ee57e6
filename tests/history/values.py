"""Outages and histories made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from konductor_like.history.outages import End, Outage
from konductor_like.history.read import Collector, History, TrailReading
from konductor_like.history.trail import parse
from konductor_like.loki.query.response import Entry
from konductor_like.model import Hardware, NodeState
from konductor_like.model.time import unix_ns
from tests.history.fleet_month import Month
from tests.policy.scenes import node

START = datetime(2026, 4, 6, 12, 0, tzinfo=UTC)
END = START + timedelta(days=30)
MODEL = "NVIDIA-H100-80GB-HBM3"


def day(number: float) -> datetime:
    """Return the time so many days after the start."""
    return START + timedelta(days=number)


def outage(name: str = "gpu-1", begin: float = 1, hours: float | None = 2, **more: Any) -> Outage:
    """Return an outage that began on this day, and was told by the trail; it goes on without ``hours``."""
    since = day(begin)
    until = None if hours is None else since + timedelta(hours=hours)
    ended: dict[str, Any] = (
        {"end": End.OUT} if until is None else {"end": End.ENDED, "how": "reset", "by": "kim"}
    )
    fixed: dict[str, Any] = {
        "rule": "xid.79",
        "gpu": "0000:4e:00",
        "gpus": 8,
        "in_trail": True,
        "last_told": since,
    }
    return Outage(name, since, until, **(fixed | ended | more))


def fleet_of(
    drivers: Iterable[tuple[str, str]], *, model: str = MODEL, pool: str = ""
) -> dict[str, NodeState]:
    """Return GPU nodes of these names with these drivers."""
    return {
        name: replace(node(name), hardware=Hardware(model, driver), pool=pool or None)
        for name, driver in drivers
    }


def history_of(outages: Iterable[Outage], fleet: dict[str, NodeState] | None = None, **more: Any) -> History:
    """Return the history with these outages, of a trail that was read to the end."""
    trail = TrailReading(START, END, lines=2, first_at=START, read_until=END)
    found = tuple(sorted(outages, key=lambda each: each.since))
    return History(START, END, found, fleet or {}, **({"trail": trail} | more))


def told(month: Month, states: dict[str, NodeState] | None = None) -> History:
    """Return what is known of a simulated month: its trail within the month, and the Nodes."""
    trail = TrailReading(month.start, month.end, read_until=month.end)
    collector = Collector(trail)
    for at, text in month.lines():
        line = parse(Entry(unix_ns(at), text, {})) if at >= month.start else None
        if line is not None:
            trail.lines, trail.first_at = trail.lines + 1, trail.first_at or line.logged_at
            collector.ledger.add(line)
    return collector.history(month.states() if states is None else states)
