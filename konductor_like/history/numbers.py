"""Numbers over outages: hours lost, time between failures, repair times, the nodes and GPUs that fail most.

Only the part of an outage that lies within the span counts for hours. An outage counts as one of the span if
it began there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from konductor_like.history.outages import End, Kind, Outage
from konductor_like.model import ReleaseHow

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
    # An outage of before a Node was created again is none of today's Node.
    lost = sum(each.seconds(max(start, fleet[each.node]), end) for each in failures if each.node in fleet)
    in_service = max(0.0, possible - lost)
    of_fleet = sum(each.node in fleet for each in begun)
    times = [(each.until - each.since).total_seconds() / _HOUR for each in ended if each.until]
    return Numbers(
        start,
        end,
        outages=len(begun),
        nodes=len({each.node for each in begun}),
        out_now=sum(_is_out(each, end) for each in failures),
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


def _is_out(outage: Outage, at: datetime) -> bool:
    """Whether the node was out of service at the end of the span."""
    return outage.since < at and (outage.end is End.OUT or (outage.until is not None and outage.until >= at))


def _gpu_hours(outage: Outage, start: datetime, end: datetime) -> float:
    return outage.seconds(start, end) / _HOUR * (outage.gpus or 0)


def is_of(outage: Outage, start: datetime, end: datetime) -> bool:
    """Whether an outage is a failure that began in the span, or of which hours lie in it."""
    return outage.kind is Kind.FAILURE and (outage.seconds(start, end) > 0 or start <= outage.since < end)


def shares(
    outages: Iterable[Outage], name_of: Callable[[Outage], str], start: datetime, end: datetime
) -> list[Share]:
    """Return what each name has of the failures, the most hours first; an empty name is left out."""
    found: defaultdict[str, list[Outage]] = defaultdict(list)
    for each in outages:
        if is_of(each, start, end):
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


@dataclass(frozen=True, slots=True)
class Period:
    """A part of the span."""

    start: datetime
    end: datetime
    """The end of the span, if the span ends before the period is over."""
    outages: int
    """Failures that began in it."""
    hours: float
    gpu_hours: float


def periods(outages: Iterable[Outage], start: datetime, end: datetime, length: timedelta) -> list[Period]:
    """Return the periods of this length from ``start`` on; the last one may be shorter."""
    failures = [each for each in outages if each.kind is Kind.FAILURE]
    found = []
    while start < end:
        until = min(start + length, end)
        # Most failures lie outside of a period: only those that reach into it are calculated.
        inside = [each for each in failures if each.since < until and each.seconds(start, until) > 0]
        found.append(
            Period(
                start,
                until,
                outages=sum(start <= each.since < until for each in failures),
                hours=sum(each.seconds(start, until) for each in inside) / _HOUR,
                gpu_hours=sum(_gpu_hours(each, start, until) for each in inside),
            )
        )
        start = until
    return found


@dataclass(frozen=True, slots=True)
class Repairs:
    """Times out of service of nodes that were returned in one way."""

    how: str
    """``reset``, ``reboot`` and so on, as :class:`konductor_like.model.ReleaseHow` has it."""
    hours: tuple[float, ...]
    """The hours of each, the shortest first."""

    @property
    def median_hours(self) -> float:
        """The median."""
        return median(self.hours)


def returned(outages: Iterable[Outage], start: datetime, end: datetime) -> list[Outage]:
    """Return the failures after which the node was returned to service in the span.

    A Node that was deleted was not returned, and nobody knows whether one with an unknown end was.
    """
    return [
        each
        for each in outages
        if each.kind is Kind.FAILURE
        and each.until is not None
        and start <= each.until <= end
        and each.how != ReleaseHow.DELETED
    ]


def repairs(outages: Iterable[Outage], start: datetime, end: datetime) -> list[Repairs]:
    """Return the times out of service by how the node was returned, the most frequent way first."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for each in returned(outages, start, end):
        if each.until is not None:
            how = "reset" if ReleaseHow(each.how) is ReleaseHow.PART else each.how
            found[how].append(max(0.0, (each.until - each.since).total_seconds()) / _HOUR)
    made = [Repairs(how, tuple(sorted(hours))) for how, hours in found.items()]
    return sorted(made, key=lambda each: (-len(each.hours), each.how))


FOR_NOTHING_MOST = timedelta(minutes=30)
"""Time after which a return is no quick one any more."""
FOR_NOTHING_WORDS = ("false alarm", "false positive", "no fault found", "nothing wrong")
"""How the reason begins of a person who found no fault."""
FAILED_AGAIN_WITHIN = timedelta(days=1)
_FOR_NOTHING = re.compile(rf"\W*({'|'.join(FOR_NOTHING_WORDS)})\b(?!\s*\?)", re.IGNORECASE)


def for_nothing(outages: Iterable[Outage], start: datetime, end: datetime) -> list[Outage]:
    """Return the failures of the span that were none, as the person said who returned the node.

    All of this must hold. The controller took the node out. A named person returned it within
    :data:`FOR_NOTHING_MOST`. The person's reason begins with one of :data:`FOR_NOTHING_WORDS` and does not go
    on with a question mark. The node did not fail within :data:`FAILED_AGAIN_WITHIN` after it.
    """
    failures = [each for each in outages if each.kind is Kind.FAILURE]
    begins: defaultdict[str, list[datetime]] = defaultdict(list)
    for each in failures:
        begins[each.node].append(each.since)
    return [
        each
        for each in failures
        if start <= each.since < end
        and each.begun_by is None
        and each.by is not None
        and each.until is not None
        and each.until - each.since <= FOR_NOTHING_MOST
        and _FOR_NOTHING.match(each.reason)
        and not any(each.since < since <= each.until + FAILED_AGAIN_WITHIN for since in begins[each.node])
    ]


def fewest(shares: Sequence[Share], part: float = 0.5) -> int:
    """Return the number of names that have this part of all node hours, if those with the most come first."""
    total, sum_hours = sum(each.hours for each in shares), 0.0
    for number, each in enumerate(shares, 1):
        sum_hours += each.hours
        if sum_hours >= part * total:
            return number if total else 0
    return 0
