"""Random lives of one node: faults, reboots, returns, people and time, each decided as the controller does.

A life is made from its seed. Everything that happens is written to the node with the record's codec, so the
record of a life is always one that a controller may find on a Node.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, ClassVar

from konductor_like.cluster.node.record import decode, encode
from konductor_like.model import (
    NO_GPUS,
    Change,
    Fault,
    GpuCount,
    Growth,
    Machine,
    NodeRecord,
    NodeState,
    RecentEvidence,
    Snapshot,
    Taint,
    Verb,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.node.release import release
from konductor_like.policy.operator import operator_taint
from tests.policy.answers import (
    GPUS_MISSING,
    NAME,
    OURS,
    fault_of,
    planned,
    policy_of,
    snapshot_of,
    state_of,
)

START = datetime.fromisoformat("2026-03-04T12:00:00+00:00")
GPUS = ("0000:1b:00", "0000:4e:00", "0000:9a:00")
WRITERS = ("kubectl-taint", "kubectl-edit", "node-repairer")
PAUSES = (5.0, 30.0, 30.0, 300.0, 1200.0, 1200.0, 7200.0, 40_000.0, 100_000.0, 700_000.0)
"""Seconds that pass between two events."""
EVENTS = {
    "fatal": 22,
    "same again": 10,
    "suspect": 6,
    "test": 5,
    "command test": 3,
    "of the next boot": 2,
    "replay": 4,
    "reboot": 22,
    "quiet": 26,
    "reset": 7,
    "by hand": 4,
    "person": 3,
    "cordon": 3,
    "not ready": 3,
    "gpus": 5,
    "gpus missing": 3,
    "gap": 3,
    "brake": 4,
    "pause": 2,
    "claim": 2,
    "restart": 4,
    "registers again": 2,
    "driver ends": 3,
    "repair": 14,
    "several": 6,
    "fails at boot": 6,
    "late line": 3,
}
"""What happens, and how often in about 170 events."""


@dataclass
class Life:
    """One node's life so far. ``state`` is the Node as the API server has it."""

    events: ClassVar[Mapping[str, int]] = EVENTS
    seed: int
    state: NodeState = field(default_factory=lambda: state_of({}, NodeRecord(), None, None))
    now: datetime = START
    happened: Counter[str] = field(default_factory=Counter)
    told: list[Change] = field(default_factory=list)
    """All writes of the node."""
    history: list[str] = field(default_factory=list)
    """What happened, in words."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.ask: dict[str, Any] = {"returns": self.random.random() < 0.8}
        self.boots = 1
        self.booted = self.now - timedelta(hours=2)
        self.printed: list[Fault] = []
        self.grown: Mapping[str, tuple[Growth, ...]] = {}
        self.window = RecentEvidence()
        self._boot("boot-1")

    def step(self, number: int) -> None:
        """Let some time pass, then let one thing happen; seed and number determine both."""
        self.random = Random(f"{self.seed} {number}")
        pause = self.random.choice(PAUSES)
        what = self.random.choices([*self.events], [*self.events.values()])[0]
        self.pass_time(pause)
        if getattr(self, f"do_{what.replace(' ', '_')}")() is not False:
            self.happened[what] += 1
            self.history.append(f"{pause:g} s later: {what}")
        self.tick()

    def pass_time(self, seconds: float) -> None:
        """Let this time pass, and one decision be made at its end."""
        self.now += timedelta(seconds=seconds)
        self.tick()

    def do_fatal(self) -> None:
        self.fails(self.random.choice([79, 79, 79, 48, 95, 140]))

    def do_same_again(self) -> bool:
        """The last fault, of this or of an earlier boot, comes again."""
        if not self.printed:
            return False
        last = self.printed[-1].finding
        self.fails(last.code or 79, last.gpu)
        return True

    def do_several(self) -> None:
        """Several lines are read in one poll."""
        codes = self.random.choices([79, 48, 95, 140, 63, 14], k=self.random.choice([2, 3]))
        found = [self.line(code, self.random.choice(GPUS)) for code in codes]
        self.printed += found
        self.tick(*found)

    def do_fails_at_boot(self) -> None:
        """The first decision after a reboot reads a fault of the new boot, too."""
        self.do_reboot()
        if self.random.random() < 0.5 or not self.do_same_again():
            self.do_several()

    def do_late_line(self) -> None:
        """A line from before the reboot is read after it."""
        found = self.line(self.random.choice([79, 48, 63]), self.random.choice(GPUS))
        self.do_reboot()
        self.tick()
        self.tick(found)

    def do_suspect(self) -> None:
        self.fails(self.random.choice([63, 63, 154, 31]))

    def do_test(self) -> None:
        self.fails(14)

    def do_command_test(self) -> None:
        found = self.line(14, GPUS[0])
        text = f"konductor-like test: {found.finding.text}"
        self.tick(replace(found, finding=found.finding._replace(text=text)))

    def do_of_the_next_boot(self) -> None:
        """A line of the next boot is read before the Node shows that boot."""
        self.tick(fault_of(79, self.random.choice(GPUS), f"boot-{self.boots + 1}", 90_000_000, at=self.now))

    def do_replay(self) -> bool:
        again = [each for each in self.printed if each.finding.position.boot_id == self.boot_id]
        self.tick(*(replace(each, timestamp_ns=unix_ns(self.now)) for each in again))
        return bool(again)

    def do_driver_ends(self) -> bool:
        """The driver's line that ends a suspicion (Xid 154 "to None")."""
        found = self.line(154, self.random.choice(GPUS))
        self.tick(replace(found, finding=found.finding._replace(clears="xid.154")))
        return True

    def do_reboot(self) -> None:
        self.now += timedelta(seconds=120)
        self.boots += 1
        self._boot(f"boot-{self.boots}")
        self.booted = self.now - timedelta(seconds=60)

    def do_quiet(self) -> None:
        """The log is heard for 20 minutes without a fault, decided every 5 minutes."""
        for _ in range(4):
            self.pass_time(300)

    def do_repair(self) -> None:
        """Everything around the machine is in order again, it reboots, and its log is heard."""
        self.put_in_order()
        self.do_reboot()
        self.do_quiet()

    def put_in_order(self) -> None:
        self.ask |= {"gap": False, "pause": False, "brake": False}
        self.state = replace(
            self.state, ready=True, unschedulable=False, gpus=GpuCount(8, 8),
            taints=tuple(each for each in self.state.taints if each.ours or each.suspects),
        )  # fmt: skip

    def do_reset(self) -> bool:
        reason = self.random.choice(["", "new riser"])
        return self.apply(release(self.state, at=self.now, by="ann", reason=reason, read_ns=self._read_ns()))

    def do_by_hand(self) -> bool:
        if not self.state.tainted:
            return False
        for _ in range(self.random.choice([1, 1, 3])):
            taints = tuple(each for each in self.state.taints if not each.ours)
            self.state = replace(self.state, taints=taints, removed_by=self.random.choice(WRITERS))
            self.pass_time(30)
            self.fails(79)
        return True

    def do_person(self) -> bool:
        return self.apply(operator_taint(self.state, at=self.now, by="kim", reason="riser swap"))

    def do_cordon(self) -> None:
        self.state = replace(self.state, unschedulable=not self.state.unschedulable)

    def do_not_ready(self) -> None:
        self.state = replace(self.state, ready=not self.state.ready)

    def do_claim(self) -> None:
        """Another repairer claims the node, or ends its claim."""
        claim = Taint("karpenter.sh/disrupted", None, "NoSchedule")
        others = tuple(each for each in self.state.taints if each.key != claim.key)
        self.state = replace(self.state, taints=others if claim in self.state.taints else (*others, claim))

    def do_gpus(self) -> None:
        counts = [
            GpuCount(8, 8),
            GpuCount(7, 7),
            GpuCount(7, 8),
            NO_GPUS,
            GpuCount(16, 16, layout="replicas=2"),
        ]
        self.state = replace(self.state, gpus=self.random.choice([GpuCount(8, 8), *counts]))

    def do_gpus_missing(self) -> None:
        """A GPU is lost for half an hour, as a controller that remembers earlier counts finds it."""
        self.state = replace(self.state, gpus=GpuCount(7, 8))
        found = self.line(63, None)
        finding = GPUS_MISSING._replace(text="7 of 8 GPUs are allocatable", position=found.finding.position)
        self.tick(replace(found, finding=finding))

    def do_gap(self) -> None:
        self.ask["gap"] = not self.ask.get("gap")

    def do_brake(self) -> None:
        self.ask["brake"] = not self.ask.get("brake")

    def do_pause(self) -> None:
        self.ask["pause"] = not self.ask.get("pause")

    def do_restart(self) -> None:
        self.grown, self.window = {}, RecentEvidence()

    def do_registers_again(self) -> None:
        """The Node is deleted and made again for the same machine; the running controller has its record."""
        parts = json.loads(self.state.as_read.record or "{}")
        parts.pop("tainted", None)  # the taint was deleted with the Node
        for each in parts.get("incidents", ()):
            if each["state"] == "active" and self.state.tainted:
                each["state"] = "held"
        text = encode(decode(json.dumps(parts))[0]) if parts and self.random.random() < 0.8 else None
        machine = replace(self.state.machine, node_uid=f"uid-{self.random.randrange(10**6)}")
        seen = replace(self.state.as_read, uid=machine.node_uid, record=text, health=None, needs=None)
        record = decode(text)[0] if text else NodeRecord()
        self.state = replace(self.state, machine=machine, taints=(), record=record, as_read=seen)

    @property
    def boot_id(self) -> str:
        """The boot that the Node shows."""
        return str(self.state.machine.boot_id)

    def fails(self, code: int, gpu: str | None = "") -> None:
        """Let the node print an Xid, and decide."""
        found = self.line(code, self.random.choice(GPUS) if gpu == "" else gpu)
        self.printed = [*self.printed[-20:], found]
        self.tick(found)

    def line(self, code: int, gpu: str | None) -> Fault:
        """Return the fault of a line of the present boot that is printed now."""
        up = self.now - self.booted
        return fault_of(code, gpu, self.boot_id, round(up.total_seconds() * 1e6), at=self.now)

    def tick(self, *faults: Fault) -> None:
        """Decide on the faults, and write the plan."""
        plan = planned(self.snapshot(), faults, policy_of(self.ask), self.now)
        for change in plan.changes:
            self.apply(change)
        self.grown, self.window = plan.grown, plan.window

    def snapshot(self) -> Snapshot:
        """Return the facts of a decision now."""
        self.ask["heard"] = (self.now - self.booted).total_seconds()
        facts = snapshot_of(self.state, self.ask, self.now)
        return replace(facts, grown=self.grown, window=self.window)

    def apply(self, change: Change | None) -> bool:
        """Write a change to the Node as the API server would."""
        if change is None or change.node != NAME:
            return False
        self.told.append(change)
        text = None if change.record is None else encode(change.record)
        record, problem = (NodeRecord(), None) if text is None else decode(text)
        assert problem is None
        taints = tuple(each for each in self.state.taints if not (each.ours or each.suspects))
        is_tainted = change.verb is Verb.TAINT or (self.state.tainted and change.verb is Verb.RECORD)
        taints = (*taints, OURS) if is_tainted else taints
        seen = replace(self.state.as_read, record=text, health=change.health, needs=change.needs)
        by = None if OURS in taints else self.state.removed_by
        self.state = replace(self.state, taints=taints, record=record, as_read=seen, removed_by=by)
        return True

    def situation(self) -> dict[str, Any]:
        """Return the node as ``answers`` reads it, without an ``ask``."""
        state, seen = self.state, self.state.as_read
        gpus = {
            name: value
            for name in GpuCount.__slots__
            if (value := getattr(state.gpus, name)) or name != "by_slices"  # builds of before do not know it
        }
        facts: dict[str, Any] = {
            "uid": state.machine.node_uid,
            "boot": state.machine.boot_id,
            "tainted": state.tainted,
            "suspect_tainted": state.suspect_tainted,
            "taints": [[t.key, t.value, t.effect] for t in state.taints if not (t.ours or t.suspects)],
            "health": seen.health,
            "needs": seen.needs and str(seen.needs),
            "cordoned": state.unschedulable,
            "writer": state.removed_by,
            "booted_after_ns": state.booted_after_ns,
        }
        facts = {name: fact for name, fact in facts.items() if fact}
        facts |= {} if state.ready else {"ready": False}
        facts |= {} if state.gpus == GpuCount(8, 8) else {"gpus": gpus}
        return {"record": seen.record, "node": facts}

    def _boot(self, boot: str) -> None:
        after_ns = unix_ns(self.now) - 100 * 10**9
        machine = Machine(self.state.machine.node_uid, self.state.machine.system_id, boot)
        self.state = replace(self.state, machine=machine, booted_after_ns=after_ns)

    def _read_ns(self) -> Mapping[Any, int]:
        return self.snapshot().read_ns
