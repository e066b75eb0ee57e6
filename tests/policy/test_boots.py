"""Lines of another machine or boot than the Node's (rules 2 and 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.model import (
    Doubt,
    EventReason,
    IncidentState,
    Machine,
    MetBy,
    Severity,
    SkipReason,
    Source,
)
from konductor_like.policy.node.covers import COVERED_BY_TIME, MAY_BE_NEW
from konductor_like.policy.node.machines import BOOT_LEFT
from tests.policy.scenes import GPU, Cluster, fault, fleet, node, ns, reset_node


def test_a_line_of_another_boot_is_pending_and_taints_when_the_node_reaches_it() -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(fault(boot="boot-b", stamp=3))
    assert cluster.tainted == set()
    assert cluster.nodes["gpu-1"].record.incidents[0].state is IncidentState.PENDING

    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=30)

    assert cluster.tainted == {"gpu-1"}


def test_a_line_of_a_boot_that_the_node_has_left_is_history() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault(severity=Severity.SUSPECT, boot="boot-a"))
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=30)

    plan = cluster.tick(fault(boot="boot-a", stamp=500, seconds=40), seconds=41)

    assert cluster.tainted == set()
    assert [item.reason for item in plan.ignored] == ["the line is from an earlier boot of the node"]


def test_a_reboot_alone_does_not_release_a_node() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault())
    cluster.reboot("gpu-1", "boot-b")

    cluster.tick(seconds=300)

    assert cluster.tainted == {"gpu-1"}
    assert cluster.nodes["gpu-1"].record.past_boots == ("boot-a",)


def test_a_held_incident_ends_with_the_boot_that_meets_its_need() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1))
    assert cluster.tainted == {"gpu-1"}
    cluster.reboot("gpu-2", "boot-b")

    plan = cluster.tick(seconds=300)

    assert plan.brake.held == ()
    [incident] = cluster.nodes["gpu-2"].record.incidents
    assert (incident.state, incident.met_by) == (IncidentState.RELEASED, MetBy.REBOOT)


def test_a_held_incident_that_a_reboot_does_not_repair_stays_held() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1, needs="replacement"))
    cluster.reboot("gpu-2", "boot-b")

    plan = cluster.tick(seconds=300)

    assert [held.node for held in plan.brake.held] == ["gpu-2"]
    assert "Still held back" in cluster.writes[-1].message


def test_a_record_of_another_machine_is_dropped() -> None:
    """Somebody applied a saved manifest, with its annotation, to another machine."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(severity=Severity.SUSPECT))
    copied = replace(cluster.nodes["gpu-1"], machine=Machine("uid-new", "system-new", "boot-z"))
    cluster.nodes["gpu-1"] = copied

    cluster.tick(seconds=30)

    assert cluster.nodes["gpu-1"].record.incidents == ()


def test_a_machine_that_registers_again_keeps_its_record() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(severity=Severity.SUSPECT))
    again = replace(cluster.nodes["gpu-1"], machine=Machine("uid-new", "system-gpu-1", "boot-a"))
    cluster.nodes["gpu-1"] = again

    cluster.tick(seconds=30)

    record = cluster.nodes["gpu-1"].record
    assert len(record.incidents) == 1
    assert record.machine == Machine("uid-new", "system-gpu-1", "boot-a")


def test_an_old_line_read_again_after_reset_and_reboot_does_not_taint() -> None:
    """A plain ``dmesg -w`` names no boot, and a restarted controller reads the last hour again."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=1_235_733))
    reset_node(cluster, "gpu-1", 60, read=55)
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=300)

    plan = cluster.tick(fault(stamp=1_235_733), seconds=600)

    assert cluster.tainted == set()
    assert [item.reason for item in plan.ignored] == [COVERED_BY_TIME]
    assert [skipped.why for skipped in plan.refused] == [SkipReason.COVERED]


def test_an_old_line_read_again_after_two_resets_is_covered_by_the_one_of_its_boot() -> None:
    """The later reset is of another boot, whose stamps cannot be compared."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=1_235_733))
    reset_node(cluster, "gpu-1", 60, read=55)
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(fault(rule="xid.48", stamp=100, seconds=400), seconds=401)
    assert cluster.tainted == {"gpu-1"}
    reset_node(cluster, "gpu-1", 500, read=495)

    cluster.tick(fault(stamp=1_235_733), seconds=600)

    assert cluster.tainted == set()


def test_an_old_line_read_again_after_a_reboot_does_not_hide_the_next_fault() -> None:
    """As a line of the new boot, its high stamp would make every later line look like a replay."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=1_235_733))
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=300)
    assert cluster.tick(fault(stamp=1_235_733), seconds=400).changes == ()
    reset_node(cluster, "gpu-1", 500, read=495)

    cluster.tick(fault(stamp=500, seconds=800), seconds=801)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize("gpu", [GPU, "0000:9a:00"])
def test_an_old_line_first_read_after_an_observed_reboot_is_history(gpu: str) -> None:
    """A plain ``dmesg -w``, and a collector that was behind when the node rebooted.

    As a line of the new boot it would taint, and after a reset hide lines with a lower stamp.
    """
    cluster = Cluster(fleet(10))
    cluster.reboot("gpu-1", "boot-b", reported=-60)
    plan = cluster.tick(fault(stamp=1_235_733, seconds=-30), seconds=300)
    assert [item.reason for item in plan.ignored] == ["the line is from an earlier boot of the node"]
    assert plan.changes == ()

    cluster.tick(fault(stamp=500, seconds=800, gpu=gpu), seconds=801)

    assert cluster.tainted == {"gpu-1"}


def test_an_observed_reboot_is_recorded_for_the_next_controller() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(severity=Severity.SUSPECT))
    cluster.reboot("gpu-1", "boot-b", reported=-60)
    cluster.tick(seconds=60)

    assert cluster.nodes["gpu-1"].record.booted_after_ns == ns(-60)


def test_the_recorded_boot_time_is_dropped_at_the_next_reboot() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(severity=Severity.SUSPECT))
    cluster.reboot("gpu-1", "boot-b", reported=-60)
    cluster.tick(seconds=60)
    cluster.reboot("gpu-1", "boot-c")
    cluster.tick(seconds=120)

    assert cluster.nodes["gpu-1"].record.booted_after_ns is None


@pytest.mark.parametrize("stamp", [0.0, 299.0, 360.0, 1200.0])
def test_a_stamp_that_the_new_boot_may_have_reached_counts_for_it(stamp: float) -> None:
    """Stamps drift and clocks are set; a fault must not become history because of that."""
    cluster = Cluster(fleet(10))
    cluster.reboot("gpu-1", "boot-b", reported=-60)

    cluster.tick(fault(stamp=stamp, seconds=290), seconds=300)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize("ahead", [0, 2000], ids=["in step", "the clock is 0.16 % fast"])
def test_the_longer_a_boot_lasts_the_higher_its_stamps_may_be(ahead: float) -> None:
    cluster = Cluster(fleet(10))
    cluster.reboot("gpu-1", "boot-b", reported=0)

    cluster.tick(fault(stamp=1_235_733 + ahead, seconds=1_235_740), seconds=1_235_741)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize("heard", [450, 550], ids=["heard before the release", "heard after it"])
@pytest.mark.parametrize("gpu", [GPU, "0000:9a:00"])
def test_an_old_line_first_read_after_an_unobserved_reboot_does_not_hide_the_next_fault(
    gpu: str, heard: float
) -> None:
    """No controller ran while the node rebooted, or the old boot was a short one."""
    cluster = Cluster(fleet(10))
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(fault(stamp=1_235_733, seconds=-30), seconds=300)
    if heard < 500:
        cluster.hear("gpu-1", began=295)
    reset_node(cluster, "gpu-1", 500, read=495)
    cluster.hear("gpu-1", began=295)

    cluster.tick(fault(stamp=505, seconds=800, gpu=gpu), seconds=801)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize("gpu", [GPU, "0000:9a:00"])
def test_without_heartbeats_the_next_fault_is_suspect_after_such_a_line(gpu: str) -> None:
    cluster = Cluster(fleet(10))
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(fault(stamp=1_235_733, seconds=-30), seconds=300)
    reset_node(cluster, "gpu-1", 500, read=495)

    plan = cluster.tick(fault(stamp=505, seconds=800, gpu=gpu), seconds=801)

    assert cluster.tainted == set()
    assert [dropped.reason for dropped in plan.ignored] == [MAY_BE_NEW]
    [change] = plan.changes
    assert (change.health, change.event) == ("suspect", EventReason.READ_LATE)
    assert cluster.nodes["gpu-1"].record.incidents[-1].doubt is Doubt.MAY_BE_NEW


def test_a_stamp_above_the_uptime_by_heartbeats_is_of_an_earlier_boot() -> None:
    cluster = Cluster(fleet(10))
    cluster.reboot("gpu-1", "boot-b")
    cluster.hear("gpu-1", began=-60)

    plan = cluster.tick(fault(stamp=1_235_733, seconds=-30), seconds=300)

    assert [dropped.reason for dropped in plan.ignored] == [BOOT_LEFT]
    assert plan.changes == ()


def test_a_removal_by_hand_does_not_cover_a_fault_of_the_new_boot_read_with_it() -> None:
    """The controller was down, and sees a reboot, a removal by hand and a new fault at once."""
    cluster = Cluster(fleet(10))
    cluster.snapshot = replace(cluster.snapshot, read_ns={Source.KERNEL: ns(10)})
    cluster.tick(fault(stamp=100))
    cluster.reboot("gpu-1", "boot-b")
    cluster.untaint_by_hand("gpu-1")

    cluster.tick(fault(stamp=50, seconds=3000), seconds=3600)

    assert cluster.tainted == {"gpu-1"}


def test_a_line_of_a_boot_that_the_node_has_not_posted_taints_once_it_is_posted() -> None:
    """A new Node has no boot id at first."""
    newcomer = node("gpu-1")
    cluster = Cluster({"gpu-1": replace(newcomer, machine=replace(newcomer.machine, boot_id=None))})
    cluster.tick(fault(boot="boot-a", stamp=3))
    assert cluster.tainted == set()

    cluster.reboot("gpu-1", "boot-a")
    cluster.tick(seconds=30)

    assert cluster.tainted == {"gpu-1"}


def test_a_reset_does_not_release_pending_faults_of_the_next_boot() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100))
    cluster.tick(fault(boot="boot-b", stamp=3, gpu="0000:9a:00", seconds=50), seconds=51)
    reset_node(cluster, "gpu-1", 60, read=55)
    cluster.reboot("gpu-1", "boot-b")

    cluster.tick(seconds=90)

    assert cluster.tainted == {"gpu-1"}
