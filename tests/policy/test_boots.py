"""Machines, boots and the lines that belong to neither (design rules 2 and 3)."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import IncidentState, Machine, Severity
from tests.policy.scenes import Cluster, fault, fleet


def test_a_line_of_another_boot_is_pending_and_judged_when_the_node_reaches_it() -> None:
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
    assert [item.reason for item in plan.ignored] == ["it happened in a boot that the node has left"]


def test_a_reboot_alone_does_not_bring_a_node_back() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault())
    cluster.reboot("gpu-1", "boot-b")

    cluster.tick(seconds=300)

    assert cluster.tainted == {"gpu-1"}
    assert cluster.nodes["gpu-1"].record.past_boots == ("boot-a",)


def test_what_the_brake_held_expires_with_the_boot() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1))
    assert cluster.tainted == {"gpu-1"}
    cluster.reboot("gpu-2", "boot-b")

    plan = cluster.tick(seconds=300)

    assert plan.brake.held == ()
    assert cluster.nodes["gpu-2"].record.incidents == ()


def test_a_record_that_came_from_another_machine_is_forgotten() -> None:
    """Somebody applied a saved manifest, annotation and all, to another machine."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(severity=Severity.SUSPECT))
    copied = replace(cluster.nodes["gpu-1"], machine=Machine("uid-new", "system-new", "boot-z"))
    cluster.nodes["gpu-1"] = copied

    cluster.tick(seconds=30)

    assert cluster.nodes["gpu-1"].record.incidents == ()


def test_a_machine_that_registers_again_keeps_its_memory() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(severity=Severity.SUSPECT))
    again = replace(cluster.nodes["gpu-1"], machine=Machine("uid-new", "system-gpu-1", "boot-a"))
    cluster.nodes["gpu-1"] = again

    cluster.tick(seconds=30)

    record = cluster.nodes["gpu-1"].record
    assert len(record.incidents) == 1
    assert record.machine == Machine("uid-new", "system-gpu-1", "boot-a")
