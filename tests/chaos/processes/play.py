"""Plays a schedule, waits until everything is done, and checks the invariants."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from konductor_like_sandbox.http import Request
from tests.chaos.processes.actors import COMMAND, CONTROLLER, Actor, start
from tests.chaos.processes.invariants import RunRecord, unmet, violations
from tests.chaos.processes.journal import health_of, is_tainted
from tests.chaos.processes.machines import PLAIN, Occurrence
from tests.chaos.processes.schedule import LOKI_MISHAPS, PATCH_MISHAPS, Schedule, schedule_of
from tests.chaos.processes.world import OUR_TAINT, RESETTER, World, with_taint, without_taint

PATIENCE_SECONDS = 60.0
CHECK_SECONDS = 0.05
RESETS = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one schedule. ``output`` has the logs of its processes if an invariant is broken."""

    seed: int
    wrong: tuple[str, ...]
    seconds: float
    faults: int
    node_writes: int
    late_writes: int
    starts: int
    output: str = ""


def run(seed: int) -> Outcome:
    schedule = schedule_of(seed)
    begun = time.monotonic()
    with World(schedule.forms) as world, Play(schedule, world) as play:
        wrong = play.through()
        run_record = play.run_record()
        return Outcome(
            seed,
            tuple(wrong),
            time.monotonic() - begun,
            sum(one.tainting for one in world.occurrences),
            len(run_record.controller_writes()),
            len(run_record.late_writes()),
            len(play.controllers),
            "" if not wrong else f"{schedule}\n{play.output()}",
        )


class Play:
    """One schedule with its processes. Use as a context manager."""

    def __init__(self, schedule: Schedule, world: World) -> None:
        self._schedule = schedule
        self._world = world
        self._slots: dict[str, Actor] = {}
        self._resets: list[Actor] = []
        self._occurrences: dict[int, Occurrence] = {}
        self._down: set[str] = set()
        self._exits = ExitStack()
        self._pause = threading.Event()
        self.controllers: list[Actor] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def through(self) -> list[str]:
        """Take all steps, wait until everything is done, and describe broken invariants."""
        for slot in self._schedule.slots:
            self.do_start(slot)
        # The schedule starts when a controller leads, so that the start of Python takes no part of it.
        if not self._becomes_true(lambda: bool(self._world.lease())):
            return ["no controller ever took the Lease"]
        begun = time.monotonic()
        for step in self._schedule.steps:
            self._pause.wait(max(0.0, begun + step.at - time.monotonic()))
            getattr(self, f"do_{step.what.replace(' ', '_')}")(**step.arguments)
        wrong = self._violations("after the last step")
        if not wrong:
            self._reset_all()
            for name, machine in self._world.machines.items():
                self._world.replay(name, machine.form)
            for slot in self._schedule.slots:
                code = self._slots[slot].stop()
                if code not in (0, -signal.SIGTERM):  # a process that is still starting has no signal handler
                    wrong.append(f"the controller in slot {slot} ended with code {code} after SIGTERM")
                self.do_start(slot)
            wrong += self._violations(
                "after every node was reset and replayed, and every controller restarted"
            )
        if not wrong:
            for node in self._world.machines:
                self._world.ship([self._world.xid(node, 79, "0000:4e:00")], self._world.machines[node].form)
            wrong += self._violations("after a new fault on every node")
        return wrong

    def _reset_all(self) -> None:
        """Reset every node, and repeat until no node is tainted or held."""
        for _ in range(RESETS):
            if not any(
                is_tainted(node) or health_of(node) == "held" for node in self._world.nodes().values()
            ):
                return
            self._run_reset("--all").wait(PATIENCE_SECONDS)

    def run_record(self) -> RunRecord:
        """Return the record that the invariants are checked on."""
        return RunRecord(
            self._world.journal.entries(),
            self._world.nodes(),
            {name: machine.system for name, machine in self._world.machines.items()},
            list(self._world.occurrences),
            self.controllers,
            self._schedule.brake_nodes,
            self._schedule.lateness_seconds,
        )

    def output(self) -> str:
        actors = [*self.controllers, *self._resets]
        output = [f"--- {actor.user} ({actor.log.stem})\n{actor.output()}" for actor in actors]
        return "\n".join(
            [*output, "--- writes in the order of their effect", *map(str, self.run_record().entries)]
        )

    def _violations(self, when: str) -> list[str]:
        """End all troubles, wait until everything is read and done, and describe broken invariants."""
        world = self._world
        self.do_loki_well()
        self.do_kube_well()
        for slot in self._schedule.slots:
            self._slots[slot].thaw()
            self.do_start(slot)
        for actor in self._resets:
            if actor.wait(PATIENCE_SECONDS) is None:
                return [f"a reset never ended, {when}"]
        until_ns = time.time_ns()
        read = self._becomes_true(lambda: world.read_until_ns() > until_ns)
        if not read:
            return [f"the cursor never reached the present, {when}"]
        self._becomes_true(lambda: not unmet(self.run_record()))
        return [f"{wrong}, {when}" for wrong in violations(self.run_record())]

    def _becomes_true(self, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > end:
                return False
            self._pause.wait(CHECK_SECONDS)
        return True

    def do_start(self, slot: str) -> None:
        if slot in self._slots and self._slots[slot].running():
            return
        number = len(self.controllers)
        user = f"controller-{slot}{number}"
        environment = {**self._world.environment(user), **self._schedule.settings}
        if self._schedule.pods:
            environment |= {"POD_NAME": f"konductor-like-{slot}", "POD_UID": f"uid-of-{slot}"}
        log = self._world.folder / f"{user}.log"
        actor = start(CONTROLLER, (), environment, user, log)
        self._exits.callback(actor.kill)
        self._slots[slot] = actor
        self.controllers.append(actor)

    def do_kill(self, slot: str) -> None:
        self._slots[slot].kill()

    def do_freeze(self, slot: str) -> None:
        self._slots[slot].freeze()

    def do_thaw(self, slot: str) -> None:
        self._slots[slot].thaw()

    def do_print(self, number: int, node: str, code: int, gpu: str) -> None:
        self._occurrences[number] = self._world.xid(node, code, gpu)

    def do_ship(self, number: int) -> None:
        occurrence = self._occurrences[number]
        self._world.ship([occurrence], self._world.machines[occurrence.node].form)

    def do_replay(self, node: str, form: str) -> None:
        """Replay the ring; plain lines name no boot, so they are replayed only if there was one boot."""
        machine = self._world.machines[node]
        self._world.replay(node, machine.form if machine.reboots else form)

    def do_duplicate(self, node: str, collector: str) -> None:
        machine = self._world.machines[node]
        shipped = [one for one in machine.ring if one.accepted_ns is not None]
        self._world.ship(shipped[-3:], machine.form, collector=collector)

    def do_loki(self, kind: str) -> None:
        if kind == "down":
            self._down.add("loki")
            self._world.loki.stop()
        else:
            self._world.loki.fail(
                LOKI_MISHAPS[kind], times=None, when=lambda one: one.path.endswith("/query_range")
            )

    def do_loki_well(self) -> None:
        self._world.loki.mishaps.clear()
        if "loki" in self._down:
            self._down.remove("loki")
            self._world.loki.start()

    def do_kube(self, kind: str, only: str) -> None:
        def meets(request: Request) -> bool:
            return only in f"{request.method} {request.path}"

        if kind == "down":
            self._down.add("kube")
            self._world.cluster.stop()
        else:
            self._world.cluster.mishaps.add(PATCH_MISHAPS[kind], times=None, when=meets)

    def do_kube_well(self) -> None:
        self._world.cluster.mishaps.clear()
        if "kube" in self._down:
            self._down.remove("kube")
            self._world.cluster.start()

    def do_delete_lease(self) -> None:
        self._world.delete_lease()

    def do_reset(self, node: str, prefer: int, *, purge: bool) -> None:
        self._run_reset(self._preferred(node, prefer), *(["--purge"] if purge else []))

    def _run_reset(self, *arguments: str) -> Actor:
        environment = {**self._world.environment(RESETTER), **self._schedule.settings}
        log = self._world.folder / f"reset-{len(self._resets)}.log"
        command = ("reset", "--yes", "--reason", "chaos", *arguments)
        actor = start(COMMAND, command, environment, RESETTER, log)
        self._exits.callback(actor.kill)
        self._resets.append(actor)
        return actor

    def _preferred(self, node: str, number: int) -> str:
        """Return one of the nodes that are tainted now; ``node`` if none is."""
        tainted = [name for name, seen in self._world.nodes().items() if is_tainted(seen)]
        return tainted[number % len(tainted)] if tainted else node

    def do_taint_by_hand(self, node: str) -> None:
        self._world.edit(node, lambda seen: with_taint(seen, OUR_TAINT))

    def do_untaint_by_hand(self, node: str, prefer: int) -> None:
        self._world.edit(self._preferred(node, prefer), lambda seen: without_taint(seen, OUR_TAINT["key"]))

    def do_others_write(self, node: str, what: str) -> None:
        taint = {"key": "example.com/maintenance", "value": "<soon>", "effect": "NoExecute"}
        changes: dict[str, Callable[[dict[str, Any]], Any]] = {
            "taint": lambda seen: with_taint(seen, taint),
            "untaint": lambda seen: without_taint(seen, taint["key"]),
            "annotate": lambda _: {"metadata": {"annotations": {"example.com/note": str(time.time_ns())}}},
        }
        self._world.edit(node, changes[what])

    def do_reboot(self, node: str, *, prints_first: bool) -> None:
        world = self._world
        machine = world.machines[node]
        if machine.shipped_plain or (machine.form == PLAIN and machine.ring):
            return  # a late line that names no boot looks like a line of the next boot
        machine.reboot()
        if prints_first:
            world.ship([world.xid(node, 79, "0000:4e:00")], machine.form)
        world.post_boot(node)
        world.heartbeat(node)

    def do_recreate(self, node: str, *, new_machine: bool) -> None:
        machine = self._world.machines[node]
        plain = machine.shipped_plain or (machine.form == PLAIN and machine.ring)
        self._world.recreate(node, new_machine=new_machine and not plain)
