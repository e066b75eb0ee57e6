"""What a reconcile could not finish: nodes whose writes fail, and faults whose node nobody knows."""

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
class _Stall:
    """A node whose write failed: which kind, from when until when to leave it, how long that is."""

    verb: Verb
    since: datetime
    until: datetime
    seconds: float

    def lasts(self, now: datetime) -> bool:
        """Whether to leave it still; a clock that was put back holds nothing up."""
        return self.since <= now < self.until


class Stalls:
    """Nodes whose writes fail are tried less and less often."""

    def __init__(self) -> None:
        self._stalls: dict[str, _Stall] = {}

    def holds(self, change: Change, now: datetime) -> bool:
        """Whether to leave this write for later; a taint never waits for a record that failed."""
        stall = self._stalls.get(change.node)
        if stall is None or not stall.lasts(now):
            return False
        return change.verb is not Verb.TAINT or stall.verb is Verb.TAINT

    def unwritable(self, now: datetime) -> frozenset[str]:
        """Nodes that could not be tainted just now."""
        return frozenset(
            name for name, stall in self._stalls.items() if stall.verb is Verb.TAINT and stall.lasts(now)
        )

    def failed(self, change: Change, now: datetime, *, at_least_seconds: float = 0.0) -> None:
        """The write failed: wait twice as long as the last time, or as long as the server asks for."""
        before = self._stalls.get(change.node)
        again = before is not None and before.verb is change.verb
        seconds = min(RETRY_CAP_SECONDS, before.seconds * 2) if before and again else RETRY_FIRST_SECONDS
        until = now + timedelta(seconds=max(seconds, at_least_seconds))
        # A node that nobody has tried again is most likely gone, and its name may never come back.
        recent = now - timedelta(seconds=FORGOTTEN_SECONDS)
        self._stalls = {name: stall for name, stall in self._stalls.items() if stall.until > recent}
        self._stalls[change.node] = _Stall(change.verb, now, until, seconds)

    def recovered(self, node: str) -> None:
        """The node can be written, or is gone."""
        self._stalls.pop(node, None)


class Waiting:
    """Faults of nodes that the cluster does not know (yet), each kept for a while.

    Of kernel faults that were given up the names are remembered for a day, ``misnamed`` from the start on.
    """

    def __init__(self, patience_seconds: float, misnamed: Mapping[str, Misnamed] | None = None) -> None:
        self._patience = timedelta(seconds=patience_seconds)
        self._since: dict[Fault, datetime] = {}
        self._misnamed = dict(misnamed or {})

    def sort_out(
        self, faults: Sequence[Fault], now: datetime, *, may_give_up: bool
    ) -> tuple[list[Fault], list[Fault]]:
        """Those to keep and those to give up: none while the nodes cannot be seen (rule 14)."""
        self._since = {fault: self._since.get(fault, now) for fault in faults}
        expired = {
            fault for fault, since in self._since.items() if may_give_up and now - since >= self._patience
        }
        given_up = [fault for fault in faults if fault in expired]
        for fault in given_up:
            if fault.source is Source.KERNEL:
                self._give_up(str(fault.node)[:NAME_CHARS], fault)
        return [fault for fault in faults if fault not in expired], given_up

    def misnamed(self, nodes: Container[str], now: datetime) -> Mapping[str, Misnamed]:
        """By name, what was given up lately under names that no Node has."""
        oldest_ns = unix_ns(now) - MISNAMED_NS
        self._misnamed = {
            name: each
            for name, each in self._misnamed.items()
            if each.at_ns > oldest_ns and name not in nodes
        }
        return dict(self._misnamed)

    def _give_up(self, name: str, fault: Fault) -> None:
        before = self._misnamed.get(name, Misnamed(0, 0))
        at_ns = max(before.at_ns, fault.timestamp_ns)
        self._misnamed[name] = Misnamed(before.faults + fault.times, at_ns)
        if len(self._misnamed) > MISNAMED_MOST:
            del self._misnamed[min(self._misnamed, key=lambda each: self._misnamed[each].at_ns)]


def thinned(faults: Iterable[Fault]) -> list[Fault]:
    """Of each incident the first and the latest fault, which stands for those between them as well.

    Only what comes in order is counted: a fault that stands before the latest may have been counted already.
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
