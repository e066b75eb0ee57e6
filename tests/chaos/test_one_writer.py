"""The one writer: what a process had under way when it was stopped or killed never makes a wrong end state.

The request is held at the edge of a stopped process (SIGSTOP), others go on with their work, and then it
arrives at last.
"""

from __future__ import annotations

import pytest

from tests.chaos import people as p
from tests.chaos import steps as s
from tests.chaos.process import LEASE, NAMESPACE
from tests.chaos.schedule import listening
from tests.chaos.setup import Setup
from tests.chaos.steps import Step
from tests.chaos.world import World

THIN = Setup(plain=(False,), overlap_seconds=2.0, lateness_seconds=2.0)
REPLACED = (s.Beat(1), s.Wait(150.0), s.Wait(160.0), s.Beat(1))
"""The second controller takes the Lease over, and reads."""
PATCH = "controller-0 PATCH /api/v1/nodes/gpu-1 → "
AFTERWARDS = (s.Beat(0), s.Beat(1), s.Replay(0), s.Beat(0), s.Beat(1), s.Wait(130.0), s.Beat(0), s.Beat(1))


def lived(*steps: Step) -> World:
    """A world after a first controller leads, a second stands by, and these steps."""
    world = World(THIN, seed=1, trace=[])
    with world.clock.installed(), listening(world):
        world.run((s.Beat(0), s.Start(1), s.Beat(1), s.Wait(5.0), *steps))
    assert world.ledger.broken == []
    return world


def counts(world: World) -> list[int]:
    stored = world.nodes.stored("gpu-1")
    assert stored is not None
    return [incident.count for incident in world.decode(stored).record.incidents]


@pytest.mark.parametrize(
    ("meanwhile", "status", "tainted", "writes"),
    [
        pytest.param(REPLACED, 422, True, 1, id="the other one tainted"),
        pytest.param((*REPLACED, s.Wait(5.0), p.Reset(0), s.Beat(1)), 422, False, 1, id="and it was reset"),
        pytest.param((*REPLACED, s.Wait(5.0), p.Untaint(0), s.Beat(1)), 422, False, 2, id="and by hand"),
        pytest.param((p.OthersWrite(0, 0), s.Wait(5.0)), 422, True, 1, id="another taint came"),
        pytest.param(
            (s.DeleteNode(0), s.Wait(5.0), s.Register(0)), 422, True, 1, id="the Node was made anew"
        ),
        pytest.param((s.Wait(150.0), s.Wait(160.0)), 200, True, 1, id="nothing"),
    ],
)
def test_a_late_patch_takes_effect_only_where_all_is_as_it_was(
    meanwhile: tuple[Step, ...], status: int, tainted: bool, writes: int
) -> None:
    stop = s.Stop(0, 0, False, len(meanwhile), True)

    world = lived(s.Xid(0, 79), stop, s.Beat(0), *meanwhile, *AFTERWARDS)

    assert any(f"{PATCH}{status}" in line for line in world.trace)
    world.ledger.check_tainted(["gpu-1"] if tainted else [])
    assert world.ledger.broken == []
    assert world.ledger.writes["gpu-1"] == writes
    assert counts(world) == [1]


def test_a_late_patch_of_a_node_that_is_gone_is_no_mistake() -> None:
    world = lived(s.Xid(0, 79), s.Stop(0, 0, False, 1, True), s.Beat(0), s.DeleteNode(0), *AFTERWARDS)

    assert any(f"{PATCH}404" in line for line in world.trace)


def test_a_late_renewal_does_not_bring_the_lease_back() -> None:
    world = lived(s.Stop(0, 0, False, 4), s.Wait(100.0), *REPLACED, s.Beat(0), s.Beat(1))

    assert any("controller-0 PUT" in line and "→ 409" in line for line in world.trace)
    [lease] = world.kube.objects("leases", NAMESPACE)
    assert lease["metadata"]["name"] == LEASE
    assert lease["spec"]["holderIdentity"].startswith("controller-1")


@pytest.mark.parametrize("after", [False, True], ids=["before its patch", "between patch and cursor"])
def test_a_controller_that_is_killed_has_acted_once(after: bool) -> None:
    world = lived(s.Xid(0, 79), s.Kill(0, 0, after, True), s.Beat(0), *REPLACED, s.Wait(30.0), s.Beat(1))

    world.ledger.check_tainted(["gpu-1"])
    assert world.ledger.broken == []
    assert world.ledger.writes["gpu-1"] == 1
    assert counts(world) == [1]
