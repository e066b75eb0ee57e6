"""The processes under test: the real controller and the real ``reset``, each in a process of its own.

A fork server that has imported everything starts them, which saves a second of CPU time each. Each runs the
same ``main`` as a user's, with its own signals, threads and connections.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

CONTROLLER = "konductor_like.controller.launch"
COMMAND = "konductor_like.cli"
STOP_SECONDS = 30.0
LINUX = sys.platform == "linux"
"""Whether /proc shows that a process is stopped; it does on Linux only."""


@dataclass(slots=True)
class Actor:
    """One process. ``user`` is its name at the API server, ``stops`` the times of its stops (ns)."""

    user: str
    process: BaseProcess
    log: Path
    stops: list[tuple[int, int]] = field(default_factory=list)
    ended_ns: int | None = None
    _stopped_ns: int | None = None

    def wait(self, timeout_seconds: float) -> int | None:
        """Return the exit code (minus the signal that ended it); None if it still runs after the timeout."""
        self.process.join(timeout_seconds)
        return self.process.exitcode

    def running(self) -> bool:
        return self.wait(0) is None

    def freeze(self) -> None:
        """SIGSTOP; return once every thread is stopped."""
        if self.running() and self._stopped_ns is None:
            self._stopped_ns = time.time_ns()
            os.kill(self._pid, signal.SIGSTOP)
            while self.running() and not _is_stopped(self._pid):
                time.sleep(0.001)

    def thaw(self) -> None:
        if self._stopped_ns is not None:
            if self.running():
                os.kill(self._pid, signal.SIGCONT)
            self.stops.append((self._stopped_ns, time.time_ns()))
            self._stopped_ns = None

    def kill(self) -> None:
        if self.running():
            os.kill(self._pid, signal.SIGKILL)
        self._end()

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        self.thaw()
        if self.running():
            os.kill(self._pid, signal.SIGTERM)
        return self._end()

    def output(self) -> str:
        return self.log.read_text("utf-8", errors="replace") if self.log.exists() else ""

    @property
    def _pid(self) -> int:
        assert self.process.pid is not None, "it was started"
        return self.process.pid

    def _end(self) -> int:
        code = self.wait(STOP_SECONDS)
        if code is None:
            os.kill(self._pid, signal.SIGKILL)
            code = self.wait(STOP_SECONDS)
        self.thaw()
        self.ended_ns = self.ended_ns or time.time_ns()
        assert code is not None, "a killed process did not end"
        return code


def start(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], user: str, log: Path
) -> Actor:
    """Start one of our programs as ``user``; its output goes to ``log``."""
    names = ("LOG_ENDPOINT", "WATCHED_NAMESPACES", "KUBECONFIG", "POD_NAME", "POD_UID")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("KONDUCTOR_") and k not in names}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.chaos.processes.warm"])
    what = (module, list(arguments), {**kept, **environment}, str(log))
    process = context.Process(target=_become, args=what, daemon=True)
    process.start()
    return Actor(user, process, log)


def _become(module: str, arguments: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    from konductor_like.cli.app import execute
    from konductor_like.controller.launch import main

    sys.exit(main(arguments) if module == CONTROLLER else execute(arguments, "konductor-like"))


def _is_stopped(pid: int) -> bool:
    """Whether all threads of the process are stopped (proc(5), field 3)."""
    states = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            states.add(thread.read_text("utf-8", errors="replace").rpartition(")")[2].split()[0])
    return states <= set("TtZX")
