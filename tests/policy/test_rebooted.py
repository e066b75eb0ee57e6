"""A reboot meets needs, and lifts nothing (rule 34)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.model import EventReason, Incident, IncidentState, MetBy, NodeRecord, Severity
from konductor_like.policy.operator import operator_taint
from tests.policy.scenes import Cluster, at, fault, fleet, ns, reset_node


def rebooted(*needs: str, severity: Severity = Severity.FATAL) -> Cluster:
    """A cluster whose gpu-1 has a fault with each of these needs and then reboots."""
    cluster = Cluster(fleet(10))
    cluster.tick(
        *(
            fault(rule=f"xid.{number}", needs=each, stamp=100 + number, severity=severity)
            for number, each in enumerate(needs, 70)
        )
    )
    cluster.reboot("gpu-1", "boot-b", reported=50)
    cluster.tick(seconds=60)
    return cluster


def of_gpu_1(cluster: Cluster) -> tuple[Incident, ...]:
    return cluster.nodes["gpu-1"].record.incidents


def test_a_reboot_meets_the_need_of_a_tainting_fault_and_the_taint_stays() -> None:
    cluster = rebooted("reboot")

    [incident] = of_gpu_1(cluster)
    assert (incident.state, incident.met_by, incident.met_ns) == (
        IncidentState.ACTIVE,
        MetBy.REBOOT,
        ns(60),
    )
    assert cluster.tainted == {"gpu-1"}
    assert cluster.tick(seconds=70).changes == ()


@pytest.mark.parametrize("needs", ["none", "application-restart", "gpu-reset", "fabric-reset", "reboot"])
def test_a_reboot_meets_every_need_up_to_a_reboot(needs: str) -> None:
    assert [each.met_by for each in of_gpu_1(rebooted(needs))] == [MetBy.REBOOT]


@pytest.mark.parametrize("needs", ["software-update", "support", "inspection", "replacement", ""])
@pytest.mark.parametrize("severity", [Severity.FATAL, Severity.SUSPECT])
def test_a_reboot_never_meets_any_other_need(needs: str, severity: Severity) -> None:
    [incident] = of_gpu_1(rebooted(needs, severity=severity))

    assert (incident.met_by, incident.state) == (None, IncidentState.ACTIVE)


def test_a_reboot_never_meets_a_persons_own_taint() -> None:
    cluster = Cluster(fleet(10))
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(0), by="kim", reason="new riser"))

    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=60)

    assert [each.met_by for each in of_gpu_1(cluster)] == [None]
    assert cluster.writes[-1].message.endswith("not meet the needs of a person's taint (inspection).")
    assert cluster.tainted == {"gpu-1"}


def test_a_suspicion_ends_with_the_reboot_that_meets_its_need() -> None:
    cluster = rebooted("gpu-reset", severity=Severity.SUSPECT)

    [incident] = of_gpu_1(cluster)
    assert (incident.state, incident.met_by) == (IncidentState.RELEASED, MetBy.REBOOT)
    assert cluster.writes[-1].health is None
    assert cluster.writes[-1].also == (
        (EventReason.ENDED, "xid 70 on GPU 0000:4e:00 ended: the machine has rebooted."),
    )


def test_one_event_tells_of_the_reboot_what_it_meets_and_what_is_left() -> None:
    cluster = rebooted("reboot", "inspection")

    change = cluster.writes[-1]
    assert (change.event, change.message) == (
        EventReason.REBOOTED,
        (
            "The machine has rebooted. That meets the needs of xid 70 on GPU 0000:4e:00. "
            "It does not meet the needs of xid 71 on GPU 0000:4e:00 (inspection)."
        ),
    )

    assert (
        rebooted("reboot").writes[-1].message.endswith("then release the node: `konductor-like reset gpu-1`.")
    )


def test_the_event_of_a_reboot_names_the_held_faults_that_it_ends() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault("gpu-2"), fault("gpu-1", seconds=1))
    assert cluster.tainted == {"gpu-2"}

    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=60)

    assert "ended by the reboot: xid 79 on GPU 0000:4e:00." in cluster.writes[-1].message


def test_a_release_after_the_reboot_warns_no_more_that_the_node_has_not_rebooted() -> None:
    cluster = rebooted("reboot")

    change = reset_node(cluster, "gpu-1", 90)

    assert "still needs" not in change.message


def test_a_record_of_an_earlier_version_is_brought_up_to_date_without_haste() -> None:
    """That version noted the boot, and left the incidents of the old boot as they were."""
    cluster = rebooted("reboot")
    state = cluster.nodes["gpu-1"]
    unmet = tuple(replace(each, met_ns=None, met_by=None) for each in state.record.incidents)
    cluster.nodes["gpu-1"] = replace(state, record=replace(state.record, incidents=unmet))

    [change] = cluster.tick(seconds=90).changes

    assert change.upkeep
    assert [each.met_by for each in of_gpu_1(cluster)] == [MetBy.REBOOT]
    assert change.event is None


def test_the_event_of_a_reboot_is_not_sent_for_another_machine_under_the_name() -> None:
    cluster = rebooted("reboot")
    state = cluster.nodes["gpu-1"]
    other = replace(state.machine, node_uid="uid-2", system_id="system-2", boot_id="boot-z")
    cluster.nodes["gpu-1"] = replace(state, machine=other, taints=(), record=state.record)

    cluster.tick(seconds=90)

    assert cluster.nodes["gpu-1"].record.incidents == NodeRecord().incidents
    assert cluster.writes[-1].event is not EventReason.REBOOTED


def test_a_second_reboot_does_not_meet_the_need_of_a_fault_that_came_back_after_the_first() -> None:
    cluster = rebooted("reboot")
    cluster.tick(fault(rule="xid.70", needs="reboot", boot="boot-b", seconds=80), seconds=81)
    cluster.reboot("gpu-1", "boot-c", reported=90)
    cluster.tick(seconds=100)

    assert [each.met_by for each in of_gpu_1(cluster)] == [MetBy.REBOOT, None]
    assert cluster.nodes["gpu-1"].as_read.needs == "inspection"


def test_a_boot_of_another_machine_under_the_same_node_asks_for_an_inspection() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(needs="reboot"))
    cluster.reboot("gpu-1", "boot-b")
    state = cluster.nodes["gpu-1"]
    cluster.nodes["gpu-1"] = replace(state, machine=replace(state.machine, system_id="system-of-another"))

    cluster.tick(seconds=60)
    cluster.tick(seconds=120)

    assert [each.met_by for each in of_gpu_1(cluster)] == [None]
    assert (cluster.tainted, cluster.nodes["gpu-1"].as_read.needs) == ({"gpu-1"}, "inspection")
