"""Boots that nobody ordered: an Event each, and one for the fleet if many machines boot together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.cluster.events import events_of
from konductor_like.controller.fleet.coverage_report import CoverageReport
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.model import Change, EventReason, NodeState, PlannedWork, Severity
from tests.policy.scenes import OURS, Cluster, fault, fleet, ns


class Told:
    """A report over a fleet, and what it has told."""

    def __init__(self) -> None:
        self.nodes = fleet(100)
        self.metrics = Metrics()
        self.of_nodes: list[tuple[str, str]] = []
        self.of_fleet: list[tuple[EventReason, str]] = []
        self.report = CoverageReport(self.metrics, self, lambda *told: self.of_fleet.append(told))

    def announce(self, state: NodeState, change: Change) -> None:
        for reason, message, _ in events_of(change):
            assert reason is EventReason.REBOOTED
            self.of_nodes.append((state.name, message))

    def reboot(self, *names: str, boot: str = "boot-b", seconds: float = 0) -> None:
        before = self.nodes
        new = {name: replace(before[name].machine, boot_id=boot) for name in names}
        self.nodes = before | {name: replace(before[name], machine=each) for name, each in new.items()}
        self.report.booted(before, self.nodes, ns(seconds))


def test_the_boot_of_a_node_in_service_is_told_once() -> None:
    told = Told()

    told.reboot("gpu-1")
    told.report.booted(told.nodes, told.nodes, ns(10))

    [(name, message)] = told.of_nodes
    assert name == "gpu-1"
    assert message.startswith("The machine has rebooted: boot boot-b runs.")


def test_the_boot_of_a_node_with_faults_of_jobs_only_is_told_as_that_of_any_other() -> None:
    told = Told()
    cluster = Cluster(told.nodes)
    cluster.tick(fault("gpu-1", rule="xid.31", severity=Severity.APPLICATION))
    told.nodes = cluster.nodes

    told.reboot("gpu-1")

    assert [name for name, _ in told.of_nodes] == ["gpu-1"]


@pytest.mark.parametrize("boot_ends_it", [False, True])
def test_a_boot_while_work_is_announced_names_the_work_and_asks_for_no_cause(boot_ends_it: bool) -> None:
    told = Told()
    told.nodes["gpu-1"] = replace(told.nodes["gpu-1"], planned=(PlannedWork("VMEventScheduled"),))
    before = told.nodes
    machine = replace(before["gpu-1"].machine, boot_id="boot-b")
    after = replace(before["gpu-1"], machine=machine, planned=() if boot_ends_it else before["gpu-1"].planned)
    told.report.booted(before, before | {"gpu-1": after}, ns(0))

    [(_, message)] = told.of_nodes
    assert message.endswith("The Node announces work on its machine: VMEventScheduled.")
    assert "Look for the cause" not in message


def test_a_boot_that_somebody_ordered_or_that_the_record_tells_of_makes_no_event() -> None:
    told = Told()
    cluster = Cluster(told.nodes)
    cluster.tick(fault("gpu-3", rule="xid.63", severity=Severity.SUSPECT))
    told.nodes = cluster.nodes
    told.nodes["gpu-1"] = replace(told.nodes["gpu-1"], unschedulable=True)
    told.nodes["gpu-2"] = replace(told.nodes["gpu-2"], taints=(OURS,))
    told.nodes["gpu-4"] = replace(told.nodes["gpu-4"], opted_out=True)

    told.reboot("gpu-1", "gpu-2", "gpu-3", "gpu-4")

    assert (told.of_nodes, told.of_fleet) == ([], [])


def test_of_more_than_five_boots_within_ten_minutes_one_event_for_the_fleet_tells() -> None:
    told = Told()
    told.reboot("gpu-1", "gpu-2")
    told.reboot("gpu-3", "gpu-4", "gpu-5", "gpu-6", seconds=300)
    told.reboot("gpu-7", seconds=400)

    assert [name for name, _ in told.of_nodes] == ["gpu-1", "gpu-2"]
    [(reason, message)] = told.of_fleet
    assert reason is EventReason.REBOOTED
    assert message.startswith("6 machines in service rebooted within ten minutes, the latest: gpu-3, gpu-4")

    told.reboot("gpu-1", boot="boot-c", seconds=1100)
    assert [name for name, _ in told.of_nodes] == ["gpu-1", "gpu-2", "gpu-1"]


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param({"boot_id": None}, id="no boot id yet"),
        pytest.param({"boot_id": "boot-b", "node_uid": "uid-2"}, id="a Node created again"),
        pytest.param({"boot_id": "boot-b", "system_id": "system-2"}, id="another machine"),
    ],
)
def test_only_a_new_boot_of_the_same_machine_is_a_reboot(machine: dict[str, str]) -> None:
    told = Told()
    before = told.nodes["gpu-1"]
    other = replace(before, machine=replace(before.machine, **machine))

    told.report.booted(told.nodes, told.nodes | {"gpu-1": other}, ns(0))
    told.report.booted({}, told.nodes, ns(0))

    assert told.of_nodes == []


def test_five_boots_have_an_event_each_and_the_sixth_has_one_for_the_fleet() -> None:
    told = Told()
    five = [f"gpu-{number}" for number in range(1, 6)]

    told.reboot(*five)
    told.reboot("gpu-6", seconds=60)

    assert [name for name, _ in told.of_nodes] == five
    assert [message[:10] for _, message in told.of_fleet] == ["6 machines"]
