"""How many GPUs a machine has, and when GPUs are missing (rule 38)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from konductor_like.model import (
    NO_GPUS,
    FaultKind,
    Finding,
    GpuCount,
    GpuCounts,
    IncidentState,
    Life,
    Machine,
    NodeRecord,
    NodeState,
    Plan,
    Release,
    ReleaseHow,
    Severity,
    Snapshot,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.node.gpu_counts import (
    GPUS_MISSING,
    open_incidents_of,
    why_not_whole,
)
from konductor_like.policy.node.release import release, released_record
from tests.policy.scenes import OURS, at, fault, node

RULE = Finding(
    FaultKind.NODE, GPUS_MISSING.rule, Severity.SUSPECT, "GPUs are missing", "Reboot.", "", needs="reboot"
)
POLICY = PolicyConfig(gpus_missing=RULE)
MINUTE = 60.0


def with_gpus(state: NodeState, allocatable: int, capacity: int | None = None, **other: Any) -> NodeState:
    """Return the node with these GPUs, as after the next report of its kubelet."""
    more = {"layout": "replicas=1", **other}
    gpus = GpuCount(allocatable, allocatable if capacity is None else capacity, "p5.48xlarge/", **more)
    return replace(state, gpus=gpus)


class Fleet:
    """Nodes whose GPUs a controller counts every minute; the records are written as it decides."""

    def __init__(self, size: int = 40, gpus: int = 8, policy: PolicyConfig = POLICY) -> None:
        self.policy = policy
        self.nodes = {f"gpu-{n}": with_gpus(node(f"gpu-{n}"), gpus) for n in range(1, size + 1)}
        self.minute = 0
        self.restart()
        self.step()

    def restart(self) -> None:
        """Start another controller, which remembers nothing."""
        self.counts = GpuCounts()

    def has(self, name: str, allocatable: int, capacity: int | None = None, **other: Any) -> None:
        self.nodes[name] = with_gpus(self.nodes[name], allocatable, capacity, **other)

    def change(self, name: str, **fields: Any) -> None:
        self.nodes[name] = replace(self.nodes[name], **fields)

    @property
    def now(self) -> datetime:
        return at(self.minute * MINUTE)

    def step(self, minutes: int = 1) -> list[str]:
        """Let the time pass. Return the texts of all new faults and ends, as ``gpu-1: 7 of 8 …``."""
        found = []
        for _ in range(minutes):
            self.minute += 1
            plan = decide(Snapshot(self.nodes, gpus=self.counts), (), self.policy, self.now)
            assert plan.gpus is not None
            self.counts = plan.gpus
            found += [f"{fault.node}: {fault.finding.text}" for fault in plan.counted]
            self.apply(plan)
        return found

    def apply(self, plan: Plan) -> None:
        """Write the plan's records."""
        for change in plan.changes:
            state, record = self.nodes[change.node], change.record or NodeRecord()
            seen = replace(state.as_read, record="{}", health=change.health, needs=change.needs)
            self.nodes[change.node] = replace(state, record=record, as_read=seen)

    def fails(self, name: str) -> None:
        """Let the node print an Xid 79: the controller taints it."""
        seconds, boot = self.minute * MINUTE, self.nodes[name].machine.boot_id
        found = fault(name, seconds=seconds, boot=boot, stamp=seconds + 100)
        self.apply(decide(Snapshot(self.nodes, gpus=self.counts), [found], self.policy, self.now))
        assert self.nodes[name].record.life.tainted_at == self.now
        self.change(name, taints=(OURS,))

    def boots(self, name: str, boot: str = "boot-b") -> None:
        """Let the machine come up again; its kubelet reports the new boot."""
        self.change(name, machine=replace(self.nodes[name].machine, boot_id=boot))

    def resets(self, name: str) -> None:
        """Let a person release the node."""
        change = release(self.nodes[name], at=self.now, by="ann", reason="", read_ns={})
        assert change is not None
        assert change.record is not None
        self.change(name, record=change.record, taints=())

    @property
    def short(self) -> dict[str, str]:
        return dict(self.counts.short)

    def open(self, name: str) -> bool:
        return bool(open_incidents_of(self.nodes[name]))


def test_a_lost_gpu_is_a_fault_after_half_an_hour_and_only_once() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7, 8)

    assert fleet.step(30) == []
    assert fleet.step(120) == ["gpu-7: 7 of 8 GPUs are allocatable (capacity 8)"]
    [incident] = open_incidents_of(fleet.nodes["gpu-7"])
    assert (incident.severity, incident.count, incident.needs) == (Severity.SUSPECT, 1, "reboot")
    assert incident.last.boot_id == "boot-a"
    assert not fleet.nodes["gpu-7"].record.life.tainted_at


def test_a_node_is_short_at_once() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7, 8)
    fleet.step()

    assert fleet.short == {"gpu-7": "7 of 8 GPUs"}


def test_when_the_gpus_are_back_the_incident_ends_by_itself() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step(60)
    fleet.has("gpu-7", 8)

    assert fleet.step(60) == ["gpu-7: 8 of 8 GPUs are allocatable (capacity 8)"]
    assert not fleet.open("gpu-7")
    assert fleet.short == {}


def test_gpus_that_come_back_after_a_reboot_end_the_incident_of_the_boot_before() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step(60)
    fleet.change("gpu-7", machine=replace(fleet.nodes["gpu-7"].machine, boot_id="boot-b"))
    fleet.has("gpu-7", 8)
    fleet.step()

    assert not fleet.open("gpu-7")


def test_gpus_that_a_reboot_did_not_bring_back_stay_a_suspicion_and_need_an_inspection() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step(60)
    fleet.change("gpu-7", machine=replace(fleet.nodes["gpu-7"].machine, boot_id="boot-b"))

    assert fleet.step(60) == []
    [incident] = open_incidents_of(fleet.nodes["gpu-7"])
    assert (incident.last.boot_id, incident.needs) == ("boot-a", "inspection")


@pytest.mark.parametrize(
    "fall", [{"allocatable": 0, "capacity": 8}, {"allocatable": 0, "capacity": 0}], ids=["kubelet", "plugin"]
)
def test_the_restart_of_a_kubelet_or_of_a_device_plugin_is_no_fault_and_no_write(
    fall: Mapping[str, int],
) -> None:
    fleet = Fleet()
    fleet.has("gpu-7", **fall)
    fleet.step(2)
    assert fleet.short == {"gpu-7": "0 of 8 GPUs"}
    fleet.has("gpu-7", 8)

    assert fleet.step(60) == []
    assert fleet.nodes["gpu-7"].record == NodeRecord()


def test_a_fall_that_lasts_is_written_so_that_the_next_controller_knows_the_count() -> None:
    fleet = Fleet(size=2)
    fleet.has("gpu-2", 7)
    fleet.step(10)
    assert fleet.nodes["gpu-2"].record.gpus == 8
    assert fleet.nodes["gpu-1"].record == NodeRecord()

    fleet.restart()
    assert fleet.step(29) == []
    assert fleet.step(5) == ["gpu-2: 7 of 8 GPUs are allocatable (capacity 7)"]


def test_a_write_that_happens_anyway_has_the_count() -> None:
    fleet = Fleet(size=2)
    release_of = replace(fleet.nodes["gpu-1"], record=NodeRecord(life=Life(at(0))))
    fleet.nodes["gpu-1"] = release_of  # somebody removed the taint, so the controller writes the record
    fleet.step()

    assert fleet.nodes["gpu-1"].record.gpus == 8


def test_after_a_restart_without_a_record_the_majority_of_alike_nodes_counts() -> None:
    fleet = Fleet(size=3)
    fleet.has("gpu-3", 7)
    fleet.restart()

    assert fleet.step(60) == ["gpu-3: 7 of 8 GPUs are allocatable (capacity 7)"]


@pytest.mark.parametrize("size", [1, 2])
def test_without_a_record_and_three_alike_nodes_a_node_is_not_judged(size: int) -> None:
    fleet = Fleet(size)
    fleet.has(f"gpu-{size}", 7)
    fleet.restart()

    assert fleet.step(60) == []


def test_nodes_of_another_pool_or_without_an_instance_type_are_not_alike() -> None:
    fleet = Fleet(size=12)
    fleet.change("gpu-1", pool="small")
    fleet.has("gpu-1", 4)
    fleet.change("gpu-2", gpus=GpuCount(4, 4))
    fleet.restart()

    assert fleet.step(60) == []


def test_a_broken_gpu_in_the_capacity_is_missed_without_any_memory() -> None:
    fleet = Fleet(size=1)
    fleet.has("gpu-1", 7, 8)
    fleet.restart()

    assert fleet.step(60) == ["gpu-1: 7 of 8 GPUs are allocatable (capacity 8)"]


@pytest.mark.parametrize(
    "work",
    [
        {"unschedulable": True},
        {"ready": False},
        {"opted_out": True},
        {"gpus": GpuCount(0, 0, "p5.48xlarge/", paused=True)},
    ],
    ids=["cordoned", "NotReady", "opted out", "driver upgrade"],
)
def test_a_node_out_of_service_is_short_and_not_judged(work: Mapping[str, Any]) -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 0)
    fleet.change("gpu-7", **work)

    assert fleet.step(120) == []
    assert fleet.short == {"gpu-7": "0 of 8 GPUs"}
    fleet.change("gpu-7", unschedulable=False, ready=True, opted_out=False)
    fleet.has("gpu-7", 7)
    assert fleet.step(29) == []  # the time out of service does not count
    assert len(fleet.step(10)) == 1


def test_a_driver_roll_out_over_the_fleet_is_no_fault_of_any_node() -> None:
    fleet = Fleet(size=12)
    for number in range(1, 13):
        fleet.has(f"gpu-{number}", 0)
        assert fleet.step(8) == []
        fleet.has(f"gpu-{number}", 8)
    assert fleet.step(60) == []


def test_more_than_five_percent_that_fall_at_once_are_not_judged_until_fewer_are_short() -> None:
    fleet = Fleet(size=40)
    for number in (1, 2, 3):
        fleet.has(f"gpu-{number}", 0)
        fleet.step()
    assert fleet.step(120) == []
    assert set(fleet.counts.together) == {"gpu-1", "gpu-2", "gpu-3"}
    assert all(fleet.nodes[f"gpu-{n}"].record == NodeRecord() for n in (1, 2, 3))

    fleet.has("gpu-1", 8)
    assert len(fleet.step(60)) == 2


def test_a_roll_out_of_hours_ago_does_not_excuse_a_node_that_falls_now() -> None:
    fleet = Fleet(size=40)
    for number in (1, 2, 3):
        fleet.has(f"gpu-{number}", 7)
    fleet.step(120)
    fleet.has("gpu-9", 7)

    assert fleet.step(60) == ["gpu-9: 7 of 8 GPUs are allocatable (capacity 7)"]
    assert set(fleet.counts.together) == {"gpu-1", "gpu-2", "gpu-3"}


def test_the_half_hour_begins_again_after_a_reboot_also_if_the_node_was_never_seen_not_ready() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step(25)
    fleet.boots("gpu-7")

    assert fleet.step(30) == []
    assert len(fleet.step(2)) == 1


def test_one_node_of_a_small_fleet_in_service() -> None:
    fleet = Fleet(size=1)
    fleet.has("gpu-1", 7)

    assert len(fleet.step(60)) == 1


def test_falls_far_apart_are_judged_each_for_itself() -> None:
    fleet = Fleet(size=4)
    fleet.has("gpu-1", 7)
    first = fleet.step(40)
    fleet.has("gpu-2", 7)

    assert len(first) == len(fleet.step(40)) == 1


def test_another_machine_under_the_same_name_begins_anew() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step(10)
    fleet.nodes["gpu-7"] = with_gpus(
        replace(node("gpu-7"), machine=Machine("uid-new", "system-new", "boot-n"), pool="small"), 4
    )

    assert fleet.step(60) == []
    assert fleet.short == {}


def test_a_node_that_registers_again_before_its_plugin_is_short() -> None:
    fleet = Fleet(size=2)
    fleet.change("gpu-2", machine=Machine("uid-new", "system-gpu-2", "boot-b"), gpus=NO_GPUS)
    fleet.step()

    assert fleet.short == {"gpu-2": "0 of 8 GPUs"}
    assert fleet.step(120) == []  # a Node that tells of no GPUs is not checked


@pytest.mark.parametrize(
    "first", [{"layout": "replicas=4"}, {"comparable": False}], ids=["time-slicing", "MIG"]
)
def test_another_layout_begins_anew(first: Mapping[str, Any]) -> None:
    fleet = Fleet(size=2)
    fleet.has("gpu-2", 16, **first)
    fleet.step(60)
    fleet.has("gpu-2", 8)

    assert fleet.step(60) == []
    assert fleet.short == {}


def test_labels_of_time_slicing_that_come_after_the_shared_gpus_leave_no_wrong_count() -> None:
    fleet = Fleet(size=2)
    for gpus, layout in ((32, "replicas=1"), (8, "replicas=4"), (2, "replicas=4"), (8, "replicas=1")):
        fleet.has("gpu-2", gpus, layout=layout)
        assert fleet.step(4) == []

    assert fleet.step(60) == []
    assert fleet.short == {}


@pytest.mark.parametrize("is_out", [False, True])
def test_labels_of_time_slicing_that_come_after_a_record_leave_no_wrong_count(*, is_out: bool) -> None:
    fleet = Fleet(size=2)
    fleet.has("gpu-2", 32)
    fleet.step()
    fleet.fails("gpu-2")
    if not is_out:
        fleet.resets("gpu-2")
    fleet.has("gpu-2", 8, layout="replicas=4")
    fleet.restart()

    assert fleet.step(60) == []
    assert fleet.short == {}


def test_counts_of_another_layout_in_records_make_no_majority() -> None:
    fleet = Fleet(size=3, policy=replace(POLICY, brake_max_percent=100))
    for name in ("gpu-1", "gpu-2"):
        fleet.has(name, 32)
        fleet.step()
        fleet.fails(name)
    for name in fleet.nodes:
        fleet.has(name, 8, layout="replicas=4")
    fleet.restart()

    assert fleet.step(60) == []
    assert fleet.short == {}


def test_parts_of_gpus_are_not_judged_and_whole_gpus_in_slices_are() -> None:
    fleet = Fleet(size=2)
    fleet.has("gpu-1", 56, comparable=False)
    fleet.has("gpu-2", 8, layout="slices")
    fleet.step()
    fleet.has("gpu-1", 49, comparable=False)
    fleet.has("gpu-2", 7, layout="slices")

    assert fleet.step(60) == ["gpu-2: 7 of 8 GPUs are allocatable (capacity 7)"]
    assert fleet.short == {"gpu-2": "7 of 8 GPUs"}


@pytest.mark.parametrize("restarts", [False, True])
def test_all_gpus_lost_keep_the_layout_that_was_known(*, restarts: bool) -> None:
    fleet = Fleet(size=2)
    fleet.has("gpu-2", 8, layout="replicas=4")
    fleet.step()
    fleet.fails("gpu-2")
    fleet.resets("gpu-2")
    fleet.has("gpu-2", 0)  # without a GPU, feature discovery removes its labels
    if restarts:
        fleet.restart()

    assert fleet.step(60) == ["gpu-2: 0 of 8 GPUs are allocatable (capacity 0)"]


@pytest.mark.parametrize("capacity", [7, 8])
def test_a_person_who_resets_the_node_accepts_the_loss(capacity: int) -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7, capacity)
    fleet.step(60)
    change = release(fleet.nodes["gpu-7"], at=fleet.now, by="ann", reason="vendor informed", read_ns={})
    assert change is not None
    assert change.record is not None
    assert change.record.releases[0].read_ns == {}  # the fault is no line, so its time covers no line
    assert "7 of 8 GPUs are allocatable, and the loss is accepted." in change.message
    fleet.change("gpu-7", record=change.record)

    assert fleet.step(120) == []
    assert fleet.short == {}
    fleet.restart()
    assert fleet.step(120) == []
    fleet.has("gpu-7", 6, capacity)
    assert fleet.step(60) == [f"gpu-7: 6 of 7 GPUs are allocatable (capacity {capacity})"]


def test_a_loss_in_another_layout_than_before_the_taint_is_accepted_too() -> None:
    fleet = Fleet(size=2)
    fleet.fails("gpu-2")
    fleet.has("gpu-2", 7, 8, layout="replicas=4")
    assert len(fleet.step(60)) == 1
    fleet.resets("gpu-2")

    assert fleet.step(60) == []


def test_a_person_who_removes_the_taint_by_hand_accepts_the_loss() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step(60)
    fleet.change("gpu-7", record=replace(fleet.nodes["gpu-7"].record, life=Life(at(0))))
    fleet.change("gpu-7", removed_by="kubectl-taint")
    fleet.step()

    assert fleet.nodes["gpu-7"].record.gpus == 7
    assert fleet.step(120) == []


def test_a_reset_while_the_device_plugin_is_away_accepts_nothing() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step(60)
    fleet.change("gpu-7", gpus=NO_GPUS)
    change = release(fleet.nodes["gpu-7"], at=fleet.now, by="ann", reason="", read_ns={})

    assert change is not None
    assert change.record is not None
    assert change.record.gpus == 8


@pytest.mark.parametrize("how", [ReleaseHow.REBOOT, ReleaseHow.TEST_ENDED])
def test_a_release_by_the_controller_does_not_accept_missing_gpus(how: ReleaseHow) -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step(60)

    found = released_record(fleet.nodes["gpu-7"], Life(), Release(fleet.now, "", "", how))

    assert found.gpus == 8


def test_a_reset_for_another_fault_does_not_accept_missing_gpus() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step(10)
    tainted = replace(fleet.nodes["gpu-7"], record=replace(fleet.nodes["gpu-7"].record, life=Life(at(0))))
    change = release(tainted, at=fleet.now, by="ann", reason="", read_ns={})
    assert change is not None
    fleet.change("gpu-7", record=change.record)

    assert len(fleet.step(60)) == 1


def test_never_means_never() -> None:
    fleet = Fleet(policy=replace(POLICY, gpu_count_seconds=0))
    fleet.has("gpu-7", 7)

    assert fleet.step(120) == []
    assert fleet.short == {"gpu-7": "7 of 8 GPUs"}


def test_a_clock_that_is_set_back_does_not_delay_the_fault_for_longer_than_the_span() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7)
    fleet.step()
    fleet.minute -= 600

    assert len(fleet.step(40)) == 1


def test_the_write_of_a_fall_changes_nothing_else() -> None:
    fleet = Fleet(size=2)
    fleet.has("gpu-2", 7)
    fleet.step(4)
    snapshot = Snapshot(fleet.nodes, gpus=fleet.counts)

    assert decide(snapshot, (), POLICY, at(5 * MINUTE)).changes == ()
    [change] = decide(snapshot, (), POLICY, at(20 * MINUTE)).changes
    assert (change.verb, change.health, change.event, change.upkeep) == (Verb.RECORD, None, None, True)


def test_a_fatal_override_taints_and_the_taint_stays_when_the_gpus_are_back() -> None:
    fleet = Fleet(policy=replace(POLICY, gpus_missing=RULE._replace(severity=Severity.FATAL)))
    fleet.has("gpu-7", 7)
    fleet.step(31)
    assert fleet.nodes["gpu-7"].record.life.tainted_at == fleet.now
    fleet.change("gpu-7", taints=(OURS,))
    fleet.has("gpu-7", 8)

    assert fleet.step(3) == ["gpu-7: 8 of 8 GPUs are allocatable (capacity 8)"]
    [incident] = fleet.nodes["gpu-7"].record.incidents
    assert incident.state is IncidentState.ACTIVE
    assert incident.ended_ns or incident.met_ns


def test_nodes_that_are_reported_already_do_not_excuse_the_next_one() -> None:
    fleet = Fleet(size=4)
    fleet.has("gpu-1", 7)
    fleet.step(35)
    fleet.restart()  # the next controller sees both nodes short from its start on
    fleet.has("gpu-2", 7)

    assert fleet.step(40) == ["gpu-2: 7 of 8 GPUs are allocatable (capacity 7)"]


# What a tainted node must show before it returns by itself


def test_a_rebooted_node_with_all_its_gpus_is_whole() -> None:
    fleet = Fleet()
    fleet.fails("gpu-7")
    fleet.boots("gpu-7")
    fleet.step()

    assert why_not_whole(fleet.nodes["gpu-7"]) is None


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("returns", [28, 32])
def test_shared_gpus_whose_label_is_gone_after_the_reboot_cannot_be_counted(
    returns: int, *, restarts: bool
) -> None:
    fleet = Fleet(size=2)
    fleet.has("gpu-2", 8, layout="replicas=4")
    fleet.step()
    fleet.fails("gpu-2")
    fleet.boots("gpu-2")
    fleet.has("gpu-2", returns)
    if restarts:
        fleet.restart()
    fleet.step(60)

    assert "shared in another way than before" in (why_not_whole(fleet.nodes["gpu-2"]) or "")
    fleet.has("gpu-2", 7, layout="replicas=4")  # the label comes late
    fleet.step(60)
    assert why_not_whole(fleet.nodes["gpu-2"]) == "it has only 7 of 8 GPUs"
    fleet.has("gpu-2", 8, layout="replicas=4")
    fleet.step()
    assert why_not_whole(fleet.nodes["gpu-2"]) is None


@pytest.mark.parametrize("before", [{"comparable": False}, {"paused": True}], ids=["MIG", "no plugin"])
def test_gpus_that_were_never_counted_before_the_reboot_prove_nothing_after_it(
    before: Mapping[str, Any],
) -> None:
    fleet = Fleet(size=1)
    fleet.nodes["gpu-1"] = replace(node(), gpus=GpuCount(0, 0, **before))
    fleet.restart()
    fleet.step()
    fleet.fails("gpu-1")
    fleet.boots("gpu-1")
    fleet.has("gpu-1", 7)
    fleet.step(60)

    assert "its record does not say how many it had" in (why_not_whole(fleet.nodes["gpu-1"]) or "")


def test_a_node_with_a_changed_layout_is_not_written_again_and_again() -> None:
    fleet = Fleet(size=2)
    fleet.has("gpu-2", 8, layout="replicas=4")
    fleet.step()
    fleet.fails("gpu-2")
    fleet.boots("gpu-2")
    fleet.has("gpu-2", 28, 32)
    fleet.step(10)
    before = fleet.nodes["gpu-2"].record

    fleet.step(10)

    assert fleet.nodes["gpu-2"].record == before


def test_a_reset_ends_the_memory_of_the_layout_before() -> None:
    fleet = Fleet(size=2)
    fleet.has("gpu-2", 8, layout="replicas=4")
    fleet.step()
    fleet.fails("gpu-2")
    fleet.boots("gpu-2")
    fleet.has("gpu-2", 8)  # a person switched time-slicing off
    fleet.step()
    fleet.resets("gpu-2")
    fleet.step()
    fleet.fails("gpu-2")
    fleet.boots("gpu-2", "boot-c")
    fleet.step()

    assert why_not_whole(fleet.nodes["gpu-2"]) is None


# GPUs that come and go


def flaps(fleet: Fleet, minutes: int, *, whole: int, short: int, name: str = "gpu-7") -> list[str]:
    """Let a GPU be away for ``short`` minutes and back for ``whole`` minutes, in turn."""
    found: list[str] = []
    for minute in range(minutes):
        fleet.has(name, 7 if minute % (short + whole) < short else 8, 8)
        found += fleet.step()
    return found


@pytest.mark.parametrize(("short", "whole"), [(9, 1), (1, 1), (1, 29)])
def test_a_gpu_that_comes_and_goes_is_missing_once_and_until_it_has_been_back_for_half_an_hour(
    short: int, whole: int
) -> None:
    fleet = Fleet()

    assert flaps(fleet, 200, short=short, whole=whole) == ["gpu-7: 7 of 8 GPUs are allocatable (capacity 8)"]
    assert fleet.open("gpu-7")
    fleet.has("gpu-7", 8)
    assert fleet.step(29 - whole) == []
    assert len(fleet.step(whole + 2)) == 1
    assert not fleet.open("gpu-7")


def test_a_fall_half_an_hour_after_the_gpus_were_back_is_another_one() -> None:
    fleet = Fleet()

    assert flaps(fleet, 300, short=29, whole=31) == []


def test_a_gpu_that_is_lost_again_soon_after_the_end_of_the_fault_is_missing_at_once() -> None:
    fleet = Fleet()
    fleet.has("gpu-7", 7, 8)
    fleet.step(60)
    fleet.has("gpu-7", 8)
    assert len(fleet.step(5)) == 1
    assert not fleet.open("gpu-7")

    fleet.has("gpu-7", 7, 8)
    assert len(fleet.step()) == 1
    assert fleet.open("gpu-7")


def test_a_node_that_is_not_ready_in_between_falls_on_and_one_that_booted_or_was_cordoned_does_not() -> None:
    between: list[tuple[str, Mapping[str, Any]]] = [
        ("gpu-1", {"ready": False}),
        ("gpu-2", {"unschedulable": True}),
        ("gpu-3", {"machine": Machine("uid-gpu-3", "system-gpu-3", "boot-b")}),
    ]
    fleet = Fleet(size=60)
    for name, change in between:
        fleet.has(name, 7, 8)
        fleet.step(20)
        fleet.change(name, **change)
        fleet.step()
        fleet.change(name, ready=True, unschedulable=False)
        found = fleet.step(15)
        fleet.has(name, 8)
        fleet.step(40)
        assert found == ([f"{name}: 7 of 8 GPUs are allocatable (capacity 8)"] if name == "gpu-1" else [])


def test_a_release_ends_the_memory_of_earlier_falls() -> None:
    fleet = Fleet()
    flaps(fleet, 60, short=9, whole=1)
    fleet.resets("gpu-7")
    fleet.has("gpu-7", 8)
    fleet.step(5)

    fleet.has("gpu-7", 7, 8)
    assert fleet.step(29) == []
