"""What must hold, said in code: kept while a schedule runs, and looked over when the dust has settled.

The truth it judges by is the world's own list of what really happened; of the program under test it reads
only what stands on the nodes and on the Lease, as any other program could.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from konductor_like.model import (
    Checkpoint,
    IncidentState,
    NodeRecord,
    NodeState,
    Role,
    Source,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.brake import bound, share
from tests.chaos.evidence import (
    Node,
    acted,
    acted_in,
    is_key,
    listed,
    lost_ack,
    may_be_enough,
    read_by,
    same,
    stands_open,
    version,
    without_ours,
)
from tests.chaos.machines import RULES_THAT_SETTLE, Machine, Occurrence, seconds
from tests.chaos.process import DEADLINE_SECONDS, LEASE, NAMESPACE, Process

if TYPE_CHECKING:
    from tests.chaos.world import World

MARGIN_NS = seconds(2)


class Brake:
    """Judges every taint that a controller adds; ``turn`` is after how many steps it began to decide."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_hand: dict[str, int] = {}
        """By node, the step at which a person tainted it."""
        self._paused: int | None = None
        """The step at which a person paused tainting."""
        self._paused_until: datetime | None = None

    def person_taints(self, name: str) -> None:
        """A person took a node out; no brake holds them."""
        self._by_hand[name] = self._world.taken

    def person_pauses(self, until: datetime | None) -> None:
        self._paused, self._paused_until = self._world.taken, until

    def person_resumes(self) -> None:
        """A person ended the pause; or nobody can say whether there is one."""
        self._paused = None

    def broken_by(self, process: Process, before: NodeState, after: NodeState, turn: int) -> Iterator[str]:
        """What this taint breaks, in words."""
        rules, nodes = self._world.settings.rules(), {**process.store.snapshot(), after.name: before}
        if self._pauses(turn) and process.reads_lease():
            yield f"{process.name} taints {after.name} although tainting is paused"
        if after.name in process.perhaps_out():
            return  # it was counted as out already
        # What was decided before a person took a node out, and is tried again, was within the bound then.
        known = -1 if process.waits_for(after.name) else turn
        unseen = self._by_hand.keys() - process.seen_out
        out = {
            name
            for name, state in nodes.items()
            if state.tainted and self._by_hand.get(name, -2) < known and name not in unseen
        } | {after.name}
        most = bound(len(nodes), rules)
        if len(out) > most:
            yield f"{process.name} takes {len(out)} nodes out, the brake allows {most}"
        if rules.brake_pool_max_percent is not None and after.pool is not None:
            pool = {name for name, state in nodes.items() if state.pool == after.pool}
            most_of_pool = share(len(pool), rules.brake_pool_max_percent)
            if len(out & pool) > most_of_pool:
                yield f"{process.name} takes {len(out & pool)} of {after.pool} out, it allows {most_of_pool}"

    def _pauses(self, turn: int) -> bool:
        """Whether there was a pause when the turn began, and still is."""
        if self._paused is None or self._paused >= turn:
            return False
        until = self._paused_until
        return until is None or (self._world.clock.moment() < until and not self._world.clocks_differ)


class Ledger:
    """Watches every write and keeps what it proves broken, as sentences."""

    def __init__(self, world: World) -> None:
        self.broken: list[str] = []
        self.tainted_once = 0
        """How many taints were set, to show that schedules do something."""
        self._world = world
        self.brake = Brake(world)
        self._operators: dict[str, Machine] = {}
        """Machines that a person tainted and nobody released since, by their node."""
        self._went: dict[str, tuple[Machine, str]] = {}
        """Machines, with their boot, whose Node was deleted while it was out."""
        self._spent: defaultdict[str, set[Occurrence]] = defaultdict(set)
        """Per Node object: what a release covers."""
        self._acted: set[Occurrence] = set()
        """What was in any node's record at any time."""
        self.acked_ns: defaultdict[str, list[int]] = defaultdict(list)
        """By node, when a person acknowledged what it had."""
        self.released_ns: defaultdict[str, list[int]] = defaultdict(list)
        """By node, when it was let go."""
        self.fresh_ns: list[int] = []
        """When a controller may have begun without knowing how far was read."""
        self._lease_lost_seconds = float("-inf")
        self.writes: Counter[str] = Counter()
        self.allowed: Counter[str] = Counter()
        self.terms = 0
        """How often a process took office."""
        self.touched: set[str] = set()
        """Nodes that a person wrote to, or that somebody deleted."""

    # While it runs

    def takes_office(self, process: Process, checkpoint: Checkpoint | None) -> None:
        """A process begins to lead; without a checkpoint it acts on the last 15 minutes only (rule 5)."""
        if checkpoint is None or set(checkpoint.read_ns) != set(Source):
            self.fresh_ns.append(self._world.clock.true_ns)
        self.terms += 1
        self._world.tell(f"   {process.name} leads")

    def lease_touched(self) -> None:
        """A person deleted the Lease or spoilt it."""
        self._lease_lost_seconds = self._world.clock.seconds()
        self.brake.person_resumes()
        self.fresh_ns.append(self._world.clock.true_ns)

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
            self.touched.add(name)
            self._written_by_person(name, old, new)
        else:
            self._written_by(process, name, old, new, late=late, turn=turn)
        self._acted.update(o for o in self.of(name) if acted(o, new.record))
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
        if {i.ack for i in new.record.incidents} - {i.ack for i in old.record.incidents}:
            self.acked_ns[name].append(self._world.clock.true_ns)
        if any(i.by_person and i.state is IncidentState.ACTIVE for i in new.record.incidents):
            self._operators[name] = self._world.machines[name]
            self.brake.person_taints(name)

    def deleted(self, name: str, before: Node) -> None:
        """A Node is deleted; its taint went with it, and nobody removed it."""
        self.touched.add(name)
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
            for o in self.of(name)
        )

    def check_now(self) -> None:
        """At most one process may write, unless somebody took the Lease away under its holder."""
        writers = [p.name for p in self._world.processes if p is not None and p.may_write()]
        lost_for = self._world.clock.seconds() - self._lease_lost_seconds
        if len(writers) > 1 and lost_for > DEADLINE_SECONDS:
            self.break_(f"{' and '.join(writers)} may both write")

    def check_tainted(self, names: Collection[str]) -> None:
        """These nodes are tainted, and no others."""
        for name in self._world.names:
            stored = self._world.nodes.stored(name)
            tainted = stored is not None and self._world.decode(stored).tainted
            if tainted is not (name in names):
                self.break_(f"{name} is {'tainted' if tainted else 'not tainted'}")

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
        for i in new.record.incidents:  # rule 17
            if i.role is Role.COLLATERAL and i.severity.taints and i.key.rule not in RULES_THAT_SETTLE:
                self.break_(f"{process.name} calls {i.key.rule} on {name} collateral")
        if new.tainted and not old.tainted:
            self.tainted_once += 1
            self._check_taint(process, name, old, new)
            for sentence in self.brake.broken_by(process, old, new, turn):
                self.break_(sentence)

    def _check_taint(self, process: Process, name: str, old: NodeState, new: NodeState) -> None:
        """A taint stands for something that happened on this machine in this boot, and acted never before."""
        machine, spent = self._world.machines[name], self._spent[new.machine.node_uid]
        if self._operators.get(name) is machine or self._went.pop(name, None) == (machine, machine.boot_id):
            return  # its Node was made anew, and nobody had let it go
        possible = [o for o in self.of(name) if o.taints and o.machine is machine and o.in_loki]
        fresh = [
            o
            for o in possible
            if o not in spent
            and (
                o.boot_id == new.machine.boot_id
                or (machine.plain and (o not in self._acted or stands_open(o, old)))
            )
        ]
        if fresh or may_be_enough(list(self.standing(new))):
            return
        if not (machine.plain and self._has_left_something(name, machine)):
            why = f"none of {listed(possible)} may act there now" if possible else "nothing happened there"
            self.break_(f"{process.name} taints {name}, but {why}")

    def standing(self, state: NodeState) -> Iterator[Occurrence]:
        """What Loki has of the node's machine in this boot that its last release does not cover."""
        machine, record = self._world.machines[state.name], state.record
        since_ns = unix_ns(record.releases[0].at) - MARGIN_NS if record.releases else 0
        for o in self.of(state.name):
            of_boot = o.source is Source.POD or machine.plain or o.boot_id == state.machine.boot_id
            if o.machine is machine and o.in_loki and of_boot and max(o.timestamps) > since_ns:
                yield o

    def _spend(self, name: str, uid: str, record: NodeRecord, *, reset_ns: int | None) -> None:
        """A release: what was recorded is covered, and by a reset also what belongs to it and came before."""
        now_ns = self._world.clock.true_ns
        self._operators.pop(name, None)
        self._went.pop(name, None)
        self.released_ns[name].append(now_ns)
        self.allowed[name] += 2
        known = [i for i in record.incidents if i.state is not IncidentState.PENDING]
        closed = [i for i in known if i.state is not IncidentState.RELEASED]
        for o in self.of(name):
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
                for o in self.of(name)
                if incident.source is Source.KERNEL or o.source is Source.POD
            )
            if incident.source is Source.POD:
                real = sum(o.in_loki and is_key(o, incident) for o in self.of(name))
            if incident.count > real:
                self.break_(f"{name} counts {incident.count} of {incident.key.rule}, {real} happened")

    # When the dust has settled

    def mistake(self, record: logging.LogRecord) -> None:
        """The program met an exception that it did not expect."""
        error = record.exc_info[1] if record.exc_info else None
        self.break_(f"{record.getMessage()} ({error!r})")

    def _has_left_something(self, name: str, machine: Machine) -> bool:
        """Whether there are lines of an earlier boot or machine, which name neither: read again, or with a
        clock that ran ahead, nothing tells them from those of the present one.
        """
        past = (o for o in self.of(name) if o.taints)
        return any(o.machine is not machine or o.boot_id != machine.boot_id for o in past)

    # Words

    def of(self, name: str) -> list[Occurrence]:
        return [o for o in self._world.occurrences if o.node == name]

    def _holder(self) -> str:
        for lease in self._world.kube.objects("leases", NAMESPACE):
            if lease["metadata"]["name"] == LEASE:
                return str(lease.get("spec", {}).get("holderIdentity") or "")
        return ""

    def ago(self, ns: int) -> str:
        return f"{(self._world.clock.true_ns - ns) / 1e9:.0f} s ago"

    def break_(self, sentence: str) -> None:
        self._world.tell(f"!! {sentence}")
        self.broken.append(sentence)
