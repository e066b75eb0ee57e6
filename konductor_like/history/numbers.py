"""Numbers over outages: hours lost, time between failures, repair times, the nodes and GPUs that fail most.

Only the part of an outage that lies within the span counts for hours. An outage counts as one of the span if
it began there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from konductor_like.history.outages import End, Kind, Outage

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Share:
    """What one node, GPU, fault, rack or driver has of the outages."""

    name: str
    outages: int
    nodes: int
    hours: float
    """Node hours out of service."""
    gpu_hours: float
    """GPU hours, of the outages whose number of GPUs is known."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one span."""

    start: datetime
    end: datetime
    outages: int
    """Failures that began in the span."""
    nodes: int
    """Nodes with such a failure."""
    out_now: int
    tests: int
    by_persons: int
    """Nodes that a person tainted."""
    unknown_ends: int
    hours: float
    """Node hours out of service for failures, within the span."""
    gpu_hours: float
    without_gpus: int
    """Failures of nodes whose number of GPUs is not known; their GPU hours do not count."""
    median_hours: float | None
    """The median time out of service of the failures that ended in the span; None without one."""
    between_hours: float | None
    """Node hours in service for each failure; None without a failure, or without a known fleet."""
    availability: float | None
    """Share of the node hours of today's nodes that they were in service; None without a known fleet."""
    relapses: int


def numbers(
    outages: Sequence[Outage], start: datetime, end: datetime, fleet: Mapping[str, datetime]
) -> Numbers:
    """Return the numbers of a span. ``fleet`` has the GPU nodes of today, and since when each exists."""
    failures = [each for each in outages if each.kind is Kind.FAILURE]
    begun = [each for each in failures if start <= each.since < end]
    ended = [each for each in failures if each.until is not None and start <= each.until <= end]
    possible = sum(max(0.0, (end - max(created, start)).total_seconds()) for created in fleet.values())
    lost = sum(each.seconds(start, end) for each in failures if each.node in fleet)
    in_service = max(0.0, possible - lost)
    of_fleet = sum(each.node in fleet for each in begun)
    times = [(each.until - each.since).total_seconds() / _HOUR for each in ended if each.until]
    return Numbers(
        start,
        end,
        outages=len(begun),
        nodes=len({each.node for each in begun}),
        out_now=sum(each.end is End.OUT for each in failures),
        tests=sum(each.kind is Kind.TEST and start <= each.since < end for each in outages),
        by_persons=sum(each.kind is Kind.PERSON and start <= each.since < end for each in outages),
        unknown_ends=sum(each.end is End.UNKNOWN for each in begun),
        hours=sum(each.seconds(start, end) for each in failures) / _HOUR,
        gpu_hours=sum(_gpu_hours(each, start, end) for each in failures),
        without_gpus=sum(each.gpus is None and each.seconds(start, end) > 0 for each in failures),
        median_hours=median(max(0.0, each) for each in times) if times else None,
        between_hours=in_service / _HOUR / of_fleet if of_fleet and possible else None,
        availability=in_service / possible if possible else None,
        relapses=sum(each.relapse for each in ended),
    )


def _gpu_hours(outage: Outage, start: datetime, end: datetime) -> float:
    return outage.seconds(start, end) / _HOUR * (outage.gpus or 0)


def shares(
    outages: Iterable[Outage], name_of: Callable[[Outage], str], start: datetime, end: datetime
) -> list[Share]:
    """Return what each name has of the failures, the most hours first; an empty name is left out."""
    found: defaultdict[str, list[Outage]] = defaultdict(list)
    for each in outages:
        if each.kind is Kind.FAILURE and (each.seconds(start, end) > 0 or start <= each.since < end):
            found[name_of(each)].append(each)
    made = [
        Share(
            name,
            outages=sum(start <= each.since < end for each in theirs),
            nodes=len({each.node for each in theirs}),
            hours=sum(each.seconds(start, end) for each in theirs) / _HOUR,
            gpu_hours=sum(_gpu_hours(each, start, end) for each in theirs),
        )
        for name, theirs in found.items()
        if name
    ]
    return sorted(made, key=lambda share: (-share.hours, -share.outages, share.name))


BY: Mapping[str, Callable[[Outage], str]] = {
    "fault": lambda each: each.rule,
    "node": lambda each: each.node,
    "gpu": lambda each: f"{each.node} {each.gpu}" if each.gpu else "",
    "rack": lambda each: each.rack,
    "driver": lambda each: each.driver,
    "model": lambda each: each.model,
}
"""What outages are grouped by."""


def weeks(outages: Iterable[Outage], start: datetime, end: datetime) -> list[tuple[datetime, int, float]]:
    """Return, by week from ``start`` on, its first moment, the failures that began, and node hours lost."""
    failures = [each for each in outages if each.kind is Kind.FAILURE]
    found = []
    while start < end:
        until = min(start + timedelta(days=7), end)
        begun = sum(start <= each.since < until for each in failures)
        found.append((start, begun, sum(each.seconds(start, until) for each in failures) / _HOUR))
        start = until
    return found
