"""The invariants that every write is checked against while a schedule runs.

The ledger compares with the world's own list of what really happened. Of the program under test it reads only
the Nodes and the Lease, as any other program could.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from konductor_like.model import (
    MET_BY_REBOOT,
    Change,
    Checkpoint,
    IncidentState,
    NodeRecord,
    NodeState,
    Role,
    Severity,
    Source,
    Verb,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.fleet.brake import bound, share
from konductor_like.policy.node.health import only_tests
from tests.chaos.attempts import Attempts
from tests.chaos.evidence import (
    Node,
    is_key,
    is_open_in,
    listed,
    may_justify_taint,
    read_by,
    recorded,
    recorded_in,
    version,
    without_ours,
)
from tests.chaos.machines import DEFERRING_RULES, Machine, Occurrence, seconds
from tests.chaos.process import DEADLINE_SECONDS, LEASE, NAMESPACE, Process
from tests.chaos.returns import BY_HAND, BY_REBOOT, BY_VALIDATION, Returns, how_of, is_timed
from tests.chaos.suspicions import TAINT, Suspicions

if TYPE_CHECKING:
    from tests.chaos.world import World

Wanted = tuple[NodeState, Change]
"""What a writer writes, and the state on which it decided that."""
GPUS_MOST = 16
"""The most GPUs that a machine has, whatever a log says."""
MARGIN_NS = seconds(2)
"""Nanoseconds within which the order of two times is not checked."""


class Brake:
    """Checks every taint that a controller adds against the brake.

    ``step`` is the number of steps that were taken when the controller began to decide.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_hand: dict[str, int] = {}
        """The number of the step at which a person tainted a node, by node."""
        self._paused: int | None = None
        """The number of the step at which a person paused tainting."""
        self._paused_until: datetime | None = None

    def person_taints(self, name: str) -> None:
        """A person tainted a node; the brake does not apply to people."""
        self._by_hand[name] = self._world.taken

    def person_pauses(self, until: datetime | None) -> None:
        self._paused, self._paused_until = self._world.taken, until

    def person_resumes(self) -> None:
        """A person ended the pause, or the Lease was lost and the pause is unknown."""
        self._paused = None

    def broken_by(self, process: Process, before: NodeState, after: NodeState, step: int) -> Iterator[str]:
        """Describe each rule of the brake that this taint breaks."""
        rules, nodes = self._world.settings.policy(), {**process.states(), after.name: before}
        if self.pauses(step) and process.reads_lease():
            yield f"{process.name} taints {after.name} although tainting is paused"
        if after.name in process.maybe_tainted():
            return  # it was counted as tainted already
        # A write that is tried again was decided before the person tainted a node, and within the bound then.
        known = -1 if process.waits_for(after.name) else step
        unseen = self._by_hand.keys() - process.seen_tainted()
        is_test = only_tests(after.record)
        out = {
            name
            for name, state in nodes.items()
            if state.tainted and self._by_hand.get(name, -2) < known and name not in unseen
            if is_test or not only_tests(state.record)
        } | {after.name}
        most = bound(len(nodes), rules)
        if len(out) > most:
            yield f"{process.name} taints {len(out)} nodes, the brake allows {most}"
        if rules.brake_pool_max_percent is not None and after.pool is not None:
            pool = {name for name, state in nodes.items() if state.pool == after.pool}
            most_of_pool = share(len(pool), rules.brake_pool_max_percent)
            if len(out & pool) > most_of_pool:
                yield f"{process.name} taints {len(out & pool)} of {after.pool}, it allows {most_of_pool}"

    def pauses(self, step: int) -> bool:
        """Whether a pause existed before that step, and still does."""
        if self._paused is None or self._paused >= step:
            return False
        until = self._paused_until
        return until is None or (self._world.clock.moment() < until and not self._world.clocks_differ)


class Ledger:
    """Checks every write, and collects a sentence for each broken invariant."""

    def __init__(self, world: World) -> None:
        self.broken: list[str] = []
        self.happened: Counter[str] = Counter()
        """How often each rare event happened, which shows that schedules do something."""
        self.tainted_once = 0
        """Number of taints that controllers set, which shows that schedules do something."""
        self._world = world
        self.brake = Brake(world)
        self.attempts = Attempts(world)
        self.returns = Returns(world)
        self.suspicions = Suspicions(world)
        self._tainted_by_person: dict[str, Machine] = {}
        """Machines that a person tainted and nobody has released, by node."""
        self._removed_by_person: dict[str, Machine] = {}
        """Machines whose taint a person removed last, by node."""
        self._deleted_tainted: dict[str, Machine] = {}
        """Machines whose Node was deleted while it was tainted, by node."""
        self._covered: defaultdict[str, set[Occurrence]] = defaultdict(set)
        """Occurrences that a release covers, by the uid of the Node."""
        self._ever_recorded: set[Occurrence] = set()
        """Occurrences that were in the record of a node at any time."""
        self.released_ns: defaultdict[str, list[int]] = defaultdict(list)
        """When a node was released, by node."""
        self.starts_without_cursor_ns: list[int] = []
        """When a controller may have started without a cursor."""
        self._lease_lost_seconds = float("-inf")
        self.writes: Counter[str] = Counter()
        self.timed: Counter[str] = Counter()
        """Number of writes that follow from the time alone, such as the end of a probation, by node."""
        self.clock_ahead_ns = 0
        """The most nanoseconds by which the clock of a controller was ahead of true time."""
        self.left_alone: set[str] = set()
        """Nodes that a person had the controller leave alone for a while: faults of then taint nothing."""
        self._kept: dict[str, str] = {}
        """The guard that kept a tainted node out of service last, by node."""
        self.foreign: set[str] = set()
        """Nodes whose log has a line without a boot id, of another boot: it may taint them."""
        self.crowded: set[str] = set()
        """Nodes that had no room for their record at any time, or whose record was refused."""
        self.forgers: set[str] = set()
        """Nodes whose kubelet wrote into their own record."""

    # While the schedule runs

    def starts_leading(self, process: Process, checkpoint: Checkpoint | None) -> None:
        """Note that a process leads; without a checkpoint it acts on the last 15 minutes only (rule 5)."""
        if checkpoint is None or set(checkpoint.read_ns) != set(Source):
            self.starts_without_cursor_ns.append(self._world.clock.true_ns)
        self._world.log(f"   {process.name} leads")

    def lease_touched(self) -> None:
        """Note that a person deleted the Lease or damaged it."""
        self._lease_lost_seconds = self._world.clock.seconds()
        self.brake.person_resumes()
        self.returns.forgotten()
        self.starts_without_cursor_ns.append(self._world.clock.true_ns)

    def starts_write(self, process: Process) -> None:
        """Check that no write starts after the renew deadline (rule 24)."""
        age_seconds = self._world.clock.seconds() - process.renewed_seconds
        if age_seconds > DEADLINE_SECONDS:
            self.break_(f"{process.name} starts a write {age_seconds:.0f} s after its last renewal")

    def wrote(
        self,
        process: Process | None,
        name: str,
        before: Node | None,
        after: Node | None,
        *,
        late: bool,
        step: int,
        wanted: Wanted | None = None,
    ) -> None:
        """Check a patch of a Node, which the API server may have refused."""
        if before is None or after is None or version(before) == version(after):
            return
        if without_ours(before) != without_ours(after):
            self.break_(f"a write to {name} changes fields that are not ours")
        old, new = self._world.decode(before), self._world.decode(after)
        if name in self.crowded and wanted is not None:
            old, new = _as_wanted(old, new, *wanted)
        self.attempts.written(process, old, new)
        if process is None:
            self._written_by_person(name, old, new)
        else:
            self._written_by(process, name, old, new, late=late, step=step)
        self._ever_recorded.update(o for o in self.of(name) if recorded(o, new.record))
        self._count(name, new.record)

    def edited(self, name: str, before: Node, after: Node | None, *, by_person: bool = False) -> None:
        """Note another writer's change of a Node: only a person's removal of the taint may be a release.

        It is one when the controller says so. If it did not see that step, it puts the taint back (rule 23).
        """
        if after is None:
            return
        old, new = self._world.decode(before), self._world.decode(after)
        if old.tainted and not new.tainted and self._claims(old):
            self.happened["taint removed by a person" if by_person else "taint removed by a program"] += 1
            if by_person:
                self._removed_by_person[name] = self._world.machines[name]
            else:
                self._removed_by_person.pop(name, None)

    def _written_by_person(self, name: str, old: NodeState, new: NodeState) -> None:
        """Note a command's write: a reset releases, a taint does not."""
        marks, purged = new.record.releases, new.as_read.record is None
        if purged or marks[:1] != old.record.releases[:1]:
            self._cover(name, new.machine.node_uid, old.record)
            self.suspicions.released(new)
        if any(i.by_person and i.state is IncidentState.ACTIVE for i in new.record.incidents):
            self._tainted_by_person[name] = self._world.machines[name]
            self.brake.person_taints(name)

    def forged(self, name: str) -> None:
        """Note that a node's kubelet wrote times into its own record.

        The record is all that the controller knows of the node's past, so a kubelet can hide what its own
        node had before: it counts as released. It can hide no later fault, and nothing of another node.
        """
        self.forgers.add(name)
        self.released_ns[name].append(self._world.clock.true_ns)
        self.returns.forgotten(name)

    def deleted(self, name: str, before: Node) -> None:
        """Note that a Node is deleted; a taint that it had counts as not removed."""
        state, machine = self._world.decode(before), self._world.machines[name]
        if state.tainted and self._claims(state):
            self._deleted_tainted[name] = machine

    def boot_posted(self, name: str) -> None:
        """Note that a Node has the id of its machine's new boot; see ``Machine.ambiguous``."""
        machine, stored = self._world.machines[name], self._world.nodes.stored(name)
        if not machine.plain or stored is None:
            return
        incidents = self._world.decode(stored).record.incidents
        held = [i for i in incidents if i.state is IncidentState.HELD]
        machine.ambiguous = machine.ambiguous or any(
            o.boot_id != machine.boot_id
            and (name in self.crowded or o not in self._ever_recorded or recorded_in(o, held))
            for o in self.of(name)
        )

    def check_now(self) -> None:
        """Check that at most one process may write, unless somebody deleted the Lease of its holder."""
        for process in filter(None, self._world.processes):
            found = process.kept_out()
            self.happened.update(
                f"guard {guard}" for name, guard in found.items() if self._kept.get(name) != guard
            )
            self._kept |= found
        writers = [p.name for p in self._world.processes if p is not None and p.may_write()]
        lost_for = self._world.clock.seconds() - self._lease_lost_seconds
        if len(writers) > 1 and lost_for > DEADLINE_SECONDS:
            self.break_(f"{' and '.join(writers)} may both write")

    def check_tainted(self, names: Collection[str]) -> None:
        """Check that these nodes are tainted, and no others."""
        for name in self._world.names:
            stored = self._world.nodes.stored(name)
            tainted = stored is not None and self._world.decode(stored).tainted
            if tainted is not (name in names):
                self.break_(f"{name} is {'tainted' if tainted else 'not tainted'}")

    def check_suspect(self, names: Collection[str]) -> None:
        """Check that these nodes are labelled suspect, and no others."""
        for name in self._world.names:
            stored = self._world.nodes.stored(name)
            suspect = stored is not None and self._world.decode(stored).as_read.health == "suspect"
            if suspect is not (name in names):
                self.break_(f"{name} is {'suspect' if suspect else 'not suspect'}")

    def _written_by(
        self, process: Process, name: str, old: NodeState, new: NodeState, *, late: bool, step: int
    ) -> None:
        self.writes[name] += 1
        holder = self._holder()
        lost_for = self._world.clock.seconds() - self._lease_lost_seconds
        if holder not in ("", process.identity) and not late and lost_for > DEADLINE_SECONDS:
            self.break_(f"{process.name} writes to {name} while {holder} holds the Lease")
        if old.tainted and not new.tainted:
            for sentence in self.returns.broken_by(process, old, new, step, late=late):
                self.break_(sentence)
            self._cover_by_controller(old, new)
        claimed = (
            not old.tainted and old.record.life.tainted_at is not None and new.record.life.tainted_at is None
        )
        if claimed:
            self._ends_claim(process, name, old, new)
        contests = [each.record.life.contested_at is not None for each in (old, new)]
        self.happened["taint contested"] += contests == [False, True]
        if is_timed(old.record, new.record):
            self.timed[name] += 1
        self.suspicions.written(process, old, new)
        for i in new.record.incidents:  # rule 17
            if i.role is Role.COLLATERAL and i.severity.taints and i.key.rule not in DEFERRING_RULES:
                self.break_(f"{process.name} calls {i.key.rule} on {name} collateral")
        named = {(*i.key, i.last.boot_id) for i in new.record.incidents if i.key.gpu is not None}
        gpus = Counter((rule, boot_id) for rule, _, boot_id in named)
        if gpus and max(gpus.values()) > GPUS_MOST:
            self.break_(f"{process.name} notes {max(gpus.values())} GPUs of one rule and boot on {name}")
        if new.tainted and not old.tainted:
            self.tainted_once += 1
            self._check_taint(process, name, old, new)
            for sentence in self.brake.broken_by(process, old, new, step):
                self.break_(sentence)

    def _ends_claim(self, process: Process, name: str, old: NodeState, new: NodeState) -> None:
        """Note that a controller ends the claim of a taint that somebody had removed."""
        is_new = new.record.releases[:1] != old.record.releases[:1]
        if not (is_new and how_of(new.record) == BY_HAND):
            self._cover_by_controller(old, new)
            return
        if self._removed_by_person.pop(name, None) is None and name not in self.forgers:
            self.break_(f"{process.name} releases {name}, whose taint no person removed")
        self._cover(name, old.machine.node_uid, old.record)

    def _check_taint(self, process: Process, name: str, old: NodeState, new: NodeState) -> None:
        """Check that a taint has a reason: a new occurrence on this machine in this boot."""
        machine, covered = self._world.machines[name], self._covered[new.machine.node_uid]
        if old.record.life.removed_at is not None:
            self.happened["taint put back"] += 1
            return
        if name in self.foreign:
            return
        if self._tainted_by_person.get(name) is machine:
            return
        if self._deleted_tainted.pop(name, None) is machine:
            return  # the Node was created again, and nobody had released it
        possible = [o for o in self.of(name) if o.taints and o.machine is machine and o.in_loki]
        # A reboot does not end a held fault that it does not repair.
        held = [i for i in old.record.incidents if i.state is IncidentState.HELD]
        held = [i for i in held if i.needs not in MET_BY_REBOOT]
        fresh = [
            o
            for o in possible
            if o not in covered
            and (
                o.boot_id == new.machine.boot_id
                or (machine.plain and (o not in self._ever_recorded or is_open_in(o, old)))
                or recorded_in(o, held)
            )
        ]
        escalated = [i for i in held if i.escalated_because]
        if fresh or escalated or may_justify_taint(list(self.uncovered(new))):
            return
        if self.suspicions.may_taint(process, new):
            self.happened[TAINT] += 1
            return
        if not (machine.plain and self._has_earlier_lines(name, machine)):
            why = f"none of {listed(possible)} may taint it now" if possible else "nothing happened there"
            self.break_(f"{process.name} taints {name}, but {why}")

    def uncovered(self, state: NodeState) -> Iterator[Occurrence]:
        """Yield the occurrences of the node's machine and boot that its last release does not cover."""
        machine, record = self._world.machines[state.name], state.record
        by_person = record.last_by_person
        since_ns = unix_ns(by_person.at) - MARGIN_NS if by_person else 0
        if since_ns > self._world.clock.true_ns and state.name in self.forgers:
            since_ns = 0  # no release of the future covers a line that its place in the kernel log dates
        for o in self.of(state.name):
            of_boot = o.source is Source.POD or machine.plain or o.boot_id == state.machine.boot_id
            if not (o.machine is machine and o.in_loki and of_boot):
                continue
            # A release covers a kernel line by its position: a line that nobody had read then is new.
            is_unread = o.source is Source.KERNEL and o not in self._covered[state.machine.node_uid]
            if is_unread or max(o.timestamps) > since_ns:
                yield o

    def _cover(self, name: str, uid: str, record: NodeRecord) -> None:
        """Note a release of the whole node: it covers what is recorded and what was read."""
        now_ns = self._world.clock.true_ns
        self._tainted_by_person.pop(name, None)
        self._deleted_tainted.pop(name, None)
        self.released_ns[name].append(now_ns)
        known = [i for i in record.incidents if i.state is not IncidentState.PENDING]
        for o in self.of(name):
            if read_by(o, record.read) or recorded_in(o, known):
                self._covered[uid].add(o)

    def _cover_by_controller(self, old: NodeState, new: NodeState) -> None:
        """Note a release by the controller: of a test, or of what is recorded of earlier boots."""
        self._deleted_tainted.pop(old.name, None)
        known = [i for i in old.record.incidents if i.state is not IncidentState.PENDING]
        for o in self.of(old.name):
            tested = o.finding.severity is Severity.TEST and recorded_in(o, known)
            is_back = how_of(new.record) in (BY_REBOOT, BY_VALIDATION)
            if tested or (is_back and o.boot_id != new.machine.boot_id):
                self._covered[new.machine.node_uid].add(o)

    def _count(self, name: str, record: NodeRecord) -> None:
        """Check that no count is above the number of distinct occurrences."""
        for incident in record.incidents:
            if not incident.has_line or name in self.foreign:
                continue
            plain = self._world.machines[name].plain
            real = sum(
                o.in_loki and is_key(o, incident) and (plain or incident.last.boot_id in (None, o.boot_id))
                for o in self.of(name)
                if incident.source is Source.KERNEL or o.source is Source.POD
            )
            if incident.source is Source.POD:
                real = sum(o.in_loki and is_key(o, incident) for o in self.of(name))
            if incident.count > real:
                self.break_(f"{name} counts {incident.count} of {incident.key.rule}, {real} happened")

    def mistake(self, record: logging.LogRecord) -> None:
        """Note an exception that the program did not expect."""
        error = record.exc_info[1] if record.exc_info else None
        self.break_(f"{record.getMessage()} ({error!r})")

    def _has_earlier_lines(self, name: str, machine: Machine) -> bool:
        """Whether the name has plain lines of an earlier boot or machine.

        A plain line names neither, so a replayed one looks like a line of the present boot.
        """
        past = (o for o in self.of(name) if o.taints)
        return any(o.machine is not machine or o.boot_id != machine.boot_id for o in past)

    # Helpers

    def of(self, name: str) -> list[Occurrence]:
        return [o for o in self._world.occurrences if o.node == name]

    def _claims(self, state: NodeState) -> bool:
        """Whether a tainted node is out of service; one without room may not show that."""
        return state.record.life.tainted_at is not None or state.name in self.crowded

    def _holder(self) -> str:
        for lease in self._world.kube.objects("leases", NAMESPACE):
            if lease["metadata"]["name"] == LEASE:
                return str(lease.get("spec", {}).get("holderIdentity") or "")
        return ""

    def ago(self, ns: int) -> str:
        return f"{(self._world.clock.true_ns - ns) / 1e9:.0f} s ago"

    def break_(self, sentence: str) -> None:
        self._world.log(f"!! {sentence}")
        self.broken.append(sentence)


def _as_wanted(
    old: NodeState, new: NodeState, state: NodeState, change: Change
) -> tuple[NodeState, NodeState]:
    """Return a Node before and after a write with the records that its writer knows and writes."""
    text = new.as_read.record or (None if change.verb is Verb.PURGE else "")
    record = change.record or state.record
    return (
        replace(old, record=state.record, record_problem=state.record_problem),
        replace(new, record=record, as_read=replace(new.as_read, record=text)),
    )
