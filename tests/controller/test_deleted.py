"""Nodes deleted with our taint are noticed, reported, and remembered over a restart of the controller."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from konductor_like.model import Controls, EventReason, Machine
from tests.controller.reconciling import UNANSWERED, Scene, xid
from tests.policy.scenes import node

TOLD = (
    "gpu-1 was deleted with the controller's taint. "
    "The brake counts it as out of service until 2026-03-04T12:05:10Z. "
    "A machine that registers again is tainted again, until a person releases it."
)


def run(scene: Scene, *numbers: int, seconds: float) -> None:
    """Reconcile once with an Xid 79 of each of these nodes."""
    scene.run(*(xid(f"gpu-{number}", seconds=seconds) for number in numbers), seconds=seconds)


def restarted(scene: Scene) -> Scene:
    """Start another process from what the last renewal wrote on the Lease."""
    lease = Controls(tainted=scene.reconciler.tainted() or ())
    successor = Scene(nodes=scene.cluster.nodes, lease=lease)
    successor.fleet_events = scene.fleet_events
    return successor


def told(scene: Scene) -> list[str]:
    return [message for reason, message in scene.fleet_events if reason is EventReason.DELETED]


@pytest.mark.parametrize("when", ["never", "before", "after", "at the time"])
def test_a_node_deleted_with_our_taint_still_counts_for_the_brake(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "konductor_like")
    scene = Scene(5)
    run(scene, 1, 2, seconds=1)
    assert scene.cluster.tainted == {"gpu-1"}
    if when == "before":
        scene = restarted(scene)
        run(scene, seconds=5)
    del scene.cluster.nodes["gpu-1"]
    if when == "at the time":  # nobody saw it go
        scene = restarted(scene)
    run(scene, seconds=10)
    assert scene.count("brake_cooling") == 1
    if when == "after":
        scene = restarted(scene)
        run(scene, seconds=15)

    run(scene, seconds=309)
    assert scene.cluster.tainted == set()
    run(scene, seconds=310)

    assert scene.cluster.tainted == {"gpu-2"}
    assert told(scene) == [each for each in caplog.messages if "deleted with" in each] == [TOLD]


@pytest.mark.parametrize("answered", [True, False])
def test_a_node_deleted_right_after_the_write_is_noticed(*, answered: bool) -> None:
    scene = Scene(5)
    if answered:
        scene.cluster.apply = lambda state: scene.cluster.nodes.pop(state.name)  # type: ignore[method-assign, assignment]  # the watch is faster
    else:
        scene.cluster.moods["gpu-1"] = [UNANSWERED]
    run(scene, 1, seconds=1)
    scene.cluster.nodes.pop("gpu-1", None)

    run(scene, 2, seconds=5)

    assert scene.cluster.tainted == set()
    assert len(told(scene)) == 1


def test_a_node_that_was_made_anew_while_no_controller_ran_was_deleted() -> None:
    scene = Scene(5)
    assert scene.reconciler.tainted() is None
    run(scene, 1, seconds=1)
    other = Machine("uid-new", "system-new", "boot-new")
    scene.cluster.nodes["gpu-1"] = replace(node("gpu-1"), machine=other)
    scene = restarted(scene)

    run(scene, 2, seconds=10)

    assert scene.cluster.tainted == set()
    assert len(told(scene)) == 1
