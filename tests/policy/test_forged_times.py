"""Times in the future hold back no taint and no return for longer than true times would.

A wrong clock, or the kubelet of one node, writes them: on that node's record and on the Lease.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from konductor_like.model import (
    Control,
    ControlAct,
    IncidentState,
    Life,
    Machine,
    NodeRecord,
    Plan,
    Quarantine,
    ReleaseHow,
    ReturnedNode,
    SkipReason,
    Source,
    TaintedNode,
)
from konductor_like.model.time import CLOCKS_AGREE_SECONDS
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.deleted_nodes import updated_tainted_nodes
from konductor_like.policy.recovery.returns import is_stopped, known_returns, returns_left, settled_by_resume
from tests.policy.scenes import Cluster, at, fault, fleet, ns, reset_node
from tests.policy.test_guards import HEARD, RECORD, STATE, STOOD

YEARS = 10 * 365 * 86_400.0
FURTHEST = 9000.0
OFFSETS = (-3600.0, -60.0, 0.0, 20.0, 250.0, 3000.0, FURTHEST, YEARS, YEARS)
"""Seconds from now of the times that are written. The years never come."""
HOUR, COOLDOWN = 3600.0, 300.0
FORGING = "gpu-1"
"""The node whose kubelet writes its own record."""
NEW, BACK = "gpu-4", "gpu-5"
"""A node that fails at the end of the history, and one that has rebooted then."""


class World(Cluster):
    """A fleet with the Lease's lists, as the controller keeps them around each decision."""

    seconds = 0.0

    def act(self, control: Control, offset: float) -> None:
        """A person's command; its time may be wrong."""
        controls = self.snapshot.controls
        relapses = settled_by_resume(controls) if control is Control.RESUME else ()
        act = ControlAct(control, at(self.seconds + offset), "kim", nodes=1, relapses=relapses)
        self.snapshot = replace(self.snapshot, controls=controls.with_act(act))

    def decide(self, *failing: str) -> Plan:
        """Decide on an Xid 79 of each of these nodes."""
        now, controls = at(self.seconds), self.snapshot.controls
        tainted = updated_tainted_nodes(controls.tainted, self.nodes, self.rules, now)
        returned = known_returns(controls.returned, self.nodes.values(), now)
        self.snapshot = replace(self.snapshot, controls=replace(controls, tainted=tainted, returned=returned))
        lines = (fault(name, seconds=self.seconds, stamp=1000 + self.seconds) for name in failing)
        return self.tick(*lines, seconds=self.seconds)

    def reset(self, name: str) -> None:
        """``konductor-like reset NAME``."""
        state = self.nodes[name]
        if state.tainted or any(i.state is not IncidentState.RELEASED for i in state.record.incidents):
            reset_node(self, name, self.seconds)

    def forge(self, record: NodeRecord) -> None:
        """The kubelet replaces the record of its node; it cannot change the taint."""
        state = self.nodes[FORGING]
        claimed = state.record.life.tainted_at if state.tainted else record.life.tainted_at
        incidents = state.record.incidents
        self.nodes[FORGING] = replace(
            state,
            record=replace(
                record,
                life=replace(record.life, tainted_at=claimed),
                incidents=incidents,
                machine=state.machine,
            ),
        )

    def note(self, what: str, number: int, offset: float) -> None:
        """Write a time on the Lease that a controller with a wrong clock saw."""
        when, controls = at(self.seconds + offset), self.snapshot.controls
        if what == "deleted":
            gone = TaintedNode(f"gone-{number}", Machine(f"uid-{number}"), when, None, when)
            controls = replace(controls, tainted=(*controls.tainted, gone))
        else:
            relapsed_at = when if what == "relapsed" else None
            back = (ReturnedNode(f"old-{number + n}", when, relapsed_at) for n in range(4))
            controls = replace(controls, returned=(*controls.returned, *back))
        self.snapshot = replace(self.snapshot, controls=controls)


_CONTROLS = {"resume": Control.RESUME, "brake reset": Control.BRAKE_RESET, "purge": Control.PURGE}
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["fault"] * 4
            + ["release", "wait", "record", "claim", "deleted", "returned", "relapsed", *_CONTROLS]
        ),
        st.integers(0, 9),
        st.sampled_from(OFFSETS),
    ),
    min_size=15,
    max_size=40,
)


def take(world: World, what: str, number: int, offset: float) -> None:
    when = world.seconds + offset
    if what == "wait":
        world.seconds += 60.0 * (1 + number)
    elif what == "release":
        world.reset(f"gpu-{1 + number % 3}")
    elif what == "record":
        how, relapse = (ReleaseHow.RESET, ReleaseHow.REBOOT)[number % 2], number > 4
        past = (Quarantine(at(when - n - 1), at(when - n), "xid.79", how, relapse=relapse) for n in range(10))
        world.forge(NodeRecord(life=Life(quarantines=tuple(past))))
    elif what == "claim":
        world.forge(NodeRecord(life=Life(at(when))))
    elif what in _CONTROLS:
        world.act(_CONTROLS[what], offset)
    elif what != "fault":
        world.note(what, number, offset)


def test_no_time_that_was_written_blocks_a_taint_or_a_return_longer_than_a_true_one() -> None:
    seen: Counter[str] = Counter()

    def happened(what: str) -> None:
        seen[what] += 1
        event(what)

    @settings(max_examples=150)
    @given(steps=_STEPS, size=st.sampled_from([5, 10, 15]), rate=st.sampled_from([None, 1, 2]))
    def history(steps: list[tuple[str, int, float]], size: int, rate: int | None) -> None:
        rules = PolicyConfig(returns_by_reboot=True, brake_rate_nodes=rate)
        world = World(fleet(size), rules)
        written: list[float] = []
        for what, number, offset in steps:
            world.seconds += 1
            take(world, what, number, offset)
            written += [world.seconds + offset] if what != "brake reset" else []
            plan = world.decide(*([f"gpu-{1 + number % 3}"] if what == "fault" else []))
            ahead = "" if offset <= 0 else " years ahead" if offset == YEARS else " ahead"
            happened(what if what in ("fault", "release", "wait") else f"{what}{ahead}")
            whys = {held.why for held in plan.brake.held}
            for why in whys & {SkipReason.COOLDOWN, SkipReason.RATE}:
                happened(f"held: {why}")
            soon = any(0 < when - world.seconds <= CLOCKS_AGREE_SECONDS for when in written)
            if (what, offset) == ("brake reset", 0.0) and not soon:
                assert SkipReason.COOLDOWN not in whys  # a reset ends the cool-down, whatever was written
            if (what, offset) == ("resume", 0.0):
                assert not is_stopped(world.snapshot.controls)
            if is_stopped(world.snapshot.controls):
                happened("returns stopped")
            if returns_left(world.snapshot.controls, rules, at(world.seconds)) < 1:
                happened("hour used up")
        settle(world)

    history()

    expected = {f"{what}{when}" for what in _CONTROLS for when in ("", " ahead", " years ahead")}
    expected |= {f"{what} years ahead" for what in ("record", "claim", "deleted", "returned", "relapsed")}
    expected |= {"held: cool-down", "held: rate", "returns stopped", "hour used up"}
    assert expected <= seen.keys(), seen


def settle(world: World) -> None:
    """Nothing more is written: after the longest spans a fault taints, and a rebooted node returns."""
    for name in world.nodes:
        world.reset(name)
    world.act(Control.RESUME, 0)
    world.decide()
    assert not is_stopped(world.snapshot.controls)
    world.seconds += FURTHEST + HOUR + COOLDOWN + 1

    world.decide(NEW)
    assert NEW in world.tainted

    world.reset(NEW)
    world.seconds += COOLDOWN
    machine = replace(STATE.machine, node_uid=f"uid-{BACK}", system_id=f"system-{BACK}")
    record = replace(RECORD, machine=machine)
    world.nodes[BACK] = replace(STATE, name=BACK, machine=machine, record=record)
    until = ns(world.seconds)
    heard = {BACK: replace(HEARD, last_ns=until)}
    read = {Source.KERNEL: until}
    world.snapshot = replace(world.snapshot, hearing=heard, standing={BACK: STOOD}, read_ns=read)
    world.decide()
    assert BACK not in world.tainted

    # Relapses after the last resume count, whatever its time.
    now, controls = at(world.seconds), world.snapshot.controls
    more = tuple(ReturnedNode(f"late-{n}", now, now) for n in range(3))
    late = replace(controls, returned=known_returns((*controls.returned, *more), (), now))
    assert is_stopped(late)
