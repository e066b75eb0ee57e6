"""``konductor-like demo``: the story live on a terminal, as plain lines in a pipe."""

from __future__ import annotations

import signal
import threading

from rich.console import Console
from rich.text import Text

from konductor_like.demo.stage import RunningController, Stage
from konductor_like.demo.story import StoryError, play, steps

_LOG_LINES_SHOWN = 15


def demo(*, keep: bool) -> int:
    """Play the demo; 0 when the story came true, 1 when it did not. ``keep`` waits for Ctrl-C at the end."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        # Whatever ends us, the controller and the folder must go with us.
        signal.signal(ending, _leave)
    console = Console(highlight=False, soft_wrap=True)
    with Stage() as stage:
        console.print("Starting a stand-in Loki, a stand-in Kubernetes API server and the real controller.\n")
        stage.keep_beating()
        controller = stage.start_controller()
        for number, step in enumerate(steps(controller), start=1):
            console.print(Text(f"{number}. {step.title}", style="bold"))
            try:
                with console.status("waiting for it to come true …"):
                    outcome = play(step, stage, controller)
            except StoryError as error:
                _confess(console, controller, error)
                return 1
            console.print(Text(f"   ✓ {outcome}", style="green"))
            for line in _news(controller):
                console.print(Text(f"     {line}", style="dim"))
        _show_status(console, stage)
        _say_what_next(console, stage, keep=keep)
        if keep:
            _wait_for_ctrl_c()
    return 0


def _news(controller: RunningController) -> list[str]:
    """What the controller said since we last looked."""
    said = list(controller.log)
    controller.log.clear()
    return said


def _confess(console: Console, controller: RunningController, error: StoryError) -> None:
    console.print(Text(f"   ✗ {error}", style="red"))
    console.print("\nThe controller's last lines:")
    for line in list(controller.log)[-_LOG_LINES_SHOWN:]:
        console.print(Text(f"  {line}"))


def _show_status(console: Console, stage: Stage) -> None:
    console.print(Text("\n$ konductor-like status", style="bold"))
    if console.is_terminal:
        stage.run("status", show=True)  # it fits its table to the terminal
    else:
        console.print(Text(stage.run("status").stdout.rstrip("\n")))


def _say_what_next(console: Console, stage: Stage, *, keep: bool) -> None:
    if not keep:
        console.print("\nThe story came true. To look around yourself: konductor-like demo --keep")
        return
    console.print(
        "\nThe story came true, and all of it keeps running until Ctrl-C. Try, in another terminal:\n"
    )
    for name, value in stage.environment.items():
        console.print(Text(f"  export {name}={value}"))
    for command in (
        "kubectl get nodes -L trainy.konduktor.ai/health",
        "kubectl describe node gpu-04",
        "kubectl get events",
        "konductor-like status -o wide",
        "konductor-like reset --reason 'trying it out'",
    ):
        console.print(Text(f"  {command}"))


def _wait_for_ctrl_c() -> None:
    threading.Event().wait()


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
