"""Decisions on the evidence of one node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.model import (
    TAINT_EFFECT,
    TAINT_KEY,
    Act,
    EventReason,
    Fault,
    FaultKind,
    IncidentState,
    NodeRecord,
    NodeState,
    Severity,
    Source,
    Taint,
    Verb,
)
from konductor_like.policy.change import is_due
from konductor_like.policy.node.health import open_incidents
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, node

SUSPECT = {"rule": "xid.63", "severity": Severity.SUSPECT}


def test_a_fatal_fault_taints_its_node_and_no_other() -> None:
    cluster = Cluster(fleet(10))

    plan = cluster.tick(fault("gpu-3"))

    assert cluster.tainted == {"gpu-3"}
    [change] = plan.changes
    assert (change.verb, change.health, change.event) == (Verb.TAINT, "faulty", EventReason.TAINTED)
    assert "xid 79 on GPU 0000:4e:00" in change.message
    assert "Reboot the node." in change.message
    assert change.record is not None
    assert change.record.life.tainted_at == at(0)
    assert change.record.incidents[0].state is IncidentState.ACTIVE


def test_the_drivers_test_fault_taints_with_a_note_that_it_is_a_test() -> None:
    cluster = Cluster(fleet(2))

    plan = cluster.tick(fault(rule="xid.14", severity=Severity.TEST))

    assert cluster.tainted == {"gpu-1"}
    assert "(a test)" in plan.changes[0].message


@pytest.mark.parametrize(
    ("severity", "health"),
    [(Severity.SUSPECT, "suspect"), (Severity.APPLICATION, None), (Severity.INFO, None)],
)
def test_a_fault_that_does_not_taint_is_recorded_on_its_node(severity: Severity, health: str | None) -> None:
    cluster = Cluster(fleet(2))

    plan = cluster.tick(fault(rule="xid.31", severity=severity))

    assert cluster.tainted == set()
    [change] = plan.changes
    assert (change.verb, change.health, change.event) == (Verb.RECORD, health, EventReason.RECORDED)


def test_a_pod_line_alone_does_not_taint() -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(fault(source=Source.POD, kind=FaultKind.CUDA, rule="cuda.ecc", stamp=None))

    assert cluster.tainted == set()
    assert cluster.nodes["gpu-1"].record.incidents[0].severity is Severity.SUSPECT


def test_deciding_again_on_the_same_lines_changes_nothing() -> None:
    cluster = Cluster(fleet(2))
    bare = fault(source=Source.POD, kind=FaultKind.CUDA, rule="cuda.ecc", stamp=None)
    lines = (fault(), fault("gpu-2", severity=Severity.SUSPECT), bare)

    cluster.tick(*lines)
    again = cluster.tick(*lines, seconds=5)

    assert (again.changes, again.grown) == ((), {})
    assert [item.reason for item in again.ignored] == ["seen before"] * 3


def test_the_second_gpu_of_a_tainted_node_is_recorded_without_another_taint() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault())

    plan = cluster.tick(fault(gpu="0000:5f:00", stamp=200), seconds=10)

    [change] = plan.changes
    assert change.verb is Verb.RECORD
    assert change.health == "faulty"
    assert change.record is not None
    assert {incident.state for incident in change.record.incidents} == {IncidentState.ACTIVE}


def test_a_tainting_fault_is_not_hidden_by_a_recorded_one_of_the_same_rule() -> None:
    """One rule has both severities: Xid 154 prints None, then Node Reboot Required."""
    cluster = Cluster(fleet(2))
    cluster.tick(fault(rule="xid.154", severity=Severity.INFO, stamp=100))

    cluster.tick(fault(rule="xid.154", severity=Severity.FATAL, stamp=99))

    assert cluster.tainted == {"gpu-1"}


def test_growing_counts_are_written_at_most_once_per_interval() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault(stamp=100))

    for i in range(1, 60):
        cluster.tick(fault(stamp=100 + i, seconds=i), seconds=i)
    assert len(cluster.writes) == 1
    late = cluster.tick(seconds=601 + 1)

    [change] = late.changes
    assert change.event is None
    assert change.record is not None
    assert change.record.incidents[0].count == 60
    assert late.grown == {}
    assert cluster.tick(seconds=1300).changes == ()


def counts_written(cluster: Cluster) -> list[int]:
    """Return the first incident's count in each write."""
    return [change.record.incidents[0].count for change in cluster.writes if change.record is not None]


def storm(cluster: Cluster, start: int, seconds: int) -> None:
    """A hundred lines a second, decided once a second."""
    for second in range(start, start + seconds):
        lines = (fault(stamp=second + i / 100, seconds=second + i / 100) for i in range(100))
        cluster.tick(*lines, seconds=second + 1)


def test_a_storm_is_written_once_per_interval_and_its_final_count_soon_after_its_end() -> None:
    cluster = Cluster(fleet(2))

    storm(cluster, 0, 900)
    for second in range(900, 900 + 11 * 60, 5):
        cluster.tick(seconds=second)

    assert len(cluster.writes) == 3
    assert counts_written(cluster)[-1] == 90_000
    assert cluster.snapshot.grown == {}


def test_the_first_fault_of_another_gpu_is_written_at_once_with_grown_counts() -> None:
    cluster = Cluster(fleet(2))
    storm(cluster, 0, 5)

    cluster.tick(fault(gpu="0000:5f:00", stamp=200, seconds=6), seconds=6)

    assert counts_written(cluster) == [100, 500]
    assert cluster.snapshot.grown == {}


def test_a_fault_of_an_unknown_node_is_kept_for_later() -> None:
    plan = Cluster(fleet(1)).tick(fault("nobody"))

    assert [f.node for f in plan.of_unknown_nodes] == ["nobody"]
    assert plan.changes == ()


def test_a_fault_from_before_the_first_start_is_recorded_and_its_replay_changes_nothing() -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(fault(seconds=-3600, stamp=100, before_install=True))
    replayed = cluster.tick(fault(seconds=60, stamp=100), seconds=60)

    assert cluster.tainted == set()
    assert cluster.nodes["gpu-1"].record.incidents[0].severity is Severity.SUSPECT
    assert [item.reason for item in replayed.ignored] == ["a replay from before the first start"]

    cluster.tick(fault(seconds=120, stamp=3700), seconds=120)

    assert cluster.tainted == {"gpu-1"}


def test_a_node_that_somebody_tainted_already_gets_a_record() -> None:
    cluster = Cluster(fleet(2))
    cluster.nodes["gpu-1"] = replace(node("gpu-1"), taints=(OURS,))

    plan = cluster.tick(fault(stamp=300), seconds=10)

    [change] = plan.changes
    assert change.verb is Verb.RECORD
    assert change.record is not None
    assert change.record.life.tainted_at == at(10)


def test_a_foreign_taint_with_our_key_is_kept_and_ours_follows_when_it_is_removed() -> None:
    """The API server allows one taint per key and effect, so ours cannot be added beside the other."""
    cluster = Cluster(fleet(2))
    twin = Taint(TAINT_KEY, "maybe", TAINT_EFFECT)
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=(twin,))

    plan = cluster.tick(fault())
    again = cluster.tick(seconds=5)

    assert [change.verb for change in plan.changes] == [Verb.RECORD]
    assert "another tool's taint" in plan.changes[0].message
    assert plan.brake.held == ()
    assert again.changes == ()

    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=())
    cluster.tick(seconds=10)
    assert cluster.tainted == {"gpu-1"}


def test_a_line_that_the_annotation_cut_is_recognised_by_its_beginning() -> None:
    cluster = Cluster(fleet(2))
    line = fault(
        source=Source.POD, kind=FaultKind.CUDA, rule="cuda.ecc", stamp=None, text="CUDA error: " + "x" * 300
    )
    cluster.tick(line)
    state = cluster.nodes["gpu-1"]
    [incident] = state.record.incidents
    shortened = replace(incident, evidence=incident.evidence[:60] + "…")
    cluster.nodes["gpu-1"] = replace(state, record=replace(state.record, incidents=(shortened,)))

    plan = cluster.tick(line, seconds=5)

    assert plan.counted == ()


def test_counts_of_a_write_whose_answer_was_lost_are_not_added_again() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(), seconds=1)
    cluster.tick(fault(stamp=200, seconds=10), seconds=11)
    grown = cluster.snapshot.grown
    cluster.tick(seconds=700)
    assert [incident.count for incident in cluster.nodes["gpu-1"].record.incidents] == [2]

    # As after a time-out: the node has the count, and the controller still has it in memory.
    cluster.snapshot = replace(cluster.snapshot, grown=grown)
    cluster.tick(fault(stamp=300, seconds=701), seconds=702)
    cluster.tick(seconds=1400)

    assert [incident.count for incident in cluster.nodes["gpu-1"].record.incidents] == [3]


def test_the_last_of_several_pod_lines_counts_once_however_often_it_is_read() -> None:
    def pod(number: int) -> Fault:
        found = fault(rule="nccl.cuda_failure", gpu=None, stamp=None, source=Source.POD, seconds=number)
        return replace(found, finding=found.finding._replace(text=f"line {number}"))

    cluster = Cluster(fleet(10))
    cluster.tick(pod(1), pod(2), seconds=3)
    cluster.tick(pod(2), seconds=4)  # after a restart
    cluster.tick(seconds=700)

    assert [incident.count for incident in cluster.nodes["gpu-1"].record.incidents] == [2]


_NO_FAULT = {"rule": "nccl.segfault", "kind": FaultKind.NCCL, "severity": Severity.SUSPECT}


@pytest.mark.parametrize(
    ("state", "found", "reason"),
    [
        (node(), fault(None), "the line names no node"),
        (node(gpu=False), fault(**_NO_FAULT), "the node has no GPU"),  # type: ignore[arg-type]  # by name
        (node(), fault(seconds=-86_400 * 31), "the line is older than this Node"),
    ],
)
def test_a_dropped_line_is_reported_with_its_reason(state: NodeState, found: Fault, reason: str) -> None:
    plan = Cluster({"gpu-1": state}).tick(found)

    assert plan.changes == ()
    assert [item.reason for item in plan.ignored] == [reason]


@pytest.mark.parametrize(
    ("state", "found"),
    [(node(gpu=False), fault()), (node(), fault(seconds=-86_400 * 31, boot="boot-a"))],
    ids=["an Xid proves that its node has a GPU", "a line of the present boot may be older than the Node"],
)
def test_a_line_that_looks_like_one_of_another_node_or_machine_taints_its_node(
    state: NodeState, found: Fault
) -> None:
    cluster = Cluster({"gpu-1": state})

    cluster.tick(found)

    assert cluster.tainted == {"gpu-1"}


def test_a_node_that_cannot_be_written_takes_no_place_of_the_brake() -> None:
    cluster = Cluster(fleet(5))
    cluster.snapshot = replace(cluster.snapshot, unwritable=frozenset({"gpu-1"}))

    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1), seconds=2)

    assert cluster.tainted == {"gpu-2"}


def test_counts_are_due_if_the_last_write_is_an_interval_away_also_in_the_future() -> None:
    """The controller's clock was set back after the write."""
    found = [is_due(NodeRecord(act=Act("a", at(s))), at(0)) for s in (-601, -60, 60, 601)]

    assert found == [True, False, False, True]


def test_an_incident_from_before_the_installation_is_not_open() -> None:
    cluster = Cluster(fleet(1))
    cluster.tick(
        fault(rule="xid.63", severity=Severity.SUSPECT),
        fault(rule="xid.94", severity=Severity.SUSPECT, before_install=True),
    )
    state = cluster.nodes["gpu-1"]

    assert len(state.record.incidents) == 2
    assert [each.key.rule for each in open_incidents(state.record, state)] == ["xid.63"]
