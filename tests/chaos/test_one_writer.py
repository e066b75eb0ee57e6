"""The one writer: a request under way when its process was stopped or killed never causes a wrong end state.

The request of a stopped process (SIGSTOP) is delayed, others go on with their work, and then it arrives.
"""

from __future__ import annotations

import pytest

from tests.chaos.people import OthersWrite, Reset, Untaint
from tests.chaos.process import LEASE, NAMESPACE
from tests.chaos.schedule import listening
from tests.chaos.setup import Setup
from tests.chaos.steps import (
    DeleteNode,
    Kill,
    Register,
    Replay,
    Round,
    Start,
    Step,
    Stop,
    Wait,
    Xid,
)
from tests.chaos.world import World

THIN = Setup(plain=(False,), overlap_seconds=2.0, lateness_seconds=2.0)
REPLACED = (Round(1), Wait(150.0), Wait(160.0), Round(1))
"""The second controller takes the Lease, and reads."""
PATCH = "controller-0 PATCH /api/v1/nodes/gpu-1 → "
AFTERWARDS = (Round(0), Round(1), Replay(0), Round(0), Round(1), Wait(130.0), Round(0), Round(1))


def lived(*steps: Step) -> World:
    """Return a world after these steps, with a first controller that leads and a second that waits."""
    world = World(THIN, seed=1, trace=[])
    with world.clock.installed(), listening(world):
        world.run((Round(0), Start(1), Round(1), Wait(5.0), *steps))
    assert world.ledger.broken == []
    return world


def counts(world: World) -> list[int]:
    stored = world.nodes.stored("gpu-1")
    assert stored is not None
    return [incident.count for incident in world.decode(stored).record.incidents]


@pytest.mark.parametrize(
    ("meanwhile", "status", "tainted", "writes"),
    [
        pytest.param(REPLACED, 422, True, 1, id="the other controller tainted"),
        pytest.param((*REPLACED, Wait(5.0), Reset(0), Round(1)), 422, False, 1, id="and the node was reset"),
        pytest.param(
            (*REPLACED, Wait(5.0), Untaint(0), Round(1)),
            422,
            False,
            2,
            id="and the taint was removed by hand",
        ),
        pytest.param((OthersWrite(0, 0), Wait(5.0)), 422, True, 1, id="another taint was added"),
        pytest.param((DeleteNode(0), Wait(5.0), Register(0)), 422, True, 1, id="the Node was created again"),
        pytest.param((Wait(150.0), Wait(160.0)), 200, True, 1, id="nothing"),
    ],
)
def test_a_late_patch_takes_effect_only_on_an_unchanged_node(
    meanwhile: tuple[Step, ...], status: int, tainted: bool, writes: int
) -> None:
    stop = Stop(0, 0, False, len(meanwhile), True)

    world = lived(Xid(0, 79), stop, Round(0), *meanwhile, *AFTERWARDS)

    assert any(f"{PATCH}{status}" in line for line in world.trace)
    world.ledger.check_tainted(["gpu-1"] if tainted else [])
    assert world.ledger.broken == []
    assert world.ledger.writes["gpu-1"] == writes
    assert counts(world) == [1]


def test_a_late_patch_of_a_deleted_node_breaks_nothing() -> None:
    world = lived(Xid(0, 79), Stop(0, 0, False, 1, True), Round(0), DeleteNode(0), *AFTERWARDS)

    assert any(f"{PATCH}404" in line for line in world.trace)


def test_a_late_renewal_does_not_take_the_lease_back() -> None:
    world = lived(Stop(0, 0, False, 4), Wait(100.0), *REPLACED, Round(0), Round(1))

    assert any("controller-0 PUT" in line and "→ 409" in line for line in world.trace)
    [lease] = world.kube.objects("leases", NAMESPACE)
    assert lease["metadata"]["name"] == LEASE
    assert lease["spec"]["holderIdentity"].startswith("controller-1")


@pytest.mark.parametrize("after", [False, True], ids=["before its patch", "between patch and cursor"])
def test_a_controller_that_is_killed_has_acted_once(after: bool) -> None:
    world = lived(Xid(0, 79), Kill(0, 0, after, True), Round(0), *REPLACED, Wait(30.0), Round(1))

    world.ledger.check_tainted(["gpu-1"])
    assert world.ledger.broken == []
    assert world.ledger.writes["gpu-1"] == 1
    assert counts(world) == [1]
