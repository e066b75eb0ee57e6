"""What must hold, said in code: kept while a schedule runs, and looked over when the dust has settled.

The truth it judges by is the world's own list of what really happened; of the program under test it reads
only what stands on the nodes and on the Lease, as any other program could.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from konductor_like.model import (
    Checkpoint,
    IncidentState,
    NodeRecord,
    NodeState,
    Source,
)
from konductor_like.policy.brake import bound
from konductor_like.policy.release import unix_ns
from konductor_like.policy.room import share
from tests.chaos.evidence import (
    Node,
    acted,
    acted_in,
    is_key,
    listed,
    lost_ack,
    read_by,
    same,
    stands_open,
    version,
    without_ours,
)
from tests.chaos.machines import Machine, Occurrence, seconds
from tests.chaos.process import DEADLINE_SECONDS, LEASE, NAMESPACE, Process
from tests.chaos.restraint import Restraint

if TYPE_CHECKING:
    from tests.chaos.world import World

LATE_SECONDS = 0.2
"""So much short of the configured lateness a line is certainly on time."""
ACT_SECONDS = 900.0
RECORD_SECONDS = 600.0
MARGIN_NS = seconds(2)


class Ledger:
    """Watches every write and keeps what it proves broken, as sentences."""

    def __init__(self, world: World) -> None:
        self.broken: list[str] = []
        self.tainted_once = 0
        """How many taints were set, to show that schedules do something."""
        self._world = world
        self.restraint = Restraint(world)
        self._operators: dict[str, Machine] = {}
        """Machines that a person tainted and nobody released since, by their node."""
        self._went: dict[str, tuple[Machine, str]] = {}
        """Machines, with their boot, whose Node was deleted while it was out."""
        self._spent: defaultdict[str, set[Occurrence]] = defaultdict(set)
        """Per Node object: what a release covers."""
        self._acted: set[Occurrence] = set()
        """What was in any node's record at any time."""
        self._released_ns: defaultdict[str, list[int]] = defaultdict(list)
        self._fresh_ns: list[int] = []
        self._lease_lost_seconds = float("-inf")
        self.writes: Counter[str] = Counter()
        self.allowed: Counter[str] = Counter()

    # While it runs

    def takes_office(self, process: Process, checkpoint: Checkpoint | None) -> None:
        """A process begins a term; without a checkpoint it acts on the last 15 minutes only (rule 5)."""
        if checkpoint is None or set(checkpoint.read_ns) != set(Source):
            self._fresh_ns.append(self._world.clock.true_ns)
        self._world.tell(f"   {process.name} leads")

    def lease_touched(self) -> None:
        """A person deleted the Lease or spoilt it."""
        self._lease_lost_seconds = self._world.clock.seconds()
        self.restraint.person_resumes()
        self._fresh_ns.append(self._world.clock.true_ns)

    def starts_write(self, process: Process) -> None:
        """No write starts after the renew deadline (rule 24)."""
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
        turn: int,
    ) -> None:
        """A patch of a Node was carried out, or refused."""
        if before is None or after is None or version(before) == version(after):
            return
        if without_ours(before) != without_ours(after):
            self.break_(f"a write to {name} changes what is not ours")
        old, new = self._world.decode(before), self._world.decode(after)
        if process is None:
            self._written_by_person(name, old, new)
        else:
            self._written_by(process, name, old, new, late=late, turn=turn)
        self._acted.update(o for o in self._of(name) if acted(o, new.record))
        self._count(name, new.record)

    def edited(self, name: str, before: Node, after: Node | None) -> None:
        """Somebody else changed a Node; taking the taint off by hand is a release (rule 23)."""
        if after is None:
            return
        old, new = self._world.decode(before), self._world.decode(after)
        self.allowed[name] += 2
        if old.tainted and not new.tainted and old.record.tainted_at is not None:
            self._spend(name, old.machine.node_uid, old.record, reset_ns=None)

    def _written_by_person(self, name: str, old: NodeState, new: NodeState) -> None:
        """A reset is a release; a taint and an acknowledgement take nothing back."""
        self.allowed[name] += 2
        marks, purged = new.record.releases, new.as_read.record is None
        if purged or marks[:1] != old.record.releases[:1]:
            by_reset = purged or marks[0].how == "reset"
            at_ns = self._world.clock.true_ns if purged else unix_ns(marks[0].at)
            self._spend(name, new.machine.node_uid, old.record, reset_ns=at_ns if by_reset else None)
        if any(i.by_person and i.state is IncidentState.ACTIVE for i in new.record.incidents):
            self._operators[name] = self._world.machines[name]
            self.restraint.person_taints(name)

    def deleted(self, name: str, before: Node) -> None:
        """A Node is deleted; its taint went with it, and nobody removed it."""
        state, machine = self._world.decode(before), self._world.machines[name]
        if state.tainted and state.record.tainted_at is not None:
            self._went[name] = (machine, machine.boot_id)

    def boot_posted(self, name: str) -> None:
        """A Node tells of its machine's new boot; see ``Machine.muddled``."""
        machine, stored = self._world.machines[name], self._world.nodes.stored(name)
        if not machine.plain or stored is None:
            return
        incidents = self._world.decode(stored).record.incidents
        held = [i for i in incidents if i.state is IncidentState.HELD]
        machine.muddled = machine.muddled or any(
            o.boot_id != machine.boot_id and (o not in self._acted or acted_in(o, held))
            for o in self._of(name)
        )

    def check_now(self) -> None:
        """At most one process may write, unless somebody took the Lease away under its holder."""
        writers = [p.name for p in self._world.processes if p is not None and p.may_write()]
        lost_for = self._world.clock.seconds() - self._lease_lost_seconds
        if len(writers) > 1 and lost_for > DEADLINE_SECONDS:
            self.break_(f"{' and '.join(writers)} may both write")

    def _written_by(
        self, process: Process, name: str, old: NodeState, new: NodeState, *, late: bool, turn: int
    ) -> None:
        self.writes[name] += 1
        holder = self._holder()
        lost_for = self._world.clock.seconds() - self._lease_lost_seconds
        if holder not in ("", process.identity) and not late and lost_for > DEADLINE_SECONDS:
            self.break_(f"{process.name} writes to {name} while {holder} holds the Lease")
        if old.tainted and not new.tainted:
            self.break_(f"{process.name} takes the taint off {name}")
        if lost := lost_ack(old.record, new.record):
            self.break_(f"{process.name} forgets that {lost.key.rule} on {name} was acknowledged")
        if new.tainted and not old.tainted:
            self.tainted_once += 1
            self._check_taint(process, name, old, new)
            for sentence in self.restraint.broken_by(process, old, new, turn):
                self.break_(sentence)

    def _check_taint(self, process: Process, name: str, old: NodeState, new: NodeState) -> None:
        """A taint stands for something that happened on this machine in this boot, and acted never before."""
        machine, spent = self._world.machines[name], self._spent[new.machine.node_uid]
        if self._operators.get(name) is machine or self._went.pop(name, None) == (machine, machine.boot_id):
            return  # its Node was made anew, and nobody had let it go
        possible = [o for o in self._of(name) if o.taints and o.machine is machine and o.in_loki]
        fresh = [
            o
            for o in possible
            if o not in spent
            and (
                o.boot_id == new.machine.boot_id
                or (machine.plain and (o not in self._acted or stands_open(o, old)))
            )
        ]
        if not fresh and not (machine.plain and self._has_left_something(name, machine)):
            why = f"none of {listed(possible)} may act there now" if possible else "nothing happened there"
            self.break_(f"{process.name} taints {name}, but {why}")

    def _spend(self, name: str, uid: str, record: NodeRecord, *, reset_ns: int | None) -> None:
        """A release: what was recorded is covered, and by a reset also what belongs to it and came before."""
        now_ns = self._world.clock.true_ns
        self._operators.pop(name, None)
        self._went.pop(name, None)
        self.restraint.person_releases(name)
        self._released_ns[name].append(now_ns)
        self.allowed[name] += 2
        known = [i for i in record.incidents if i.state is not IncidentState.PENDING]
        closed = [i for i in known if i.state is not IncidentState.RELEASED]
        for o in self._of(name):
            before = reset_ns is not None and o.in_loki and o.first_ns <= reset_ns - MARGIN_NS
            read = read_by(o, record.read)
            if read or acted_in(o, known) or (before and any(same(o, i) for i in closed)):
                self._spent[uid].add(o)

    def _count(self, name: str, record: NodeRecord) -> None:
        """A count is never above the number of distinct occurrences."""
        for incident in record.incidents:
            if incident.by_person:
                continue
            plain = self._world.machines[name].plain
            real = sum(
                o.in_loki and is_key(o, incident) and (plain or o.boot_id == incident.last.boot_id)
                for o in self._of(name)
                if incident.source is Source.KERNEL or o.source is Source.POD
            )
            if incident.source is Source.POD:
                real = sum(o.in_loki and is_key(o, incident) for o in self._of(name))
            if incident.count > real:
                self.break_(f"{name} counts {incident.count} of {incident.key.rule}, {real} happened")

    # When the dust has settled

    def mistake(self, record: logging.LogRecord) -> None:
        """The program met an exception that it did not expect."""
        error = record.exc_info[1] if record.exc_info else None
        self.break_(f"{record.getMessage()} ({error!r})")

    def check_end(self, writes_before: Counter[str]) -> None:
        """Every fault has its node tainted, held, released, or is rightly not the node's; writes are few."""
        states = {
            name: self._world.decode(stored)
            for name in self._world.names
            if (stored := self._world.nodes.stored(name)) is not None
        }
        for o in self._world.occurrences:
            state = states.get(o.node)
            if state is None or state.tainted or not self._must_taint(o, state):
                continue
            held = any(same(o, i) and i.state is IncidentState.HELD for i in state.record.incidents)
            if held and self._is_full(states, state.pool):
                continue
            why = "is held although there is room" if held else "led to nothing"
            self.break_(f"{o}, happened {self._ago(o.happened_ns)}, {why}")
        for name in self._world.names:
            self._check_writes(name)
            if self.writes[name] != writes_before[name]:
                self.break_(f"{name} is written although nothing happens any more")

    def _is_full(self, states: Mapping[str, NodeState], pool: str | None) -> bool:
        """Whether the fleet or the pool has no room for one more."""
        rules = self._world.settings.rules()
        full = sum(state.tainted for state in states.values()) >= bound(len(states), rules)
        if full or rules.brake_pool_max_percent is None:
            return full
        mates = [state for state in states.values() if state.pool == pool]
        return sum(state.tainted for state in mates) >= share(len(mates), rules.brake_pool_max_percent)

    def _must_taint(self, o: Occurrence, state: NodeState) -> bool:
        """Whether nothing excuses an untainted node."""
        machine = self._world.machines[o.node]
        if not (o.taints and o.in_loki and o.machine is machine and o.boot_id == machine.boot_id):
            return False
        latest_ns = seconds(self._world.setup.lateness_seconds - LATE_SECONDS)
        on_time = any(s.visible_ns - s.timestamp_ns <= latest_ns for s in o.shipments)
        acts_from_ns = max(self._fresh_ns, default=0) - seconds(ACT_SECONDS)
        if machine.plain and self._may_be_of_another_boot(o, machine):
            return False
        first_ns = min(o.first_ns, o.happened_ns)
        released = any(first_ns <= at_ns + MARGIN_NS for at_ns in self._released_ns[o.node])
        return (
            on_time
            and not released
            and not state.blocked
            and first_ns > max(state.created_ns, acts_from_ns) + MARGIN_NS
        )

    def _has_left_something(self, name: str, machine: Machine) -> bool:
        """Whether there are lines of an earlier boot or machine, which name neither: read again, or with a
        clock that ran ahead, nothing tells them from those of the present one.
        """
        past = (o for o in self._of(name) if o.taints)
        return any(o.machine is not machine or o.boot_id != machine.boot_id for o in past)

    def _may_be_of_another_boot(self, o: Occurrence, machine: Machine) -> bool:
        """Plain lines name no boot: they count for the one that the Node told of when they were read, and
        history from before the first start may be of a boot whose stamps were further than the present one's.
        """
        return (
            machine.muddled
            or o.happened_ns <= machine.posted_ns
            or any(
                other.boot_id != o.boot_id and any(other.happened_ns < at_ns for at_ns in self._fresh_ns)
                for other in self._of(o.node)
            )
        )

    def _check_writes(self, name: str) -> None:
        """First occurrences and taints at once, then one write per node per ten minutes (rule 22)."""
        keys = {(o.finding.rule, o.finding.gpu, o.boot_id) for o in self._of(name)}
        late = sum(s.visible_ns - s.timestamp_ns > MARGIN_NS for o in self._of(name) for s in o.shipments)
        times = 1 + len(self._released_ns[name])
        minutes = (self._world.clock.seconds() - 1000) / RECORD_SECONDS
        allowed = 3 + 2 * len(keys) * times + late + self.allowed[name] + int(minutes)
        if self.writes[name] > allowed:
            self.break_(f"{name} was written {self.writes[name]} times, {allowed} would do")

    # Words

    def _of(self, name: str) -> list[Occurrence]:
        return [o for o in self._world.occurrences if o.node == name]

    def _holder(self) -> str:
        for lease in self._world.kube.objects("leases", NAMESPACE):
            if lease["metadata"]["name"] == LEASE:
                return str(lease.get("spec", {}).get("holderIdentity") or "")
        return ""

    def _ago(self, ns: int) -> str:
        return f"{(self._world.clock.true_ns - ns) / 1e9:.0f} s ago"

    def break_(self, sentence: str) -> None:
        """Note what is broken."""
        self._world.tell(f"!! {sentence}")
        self.broken.append(sentence)
