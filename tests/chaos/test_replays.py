"""Replay immunity: nothing covered or judged acts again, and nothing new is dropped.

Each row is something that brings old lines once more, or takes away the memory of them, against the whole
controller in simulated time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from konductor_like.cluster.node_decoder import decode_node
from konductor_like.model import IncidentState, NodeState
from tests.chaos import people as p
from tests.chaos import steps as s
from tests.chaos.machines import Machine
from tests.chaos.schedule import listening
from tests.chaos.setup import Setup
from tests.chaos.steps import Step
from tests.chaos.stories import CURSORS
from tests.chaos.world import World

BEAT = s.Beat(0)
FATAL = s.Xid(0, 79, 0)
RESTART = (s.Kill(0), BEAT, BEAT)
OLD_LINES: dict[str, tuple[Step, ...]] = {
    "the dmesg pod restarts and prints its whole ring buffer": (s.Replay(0),),
    "the collector reads its files again": (s.Reread(0),),
    "the collector reads its files again, and ships them late": (s.Reread(0, 15.0), s.Wait(20.0)),
    "Loki returns every line twice": (s.LokiTrouble("twice", 40), s.Reread(0)),
    "two collectors ship the node": (s.Collectors(0, 2), s.Replay(0), s.Reread(0)),
    "the controller is killed and starts again": RESTART,
    "the controller is ended and starts again": (s.Terminate(0), BEAT),
    "another controller takes over": (s.Start(1), s.Beat(1), s.Kill(0), s.Wait(320.0), s.Beat(1), s.Beat(1)),
    "the Lease is deleted and the controller goes on": (p.DeleteLease(), BEAT, s.Wait(110.0), BEAT),
    "the Lease is lost with its controller": (p.DeleteLease(), *RESTART, s.Replay(0)),
    "the cursor is lost": (p.SpoilCursor(CURSORS[0]), *RESTART, s.Replay(0)),
    "the cursor cannot be read": (p.SpoilCursor(CURSORS[1]), *RESTART, s.Replay(0)),
    "the cursor is from the future": (p.SpoilCursor(CURSORS[3]), *RESTART, s.Replay(0)),
    "the node reboots under its name": (s.Reboot(0, 30.0), s.Wait(60.0), BEAT, s.Reread(0)),
    "the Node is deleted and registers again": (s.DeleteNode(0), BEAT, s.Register(0), BEAT, s.Replay(0)),
    "another machine bears the name": (s.Reread(0, 5.0), s.DeleteNode(0), s.Register(0, True), s.Wait(9.0)),
    "the controller's clock steps back": (s.SetClock(0, -600.0), BEAT, s.Replay(0), *RESTART),
    "the node's clock steps back": (s.SetNodeClock(0, -15.0), s.Replay(0)),
    "the API server forgets its history": (s.ForgetHistory(), s.Replay(0)),
}


@contextmanager
def a_world(*steps: Step, plain: bool = False) -> Iterator[World]:
    """A fleet of five, of which the first node is talked about, after these steps."""
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
@pytest.mark.parametrize("event", OLD_LINES.values(), ids=OLD_LINES.keys())
def test_what_a_reset_covers_stays_covered_and_the_next_fault_taints(
    event: tuple[Step, ...], plain: bool
) -> None:
    with a_world(BEAT, s.Wait(5.0), FATAL, BEAT, plain=plain) as world:
        assert state(world).tainted
        world.run((s.Wait(5.0), p.Reset(0), BEAT, s.Wait(5.0), *event, BEAT, s.Beat(1)))
        assert not state(world).tainted
        world.run((s.Wait(130.0), BEAT, s.Beat(1)))
        assert not state(world).tainted

        world.run((FATAL, BEAT, s.Beat(1)))

        assert state(world).tainted
        assert counts(world) == [1]


@pytest.mark.parametrize("plain", [False, True], ids=["kmsg", "plain dmesg -w"])
@pytest.mark.parametrize(
    "event",
    [steps for name, steps in OLD_LINES.items() if "bears the name" not in name],
    ids=[name for name in OLD_LINES if "bears the name" not in name],
)
def test_what_was_judged_counts_once(event: tuple[Step, ...], plain: bool) -> None:
    suspect = s.Xid(0, 94, 1)
    with a_world(BEAT, s.Wait(5.0), suspect, BEAT, s.Wait(5.0), plain=plain) as world:
        world.run((*event, BEAT, s.Beat(1), s.Wait(700.0), BEAT, s.Beat(1)))

        assert counts(world) == [1]


def test_a_plain_line_of_the_boot_before_that_is_read_late_is_history_and_hides_nothing() -> None:
    late = s.Xid(0, 79, 0, late=0.5)
    with a_world(BEAT, s.Wait(310.0), BEAT, late, s.Reboot(0, 2.0), s.Wait(5.0), BEAT, plain=True) as world:
        world.run((s.Wait(30.0), BEAT, s.Wait(200.0), BEAT))
        assert world.occurrences[0].in_loki
        assert not state(world).tainted

        world.run((FATAL, BEAT))
        assert state(world).tainted
        world.run((s.Wait(5.0), p.Reset(0), BEAT, s.Wait(5.0)))
        assert not state(world).tainted

        world.run((s.Xid(0, 79, 1), BEAT))
        assert state(world).tainted


def test_a_fault_of_a_boot_that_the_kubelet_has_not_posted_waits_for_it_and_taints() -> None:
    with a_world(BEAT, s.Reboot(0, 40.0), FATAL, BEAT) as world:
        assert not state(world).tainted
        assert [incident.state for incident in state(world).record.incidents] == [IncidentState.PENDING]
        world.run((p.Reset(0), s.Wait(60.0), BEAT))

        assert state(world).tainted


def test_a_fault_that_no_reset_covers_taints_the_node_that_registers_again() -> None:
    with a_world(BEAT, FATAL, BEAT, s.Wait(5.0), s.DeleteNode(0), BEAT, s.Register(0), BEAT, BEAT) as world:
        assert state(world).tainted


def test_a_name_under_which_two_boots_are_heard_is_never_tainted_until_one_is_silent() -> None:
    with a_world(BEAT) as world:
        other = Machine("system-other", False, world.uuid(), world.clock.true_ns)

        def minutes(count: int, *, both: bool) -> None:
            for _ in range(count):
                if both:
                    wall = world.clock.moment().isoformat()
                    text = other.heartbeat(world.clock.true_ns, wall)
                    world.lines.ship("gpu-1", text, world.clock.true_ns, None)
                world.run((s.Wait(61.0), BEAT))

        minutes(8, both=True)
        world.run((FATAL, BEAT))
        assert not state(world).tainted
        assert len(state(world).record.incidents) == 1

        minutes(20, both=False)

        assert state(world).tainted


def test_the_lines_of_the_other_machine_never_taint() -> None:
    with a_world(BEAT) as world:
        own, other = world.machines["gpu-1"], Machine("system-other", False, world.uuid(), 0)
        world.machines["gpu-1"] = other
        world.lines.happen("gpu-1", 79, "0000:4e:00")
        world.machines["gpu-1"] = own
        world.run((BEAT, s.Wait(700.0), BEAT, s.Wait(5.0), BEAT))

        assert not state(world).tainted
