"""Our programs, forked from a process that has already imported them: a second of CPU time less per start.

A forked program runs the same ``main`` as a user's, with its own environment, signals, threads and sockets.
``tests/demo`` and ``tests/cli/test_app.py`` start the programs as users do.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import TextIO
from unittest.mock import patch

from konductor_like_sandbox.demo import stage
from konductor_like_sandbox.demo.stage import COMMAND, CONTROLLER

CONSTANTS = "KONDUCTOR_TEST_CONSTANTS"
"""The variable that replaces constants in a forked program: ``policy.change:RECORD_INTERVAL_SECONDS=0,…``."""
_QUICK = "settings:POD_POLL_SECONDS=0.5"


class Forked:
    """What our tests use of ``subprocess.Popen``; ``command`` is :data:`CONTROLLER` or :data:`COMMAND`."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], stdout: int | None = None, **_text: object
    ) -> None:
        """Take stderr, and stdout if ``stdout`` is ``subprocess.PIPE``."""
        main, arguments = command[: len(CONTROLLER)], list(command[len(CONTROLLER) :])
        assert main in (CONTROLLER, COMMAND), command
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.chaos.processes.warm"])
        self.stderr, err = _pipe()
        self.stdout: TextIO | None = None
        out: Connection | None = None
        if stdout == subprocess.PIPE:
            self.stdout, out = _pipe()
        self._process = context.Process(
            target=_become, args=(main == CONTROLLER, arguments, dict(env), out, err), daemon=True
        )
        self._process.start()
        for end in filter(None, (out, err)):
            end.close()
        assert self._process.pid is not None, "it was started"
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("forked", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    command: Sequence[str], *, env: Mapping[str, str], timeout: float = 100, **_options: object
) -> subprocess.CompletedProcess[str]:
    """Run one of our programs to its end, as ``subprocess.run`` with ``capture_output`` does."""
    process = Forked(command, env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as out, process.stderr as err, ThreadPoolExecutor(1) as pool:
        said = pool.submit(out.read)
        errors = err.read()
        return subprocess.CompletedProcess(command, process.wait(timeout), said.result(), errors)


@contextmanager
def forking() -> Iterator[None]:
    """Let every stage fork its controllers and commands meanwhile."""
    module = SimpleNamespace(**vars(subprocess))
    module.Popen, module.run = Forked, run
    with patch.object(stage, "subprocess", module):
        yield


def _pipe() -> tuple[TextIO, Connection]:
    """Return the end to read from, as text, and the end for the child."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    with ours:
        return os.fdopen(os.dup(ours.fileno()), encoding="utf-8", errors="replace"), theirs


def _become(
    is_controller: bool,
    arguments: list[str],
    environment: dict[str, str],
    out: Connection | None,
    err: Connection,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(err.fileno(), 2)
    if out is not None:
        os.dup2(out.fileno(), 1)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # as an interpreter opens it
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    from konductor_like.cli.app import execute
    from konductor_like.controller.launch import main

    for each in f"{_QUICK},{environment.get(CONSTANTS, '')}".strip(",").split(","):
        place, _, value = each.partition("=")
        module, _, name = place.partition(":")
        setattr(import_module(f"konductor_like.{module}"), name, float(value))
    sys.exit(main(arguments) if is_controller else execute(arguments, "konductor-like"))
