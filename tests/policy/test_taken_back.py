"""A line that ends an earlier fault: Xid 162 ends an Xid 163, Xid 154 "to None" ends other 154s."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.detection import find
from konductor_like.model import EventReason, Fault, Incident, IncidentState, Severity, Source
from tests.policy.scenes import GPU, Cluster, fault, fleet, ns, reset_node


def begun(*, severity: Severity = Severity.SUSPECT, stamp: float = 100, seconds: float = 0) -> Fault:
    """An Xid 163."""
    return fault(rule="xid.163", severity=severity, stamp=stamp, seconds=seconds)


def ended(*, gpu: str = GPU, stamp: float = 200, seconds: float = 10) -> Fault:
    """An Xid 162, which ends an Xid 163."""
    found = fault(rule="xid.162", severity=Severity.INFO, gpu=gpu, stamp=stamp, seconds=seconds)
    return replace(found, finding=found.finding._replace(clears="xid.163"))


def state_of(cluster: Cluster, rule: str) -> IncidentState:
    """Return the state of a rule's only incident on gpu-1."""
    [incident] = [each for each in cluster.nodes["gpu-1"].record.incidents if each.key.rule == rule]
    return incident.state


def test_xid_162_clears_163_and_no_other_xid_clears_anything() -> None:
    found = {
        code: find(f"NVRM: Xid (PCI:0000:4e:00): {code}, pid=1, name=a, b", Source.KERNEL)
        for code in range(1, 178)
    }

    assert {code: each.clears for code, each in found.items() if each and each.clears} == {162: "xid.163"}


def test_an_incident_that_was_cleared_is_opened_by_a_new_line_and_not_by_a_replay() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(begun())
    assert state_of(cluster, "xid.163") is IncidentState.ACTIVE
    cluster.tick(ended(), seconds=10)
    assert state_of(cluster, "xid.163") is IncidentState.RELEASED

    cluster.tick(begun(seconds=20), seconds=20)
    assert state_of(cluster, "xid.163") is IncidentState.RELEASED
    cluster.tick(begun(stamp=300, seconds=30), seconds=30)

    assert state_of(cluster, "xid.163") is IncidentState.ACTIVE


@pytest.mark.parametrize(
    "end", [ended(gpu="0000:5e:00"), ended(stamp=50)], ids=["another GPU's", "an older one"]
)
def test_a_clearing_line_of_another_gpu_or_an_older_one_closes_nothing(end: Fault) -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(begun())
    cluster.tick(end, seconds=10)

    assert state_of(cluster, "xid.163") is IncidentState.ACTIVE


def test_a_tainting_incident_stays_active_until_a_reset() -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(begun(severity=Severity.FATAL))
    cluster.tick(ended(), seconds=10)

    assert cluster.tainted == {"gpu-1"}
    assert state_of(cluster, "xid.163") is IncidentState.ACTIVE


def action(target: int, *, stamp: float, seconds: float, gpu: str = GPU) -> Fault:
    """An Xid 154 read from a line: action 0 is none, 2 a reboot, 3 the end of peer-to-peer jobs."""
    line = f"NVRM: Xid (PCI:{gpu}): 154, GPU recovery action changed from 0x1 (x) to {target:#x} (y)"
    read = find(line, Source.KERNEL)
    assert read is not None
    found = fault(rule="xid.154", gpu=gpu, stamp=stamp, seconds=seconds)
    return replace(found, finding=read._replace(position=found.finding.position))


def of_154(cluster: Cluster) -> list[Incident]:
    """Return the incidents of Xid 154 on gpu-1."""
    return [each for each in cluster.nodes["gpu-1"].record.incidents if each.key.rule == "xid.154"]


def test_an_action_that_is_no_longer_needed_is_recorded_and_its_node_stays_tainted() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault(stamp=90), action(2, stamp=100, seconds=0))

    cluster.tick(action(0, stamp=200, seconds=10), seconds=10)

    [incident] = of_154(cluster)
    assert (incident.state, incident.severity, incident.count) == (IncidentState.ACTIVE, Severity.FATAL, 1)
    assert incident.ended_ns == ns(10)
    assert "The driver needs no further action" in incident.advice
    assert cluster.tainted == {"gpu-1"}
    assert state_of(cluster, "xid.79") is IncidentState.ACTIVE
    assert cluster.writes[-1].event is EventReason.RECORDED
    assert "xid 154 on GPU 0000:4e:00: GPU needs no recovery action any more." in cluster.writes[-1].message
    assert "stays recorded until this node is released" in cluster.writes[-1].message


def test_the_end_of_an_action_is_written_once_even_if_its_line_is_replayed() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(action(2, stamp=100, seconds=0))
    cluster.tick(action(0, stamp=200, seconds=10), seconds=10)

    plan = cluster.tick(action(2, stamp=100, seconds=60), action(0, stamp=200, seconds=60.001), seconds=61)

    assert plan.changes == ()
    assert plan.counted == ()
    assert of_154(cluster)[0].ended_ns == ns(10)


@pytest.mark.parametrize(("stamp", "gpu"), [(50, GPU), (200, "0000:5e:00")], ids=["older", "another GPU's"])
def test_an_older_line_or_a_line_of_another_gpu_ends_no_action(stamp: float, gpu: str) -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(action(2, stamp=100, seconds=0))

    cluster.tick(action(0, stamp=stamp, seconds=10, gpu=gpu), seconds=10)

    assert {each.ended_ns for each in of_154(cluster)} == {None}


def test_an_action_that_is_needed_again_is_written_at_once_with_its_advice() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(action(2, stamp=100, seconds=0))
    cluster.tick(action(0, stamp=200, seconds=10), seconds=10)

    cluster.tick(action(2, stamp=300, seconds=20), seconds=20)

    [incident] = of_154(cluster)
    assert (incident.count, incident.ended_ns, incident.needs) == (2, None, "reboot")
    assert "reboot" in incident.advice


def test_a_suspect_incident_is_closed_when_its_action_ends() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(action(3, stamp=100, seconds=0))
    assert [each.state for each in of_154(cluster)] == [IncidentState.ACTIVE]

    plan = cluster.tick(action(0, stamp=200, seconds=10), seconds=10)

    [incident] = of_154(cluster)
    assert (incident.severity, incident.state) == (Severity.SUSPECT, IncidentState.RELEASED)
    assert [change.health for change in plan.changes] == [None]


@pytest.mark.parametrize(("target", "severity"), [(2, Severity.FATAL), (3, Severity.SUSPECT)])
def test_an_ended_action_without_an_open_incident_is_recorded_and_hides_no_later_fault(
    target: int, severity: Severity
) -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(action(0, stamp=100, seconds=0))
    assert [each.state for each in of_154(cluster)] == [IncidentState.RELEASED]
    assert cluster.tick(action(0, stamp=100, seconds=5), seconds=5).changes == ()

    cluster.tick(action(target, stamp=200, seconds=10), seconds=10)

    active = [each for each in of_154(cluster) if each.state is IncidentState.ACTIVE]
    assert [each.severity for each in active] == [severity]


def test_a_reset_of_an_ended_action_does_not_warn_of_a_missing_reboot() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(action(2, stamp=100, seconds=0))
    cluster.tick(action(0, stamp=200, seconds=10), seconds=10)

    reset_node(cluster, "gpu-1", 60)

    assert cluster.tainted == set()
    assert cluster.nodes["gpu-1"].record.releases[0].warning is None
    assert cluster.tick(action(0, stamp=200, seconds=70), seconds=70).changes == ()
