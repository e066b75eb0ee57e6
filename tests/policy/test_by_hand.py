"""Commands of people: they are recorded, survive a restart, and end with a reset."""

from __future__ import annotations

import json
from dataclasses import replace

from konductor_like.cluster.node.record import decode, encode
from konductor_like.model import (
    Change,
    EventReason,
    Fault,
    FaultKind,
    IncidentKey,
    IncidentState,
    NodeRecord,
    Severity,
    Source,
    Verb,
)
from konductor_like.policy.node.health import only_persons
from konductor_like.policy.operator import operator_taint
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, ns, reset_node

SUSPECT = fault(rule="xid.63", severity=Severity.SUSPECT)


def taint(cluster: Cluster, name: str = "gpu-1", *, seconds: float = 60, reason: str = "riser") -> Change:
    change = operator_taint(cluster.nodes[name], at=at(seconds), by="kim@laptop", reason=reason)
    assert change is not None
    cluster.apply(change)
    return change


def test_a_persons_taint_is_recorded_with_name_and_reason() -> None:
    cluster = Cluster(fleet(3))

    change = taint(cluster)

    [incident] = cluster.nodes["gpu-1"].record.incidents
    assert (change.verb, change.health, change.event) == (Verb.TAINT, "faulty", EventReason.TAINTED)
    assert change.message == "Tainted by kim@laptop: riser."
    assert (incident.key, incident.kind) == (IncidentKey("operator", None), FaultKind.CUSTOM)
    assert (incident.severity, incident.state, incident.evidence) == (
        Severity.FATAL,
        IncidentState.ACTIVE,
        "riser",
    )
    assert "kim@laptop" in incident.title
    assert cluster.nodes["gpu-1"].record.life.tainted_at == at(60)
    assert change.act_id


def test_a_new_controller_keeps_a_persons_taint_even_after_a_reboot() -> None:
    cluster = Cluster(fleet(3))
    taint(cluster)

    assert Cluster(cluster.nodes).tick(seconds=70).changes == ()
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=80)

    assert cluster.tainted == {"gpu-1"}
    assert cluster.nodes["gpu-1"].record.incident(IncidentKey("operator", None)) is not None


def test_a_node_that_a_person_tainted_counts_for_the_brake() -> None:
    cluster = Cluster(fleet(5))
    taint(cluster)

    cluster.tick(fault("gpu-2", seconds=65), seconds=70)

    assert cluster.tainted == {"gpu-1"}


def test_a_held_incident_becomes_active_when_a_person_taints_its_node() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-2"), fault("gpu-1", seconds=1))

    taint(cluster)

    assert {each.state for each in cluster.nodes["gpu-1"].record.incidents} == {IncidentState.ACTIVE}


def test_a_reset_of_a_persons_taint_gives_no_warning_and_covers_no_line() -> None:
    cluster = Cluster(fleet(3))
    taint(cluster)

    change = reset_node(cluster, "gpu-1", 90, read=0)

    assert cluster.tainted == set()
    assert change.record is not None
    assert change.record.releases[0].warning is None
    assert change.record.releases[0].read_ns == {Source.KERNEL: ns(0), Source.POD: ns(0)}
    cluster.tick(fault(seconds=30, stamp=None), seconds=100)
    assert cluster.tainted == {"gpu-1"}


def test_a_node_that_is_already_tainted_gets_each_reason_once() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(fault())

    change = taint(cluster)

    assert change.verb is Verb.RECORD
    assert cluster.nodes["gpu-1"].record.life.tainted_at == at(0)
    assert len(cluster.nodes["gpu-1"].record.incidents) == 2
    again = operator_taint(cluster.nodes["gpu-1"], at=at(61), by="kim@laptop", reason="riser")
    assert again is None


def test_a_second_reason_is_recorded_beside_the_first_with_its_author() -> None:
    cluster = Cluster(fleet(3))
    taint(cluster, reason="riser")

    change = operator_taint(cluster.nodes["gpu-1"], at=at(90), by="ann@laptop", reason="fan")
    cluster.apply(change)

    [incident] = cluster.nodes["gpu-1"].record.incidents
    assert (incident.evidence, incident.count, incident.first_ns) == ("riser; fan", 2, ns(60))
    assert incident.title == "Tainted by kim@laptop, then by ann@laptop"
    for reason in ("riser", "fan"):
        assert operator_taint(cluster.nodes["gpu-1"], at=at(99), by="kim@laptop", reason=reason) is None


def test_a_reason_that_the_record_cut_is_not_added_again() -> None:
    cluster = Cluster(fleet(3))
    taint(cluster, reason="x" * 2000)

    assert operator_taint(cluster.nodes["gpu-1"], at=at(99), by="kim@laptop", reason="x" * 2000) is None


def test_a_persons_taint_after_a_removal_by_hand_keeps_the_removal() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(fault())
    cluster.untaint_by_hand("gpu-1")

    taint(cluster)

    record = cluster.nodes["gpu-1"].record
    assert cluster.nodes["gpu-1"].taints == (OURS,)
    assert record.life.tainted_at == at(60)
    assert [mark.how for mark in record.releases] == ["taint removed"]
    assert [each.state for each in record.incidents] == [IncidentState.RELEASED, IncidentState.ACTIVE]


def test_a_taint_without_a_recorded_reason_is_not_a_persons_alone() -> None:
    assert not only_persons(NodeRecord())


def test_a_reset_of_an_untainted_node_closes_its_suspicions_until_a_new_line() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(SUSPECT)

    reset_node(cluster, "gpu-1", 60, read=0)
    quiet = cluster.tick(SUSPECT, seconds=70)
    again = cluster.tick(fault(rule="xid.63", severity=Severity.SUSPECT, seconds=80, stamp=180), seconds=81)

    assert quiet.changes == ()
    assert [change.health for change in again.changes] == ["suspect"]


def acknowledged(*faults: Fault) -> Cluster:
    """Return nodes after these faults, which an earlier version's `ack` marked at second 60."""
    cluster = Cluster(fleet(3))
    cluster.tick(*faults)
    state = cluster.nodes["gpu-1"]
    record = json.loads(encode(state.record))
    record["incidents"][0]["ack"] = {"at": at(60).isoformat(), "by": "kim", "reason": "seen"}
    cluster.nodes["gpu-1"] = replace(state, record=decode(json.dumps(record))[0])
    return cluster


def test_a_suspicion_that_an_earlier_version_acknowledged_is_closed_until_a_new_line() -> None:
    cluster = acknowledged(SUSPECT)
    [read] = cluster.nodes["gpu-1"].record.incidents

    replayed = cluster.tick(SUSPECT, seconds=70)
    again = cluster.tick(fault(rule="xid.63", severity=Severity.SUSPECT, seconds=80, stamp=180), seconds=81)

    assert (read.state, read.released_ns) == (IncidentState.RELEASED, ns(60))
    assert [change.health for change in replayed.changes] == [None], "the label of before goes"
    assert [change.health for change in again.changes] == ["suspect"]


def test_a_fault_that_taints_stays_open_although_an_earlier_version_acknowledged_it() -> None:
    [read] = acknowledged(fault()).nodes["gpu-1"].record.incidents

    assert read.state is IncidentState.ACTIVE
