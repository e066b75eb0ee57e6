"""The one writer (design rule 24): what a stopped controller had under way never makes a wrong end state.

A request is held between the controller's last look at its Lease and the API server, the controller is
stopped (SIGSTOP), another takes the Lease over and people go on with their work. Then the first one goes on
(SIGCONT), and what it had sent arrives at last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from konductor_like.cluster.client import node_path
from tests.chaos.processes.actors import LINUX
from tests.chaos.processes.gate import Held
from tests.chaos.processes.journal import health_of, is_tainted, record_of
from tests.chaos.processes.machines import KMSG
from tests.chaos.processes.scene import Scene, scene_of
from tests.chaos.processes.world import OUR_TAINT, with_taint, without_taint

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not LINUX, reason="sees by /proc that a process stands still"),
]

NAMES = ("taken-over", "reset", "untainted", "late", "crowded", "recorded", "anew", "gone")
OTHERS = {"key": "example.com/maintenance", "value": "soon", "effect": "NoExecute"}
FATAL, SUSPECT, GPU = 79, 63, "0000:4e:00"


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of(*NAMES) as ready:
        yield ready


def stop_with_patches_under_way(
    scene: Scene, codes: Mapping[str, int], *, blind: bool = False
) -> dict[str, Held]:
    """These Xids occur; the first controller's patches for them are held, and it is stopped and replaced."""
    world, gate = scene.world, scene.gate
    gate.hold(scene.of("first", "PATCH", "/nodes/"))
    # In one push, so that one tick decides on all of them and sends its patches together.
    world.ship([world.xid(name, code, GPU) for name, code in codes.items()], KMSG)
    scene.until(lambda: {held.name for held in gate.held} >= codes.keys(), "all its patches are under way")
    scene.actors["first"].freeze()
    scene.replace_first(blind=blind)
    return {held.name: held for held in gate.held}


def go_on(scene: Scene) -> None:
    """The first controller is continued, and understands that it was replaced."""
    scene.actors["first"].thaw()
    scene.until(lambda: "The Lease is lost" in scene.actors["first"].said(), "the first understands")


def test_late_patches_find_that_the_world_went_on_and_are_refused(scene: Scene) -> None:
    world = scene.world
    codes = dict.fromkeys(("taken-over", "reset", "untainted", "anew", "gone"), FATAL) | {"recorded": SUSPECT}
    under_way = stop_with_patches_under_way(scene, codes)
    scene.until(lambda: all(scene.writes("second", name) for name in codes), "the second acts on all of them")
    scene.reset("reset")
    world.edit("untainted", lambda seen: without_taint(seen, OUR_TAINT["key"]))
    scene.until(lambda: bool(record_of(scene.node("untainted")).get("releases")), "the release is noted")
    world.recreate("anew", new_machine=False)
    world.ask("alice", "DELETE", node_path("gone"))

    go_on(scene)
    statuses = {name: held.arrive() for name, held in under_way.items()}
    for name in ("taken-over", "reset", "untainted"):
        world.replay(name, KMSG)
    scene.read_on()

    assert statuses == {**dict.fromkeys(codes, 422), "gone": 404}
    assert [scene.writes("first", name) for name in codes] == [0] * len(codes)
    assert scene.sent("first", "PATCH", "/nodes/") == len(codes), "nothing was sent after it went on"
    assert {name: is_tainted(scene.node(name)) for name in ("taken-over", "reset", "untainted")} == {
        "taken-over": True,
        "reset": False,
        "untainted": False,
    }
    assert scene.states("taken-over") == [("xid.79", "active", 1)]
    assert scene.states("reset") == scene.states("untainted") == [("xid.79", "released", 1)]
    assert scene.states("recorded") == [("xid.63", "active", 1)]
    assert (health_of(scene.node("recorded")), is_tainted(scene.node("recorded"))) == ("suspect", False)


def test_a_late_patch_that_finds_all_as_it_was_is_the_right_one_and_stays_the_only_one(scene: Scene) -> None:
    world = scene.world
    under_way = stop_with_patches_under_way(scene, {"late": FATAL, "crowded": FATAL}, blind=True)
    world.edit("crowded", lambda seen: with_taint(seen, OTHERS))

    go_on(scene)
    statuses = {name: held.arrive() for name, held in under_way.items()}
    assert [scene.writes("second", name) for name in statuses] == [0, 0], "the second was kept from reading"
    world.loki.mishaps.clear()
    scene.until(lambda: is_tainted(scene.node("crowded")), "the second taints what the first could not")
    for name in statuses:
        world.replay(name, KMSG)
    scene.read_on()

    assert statuses == {"late": 200, "crowded": 422}
    assert (scene.writes("first", "late"), scene.writes("second", "late")) == (1, 0)
    assert (scene.writes("first", "crowded"), scene.writes("second", "crowded")) == (0, 1)
    for name in statuses:
        assert scene.states(name) == [("xid.79", "active", 1)]
        assert is_tainted(scene.node(name))
    assert OTHERS in scene.node("crowded")["spec"]["taints"]


def test_a_late_renewal_brings_neither_the_lease_nor_the_cursor_back(scene: Scene) -> None:
    world, gate = scene.world, scene.gate
    gate.hold(scene.of("first", "PUT", "/leases/"))
    scene.until(lambda: bool(gate.held), "a renewal is under way")
    scene.actors["first"].freeze()
    renewal = gate.held[0]
    scene.replace_first()
    world.ship([world.xid("taken-over", FATAL, GPU)], KMSG)
    scene.read_on()
    before = world.read_until_ns()

    go_on(scene)

    assert renewal.arrive() == 409
    assert scene.leads("second")
    assert world.read_until_ns() >= before
    scene.until(lambda: "standing by" in scene.actors["first"].said(), "the first stands by")
    assert (scene.writes("first", "taken-over"), scene.writes("second", "taken-over")) == (0, 1)
