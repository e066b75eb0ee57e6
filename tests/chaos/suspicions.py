"""The invariants of other programs' words: what a word may begin, add, end and prove on a node's record.

The world's own list of words (:mod:`tests.chaos.words`) says what a controller could see. A word is a
suspicion at most, each of its changes counts once, and neither its silence nor its end proves a node healthy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import collect, status_report
from konductor_like.model import Incident, IncidentState, MetBy, NodeRecord, NodeState, Role
from konductor_like.model.time import unix_ns
from tests.chaos.alerts import ALERT
from tests.chaos.machines import ALL_GPUS, seconds
from tests.chaos.people import client_of
from tests.chaos.words import CONDITION, STALE_NS, WITNESSES, Told

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

READ_BY = (CONDITION, ALERT)
"""The beginnings of the rules that read other programs' words."""
GPUS_MISSING = "node.gpus_missing"
TOGETHER_NS = seconds(3600 + 60)
"""Nanoseconds that two witnesses are apart at most; changes within a minute are one."""
BEHIND_NS = seconds(700)
"""Nanoseconds by which a decision may be older than its write."""
MARGIN_NS = seconds(2)
TAINT = "taint by two witnesses"
_LEFT_OUT = "entries left out"
"""Words in a record that is too long: it does not have every fault."""
WHATS = ("a condition", "an alert")
DEEDS = ("begins", "grows", "is confirmed", *(f"ends by {by}" for by in (MetBy.REBOOT, MetBy.QUIET)))
"""The names under which it is counted what happens to suspicions."""


class Suspicions:
    """Checks everything that records say of other programs' words."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._counted_ns: defaultdict[tuple[str, str], int] = defaultdict(int)
        """By UID of the Node and rule, the latest change that was counted."""
        self._released_ns: defaultdict[str, int] = defaultdict(int)
        """By UID of the Node, when a person last released the whole node."""
        self._recorded: dict[tuple[Any, ...], int] = {}
        """By machine and incident, the count that a record had last."""
        self._gpus: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """By node, since when its Node told how many GPUs."""

    # What happens

    def counts_gpus(self, name: str) -> None:
        """Note the number of GPUs that the Node shows now."""
        self._gpus[name].append((self._world.clock.true_ns, self._world.machines[name].gpus))

    def released(self, new: NodeState) -> None:
        """Note that a person released the whole node."""
        uid = new.machine.node_uid
        self._world.firings.released(new)
        if new.as_read.record is None:  # purged
            self._forgotten(uid)
        elif new.record.last_by_person is not None:
            self._released_ns[uid] = unix_ns(new.record.last_by_person.at)

    def _forgotten(self, uid: str) -> None:
        """Note that nobody may know any more what was counted on a Node."""
        self._world.firings.forgotten(str(uid))
        for key in [each for each in self._counted_ns if each[0] == uid]:
            del self._counted_ns[key]

    # What is checked while a schedule runs

    def written(self, process: Process, old: NodeState, new: NodeState) -> None:
        """Check a controller's write of a record."""
        before = {_identity(each): each for each in _of_words(old.record)}
        now = {_identity(each): each for each in _of_words(new.record)}
        for key, each in now.items():
            was, place = before.get(key), (new.machine.system_id, *key)
            # A Node that registered again in the same boot has the faults of its machine.
            known = was.count if was else self._recorded.get(place, 0)
            self._recorded[place] = each.count
            if each.count > known:
                self._check_growth(process, old, new, each, each.count - known)
            if was is not None and _is_open(was) and not _is_open(each):
                self._check_end(process, old, new, each)
            if each.escalated_because and not (was and was.escalated_because):
                self._count(each, "is confirmed")
        # The Lease keeps the gravest faults in short, and suspicions last.
        if _LEFT_OUT in (new.as_read.record or "") or new.name in self._world.ledger.crowded:
            self._forgotten(new.machine.node_uid)
            return
        if new.record.releases[:1] != old.record.releases[:1]:
            return
        for key, each in before.items():
            if _is_open(each) and key not in now and each.state is not IncidentState.PENDING:
                self._break(process, new, f"forgets {each.key.rule}")

    def _check_growth(
        self, process: Process, old: NodeState, new: NodeState, each: Incident, gained: int
    ) -> None:
        uid, rule = new.machine.node_uid, each.key.rule
        self._count(each, "begins" if gained == each.count else "grows")
        if rule.startswith(ALERT):
            for why in self._world.firings.growth(old, new, each, gained):
                self._break(process, new, why)
            return
        counted_ns = self._counted_ns[uid, rule]
        told = [t for t in self._told(new, rule) if t.is_bad and self._could_see(t, process)]
        changes = {t.since_ns for t in told if t.since_ns is not None}
        if each.last_ns not in {t.since_ns for t in told if each.last.boot_id in (None, t.boot_id)}:
            self._break(process, new, f"counts a change of {rule} that no program told")
        if each.last_ns <= counted_ns:
            self._break(process, new, f"counts a change of {rule} again")
        elif gained > sum(counted_ns < ns <= each.last_ns for ns in changes):
            self._break(process, new, f"counts {gained} changes of {rule}, and fewer were told")
        if each.last_ns <= self._released_ns[uid]:
            self._break(process, new, f"counts a change of {rule} that a release covers")
        self._counted_ns[uid, rule] = max(counted_ns, each.last_ns)

    def _check_end(self, process: Process, old: NodeState, new: NodeState, each: Incident) -> None:
        """Check what ended a suspicion that nobody released."""
        if new.record.releases[:1] != old.record.releases[:1]:
            return
        if each.key.rule.startswith(ALERT):
            for why in self._world.firings.end(new, each):
                self._break(process, new, why)
            self._count(each, f"ends by {each.met_by}")
            return
        rule, told = each.key.rule, self._told(new, each.key.rule)
        now_ns = self._world.clock.true_ns
        if each.met_by is MetBy.REBOOT:
            is_boot = each.last.boot_id != new.machine.boot_id
            spoken = (
                t.boot_id == new.machine.boot_id
                and (t.since_ns or 0) > each.last_ns
                and t.is_bad is not None
                and t.told_ns + STALE_NS > t.from_ns
                for t in told
            )
            if not (is_boot and any(spoken)):
                self._break(process, new, f"ends {rule} by a reboot, and its program has not spoken since")
        elif each.met_by is MetBy.QUIET:
            quiet_ns = seconds(self._world.setup.suspect_days * 86_400) - self._slack_ns(process)
            healthy = (
                t.is_bad is False
                and (t.since_ns or now_ns) <= now_ns - quiet_ns
                and t.was_told(now_ns - BEHIND_NS, now_ns, self._slack_ns(process))
                for t in told
            )
            if not any(healthy):
                self._break(process, new, f"ends {rule} by quiet, and no program says that it is healthy")
        else:
            self._break(process, new, f"ends {rule} by {each.met_by}")
        self._count(each, f"ends by {each.met_by}")

    def may_taint(self, process: Process, new: NodeState) -> bool:
        """Whether two witnesses may taint the node: a program counts too few GPUs, and so does the Node."""
        released_ns = self._released_ns[new.machine.node_uid]
        missing = [i for i in new.record.incidents if i.key.rule == GPUS_MISSING and _is_open(i)]
        if not any(self._were_missing(new.name, i.first_ns) for i in missing):
            return False
        changes = [
            t.since_ns
            for rule in WITNESSES
            for t in self._told(new, rule)
            if t.is_bad and t.since_ns is not None and self._could_see(t, process)
        ]
        return any(
            abs(i.last_ns - since_ns) <= TOGETHER_NS and since_ns > released_ns
            for i in missing
            for since_ns in changes
        )

    # What is checked at the end

    def unseen(self, state: NodeState) -> Iterator[str]:
        """Describe each word that accuses the node now, and that its record does not have."""
        now_ns = self._world.clock.true_ns
        is_full = _LEFT_OUT in (state.as_read.record or "")
        is_read = state.ready and state.record_problem is None and not is_full
        if is_read:
            yield from self._world.firings.unseen(state)
        for t in self.told_now(state.name):
            if t.is_bad is not True or t.since_ns is None or t.uid != state.machine.node_uid:
                continue
            is_told = t.since_ns <= now_ns and now_ns - t.told_ns <= STALE_NS - seconds(300)
            if is_told and is_read and not self._is_known(t, state.record):
                ago = self._world.ledger.ago(t.since_ns)
                yield f"{t.rule} of {state.name} changed {ago}, and led to nothing"

    def unshown(self, states: Iterable[NodeState]) -> Iterator[str]:
        """Describe each suspicion that the label or ``status`` does not show."""
        suspects = {state.name: state for state in states if any(map(_is_open, _of_words(state.record)))}
        if not suspects:
            return
        fleet = collect(client_of(self._world), self._world.settings)
        shown = {each["name"]: each for each in status_document(status_report(fleet))["nodes"]}
        for name, state in suspects.items():
            node, faults = shown[name], {(each["rule"], each["gpu"]) for each in shown[name]["faults"]}
            open_ = [each for each in _of_words(state.record) if _is_open(each)]
            yield from (
                f"status does not show {i.key.rule} on {name}" for i in open_ if tuple(i.key) not in faults
            )
            counts = any(i.role is not Role.COLLATERAL for i in open_)
            if state.opted_out or not counts:
                continue
            words = ("faulty",) if state.tainted else ("held", "suspect")
            for where, word in (("label", state.as_read.health), ("status", node["state"])):
                if word not in words:
                    yield f"{name} is {word} by its {where}, and {open_[0].key.rule} is on its record"

    def told_now(self, name: str) -> list[Told]:
        """Return what a reader of the node can see now."""
        return [each for each in self._world.words.told[name] if each.until_ns is None]

    # Helpers

    def _told(self, state: NodeState, rule: str) -> list[Told]:
        uid = state.machine.node_uid
        return [t for t in self._world.words.told[state.name] if (t.rule, t.uid) == (rule, uid)]

    def _could_see(self, t: Told, process: Process) -> bool:
        """Whether a controller could ever take it for a word of the present."""
        return t.was_told(0, self._world.clock.true_ns, self._slack_ns(process))

    def _slack_ns(self, process: Process) -> int:
        """Return the nanoseconds by which the controller's clock may be off."""
        return MARGIN_NS + max(self._world.ledger.clock_ahead_ns, abs(process.clock_ahead_ns))

    def _were_missing(self, name: str, at_ns: int) -> bool:
        """Whether the Node showed too few GPUs then."""
        before = [gpus for ns, gpus in self._gpus[name] if ns <= at_ns + self._world.ledger.clock_ahead_ns]
        return bool(before) and before[-1] < ALL_GPUS

    def _is_known(self, t: Told, record: NodeRecord) -> bool:
        """Whether the record has the change, or something covers it."""
        assert t.since_ns is not None
        mine = [each for each in record.incidents if each.key.rule == t.rule]
        if any(_is_open(each) or each.last_ns >= t.since_ns for each in mine):
            return True
        return any(t.since_ns <= unix_ns(each.at) for each in record.releases)

    def _count(self, incident: Incident, deed: str) -> None:
        what = next(each for each in WHATS if each.endswith(incident.kind))
        self._world.ledger.happened[f"suspicion by {what} {deed}"] += 1

    def _break(self, process: Process, state: NodeState, why: str) -> None:
        self._world.ledger.break_(f"{process.name} {why} on {state.name}")


def _of_words(record: NodeRecord) -> list[Incident]:
    return [each for each in record.incidents if each.key.rule.startswith(READ_BY)]


def _identity(each: Incident) -> tuple[Any, ...]:
    return (each.key, each.last.boot_id, each.first_ns)


def _is_open(each: Incident) -> bool:
    return each.state is not IncidentState.RELEASED
