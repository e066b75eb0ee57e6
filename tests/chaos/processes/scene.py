"""A stage for tests that arrange by hand when a request takes effect and which process lives to see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.http import Request
from tests.chaos.processes.actors import COMMAND, CONTROLLER, Actor, start
from tests.chaos.processes.gate import Gate, gate_of
from tests.chaos.processes.journal import record_of
from tests.chaos.processes.machines import KMSG
from tests.chaos.processes.world import RESETTER, World

SETTINGS = {
    "KONDUCTOR_POLL_INTERVAL_SECONDS": "0.1",
    "KONDUCTOR_POD_POLL_INTERVAL_SECONDS": "0.5",
    "KONDUCTOR_LEASE_DURATION_SECONDS": "3",
    "KONDUCTOR_LEASE_RENEW_DEADLINE_SECONDS": "2",
    "KONDUCTOR_LEASE_RENEW_INTERVAL_SECONDS": "0.4",
    "KONDUCTOR_WRITE_CONCURRENCY": "16",
    "KONDUCTOR_BRAKE_MAX_PERCENT": "100",
    "KONDUCTOR_LISTEN": "off",
    "KONDUCTOR_LOG_FORMAT": "text",
}
PATIENCE_SECONDS = 60.0


@dataclass
class Scene:
    """A world, a gate before its API server, and the controllers in it."""

    world: World
    gate: Gate
    settings: Mapping[str, str]
    actors: dict[str, Actor] = field(default_factory=dict)

    def start(self, user: str) -> Actor:
        """Start a controller, which its token tells from others."""
        environment = {**self.world.environment(user), **self.settings}
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

    def sent(self, user: str, method: str, path: str) -> int:
        """How many such requests of one controller the API server has answered."""
        wanted = self.of(user, method, path)
        return sum(wanted(call.request) for call in self.world.cluster.calls())

    def reset(self, *arguments: str) -> None:
        """A person runs ``konductor-like reset``."""
        log = self.world.folder / "reset.log"
        environment = {**self.world.environment(RESETTER), **self.settings}
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


@contextmanager
def scene_of(*names: str, **settings: str) -> Iterator[Scene]:
    """A scene with nodes of these names, which the controller ``first`` leads."""
    with World(dict.fromkeys(names, KMSG)) as world, gate_of(world.cluster) as gate:
        scene = Scene(world, gate, {**SETTINGS, **settings})
        try:
            scene.start("first")
            scene.until(lambda: scene.leads("first") and world.read_until_ns() > 0, "the first leads")
            yield scene
        finally:
            gate.open()
            for actor in scene.actors.values():
                actor.kill()
