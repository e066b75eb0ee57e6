"""Replay immunity: no covered or counted fault acts again, and no new fault is dropped.

Each row of OLD_LINES ships old lines again, or removes the controller's memory of them. The whole controller
runs in simulated time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import IncidentState, NodeState
from tests.chaos.machines import Machine
from tests.chaos.people import DeleteLease, Reset, SpoilCursor
from tests.chaos.schedule import listening
from tests.chaos.setup import Setup
from tests.chaos.steps import (
    Collectors,
    DeleteNode,
    ForgetHistory,
    Kill,
    LokiTrouble,
    Reboot,
    Register,
    Replay,
    Reread,
    Round,
    SetClock,
    SetNodeClock,
    Start,
    Step,
    Terminate,
    Wait,
    Xid,
)
from tests.chaos.stories import CURSORS
from tests.chaos.world import World

ROUND = Round(0)
FATAL = Xid(0, 79, 0)
RESTART = (Kill(0), ROUND, ROUND)
OLD_LINES: dict[str, tuple[Step, ...]] = {
    "the dmesg pod restarts and prints its whole ring buffer": (Replay(0),),
    "the collector reads its files again": (Reread(0),),
    "the collector reads its files again, and ships them late": (Reread(0, 15.0), Wait(20.0)),
    "Loki returns every line twice": (LokiTrouble("twice", 40), Reread(0)),
    "two collectors ship the node": (Collectors(0, 2), Replay(0), Reread(0)),
    "the controller is killed and starts again": RESTART,
    "the controller is ended and starts again": (Terminate(0), ROUND),
    "another controller takes over": (Start(1), Round(1), Kill(0), Wait(320.0), Round(1), Round(1)),
    "the Lease is deleted and the controller goes on": (DeleteLease(), ROUND, Wait(110.0), ROUND),
    "the Lease is lost with its controller": (DeleteLease(), *RESTART, Replay(0)),
    "the cursor is lost": (SpoilCursor(CURSORS[0]), *RESTART, Replay(0)),
    "the cursor cannot be read": (SpoilCursor(CURSORS[1]), *RESTART, Replay(0)),
    "the cursor is from the future": (SpoilCursor(CURSORS[3]), *RESTART, Replay(0)),
    "the node reboots under its name": (Reboot(0, 30.0), Wait(60.0), ROUND, Reread(0)),
    "the Node is deleted and registers again": (DeleteNode(0), ROUND, Register(0), ROUND, Replay(0)),
    "another machine has the name": (Reread(0, 5.0), DeleteNode(0), Register(0, True), Wait(9.0)),
    "the controller's clock steps back": (SetClock(0, -600.0), ROUND, Replay(0), *RESTART),
    "the node's clock steps back": (SetNodeClock(0, -15.0), Replay(0)),
    "the API server forgets its history": (ForgetHistory(), Replay(0)),
}


@contextmanager
def a_world(*steps: Step, plain: bool = False) -> Iterator[World]:
    """A fleet of five nodes after these steps, which concern the first node."""
    world = World(Setup(plain=(plain, False, False, False, False)), seed=1)
    with world.clock.installed(), listening(world):
        world.run(steps)
        yield world
        assert world.ledger.broken == []


def state(world: World) -> NodeState:
    stored = world.nodes.stored("gpu-1")
    assert stored is not None
    return decode_node(stored)


def counts(world: World) -> list[int]:
    return [
        incident.count
        for incident in state(world).record.incidents
        if incident.state is not IncidentState.RELEASED
    ]


@pytest.mark.parametrize("plain", [False, True], ids=["kmsg", "plain dmesg -w"])
@pytest.mark.parametrize("old_lines", OLD_LINES.values(), ids=OLD_LINES.keys())
def test_a_fault_that_a_reset_covers_stays_covered_and_the_next_fault_taints(
    old_lines: tuple[Step, ...], plain: bool
) -> None:
    with a_world(ROUND, Wait(5.0), FATAL, ROUND, plain=plain) as world:
        assert state(world).tainted
        world.run((Wait(5.0), Reset(0), ROUND, Wait(5.0), *old_lines, ROUND, Round(1)))
        assert not state(world).tainted
        world.run((Wait(130.0), ROUND, Round(1)))
        assert not state(world).tainted

        world.run((FATAL, ROUND, Round(1)))

        assert state(world).tainted
        assert counts(world) == [1]


@pytest.mark.parametrize("plain", [False, True], ids=["kmsg", "plain dmesg -w"])
@pytest.mark.parametrize(
    "old_lines",
    [steps for name, steps in OLD_LINES.items() if "has the name" not in name],
    ids=[name for name in OLD_LINES if "has the name" not in name],
)
def test_a_fault_that_was_counted_counts_once(old_lines: tuple[Step, ...], plain: bool) -> None:
    suspect = Xid(0, 94, 1)
    with a_world(ROUND, Wait(5.0), suspect, ROUND, Wait(5.0), plain=plain) as world:
        world.run((*old_lines, ROUND, Round(1), Wait(700.0), ROUND, Round(1)))

        # A reboot ends the suspicion; nothing opens it again, and nothing adds to it.
        assert [incident.count for incident in state(world).record.incidents] == [1]


def test_a_plain_line_of_the_boot_before_that_is_read_late_does_not_taint_and_hides_no_new_fault() -> None:
    late = Xid(0, 79, 0, late=0.5)
    with a_world(ROUND, Wait(310.0), ROUND, late, Reboot(0, 2.0), Wait(5.0), ROUND, plain=True) as world:
        world.run((Wait(30.0), ROUND, Wait(200.0), ROUND))
        assert world.occurrences[0].in_loki
        assert not state(world).tainted

        world.run((FATAL, ROUND))
        assert state(world).tainted
        world.run((Wait(5.0), Reset(0), ROUND, Wait(5.0)))
        assert not state(world).tainted

        world.run((Xid(0, 79, 1), ROUND))
        assert state(world).tainted


def test_a_fault_of_a_boot_that_the_kubelet_has_not_posted_taints_once_it_is_posted() -> None:
    with a_world(ROUND, Reboot(0, 40.0), FATAL, ROUND) as world:
        assert not state(world).tainted
        assert [incident.state for incident in state(world).record.incidents] == [IncidentState.PENDING]
        world.run((Reset(0), Wait(60.0), ROUND))

        assert state(world).tainted


def test_a_fault_that_no_reset_covers_taints_the_node_that_registers_again() -> None:
    with a_world(ROUND, FATAL, ROUND, Wait(5.0), DeleteNode(0), ROUND, Register(0), ROUND, ROUND) as world:
        assert state(world).tainted


def test_a_node_with_heartbeats_of_two_boots_is_not_tainted_until_one_of_them_is_silent() -> None:
    with a_world(ROUND) as world:
        other = Machine("system-other", False, world.uuid(), world.clock.true_ns)

        def minutes(count: int, *, both: bool) -> None:
            for _ in range(count):
                if both:
                    wall = world.clock.moment().isoformat()
                    text = other.heartbeat(world.clock.true_ns, wall)
                    world.lines.ship("gpu-1", text, world.clock.true_ns, None)
                world.run((Wait(61.0), ROUND))

        minutes(8, both=True)
        world.run((FATAL, ROUND))
        assert not state(world).tainted
        assert len(state(world).record.incidents) == 1

        minutes(20, both=False)

        assert state(world).tainted


def test_lines_of_another_machine_do_not_taint_the_node() -> None:
    with a_world(ROUND) as world:
        own, other = world.machines["gpu-1"], Machine("system-other", False, world.uuid(), 0)
        world.machines["gpu-1"] = other
        world.lines.happen("gpu-1", 79, "0000:4e:00")
        world.machines["gpu-1"] = own
        world.run((ROUND, Wait(700.0), ROUND, Wait(5.0), ROUND))

        assert not state(world).tainted
