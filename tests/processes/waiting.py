"""Waits for a condition with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from konductor_like_sandbox.demo.stage import RunningController

PATIENCE_SECONDS = 100.0


def until(
    condition: Callable[[], bool],
    what: str,
    *controllers: RunningController,
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Return once ``condition`` is true; fail with the controllers' logs after ``seconds``.

    A condition that runs a command is asked more rarely, so that it takes a quarter of a core at most.
    """
    end = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        if condition():
            return
        if time.monotonic() > end:
            logs = "\n".join(line for controller in controllers for line in list(controller.log)[-40:])
            raise AssertionError(f"never came true: {what}\n{logs}")
        time.sleep(max(0.02, 3 * (time.monotonic() - asked)))


def logged(controller: RunningController, text: str) -> Callable[[], bool]:
    """Whether the controller has logged ``text``."""
    return lambda: any(text in line for line in list(controller.log))
