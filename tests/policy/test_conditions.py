"""Other programs' conditions: when they are faults, and what ends those (rule 42)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from konductor_like.catalog import load_catalog, read_user_rules
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.controller.loop.active_rules import RulesInForce
from konductor_like.detection import Detector
from konductor_like.model import (
    NO_GPUS,
    ConditionsSeen,
    EventReason,
    GpuCount,
    Growth,
    Hearing,
    IncidentState,
    MetBy,
    NodeRecord,
    Plan,
    Release,
    ReleaseHow,
    ReportedCondition,
    Severity,
    Snapshot,
    Source,
)
from konductor_like.model.time import stamp
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.node.conditions import STALE_NS
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.policy.scenes import OURS, at, fault, node, ns, reset_node
from tests.policy.scenes import Cluster as Resettable

MINUTE, DAY = 60.0, 86_400.0
FILE = Path(__file__).parents[1] / "data" / "conditions" / "others.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


def policy(overrides: str = "", **more: Any) -> PolicyConfig:
    text = f"overrides: {{{overrides}}}" if overrides else ""
    rules = read_user_rules(text, "rules.yaml", load_catalog())
    return RulesInForce(rules, Detector(rules.catalog)).complete(PolicyConfig(**more))


POLICY = policy()


class Fleet:
    """One node, whose conditions a controller reads; the records are written as it decides."""

    def __init__(self, overrides: str = "", **more: Any) -> None:
        self.policy = policy(overrides, **more)
        self.state = replace(node(), gpus=GpuCount(8, 8))
        self.seconds = 0.0
        self.first_start = -DAY
        self.hearing: Mapping[str, Hearing] = {}
        self.events: list[tuple[EventReason | None, str]] = []
        self.restart()

    def restart(self) -> None:
        """Start another controller, which remembers nothing."""
        self.seen = ConditionsSeen(ns(self.first_start))
        self.grown: Mapping[str, tuple[Growth, ...]] = {}

    def says(
        self,
        status: str,
        since: float | None,
        *,
        kind: str = "GPUProblem",
        beat: float | None = None,
        message: str = "Unable to determine the device handle for GPU0000:00:1B.0: Unknown Error",
        reason: str = "GPUsAreDown",
    ) -> None:
        """Let a program write the condition; its heartbeat is of now, if ``beat`` gives no other time."""
        beat = self.seconds if beat is None else beat
        since_ns = None if since is None else ns(since)
        told = ReportedCondition(kind, status, reason, message, since_ns, ns(beat))
        others = (each for each in self.state.reported if each.type != kind)
        self.change(reported=(*others, told))

    def change(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)

    def boots(self, boot: str = "boot-b", **fields: Any) -> None:
        self.change(machine=replace(self.state.machine, boot_id=boot), **fields)

    def step(self, seconds: float) -> list[str]:
        """Decide at this time, and write the plan. Return the texts of what was counted."""
        self.seconds = seconds
        name = self.state.name
        snapshot = Snapshot({name: self.state}, conditions=self.seen, grown=self.grown, hearing=self.hearing)
        plan = decide(snapshot, (), self.policy, at(seconds))
        assert plan.conditions is not None
        self.plan, self.seen, self.grown = plan, plan.conditions, plan.grown
        for change in plan.changes:
            read = replace(self.state.as_read, record="{}", health=change.health, needs=change.needs)
            taints = (OURS,) if change.verb == "taint" else self.state.taints
            self.change(record=change.record or NodeRecord(), as_read=read, taints=taints)
            self.events += [(change.event, change.message), *change.also]
        return [each.finding.text for each in plan.counted]

    @property
    def incidents(self) -> list[tuple[str, str | None, int, IncidentState]]:
        return [(i.key.rule, i.key.gpu, i.count, i.state) for i in self.state.record.incidents]


TOLD = (
    "GPUProblem is True (GPUsAreDown): "
    "Unable to determine the device handle for GPU0000:00:1B.0: Unknown Error"
)
OPEN = ("condition.GPUProblem", "0000:00:1b", 1, IncidentState.ACTIVE)


def broken(**more: Any) -> Fleet:
    """Return a fleet whose node is suspect since a minute after noon."""
    fleet = Fleet(**more)
    fleet.says("True", 50)
    assert fleet.step(MINUTE) == [TOLD]
    return fleet


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_recorded_condition_has_its_rule(row: dict[str, Any]) -> None:
    raw = make_node("gpu-1")
    raw["metadata"]["creationTimestamp"] = stamp(at(-DAY))
    times = {"lastTransitionTime": stamp(at(50)), "lastHeartbeatTime": stamp(at(55))}
    raw["status"]["conditions"].append(row["condition"] | times)
    fleet = Fleet()
    fleet.state = decode_node(raw)
    fleet.change(ready=True)

    fleet.step(MINUTE)

    assert [rule for rule, *_ in fleet.incidents] == ([row["rule"]] if row["rule"] else [])
    if "gpu" in row:
        assert fleet.incidents[0][1] == row["gpu"]


def test_every_rule_has_a_recorded_condition_and_each_of_its_types_a_healthy_one() -> None:
    assert {f"condition.{kind}" for kind in POLICY.conditions} == {row["rule"] for row in ROWS} - {None}


def test_a_condition_makes_a_suspect_is_told_once_and_taints_nothing() -> None:
    fleet = broken()
    for minute in range(2, 12):
        fleet.says("True", 50)
        assert fleet.step(minute * MINUTE) == []

    assert fleet.incidents == [OPEN]
    assert (fleet.state.as_read.health, fleet.state.as_read.needs) == ("suspect", "reboot")
    assert not fleet.state.tainted
    [(event, words)] = fleet.events
    assert event is EventReason.RECORDED
    assert words.startswith("condition GPUProblem on GPU 0000:00:1b: node-problem-detector reports that ")
    assert words.endswith(f' Condition: "{TOLD}" Needs: reboot.')


def test_a_person_may_let_a_condition_taint() -> None:
    fleet = Fleet("condition.GPUProblem.severity: fatal")
    fleet.says("True", 50)
    fleet.step(MINUTE)

    assert fleet.state.tainted


def test_in_shadow_mode_a_change_is_found_once_and_nothing_is_recorded() -> None:
    fleet = Fleet("condition.GPUProblem.mode: shadow")
    found = 0
    for minute in range(1, 10):
        fleet.says("True", 50 if minute < 5 else 290, message=f"GPU0000:00:{minute:02}.0")
        fleet.change(ready=minute != 3)
        fleet.step(minute * MINUTE)
        found += len(fleet.plan.shadowed)

    assert (found, fleet.incidents) == (2, [])


def test_a_rule_that_is_off_finds_nothing() -> None:
    fleet = Fleet("condition.GPUProblem.mode: 'off'")
    fleet.says("True", 50)

    assert fleet.step(MINUTE) == []


def test_without_conditions_to_read_nothing_is_found() -> None:
    fleet = Fleet()
    fleet.says("True", 50)
    plan: Plan = decide(Snapshot({"gpu-1": fleet.state}), (), POLICY, at(MINUTE))

    assert (plan.counted, plan.conditions) == ((), None)


def test_a_restart_repeats_nothing_whatever_the_heartbeat_and_the_message_are() -> None:
    fleet = broken()
    fleet.restart()
    fleet.says("True", 50, message="another text", reason="Other")

    assert fleet.step(10 * MINUTE) == []
    assert fleet.incidents == [OPEN]


def test_a_change_that_is_counted_and_not_yet_written_is_not_counted_again() -> None:
    fleet = broken()
    fleet.says("True", 90)
    assert fleet.step(2 * MINUTE) == [TOLD]
    fleet.says("True", 90)
    fleet.step(3 * MINUTE)

    assert fleet.plan.ignored == ()


def test_a_release_covers_the_change() -> None:
    fleet = broken()
    cluster = Resettable({"gpu-1": fleet.state})
    reset_node(cluster, "gpu-1", 2 * MINUTE)
    fleet.state = cluster.nodes["gpu-1"]
    fleet.change(record=replace(fleet.state.record, incidents=()))  # as after a further boot
    fleet.restart()
    fleet.says("True", 50)
    assert fleet.step(3 * MINUTE) == []

    fleet.says("True", 200)
    assert fleet.step(4 * MINUTE) == [TOLD]


@pytest.mark.parametrize(("since", "found"), [(50, False), (150, True)])
def test_a_return_after_a_validation_covers_what_had_been_told_when_it_began(
    since: float, found: bool
) -> None:
    fleet = Fleet()
    read_ns = {Source.KERNEL: ns(100)}
    mark = Release(at(200), "the controller", "", ReleaseHow.VALIDATED, read_ns=read_ns)
    fleet.change(record=NodeRecord(machine=fleet.state.machine, releases=(mark,)))
    fleet.says("True", since, beat=300)

    assert bool(fleet.step(300)) is found


def test_a_condition_that_flaps_is_one_incident_with_a_count_and_one_event() -> None:
    fleet = Fleet()
    for minute in range(1, 21):
        fleet.says("True" if minute % 2 else "False", minute * MINUTE - 5)
        fleet.step(minute * MINUTE)
    fleet.step(60 * MINUTE)

    assert fleet.incidents == [(*OPEN[:2], 10, IncidentState.ACTIVE)]
    assert len(fleet.events) == len([1 for event, _ in fleet.events if event]) + fleet.events.count(
        (None, "")
    )
    assert [event for event, _ in fleet.events if event] == [EventReason.RECORDED]


@pytest.mark.parametrize(
    ("since", "beat", "found"),
    [
        (-DAY / 2, 55, True),
        (-DAY / 2, MINUTE - STALE_NS / 1e9, True),
        (-DAY / 2, MINUTE - STALE_NS / 1e9 - 1, False),
        (50, -DAY / 2, True),
        (61, 55, False),
        (None, 55, False),
    ],
    ids=["beats", "just beats", "stale", "changed lately without a beat", "in the future", "without a time"],
)
def test_only_a_condition_that_is_told_now_begins_a_fault(
    since: float | None, beat: float, found: bool
) -> None:
    fleet = Fleet()
    fleet.says("True", since, beat=beat)

    assert bool(fleet.step(MINUTE)) is found


def test_a_condition_of_the_future_begins_a_fault_when_its_time_has_come() -> None:
    fleet = Fleet()
    fleet.says("True", 100)
    assert fleet.step(MINUTE) == []
    assert fleet.step(2 * MINUTE) == [TOLD]


def test_a_condition_of_a_node_that_is_not_ready_waits() -> None:
    fleet = Fleet()
    fleet.says("True", 50)
    fleet.change(ready=False)
    assert fleet.step(MINUTE) == []

    fleet.change(ready=True)
    assert fleet.step(2 * MINUTE) == [TOLD]


@pytest.mark.parametrize(("gpus", "found"), [(GpuCount(0, 8, paused=True), False), (NO_GPUS, True)])
def test_a_condition_while_the_driver_is_replaced_waits(gpus: GpuCount, found: bool) -> None:
    fleet = Fleet()
    fleet.says("True", 50)
    fleet.change(gpus=gpus)

    assert bool(fleet.step(MINUTE)) is found


@pytest.mark.parametrize(
    "odd",
    [{"opted_out": True}, {"selected": False}, {"record_problem": "no JSON"}, {"unschedulable": True}],
    ids=str,
)
def test_a_condition_is_recorded_once_whatever_else_the_node_is(odd: dict[str, Any]) -> None:
    fleet = Fleet("condition.GPUProblem.severity: fatal" if "opted_out" in odd else "")
    fleet.says("True", 50)
    fleet.change(**odd)
    found = [each for minute in range(1, 5) for each in fleet.step(minute * MINUTE)]

    assert (found, fleet.state.tainted) == ([TOLD], False)


def test_a_node_without_a_gpu_has_no_such_fault() -> None:
    fleet = Fleet()
    fleet.says("True", 50)
    fleet.change(is_gpu_node=False)

    assert (fleet.step(MINUTE), fleet.plan.ignored) == ([], ())


def test_a_condition_from_before_the_first_start_is_recorded_and_never_taints() -> None:
    fleet = Fleet("condition.GPUProblem.severity: fatal")
    fleet.first_start = 55
    fleet.restart()
    fleet.says("True", 50)
    fleet.step(MINUTE)

    [incident] = fleet.state.record.incidents
    assert (incident.before_install, fleet.state.tainted) == (True, False)


@pytest.mark.parametrize(("beat", "found"), [(20, False), (55, True)])
def test_a_node_that_is_registered_again_has_only_what_is_told_of_it_now(beat: float, found: bool) -> None:
    fleet = Fleet()
    fleet.change(created_ns=ns(30))
    fleet.says("True", 10, beat=beat)

    assert bool(fleet.step(MINUTE)) is found


def test_what_was_told_before_the_boot_begins_nothing() -> None:
    fleet = Fleet()
    fleet.change(booted_after_ns=ns(30))
    fleet.says("True", 10, beat=20)
    assert fleet.step(MINUTE) == []

    fleet.says("True", 10, beat=40)
    assert fleet.step(MINUTE) == [TOLD]


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_another_word_ends_nothing_at_once(status: str) -> None:
    fleet = broken()
    fleet.says(status, 100)
    fleet.step(2 * MINUTE)

    assert fleet.incidents == [OPEN]


def test_a_condition_that_vanishes_ends_nothing() -> None:
    fleet = broken()
    fleet.change(reported=())
    fleet.hearing = {"gpu-1": Hearing("boot-a", ns(-DAY), ns(9 * DAY))}
    fleet.step(9 * DAY)

    assert fleet.incidents == [OPEN]


def test_a_boot_ends_the_suspicion_only_after_the_writer_has_spoken_again() -> None:
    fleet = broken()
    fleet.boots()
    fleet.step(10 * MINUTE)
    fleet.restart()
    fleet.step(11 * MINUTE)
    assert fleet.incidents == [OPEN]

    fleet.says("False", 720)
    fleet.step(13 * MINUTE)
    [incident] = fleet.state.record.incidents
    assert (incident.state, incident.met_by) == (IncidentState.RELEASED, MetBy.REBOOT)
    assert fleet.events[-1][1].startswith("condition GPUProblem on GPU 0000:00:1b ended: the machine has")


@pytest.mark.parametrize(
    ("status", "since", "beat"),
    [("", 0, 0), ("Unknown", 720, 780), ("False", None, 780), ("False", 100, 100), ("False", 790, 780)],
    ids=["gone", "unknown", "without a time", "healthy before the boot, and silent", "in the future"],
)
def test_a_boot_ends_no_suspicion_whose_writer_says_nothing_of_the_present(
    status: str, since: float | None, beat: float
) -> None:
    fleet = broken()
    if status:
        fleet.says(status, since, beat=beat)
    else:
        fleet.change(reported=())
    fleet.boots(booted_after_ns=ns(600))
    fleet.step(13 * MINUTE)
    assert fleet.incidents == [OPEN]

    fleet.says("False", 800)
    fleet.step(14 * MINUTE)
    assert fleet.incidents == [(*OPEN[:3], IncidentState.RELEASED)]


def test_a_change_after_the_boot_is_a_new_incident() -> None:
    fleet = broken()
    fleet.boots()
    fleet.says("True", 720)
    assert fleet.step(13 * MINUTE) == [TOLD]

    assert [state for *_, state in fleet.incidents] == [IncidentState.RELEASED, IncidentState.ACTIVE]


@pytest.mark.parametrize(
    ("status", "since", "beat", "ends"),
    [
        ("False", DAY, 9 * DAY, True),
        ("False", 3 * DAY, 9 * DAY, False),
        ("False", DAY, 8 * DAY, False),
        ("True", 50, 9 * DAY, False),
        ("Unknown", DAY, 9 * DAY, False),
    ],
    ids=["healthy for days", "healthy since lately", "stale", "still bad", "unknown"],
)
def test_quiet_ends_the_suspicion_only_if_the_condition_was_healthy_for_as_long(
    status: str, since: float, beat: float, ends: bool
) -> None:
    fleet = broken()
    fleet.says(status, since, beat=beat)
    fleet.hearing = {"gpu-1": Hearing("boot-a", ns(-DAY), ns(9 * DAY))}
    fleet.step(9 * DAY)

    [incident] = fleet.state.record.incidents
    assert (incident.met_by is MetBy.QUIET) is ends


def test_our_own_condition_is_no_evidence_whatever_a_user_calls_it() -> None:
    fleet = Fleet(node_condition=Settings(node_condition="GPUProblem").policy().node_condition)
    fleet.says("True", 50)

    assert fleet.step(MINUTE) == []


def test_a_hostile_message_is_short_and_safe_to_print() -> None:
    fleet = Fleet()
    fleet.says("True", 50, message="\x1b[2J\u202e" + "x\n" * 100_000)
    [text] = fleet.step(MINUTE)

    assert len(text) <= 512
    assert text.isprintable()


def test_missing_gpus_confirm_a_condition_and_taint_the_node() -> None:
    fleet = Fleet()
    missing = fault(rule="node.gpus_missing", gpu=None, severity=Severity.SUSPECT, stamp=None, seconds=1800)
    fleet.says("True", 50, kind="GPUMissing", message="")
    fleet.step(MINUTE)
    for kind, tainted in (("xid.79", False), ("node.gpus_missing", True)):
        found = replace(missing, finding=missing.finding._replace(rule=kind))
        snapshot = Snapshot({"gpu-1": fleet.state}, conditions=fleet.seen, window=fleet.plan.window)
        plan = decide(snapshot, [found], fleet.policy, at(1801))
        assert any(change.verb == "taint" for change in plan.changes) is tainted
