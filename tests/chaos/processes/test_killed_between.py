"""SIGKILL between two steps of one decision: nothing is lost, and nothing is done twice.

The overlap is switched off, so that only the cursor can bring a line back.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konductor_like.sandbox.kubernetes.errors import refusal
from tests.chaos.processes.actors import LINUX
from tests.chaos.processes.journal import is_tainted
from tests.chaos.processes.machines import KMSG
from tests.chaos.processes.scene import Scene, scene_of

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not LINUX, reason="sees by /proc that a process stands still"),
]

NODE, GPU = "gpu-01", "0000:4e:00"
THIN = {
    "KONDUCTOR_KERNEL_OVERLAP_SECONDS": "0",
    "KONDUCTOR_LATENESS_SECONDS": "0",
    "KONDUCTOR_SWEEP_INTERVAL_SECONDS": "1",
    "KONDUCTOR_TAIL": "false",  # it tells of the last ten seconds
}
UNREAD_RENEWALS = 6
"""How long Loki is down, in renewals: longer than a sweep, which a restart reads again."""


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of(NODE, **THIN) as ready:
        yield ready


def renewed(scene: Scene, times: int) -> None:
    """The first controller renews the Lease, and saves its cursor, so many times."""
    before = scene.sent("first", "PUT", "/leases/")
    scene.until(lambda: scene.sent("first", "PUT", "/leases/") >= before + times, "the cursor is saved")


def test_a_controller_killed_before_its_patch_took_effect_leaves_the_cursor_behind_the_line(
    scene: Scene,
) -> None:
    first, gate = scene.actors["first"], scene.gate
    gate.hold(scene.of("first", "PATCH", "/nodes/"))
    scene.world.loki.stop()
    scene.world.ship([scene.world.xid(NODE, 79, GPU)], KMSG)
    renewed(scene, UNREAD_RENEWALS)
    scene.world.loki.start()
    scene.until(lambda: bool(gate.held), "the patch is under way")
    renewed(scene, 2)
    first.kill()

    scene.start("second")
    scene.until(lambda: is_tainted(scene.node(NODE)), "the second one finds the line")

    assert (scene.writes("first", NODE), scene.writes("second", NODE)) == (0, 1)
    assert gate.held[0].arrive() == 422, "what was under way finds the work done"
    assert scene.states(NODE) == [("xid.79", "active", 1)]


def test_a_fault_that_could_not_be_written_keeps_the_cursor_until_another_controller_can(
    scene: Scene,
) -> None:
    world, first = scene.world, scene.actors["first"]
    world.cluster.mishaps.add(refusal(403), times=None, when=scene.of("first", "PATCH", "/nodes/"))
    world.ship([world.xid(NODE, 79, GPU)], KMSG)
    scene.until(lambda: "could not taint node" in first.said(), "the write fails")
    renewed(scene, UNREAD_RENEWALS)
    assert world.read_until_ns() <= world.occurrences[0].said_ns
    first.kill()

    scene.start("second")
    scene.until(lambda: is_tainted(scene.node(NODE)), "the second one finds the line")

    assert scene.states(NODE) == [("xid.79", "active", 1)]


def test_a_controller_killed_between_patch_and_cursor_write_is_not_repeated(scene: Scene) -> None:
    first, gate = scene.actors["first"], scene.gate
    gate.hold(scene.of("first", "PUT", "/leases/"))
    scene.until(lambda: bool(gate.held), "no cursor is saved any more")
    scene.world.ship([scene.world.xid(NODE, 79, GPU)], KMSG)
    scene.until(lambda: is_tainted(scene.node(NODE)), "the patch took effect")
    assert scene.world.read_until_ns() < scene.world.occurrences[0].said_ns
    first.kill()

    scene.start("second")
    scene.until(lambda: scene.leads("second"), "the second takes over")
    scene.read_on()

    assert (scene.writes("first", NODE), scene.writes("second", NODE)) == (1, 0)
    assert scene.states(NODE) == [("xid.79", "active", 1)]
    assert len(scene.world.journal.entries("events")) <= 1  # it may be killed before it could tell
