"""Writes that are refused, late or never answered: no fault is lost, and none acts twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from konductor_like.cluster.api.errors import KubeOverloaded
from konductor_like.cluster.node.writer import DryRunWriter, Outcome, WriteResult
from konductor_like.model import Change, EventReason, KernelPosition, LogLine, NodeState, Source, Verb
from tests.controller.reconciling import ANY, FORBIDDEN, GONE, SLOW, UNANSWERED, Scene, xid
from tests.policy.scenes import OURS, ns

SUSPECT = LogLine(Source.KERNEL, ns(1), "[9.0] NVRM: Xid (PCI:0000:1b:00): 63, pid=1", {}, "gpu-2")


def test_the_checkpoint_stays_behind_a_fault_that_could_not_be_written() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [FORBIDDEN]

    scene.run(xid(seconds=1), xid("gpu-2", seconds=1.5), seconds=2)

    assert scene.cluster.tainted == {"gpu-2"}
    assert scene.kernel_checkpoint == ns(1)
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 1

    scene.run(seconds=30)

    assert scene.cluster.tainted == {"gpu-1", "gpu-2"}
    assert scene.kernel_checkpoint == ns(30)
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 2


def test_a_node_whose_writes_fail_is_tried_less_and_less_often() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [FORBIDDEN] * 100

    scene.run(xid(), seconds=2)
    for second in range(3, 303):
        scene.run(seconds=second)

    tries = 100 - len(scene.cluster.moods["gpu-1"])
    assert 6 <= tries <= 10


def test_a_conflict_is_decided_again_on_the_fresh_node() -> None:
    """Another client wrote our taint meanwhile, so only the record is left to write."""
    scene = Scene()
    fresh = replace(scene.cluster.nodes["gpu-1"], taints=(OURS,))
    scene.cluster.moods["gpu-1"] = [WriteResult(ANY, Outcome.CONFLICT, fresh)]

    scene.run(xid(), seconds=2)

    assert [change.verb for change in scene.cluster.written] == [Verb.RECORD]
    assert scene.count("actions_total", verb="taint", result="conflict") == 1
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 1


def test_a_fault_whose_node_goes_while_its_write_is_refused_waits_for_the_node() -> None:
    scene = Scene()
    state = scene.cluster.nodes["gpu-1"]
    scene.cluster.moods["gpu-1"] = [WriteResult(ANY, Outcome.CONFLICT)]
    seen = scene.cluster._write

    def deleted_meanwhile(state: NodeState, change: Change) -> WriteResult:
        scene.cluster.nodes.pop("gpu-1", None)
        return seen(state, change)

    scene.cluster._write = deleted_meanwhile  # type: ignore[method-assign]  # the watch is faster
    scene.run(xid(), xid("nobody", seconds=1.5), seconds=2)
    scene.cluster._write = seen  # type: ignore[method-assign]  # as before
    assert scene.kernel_checkpoint == ns(1)

    scene.cluster.nodes["gpu-1"] = state
    scene.run(seconds=30)

    assert scene.cluster.tainted == {"gpu-1"}


def test_a_node_that_never_stops_changing_is_left_for_the_next_reconcile() -> None:
    scene = Scene()
    same = scene.cluster.nodes["gpu-1"]
    scene.cluster.moods["gpu-1"] = [WriteResult(ANY, Outcome.CONFLICT, same)] * 5

    scene.run(xid(seconds=1), seconds=2)
    assert scene.cluster.tainted == set()
    assert scene.kernel_checkpoint == ns(1)

    scene.run(seconds=3)
    assert scene.cluster.tainted == {"gpu-1"}


def test_a_write_without_an_answer_counts_against_the_brake() -> None:
    scene = Scene(size=5)
    scene.cluster.moods["gpu-1"] = [UNANSWERED]

    scene.run(xid(), seconds=2)
    scene.run(xid("gpu-2", seconds=2.5), seconds=3)
    assert scene.cluster.tainted == set()

    scene.run(seconds=10)
    assert scene.cluster.tainted == {"gpu-1"}


def test_a_write_without_an_answer_counts_against_the_brake_until_its_next_attempt() -> None:
    scene = Scene(size=5)
    scene.cluster.moods["gpu-1"] = [UNANSWERED]
    scene.run(xid(), seconds=2)
    scene.run(seconds=2.2)

    scene.run(xid("gpu-2", seconds=2.3), seconds=2.4)

    assert scene.cluster.tainted == set()


def test_a_write_without_an_answer_to_a_deleted_node_counts_until_the_cool_down_ends() -> None:
    """The node may have been tainted before it was deleted. The patch tests the UID, so it is void now."""
    scene = Scene(size=5)
    state = scene.cluster.nodes["gpu-1"]
    scene.cluster.moods["gpu-1"] = [UNANSWERED]
    scene.run(xid(), seconds=2)
    del scene.cluster.nodes["gpu-1"]
    scene.run(xid("gpu-2", seconds=2.5), seconds=3)
    assert scene.cluster.tainted == set()

    scene.run(seconds=303)
    scene.cluster.nodes["gpu-1"] = state
    scene.run(seconds=310)

    assert scene.cluster.tainted == {"gpu-2"}


def test_a_write_without_an_answer_to_a_node_made_anew_gives_it_no_precedence() -> None:
    scene = Scene(size=5)
    state = scene.cluster.nodes["gpu-1"]
    scene.cluster.moods["gpu-1"] = [UNANSWERED]
    scene.run(xid(), seconds=2)

    machine = replace(state.machine, node_uid="made-anew")
    scene.cluster.nodes["gpu-1"] = replace(state, machine=machine)
    scene.run(seconds=2.5)
    scene.run(xid("gpu-2", seconds=0.5), seconds=10)

    assert scene.cluster.tainted == {"gpu-2"}


@pytest.mark.parametrize("moods", [[SLOW, SLOW], [UNANSWERED]], ids=["slow", "without an answer"])
def test_a_write_that_turns_out_to_have_happened_is_reported_and_counted_once(
    moods: list[WriteResult],
) -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = list(moods)
    scene.run(xid(), xid("gpu-2"), seconds=2)
    assert scene.cluster.tainted == {"gpu-2"}
    assert scene.kernel_checkpoint == ns(1)
    elsewhere = Scene()
    elsewhere.run(xid(), seconds=2)
    scene.cluster.nodes["gpu-1"] = elsewhere.cluster.nodes["gpu-1"]

    scene.run(seconds=3)
    scene.run(seconds=10)

    assert scene.cluster.events == [("gpu-2", EventReason.TAINTED), ("gpu-1", EventReason.TAINTED)]
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 2
    assert scene.count("actions_total", verb="taint", result="applied") == 2
    assert scene.kernel_checkpoint == ns(10)


def counted_without_an_answer() -> tuple[Scene, NodeState]:
    """Eleven faults of ``gpu-1``, whose count was written without an answer; and the Node before that."""
    scene = Scene()
    scene.run(xid(), seconds=2)
    for second in range(3, 13):
        scene.run(xid(seconds=second, stamp=100.5 + second), seconds=second)
    scene.cluster.moods["gpu-1"] = [UNANSWERED]
    before = scene.cluster.nodes["gpu-1"]
    scene.run(seconds=602)
    assert scene.cluster.moods["gpu-1"] == []
    return scene, before


@pytest.mark.parametrize("happened", [True, False])
def test_what_is_counted_before_the_node_shows_a_write_without_an_answer_counts_once(
    *, happened: bool
) -> None:
    scene, before = counted_without_an_answer()

    scene.run(xid(seconds=603, stamp=800), seconds=603)
    if happened:
        [incident] = before.record.incidents
        last = KernelPosition("boot-a", None, 112_500_000)
        written = replace(incident, count=11, last=last, last_ns=ns(12))
        record, seen = replace(before.record, incidents=(written,)), replace(before.as_read, record="11")
        scene.cluster.nodes["gpu-1"] = replace(before, record=record, as_read=seen)
    scene.run(xid(seconds=605, stamp=801), seconds=605)
    scene.run(seconds=1300)

    assert scene.cluster.nodes["gpu-1"].record.incidents[0].count == 13


def test_a_retry_waits_for_as_long_as_the_server_asks() -> None:
    scene = Scene()
    busy = KubeOverloaded("too many requests", retry_after_seconds=30)
    scene.cluster.moods["gpu-1"] = [WriteResult(ANY, Outcome.FAILED, error=busy)] * 2

    scene.run(xid(), seconds=2)
    scene.run(seconds=31)
    assert len(scene.cluster.moods["gpu-1"]) == 1
    scene.run(seconds=33)
    assert scene.cluster.moods["gpu-1"] == []


def test_one_404_does_not_drop_a_fault_and_a_deleted_node_becomes_an_unknown_one() -> None:
    """A proxy may answer 404 for anything; a Node that is really gone disappears from the watch too."""
    scene = Scene()
    scene.cluster.moods["gpu-1"] = scene.cluster.moods["gpu-2"] = [GONE]
    scene.run(xid(seconds=1), seconds=2)
    scene.cluster.moods["gpu-2"] = [GONE]
    scene.run(xid("gpu-2", seconds=2), seconds=3)
    assert scene.kernel_checkpoint == ns(1)
    del scene.cluster.nodes["gpu-1"]

    scene.run(seconds=10)
    assert scene.cluster.tainted == {"gpu-2"}
    scene.run(seconds=611)

    assert scene.kernel_checkpoint == ns(611)
    assert scene.count("faults_ignored_total", reason="no such node") == 1


def test_a_reset_that_arrives_between_decision_and_write_is_not_overwritten() -> None:
    """A decision is written only onto the state that it was made on."""
    scene = Scene()
    scene.run(xid(), seconds=2)
    decided_on = scene.cluster.nodes["gpu-1"]
    moments = iter([decided_on])

    def snapshot() -> Mapping[str, NodeState]:
        newer = replace(decided_on, taints=(), as_read=replace(decided_on.as_read, resource_version="99"))
        return {**scene.cluster.nodes, "gpu-1": next(moments, newer)}

    written: list[NodeState] = []

    def write_all(pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        written.extend(state for state, _ in pairs)
        return [DryRunWriter().write(*pair) for pair in pairs]

    scene.cluster.snapshot = snapshot  # type: ignore[method-assign]  # a view that changes under us
    scene.cluster.write_all = write_all  # type: ignore[method-assign]  # to see what it was given
    second_gpu = LogLine(
        Source.KERNEL,
        ns(3),
        "[200.0] NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.",
        {},
        "gpu-1",
    )

    scene.run(second_gpu, seconds=4)

    assert written == [decided_on]


def test_a_taint_never_waits_for_a_record_that_could_not_be_written() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [FORBIDDEN] * 6
    for second in (2, 5, 10, 20, 40, 80):
        scene.run(*([replace(SUSPECT, node="gpu-1")] if second == 2 else []), seconds=second)
    assert scene.cluster.moods["gpu-1"] == []

    scene.run(xid("gpu-1", seconds=81), seconds=82)

    assert scene.cluster.tainted == {"gpu-1"}


def test_a_record_without_an_answer_does_not_count_for_the_brake() -> None:
    scene = Scene(size=5)
    scene.cluster.moods["gpu-2"] = [UNANSWERED]
    scene.run(SUSPECT, seconds=2)

    scene.run(xid("gpu-1", seconds=2.5), seconds=3)

    assert scene.cluster.tainted == {"gpu-1"}
