"""Work that one reconcile leaves for the next: failed and postponed writes, faults of unknown nodes."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from konductor_like.backoff import Backoff
from konductor_like.model import Change, Fault, Misnamed, Source, Verb
from konductor_like.model.attempts import Attempt, Unwritten
from konductor_like.model.time import EPOCH, SECOND_NS, unix_ns

BACKOFF = Backoff(first_seconds=2.0, most_seconds=120.0)
MISNAMED_NS = 86_400 * SECOND_NS
MISNAMED_MOST = 50
NAME_CHARS = 253
"""Characters of the longest Node name. A line's label may be longer."""
UPKEEP_A_MINUTE = 10
THIN_ABOVE = 2000
"""Open faults above which :func:`thinned` keeps only the first and the latest of each incident."""


@dataclass(frozen=True, slots=True)
class _FailedWrite:
    """A node's latest write that failed, and until when the controller does not try again."""

    change: Change
    error: str
    """In short; empty if no answer came yet."""
    first: datetime
    """When this write failed first."""
    since: datetime
    until: datetime
    failures: int


class FailedWrites:
    """Remembers the nodes whose writes fail, and doubles the wait after each failure."""

    def __init__(self) -> None:
        self._latest: dict[str, _FailedWrite] = {}

    def resting(self, now: datetime) -> Mapping[str, Verb]:
        """Return the nodes not to write now, each with the kind of its failed write.

        A failure from the future counts for nothing, so that a clock that was put back delays no write.
        """
        return {
            name: each.change.verb for name, each in self._latest.items() if each.since <= now < each.until
        }

    def failing(self, now: datetime) -> Mapping[str, datetime]:
        """Return the nodes not to write now, each with the time since which its writes fail."""
        return {name: each.first for name, each in self._latest.items() if each.since <= now < each.until}

    def failed(
        self, change: Change, now: datetime, error: str = "", *, at_least_seconds: float = 0.0
    ) -> None:
        """Do not write the node for twice as long as the last time, or for as long as the server asks."""
        before = self._latest.get(change.node)
        if before is None or before.change.verb is not change.verb:
            before = None
        failures = before.failures + 1 if before else 1
        until = now + timedelta(seconds=max(BACKOFF.longest_seconds(failures), at_least_seconds))
        first = before.first if before else now
        self._latest[change.node] = _FailedWrite(change, error, first, now, until, failures)

    def recovered(self, node: str) -> None:
        """Forget the failure, because a write succeeded or the Node is gone."""
        self._latest.pop(node, None)

    def keep(self, wanted: Collection[tuple[str, Verb]], now: datetime) -> None:
        """Forget each failure whose retry is due and whose write the plan does not want now.

        A person may have released the fault, the brake may hold the node, and a deleted Node is in no plan.
        """
        self._latest = {
            name: each
            for name, each in self._latest.items()
            if each.since <= now < each.until or (name, each.change.verb) in wanted
        }

    def attempt(self, ok: datetime | None) -> tuple[Attempt, tuple[Unwritten, ...]]:
        """Return how writes went, and the Nodes that could not be written, taints first.

        ``ok`` is when a write last succeeded.
        """
        failing = [each for each in self._latest.values() if each.error]
        if not failing:
            return Attempt(ok), ()
        failing.sort(key=lambda each: (each.change.verb is not Verb.TAINT, each.first, each.change.node))
        latest = max(failing, key=lambda each: (each.change.verb is Verb.TAINT, each.since))
        unwritten = tuple(
            Unwritten(each.node, each.verb, each.incident.key.rule if each.incident else "")
            for each in (failed.change for failed in failing)
        )
        since = min(each.first for each in failing).replace(microsecond=0)
        return Attempt(ok, since, latest.error), unwritten


class Upkeep:
    """Limits how often the controller makes writes that are not urgent (:attr:`Change.upkeep`).

    A change that has to wait is decided again later: the Node itself shows what is still to be written.
    """

    def __init__(self) -> None:
        self._written: list[datetime] = []
        self._tried: dict[str, datetime] = {}
        """By node, its last turn: a node whose write is refused does not keep the others out."""

    def due(self, changes: Sequence[Change], now: datetime) -> Sequence[Change]:
        """Return the changes to write now, and count them: at most ``UPKEEP_A_MINUTE`` in any minute."""
        minute_ago = now - timedelta(minutes=1)
        self._written = [at for at in self._written if minute_ago < at <= now]
        by_turn = sorted(changes, key=lambda change: self._tried.get(change.node, EPOCH))
        due = by_turn[: UPKEEP_A_MINUTE - len(self._written)]
        self._written += [now] * len(due)
        waiting = {change.node for change in changes}
        self._tried = {name: at for name, at in self._tried.items() if name in waiting}
        self._tried |= {change.node: now for change in due}
        return due


class UnknownNodes:
    """Keeps the faults of nodes that the cluster does not have (yet), and drops them after a while.

    The names in dropped kernel faults are remembered for a day; ``misnamed`` are those of the last
    controller.
    """

    def __init__(self, patience_seconds: float, misnamed: Mapping[str, Misnamed] | None = None) -> None:
        self._patience = timedelta(seconds=patience_seconds)
        self._since: dict[Fault, datetime] = {}
        self._misnamed = dict(misnamed or {})

    def sort_out(
        self, faults: Sequence[Fault], now: datetime, *, may_give_up: bool
    ) -> tuple[list[Fault], list[Fault]]:
        """Return the faults to keep and those to drop. Drop none while Nodes cannot be read (rule 14)."""
        self._since = {fault: self._since.get(fault, now) for fault in faults}
        kept: list[Fault] = []
        given_up: list[Fault] = []
        for fault in faults:
            if not may_give_up or now - self._since[fault] < self._patience:
                kept.append(fault)
                continue
            given_up.append(fault)
            if fault.source is Source.KERNEL:
                _count(self._misnamed, fault)
        while len(self._misnamed) > MISNAMED_MOST:
            del self._misnamed[min(self._misnamed, key=lambda each: self._misnamed[each].at_ns)]
        self._since = {fault: self._since[fault] for fault in kept}
        return kept, given_up

    def misnamed(self, nodes: Container[str], now: datetime) -> Mapping[str, Misnamed]:
        """Return, by name, the dropped faults of the last day under names that still no Node has.

        Faults without a name count as soon as they wait: nobody else looks for their node.
        """
        oldest_ns = unix_ns(now) - MISNAMED_NS
        self._misnamed = {
            name: each
            for name, each in self._misnamed.items()
            if each.at_ns > oldest_ns and name not in nodes
        }
        found = dict(self._misnamed)
        for fault in self._since:
            if fault.nameless_boot is not None:
                _count(found, fault)
        return found


def _count(misnamed: dict[str, Misnamed], fault: Fault) -> None:
    name = fault.named[:NAME_CHARS]
    before = misnamed.get(name, Misnamed(0, 0))
    misnamed[name] = Misnamed(before.faults + fault.times, max(before.at_ns, fault.timestamp_ns))


def thinned(faults: Iterable[Fault]) -> list[Fault]:
    """Return the first and the latest fault of each incident; the latest one counts the faults between them.

    A fault that comes before the latest one in its log adds nothing, because it may have been counted
    already.
    """
    kept: dict[tuple[object, ...], list[Fault]] = {}
    for fault in faults:
        finding = fault.finding
        # Faults that taint are thinned apart from the others, and the driver's lines from a user's.
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
    """Return the fault's place in its log. A replay has a new timestamp, but its old place."""
    position = fault.finding.position
    return (position.stamp_us or 0, position.sequence or 0) if position.known else (fault.timestamp_ns,)
