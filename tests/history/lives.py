"""Nodes that live for a day of simulated time under the real reconciler, and their true outages."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

from konductor_like.cluster.node.patch import applied
from konductor_like.controller import logs
from konductor_like.controller.loop.operator_controls import OperatorControls
from konductor_like.history.trail import TrailLine, parse
from konductor_like.loki.query.response import Entry
from konductor_like.model import (
    Change,
    Checkpoint,
    Control,
    ControlAct,
    Controls,
    Hardware,
    LogLine,
    Machine,
    NodeState,
    Source,
)
from konductor_like.policy.node.release import purge, release
from konductor_like.policy.operator import operator_taint
from tests.controller.reconciling import Cluster, Scene
from tests.policy.scenes import at, node, ns

TICK = 600.0
"""Seconds between two steps of a life."""
LABELS = {"k8s_namespace_name": "konductor-like"}
_FATAL, _TEST = (
    "[{stamp:.6f}] NVRM: Xid (PCI:0000:{gpu}:00): 79, GPU has fallen off the bus.",
    "[{stamp:.6f}] NVRM: Xid (PCI:0000:{gpu}:00): 14, test",
)


@dataclass
class TrueOutage:
    """One time in which the Node had our taint."""

    node: str
    since: float
    until: float | None = None
    how: str = ""
    by: str | None = None
    seen_until: float | None = None
    """When a controller could see the end at the earliest; the same as ``until`` while one runs."""


class Lives:
    """Nodes, one controller after another, and the lines of the audit trail by simulated time."""

    def __init__(self, seed: int, size: int = 6) -> None:
        self.random = random.Random(seed)
        self.seconds = 60.0
        self.away = False
        self.truth: list[TrueOutage] = []
        self.entries: list[Entry] = []
        self._acted: set[str] = set()
        """The nodes to which something was done while no controller ran."""
        self._names = [f"gpu-{n}" for n in range(1, size + 1)]
        self._births = 0
        self._log = io.StringIO()
        logs.set_up("json", "info", stream=self._log)
        self.cluster = Cluster({})
        for name in self._names:
            self._register(name)
        self.controls = Controls()
        self._start()

    # What exists

    def _register(self, name: str) -> None:
        self._births += 1
        state = node(name)
        machine = Machine(f"uid-{name}-{self._births}", f"system-{name}", f"boot-{self._births}")
        seen = replace(state.as_read, uid=machine.node_uid)
        hardware = Hardware("NVIDIA-H100-80GB-HBM3", self.random.choice(("570.172.08", "580.95.05")), "r1")
        self.cluster.nodes[name] = replace(state, machine=machine, as_read=seen, hardware=hardware)

    def _start(self) -> None:
        self.scene = Scene(
            cluster=self.cluster,
            controls=cast(
                "OperatorControls", SimpleNamespace(update=lambda _now, **_: self.controls, unread=False)
            ),
            start=Checkpoint({Source.KERNEL: ns(self.seconds)}, act_from_ns=ns(-900)),
        )
        self.scene.reconciler.policy = replace(self.scene.reconciler.policy, brake_max_percent=100)

    # What happens

    def live(self, steps: int) -> None:
        """Let things happen, one in each step."""
        for _ in range(steps):
            self.seconds += TICK
            doing = self.random.choices(
                (
                    "fault",
                    "test",
                    "reset",
                    "taint",
                    "rest",
                    "by hand",
                    "purge",
                    "delete",
                    "return",
                    "leave",
                ),
                (34, 4, 32, 6, 5, 6, 3, 4, 8, 4),
            )[0]
            self._do(doing)
            self._look()

    def _do(self, doing: str) -> None:
        if doing == "return" or (doing == "leave" and self.away):
            self._come_back()
        elif doing == "leave":
            self.away, self._left = True, self.seconds
        elif doing in ("fault", "test"):
            self._fault(_FATAL if doing == "fault" else _TEST)
        else:
            self._act(doing)

    def _come_back(self) -> None:
        if not self.away:
            return
        self.away = False
        self._acted.clear()
        self._keep_lease()
        self._start()
        self.scene.reconciler._report.persons.begin(at(self._left))

    def _fault(self, text: str) -> None:
        name = self.random.choice(self._names)
        if self.away or name not in self.cluster.nodes:
            return
        line = text.format(stamp=self.seconds, gpu=self.random.choice(("4e", "9a")))
        self._run(LogLine(Source.KERNEL, ns(self.seconds), line, {}, name))

    def _act(self, doing: str) -> None:
        name = self.random.choice(self._names)
        state = self.cluster.nodes.get(name)
        if state is None:
            self._register(name)
            return
        if self.away and name in self._acted:
            return  # a second act may hide the first one
        self._acted.add(name)
        by, now = self.random.choice(("ann", "kim")), at(self.seconds)
        if doing == "delete":
            del self.cluster.nodes[name]
            self._end(name, "deleted", None)
        elif doing == "by hand" and state.tainted:
            without = replace(state.as_read, taints=None)
            gone = replace(state, taints=(), as_read=without, removed_by="kubectl-taint")
            self.cluster.nodes[name] = gone
            self._end(name, "taint removed", "kubectl-taint")
        elif doing == "reset":
            self._write(state, release(state, at=now, by=by, reason="new riser", read_ns={}), "reset", by)
        elif doing == "taint" and not state.tainted:
            self._write(state, operator_taint(state, at=now, by=by, reason="fan is loud"), "", by)
        elif doing == "purge":
            self.controls = replace(
                self.controls, acts=(ControlAct(Control.PURGE, now, by, nodes=1, names=(name,)),)
            )
            self._write(state, purge(state), "purged", by)

    def _write(self, state: NodeState, change: Change | None, how: str, by: str) -> None:
        if change is None:
            return
        self.cluster.nodes[state.name] = applied(state, change)
        if state.tainted and not self.cluster.nodes[state.name].tainted:
            self._end(state.name, how, by)

    # What the controller sees, and what is true

    def _look(self) -> None:
        self._note_begins()  # a person's taint
        if not self.away:
            self._run()

    def _run(self, *lines: LogLine) -> None:
        self._keep_lease()
        self.scene.run(*lines, seconds=self.seconds)
        self._ship()
        for each in self.truth:
            state = self.cluster.nodes.get(each.node)
            if each.until is None and (state is None or not state.tainted):
                self._end(each.node, "time", None)
            if each.until is not None and each.seen_until is None:
                each.seen_until = self.seconds
        self._note_begins()

    def _keep_lease(self) -> None:
        tainted = self.scene.reconciler.tainted()
        if tainted is not None:
            self.controls = replace(self.controls, tainted=tainted)

    def _note_begins(self) -> None:
        out = {each.node for each in self.truth if each.until is None}
        for name, state in self.cluster.nodes.items():
            if state.tainted and name not in out:
                self.truth.append(TrueOutage(name, self.seconds))

    def _end(self, name: str, how: str, by: str | None) -> None:
        for each in self.truth:
            if each.node == name and each.until is None:
                each.until, each.how, each.by = self.seconds, how, by

    def _ship(self) -> None:
        """Give the new lines of the log the present time, as a collector does."""
        lines = self._log.getvalue().splitlines()
        self._log.seek(0)
        self._log.truncate()
        self.entries += [Entry(ns(self.seconds) + n, text, LABELS) for n, text in enumerate(lines)]

    def trail(self, lost: tuple[float, float] | None = None) -> list[TrailLine]:
        """Return the lines of the trail; those between the two times of ``lost`` are missing."""
        found = [line for entry in self.entries if (line := parse(entry)) is not None]
        if lost is None:
            return found
        start, end = at(lost[0]), at(lost[1])
        return [line for line in found if not start <= line.logged_at < end]
