"""``konductor-like demo``: plays the demonstration live on a terminal, or as plain lines in a pipe."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.exits import Exit

if TYPE_CHECKING:
    from rich.console import Console

    from konductor_like.demo.stage import RunningController, Stage

_LOG_LINES_SHOWN = 15


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the stand-ins running at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Watch the real controller at work on a made-up fleet."""
    from rich.console import Console

    from konductor_like.demo.stage import Stage

    for ending in (signal.SIGTERM, signal.SIGHUP):
        # These signals, too, must end the controller and remove the folder.
        signal.signal(ending, _leave)
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    with Stage() as stage:
        console.print("Starting a stand-in Loki, a stand-in Kubernetes API server and the real controller.\n")
        stage.keep_beating()
        if not _play(console, stage):
            raise typer.Exit(Exit.FAILED)
        _show_status(console, stage)
        _say_what_next(console, stage, keep=keep)
        if keep:
            threading.Event().wait()  # until Ctrl-C


def _play(console: Console, stage: Stage) -> bool:
    """Play every step and return whether all steps succeeded."""
    from konductor_like.demo.story import StoryError, play, steps

    controller = stage.start_controller()
    for number, step in enumerate(steps(controller), start=1):
        console.print(f"{number}. {step.title}", style="bold")
        try:
            with console.status("waiting for it to come true …"):
                outcome = play(step, stage, controller)
        except StoryError as error:
            _show_failure(console, controller, error)
            return False
        console.print(f"   ✓ {outcome}", style="green")
        for line in list(controller.log):
            console.print(f"     {line}", style="dim")
        controller.log.clear()
    return True


def _show_failure(console: Console, controller: RunningController, error: Exception) -> None:
    console.print(f"   ✗ {error}", style="red")
    console.print("\nThe controller's last lines:")
    for line in list(controller.log)[-_LOG_LINES_SHOWN:]:
        console.print(f"  {line}")


def _show_status(console: Console, stage: Stage) -> None:
    console.print("\n$ konductor-like status", style="bold")
    if console.is_terminal:
        stage.run("status", show=True)  # it fits its table to the terminal
    else:
        console.print(stage.run("status").stdout.rstrip("\n"))


def _say_what_next(console: Console, stage: Stage, *, keep: bool) -> None:
    if not keep:
        console.print("\nThe story came true. To look around yourself: konductor-like demo --keep")
        return
    console.print(
        "\nThe story came true, and all of it keeps running until Ctrl-C. Try, in another terminal:\n"
    )
    for name, value in stage.environment.items():
        console.print(f"  export {name}={value}")
    for command in (
        "kubectl get nodes -L trainy.konduktor.ai/health",
        "kubectl describe node gpu-04",
        "kubectl get events",
        "konductor-like status -o wide",
        "konductor-like reset --reason 'trying it out'",
    ):
        console.print(f"  {command}")


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
