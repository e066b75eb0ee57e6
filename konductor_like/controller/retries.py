"""What a reconcile leaves for a later one: nodes whose writes fail, and faults whose node nobody knows."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from konductor_like.model import Change, Fault, Misnamed, Source, Verb
from konductor_like.model.time import SECOND_NS, unix_ns

RETRY_FIRST_SECONDS = 2.0
RETRY_CAP_SECONDS = 120.0
FORGOTTEN_SECONDS = 3600.0
MISNAMED_NS = 86_400 * SECOND_NS
MISNAMED_MOST = 50
NAME_CHARS = 253
"""No Node's name is longer; a label may be."""
THIN_ABOVE = 2000
"""More open faults than this are thinned: of each incident the first and the latest will do."""


@dataclass(frozen=True, slots=True)
class _FailedWrite:
    """A node's latest write that failed, and until when the node is left alone."""

    verb: Verb
    since: datetime
    until: datetime
    seconds: float


class FailedWrites:
    """Nodes whose writes fail are tried less and less often."""

    def __init__(self) -> None:
        self._latest: dict[str, _FailedWrite] = {}

    def resting(self, now: datetime) -> Mapping[str, Verb]:
        """The nodes to leave alone now, with what could not be written; a clock put back holds nothing up."""
        return {name: each.verb for name, each in self._latest.items() if each.since <= now < each.until}

    def failed(self, change: Change, now: datetime, *, at_least_seconds: float = 0.0) -> None:
        """Leave the node alone for twice as long as the last time, or as long as the server asks for."""
        before = self._latest.get(change.node)
        again = before is not None and before.verb is change.verb
        seconds = min(RETRY_CAP_SECONDS, before.seconds * 2) if before and again else RETRY_FIRST_SECONDS
        until = now + timedelta(seconds=max(seconds, at_least_seconds))
        # A node that nobody has tried again is most likely gone, and its name may never come back.
        recent = now - timedelta(seconds=FORGOTTEN_SECONDS)
        self._latest = {name: each for name, each in self._latest.items() if each.until > recent}
        self._latest[change.node] = _FailedWrite(change.verb, now, until, seconds)

    def recovered(self, node: str) -> None:
        """The node can be written, or is gone."""
        self._latest.pop(node, None)


class UnknownNodes:
    """Faults of nodes that the cluster does not have (yet) are kept for a while.

    The names of kernel faults that were given up are remembered for a day, ``misnamed`` from the start on.
    """

    def __init__(self, patience_seconds: float, misnamed: Mapping[str, Misnamed] | None = None) -> None:
        self._patience = timedelta(seconds=patience_seconds)
        self._since: dict[Fault, datetime] = {}
        self._misnamed = dict(misnamed or {})

    def sort_out(
        self, faults: Sequence[Fault], now: datetime, *, may_give_up: bool
    ) -> tuple[list[Fault], list[Fault]]:
        """The faults to keep and those to give up: none while the nodes cannot be seen (rule 14)."""
        self._since = {fault: self._since.get(fault, now) for fault in faults}
        kept: list[Fault] = []
        given_up: list[Fault] = []
        for fault in faults:
            if not may_give_up or now - self._since[fault] < self._patience:
                kept.append(fault)
                continue
            given_up.append(fault)
            if fault.source is Source.KERNEL:
                name = str(fault.node)[:NAME_CHARS]
                before = self._misnamed.get(name, Misnamed(0, 0))
                at_ns = max(before.at_ns, fault.timestamp_ns)
                self._misnamed[name] = Misnamed(before.faults + fault.times, at_ns)
        while len(self._misnamed) > MISNAMED_MOST:
            del self._misnamed[min(self._misnamed, key=lambda each: self._misnamed[each].at_ns)]
        return kept, given_up

    def misnamed(self, nodes: Container[str], now: datetime) -> Mapping[str, Misnamed]:
        """By name, what was given up in the last day under names that no Node has."""
        oldest_ns = unix_ns(now) - MISNAMED_NS
        self._misnamed = {
            name: each
            for name, each in self._misnamed.items()
            if each.at_ns > oldest_ns and name not in nodes
        }
        return dict(self._misnamed)


def thinned(faults: Iterable[Fault]) -> list[Fault]:
    """Of each incident the first and the latest fault; the latest stands for those between them as well.

    Only faults that come in order are counted: one that stands before the latest may have been counted
    already.
    """
    kept: dict[tuple[object, ...], list[Fault]] = {}
    for fault in faults:
        finding = fault.finding
        # What taints, and what the driver itself wrote, hides behind nothing else that its rule prints.
        grave = fault.severity.taints, finding.user_written
        both = kept.setdefault((fault.node, fault.key, fault.source, finding.position.boot_id, grave), [])
        if not both:
            both.append(fault)
        elif _place(fault) < _place(both[0]):
            both[:] = [fault, both[-1]]
        elif _place(fault) > _place(both[-1]):
            before = both[1].times if len(both) > 1 else 0
            both[1:] = [replace(fault, times=fault.times + before)]
    return [fault for both in kept.values() for fault in both]


def _place(fault: Fault) -> tuple[int, ...]:
    """Where it stands in its log; a replay has a new timestamp and its old place."""
    position = fault.finding.position
    return (position.stamp_us or 0, position.sequence or 0) if position.known else (fault.timestamp_ns,)
