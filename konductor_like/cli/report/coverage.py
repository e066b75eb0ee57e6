"""How much of the time of a report is known: the sentence on top of the page, and the list at its end."""

from __future__ import annotations

from collections.abc import Iterator

from konductor_like.cli.columns import count, stamp
from konductor_like.history.read import History


def unknown_part(history: History) -> str:
    """Return for which part of the time the trail tells no outages, as sentences; empty if it tells them all.

    Numbers of such a report look better than the fleet is. For example: a Loki that has 15 minutes of the
    trail makes a month with an availability of 100 %.
    """
    trail = history.trail
    records = (
        "not known, because the Nodes could not be read"
        if history.problem
        else "known from the nodes' records alone, which keep ten failures of each node and none of a "
        "deleted Node"
    )
    better = "So availability and the time between failures may look better than they were."
    if trail.first_at is None:
        return f"The audit trail tells no outage of this time: outages are {records}. {better}"
    if not trail.begins_late and trail.is_whole and not history.problem:
        return ""
    begin = stamp(trail.first_at if trail.begins_late else history.start)
    if trail.is_whole:
        return f"The audit trail tells outages from {begin} on. Earlier ones are {records}. {better}"
    until = stamp(trail.read_until)
    return f"The audit trail tells outages from {begin} to {until}. Others are {records}. {better}"


def coverage(history: History) -> Iterator[str]:
    """Yield how much was read."""
    trail = history.trail
    if trail.first_at is not None and trail.read_until is not None:
        yield (
            f"The audit trail in Loki was read from {stamp(history.start)} to {stamp(trail.read_until)}: "
            f"{count(trail.lines, 'line')}, the first at {stamp(trail.first_at)}."
        )
    if history.fleet:
        records = sum(each.in_record for each in history.outages)
        yield (
            f"{count(len(history.fleet), 'GPU node')} of today were read; their records tell of "
            f"{records:,} of the {len(history.outages):,} outages."
        )
    if history.outages:
        yield "Rack, driver and model are those of the labels when the node went out, if they are known."
