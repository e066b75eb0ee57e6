"""The one writer (design rule 24): what a stopped controller had under way never makes a wrong end state.

A request is held between the controller's last look at its Lease and the API server, the controller is
stopped (SIGSTOP), another takes the Lease over and people go on with their work. Then the first one goes on
(SIGCONT), and what it had sent arrives at last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from konductor_like.cluster import paths
from konductor_like.sandbox.mishaps import Mishap
from konductor_like.sandbox.wire import Request
from tests.chaos.processes.actors import COMMAND, CONTROLLER, LINUX, Actor, start
from tests.chaos.processes.gate import Gate, Held, gate_of
from tests.chaos.processes.journal import health_of, is_tainted, record_of
from tests.chaos.processes.machines import KMSG
from tests.chaos.processes.world import OUR_TAINT, RESETTER, World, with_taint, without_taint

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not LINUX, reason="sees by /proc that a process stands still"),
]

SETTINGS = {
    "KONDUCTOR_POLL_INTERVAL_SECONDS": "0.1",
    "KONDUCTOR_LEASE_DURATION_SECONDS": "3",
    "KONDUCTOR_LEASE_RENEW_DEADLINE_SECONDS": "2",
    "KONDUCTOR_LEASE_RENEW_INTERVAL_SECONDS": "0.4",
    "KONDUCTOR_WRITE_CONCURRENCY": "16",
    "KONDUCTOR_BRAKE_MAX_PERCENT": "100",
    "KONDUCTOR_LISTEN": "off",
    "KONDUCTOR_LOG_FORMAT": "text",
}
PATIENCE_SECONDS = 60.0
NAMES = ("taken-over", "reset", "untainted", "late", "crowded", "recorded", "anew", "gone")
OTHERS = {"key": "example.com/maintenance", "value": "soon", "effect": "NoExecute"}
FATAL, SUSPECT, GPU = 79, 63, "0000:4e:00"


@dataclass
class Scene:
    """A world, a gate before its API server, and the controllers in it."""

    world: World
    gate: Gate
    actors: dict[str, Actor] = field(default_factory=dict)

    def start(self, user: str) -> Actor:
        """Start a controller, which its token tells from others."""
        environment = {**self.world.environment(user), **SETTINGS}
        log = self.world.folder / f"{user}.log"
        self.actors[user] = start(CONTROLLER, (), environment, user, log, fork=False)
        return self.actors[user]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something to come true."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > end:
                said = "\n".join(f"{user}:\n{actor.said()}" for user, actor in self.actors.items())
                raise AssertionError(f"never came true: {what}\n{said}")
            time.sleep(0.02)

    def replace_first(self, *, blind: bool = False) -> None:
        """Another controller takes the Lease over; a ``blind`` one cannot read Loki for the moment."""
        if blind:
            self.world.loki.fail(Mishap(status=500, body="empty ring"), times=None)
        self.start("second")
        self.until(lambda: self.leads("second"), "the second takes over")

    def leads(self, user: str) -> bool:
        """Whether this controller was the last one to take the Lease."""
        taken = [
            entry.user
            for entry in self.world.journal.entries("leases")
            if entry.new
            and (entry.old is None or entry.old["spec"]["acquireTime"] != entry.new["spec"]["acquireTime"])
        ]
        return taken[-1:] == [user]

    def of(self, user: str, method: str, path: str) -> Callable[[Request], bool]:
        """Picks the requests of one controller."""
        token = f"Bearer {self.world._token(user)}"
        return lambda one: (
            one.method == method and path in one.path and one.headers.get("authorization") == token
        )

    def reset(self, *arguments: str) -> None:
        """A person runs ``konductor-like reset``."""
        log = self.world.folder / "reset.log"
        environment = {**self.world.environment(RESETTER), **SETTINGS}
        actor = start(COMMAND, ("reset", "--yes", *arguments), environment, RESETTER, log, fork=False)
        assert actor.handle.wait(PATIENCE_SECONDS) == 0, actor.said()

    def node(self, name: str) -> Mapping[str, Any]:
        """A Node as it is now."""
        return self.world.nodes()[name]

    def states(self, name: str) -> list[tuple[str, str, int]]:
        """The incidents on a Node's record: rule, state, count."""
        incidents = record_of(self.node(name)).get("incidents", ())
        return [(each["rule"], each["state"], each["count"]) for each in incidents]

    def writes(self, user: str, name: str) -> int:
        """How many writes of one controller to one Node took effect."""
        entries = self.world.journal.entries("nodes")
        return sum((entry.user, entry.name) == (user, name) for entry in entries)

    def read_on(self) -> None:
        """Wait until a controller has read, and acted upon, all that there is now."""
        until_ns = time.time_ns()
        self.until(lambda: self.world.read_until_ns() > until_ns, "all is read")


@pytest.fixture
def scene() -> Iterator[Scene]:
    with World(dict.fromkeys(NAMES, KMSG)) as world, gate_of(world.cluster) as gate:
        ready = Scene(world, gate)
        try:
            ready.start("first")
            ready.until(lambda: ready.leads("first") and world.read_until_ns() > 0, "the first leads")
            yield ready
        finally:
            gate.open()
            for actor in ready.actors.values():
                actor.kill()


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
    world.ask("alice", "DELETE", paths.node("gone"))

    go_on(scene)
    statuses = {name: held.arrive() for name, held in under_way.items()}
    for name in ("taken-over", "reset", "untainted"):
        world.replay(name, KMSG)
    scene.read_on()

    assert statuses == {**dict.fromkeys(codes, 422), "gone": 404}
    assert [scene.writes("first", name) for name in codes] == [0] * len(codes)
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
