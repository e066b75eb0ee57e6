"""The steps of the story, each with the outcome that must follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from konductor_like_sandbox.demo.stage import RunningController, Stage
from konductor_like_sandbox.demo.xids import xid_message

STEP_SECONDS = 30.0
SLOW_STEP_SECONDS = 180.0
_LOOK_SECONDS = 0.05

XID_79 = xid_message(79, "0000:4e:00")
XID_31 = xid_message(31, "0000:9a:00")
XID_63 = xid_message(63, "0000:1b:00")


class StoryError(Exception):
    """A step did not have its outcome; the message says which."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step. ``play`` starts it; then ``holds`` must become true, and ``never`` must stay false."""

    title: str
    play: Callable[[Stage], None]
    holds: Callable[[Stage], bool]
    outcome: Callable[[Stage, float], str]
    never: Callable[[Stage], bool]
    within_seconds: float | None = None
    """How long the outcome may take; None for :data:`STEP_SECONDS`."""


def steps(controller: RunningController, *, validated: bool = False) -> Iterator[Step]:
    """Return the steps in order, with ``validated`` those of a validation, too."""
    yield Step(
        "The controller starts; ten GPU nodes are healthy.",
        lambda _stage: None,
        lambda stage: (
            any("Reading Loki" in line for line in controller.log) and stage.heard() == set(stage.gpu_nodes)
        ),
        lambda _stage, seconds: (
            f"it holds the Lease and hears every kernel log, {seconds:.1f} s after its start"
        ),
        never=lambda stage: any(node.tainted for node in stage.nodes()),
    )
    yield Step(
        "gpu-04: a GPU falls off the bus (Xid 79).",
        lambda stage: stage.kernel("gpu-04", XID_79),
        lambda stage: stage.node("gpu-04").tainted,
        lambda _stage, seconds: f"gpu-04 is tainted, {seconds:.1f} s after the line reached Loki",
        never=_another_than("gpu-04"),
    )
    yield Step(
        "gpu-07: an application reads a bad address (Xid 31).",
        lambda stage: stage.kernel("gpu-07", XID_31),
        lambda stage: stage.node("gpu-07").recorded(31),
        lambda _stage, _seconds: "recorded on gpu-07 and not tainted: that is the job's fault",
        never=_another_than("gpu-04"),
    )
    yield Step(
        "An operator swaps the GPU and runs: konductor-like reset gpu-04 --yes",
        _reset,
        lambda stage: not stage.node("gpu-04").tainted,
        lambda _stage, _seconds: "gpu-04 is released, and its record says by whom, when and why",
        never=_another_than("gpu-04"),
    )
    yield Step(
        "gpu-04: its dmesg pod restarts and prints the old Xid 79 again.",
        _replay,
        lambda stage: stage.node("gpu-01").recorded(63),
        lambda _stage, _seconds: "the old line does not taint it again: the node stays released",
        never=lambda stage: stage.node("gpu-04").tainted,
    )
    yield Step(
        "gpu-04: the new GPU fails too.",
        lambda stage: stage.kernel("gpu-04", XID_79),
        lambda stage: stage.node("gpu-04").tainted,
        lambda _stage, seconds: f"gpu-04 is tainted again, {seconds:.1f} s after the line reached Loki",
        never=_another_than("gpu-04"),
    )
    if validated:
        yield from _validation_steps()
    yield Step(
        "Four more nodes fail; the brake allows two of ten GPU nodes to be out of service.",
        _many,
        lambda stage: sum(node.health == "held" for node in stage.nodes()) == 3,
        lambda stage, _seconds: _out(stage),
        never=lambda stage: sum(node.tainted for node in stage.nodes()) > 2,
    )


def _validation_steps() -> Iterator[Step]:
    yield Step(
        "gpu-06: a GPU falls off the bus, too.",
        lambda stage: stage.kernel("gpu-06", XID_79),
        lambda stage: stage.node("gpu-06").tainted,
        lambda _stage, seconds: f"gpu-06 is tainted, {seconds:.1f} s after the line reached Loki",
        never=_another_than("gpu-04", "gpu-06"),
    )
    yield Step(
        "gpu-06 is rebooted, and a validation returns it (GPUs and tests are simulated).",
        lambda stage: stage.reboot("gpu-06"),
        lambda stage: stage.node("gpu-06").passed,
        lambda _stage, seconds: (
            f"a Job has tested its 8 GPUs, and all passed, {seconds:.0f} s after the boot"
        ),
        never=lambda stage: not (stage.node("gpu-06").tainted or stage.node("gpu-06").passed),
        within_seconds=SLOW_STEP_SECONDS,
    )
    yield Step(
        "The kernel log of gpu-06 is read past the end of the test.",
        lambda _stage: None,
        lambda stage: not stage.node("gpu-06").tainted and stage.node("gpu-06").health == "probation",
        lambda _stage, seconds: f"gpu-06 is back in service, on probation, {seconds:.0f} s later",
        never=_another_than("gpu-04", "gpu-06"),
        within_seconds=SLOW_STEP_SECONDS,
    )


def play(step: Step, stage: Stage, controller: RunningController) -> str:
    """Play one step, wait for its outcome, and return the outcome in words. Raises StoryError."""
    most_seconds = STEP_SECONDS if step.within_seconds is None else step.within_seconds
    step.play(stage)
    looked = started = time.monotonic()
    while not step.holds(stage):
        code = controller.process.poll()
        if code is not None:
            raise StoryError(f"The controller ended with exit code {code}.")
        if step.never(stage):
            raise StoryError("Unexpected state.")
        if time.monotonic() - started > most_seconds:
            raise StoryError(f"Timed out after {most_seconds:g} s.")
        time.sleep(max(_LOOK_SECONDS, time.monotonic() - looked))  # the stand-ins need our process, too
        looked = time.monotonic()
    seconds = time.monotonic() - started
    if step.never(stage):
        raise StoryError("Unexpected state.")
    return step.outcome(stage, seconds)


def _another_than(*names: str) -> Callable[[Stage], bool]:
    return lambda stage: any(node.tainted for node in stage.nodes() if node.name not in names)


def _reset(stage: Stage) -> None:
    done = stage.run("reset", "gpu-04", "--yes", "--reason", "swapped the GPU")
    if done.returncode != 0:
        raise StoryError(f"The release failed: {done.stderr.strip()}")


def _replay(stage: Stage) -> None:
    """Replay gpu-04's log, then log a line on gpu-01: once it is recorded, the replay has been handled."""
    stage.replay("gpu-04")
    stage.kernel("gpu-01", XID_63)


def _many(stage: Stage) -> None:
    for name in ("gpu-02", "gpu-05", "gpu-08", "gpu-10"):
        stage.kernel(name, XID_79)


def _out(stage: Stage) -> str:
    nodes = stage.nodes()
    tainted = ", ".join(node.name for node in nodes if node.tainted)
    held = ", ".join(node.name for node in nodes if node.health == "held")
    return f"out of service: {tainted}; held back and listed: {held}"
