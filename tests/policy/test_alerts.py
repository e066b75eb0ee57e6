"""Alerts of Prometheus: which firing is a new one, and what ends the fault (rule 44)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from konductor_like.catalog import load_catalog, read_user_rules
from konductor_like.controller.loop.active_rules import RulesInForce
from konductor_like.detection import Detector
from konductor_like.model import (
    AlertKey,
    AlertsAnswer,
    AlertsSeen,
    EventReason,
    Fault,
    Gpu,
    GpuCount,
    Growth,
    Hearing,
    IncidentState,
    MetBy,
    NodeRecord,
    Severity,
    Snapshot,
    ToldAlert,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.node.alerts import GAP_NS, GPUS_MOST, OVER_NS
from tests.policy.scenes import OURS, at, fault, node, ns, reset_node
from tests.policy.scenes import Cluster as Resettable

MINUTE, DAY = 60.0, 86_400.0
OVER, GAP = OVER_NS / 1e9, GAP_NS / 1e9
NAME = "KonductorGPURowRemapPending"
RULE = f"alert.{NAME}"
GPU = "0000:4e:00"
KEY = AlertKey(NAME, "gpu-1", GPU)
UP = frozenset({("dcgm", "gpu-1")})
TEXT = f"{NAME} fires (gpu 3)"
TOLD = ToldAlert(TEXT)
OPEN = (RULE, GPU, 1, IncidentState.ACTIVE)


def policy(overrides: str = "", **more: Any) -> PolicyConfig:
    text = f"overrides: {{{overrides}}}" if overrides else ""
    rules = read_user_rules(text, "rules.yaml", load_catalog())
    return RulesInForce(rules, Detector(rules.catalog)).complete(PolicyConfig(**more))


class Fleet:
    """One node, for which Prometheus answers once a minute; the records are written as it is decided."""

    def __init__(self, overrides: str = "", **more: Any) -> None:
        self.policy = policy(overrides, **more)
        self.state = replace(node(), gpus=GpuCount(8, 8))
        self.first_start = -DAY
        self.hearing: Mapping[str, Hearing] = {}
        self.events: list[tuple[EventReason | None, str]] = []
        self.answer: AlertsAnswer | None = None
        self.restart()

    def restart(self) -> None:
        """Start another controller, which remembers nothing."""
        self.seen = AlertsSeen(ns(self.first_start))
        self.grown: Mapping[str, tuple[Growth, ...]] = {}

    def change(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)

    def boots(self, boot: str = "boot-b") -> None:
        self.change(machine=replace(self.state.machine, boot_id=boot))

    def fires(self, seconds: float, *keys: AlertKey, told: ToldAlert = TOLD, **more: Any) -> list[str]:
        """Decide on an answer in which these alerts fire. Return the texts of what was counted."""
        fields = {"up": UP, **more}
        self.answer = AlertsAnswer(ns(seconds), dict.fromkeys(keys or (KEY,), told), **fields)
        return self.step(seconds)

    def is_silent(self, seconds: float, **more: Any) -> list[str]:
        """Decide on an answer in which nothing fires; by default the exporter is up."""
        self.answer = AlertsAnswer(ns(seconds), {}, **{"up": UP, **more})
        return self.step(seconds)

    def is_silent_for(self, first: float, seconds: float, **more: Any) -> None:
        """Decide once a minute on an answer in which nothing fires, up to the end of this span."""
        for minute in range(int(seconds / MINUTE) + 1):
            assert self.is_silent(first + minute * MINUTE, **more) == []

    def step(self, seconds: float, *faults: Fault) -> list[str]:
        snapshot = Snapshot(
            {self.state.name: self.state},
            alerts=self.seen,
            alerts_answer=self.answer,
            grown=self.grown,
            hearing=self.hearing,
        )
        self.plan = plan = decide(snapshot, faults, self.policy, at(seconds))
        assert plan.alerts is not None
        self.seen, self.grown = plan.alerts, plan.grown
        for change in plan.changes:
            read = replace(self.state.as_read, record="{}", health=change.health, needs=change.needs)
            taints = (OURS,) if change.verb == "taint" else self.state.taints
            self.change(record=change.record or NodeRecord(), as_read=read, taints=taints)
            self.events += [(change.event, change.message), *change.also]
        return [each.finding.text for each in plan.counted]

    def reset(self, seconds: float) -> None:
        cluster = Resettable({"gpu-1": self.state})
        reset_node(cluster, "gpu-1", seconds)
        self.state = cluster.nodes["gpu-1"]

    @property
    def incidents(self) -> list[tuple[str, str | None, int, IncidentState]]:
        return [(i.key.rule, i.key.gpu, i.count, i.state) for i in self.state.record.incidents]


def firing(**more: Any) -> Fleet:
    """Return a fleet whose alert fires since a minute after noon."""
    fleet = Fleet(**more)
    fleet.is_silent(0)
    assert fleet.fires(MINUTE) == [TEXT]
    return fleet


def test_an_alert_makes_a_suspect_is_told_once_and_taints_nothing() -> None:
    fleet = firing()
    for minute in range(2, 200):
        assert fleet.fires(minute * MINUTE) == []

    assert fleet.incidents == [OPEN]
    assert fleet.state.as_read.health == "suspect"
    assert not fleet.state.tainted
    [(event, words)] = fleet.events
    assert event is EventReason.RECORDED
    assert words.startswith(f"alert {NAME} on GPU {GPU}: ")
    assert f' Alert: "{TEXT}"' in words


def test_a_person_may_let_an_alert_taint() -> None:
    fleet = Fleet(f"{RULE}.severity: fatal")
    fleet.is_silent(0)
    fleet.fires(MINUTE)

    assert fleet.state.tainted


def test_a_rule_that_is_off_finds_nothing() -> None:
    fleet = Fleet(f"{RULE}.mode: 'off'")

    assert fleet.fires(MINUTE) == []


def test_in_shadow_mode_a_firing_is_found_once_and_nothing_is_recorded() -> None:
    fleet, found = Fleet(f"{RULE}.mode: shadow"), 0
    for minute in range(10):
        fleet.fires(minute * MINUTE)
        found += len(fleet.plan.shadowed)

    assert (found, fleet.incidents) == (1, [])


def test_without_prometheus_nothing_is_found() -> None:
    answer = AlertsAnswer(ns(MINUTE), {KEY: TOLD}, UP)
    plan = decide(Snapshot({"gpu-1": Fleet().state}, alerts_answer=answer), (), policy(), at(MINUTE))

    assert (plan.counted, plan.alerts) == ((), None)


@pytest.mark.parametrize(
    "key", [AlertKey("KonductorNotOurs", "gpu-1"), AlertKey(NAME, "gpu-2", GPU)], ids=str
)
def test_an_alert_of_no_rule_or_no_node_is_neither_a_fault_nor_remembered(key: AlertKey) -> None:
    fleet = Fleet()

    assert fleet.fires(MINUTE, key) == []
    assert fleet.seen.firings == {}


def test_two_gpus_are_two_firings_whichever_is_recorded_first() -> None:
    fleet, other = Fleet(), KEY._replace(gpu="0000:5d:00")
    fleet.is_silent(0)
    fleet.fires(MINUTE, KEY, other)
    assert len(fleet.incidents) == 2

    first = [each for each in fleet.state.record.incidents if each.key.gpu == GPU]
    fleet.change(record=replace(fleet.state.record, incidents=tuple(first)))
    assert fleet.fires(2 * MINUTE, KEY, other) == [TEXT]


def test_gpus_that_the_record_has_no_place_for_count_once() -> None:
    fleet = Fleet()
    fleet.is_silent(0)
    keys = [KEY._replace(gpu=f"0000:{number:02x}:00") for number in range(30)]
    assert len(fleet.fires(MINUTE, *keys)) > 16

    assert fleet.fires(2 * MINUTE, *keys) == []


@pytest.mark.parametrize(("silent", "again"), [(OVER - MINUTE, False), (OVER, True)])
def test_an_alert_fires_anew_only_after_half_an_hour_of_absence(silent: float, again: bool) -> None:
    fleet = firing()
    fleet.is_silent_for(2 * MINUTE, silent)

    assert bool(fleet.fires(3 * MINUTE + silent)) is again
    assert fleet.incidents == [(*OPEN[:2], 2 if again else 1, IncidentState.ACTIVE)]


@pytest.mark.parametrize(
    "odd", [{"up": frozenset()}, {"up": {("node", "gpu-1")}}, {"complete": False}], ids=str
)
def test_absence_counts_only_in_whole_answers_and_while_the_exporter_is_up(odd: dict[str, Any]) -> None:
    fleet = firing()
    fleet.is_silent_for(2 * MINUTE, 3 * OVER, **odd)

    assert fleet.fires(10 * OVER) == []


def test_absence_begins_again_after_the_exporter_was_down() -> None:
    fleet = firing()
    fleet.is_silent_for(2 * MINUTE, OVER - MINUTE)
    fleet.is_silent(2 * MINUTE + OVER, up=frozenset())
    fleet.is_silent_for(3 * MINUTE + OVER, OVER - MINUTE)

    assert fleet.fires(4 * MINUTE + 2 * OVER) == []


def test_what_is_over_stays_over_when_the_exporter_goes_down_and_comes_back() -> None:
    fleet = firing()
    fleet.is_silent_for(2 * MINUTE, OVER)
    fleet.is_silent(3 * MINUTE + OVER, up=frozenset())
    fleet.is_silent(4 * MINUTE + OVER)

    assert fleet.fires(5 * MINUTE + OVER) == [TEXT]


def test_an_alert_that_flaps_is_one_firing() -> None:
    fleet = firing()
    for begin in range(2, 200, 25):
        fleet.is_silent_for(begin * MINUTE, 20 * MINUTE)
        assert fleet.fires((begin + 22) * MINUTE) == []

    assert fleet.incidents == [OPEN]


def test_a_firing_that_no_record_has_is_over_after_half_an_hour_also_without_its_exporter() -> None:
    fleet = Fleet()
    fleet.is_silent(0)
    fleet.change(ready=False)
    assert fleet.fires(MINUTE) == []
    fleet.is_silent_for(2 * MINUTE, OVER, up=frozenset())
    fleet.change(ready=True)

    assert fleet.fires(DAY) == [TEXT]
    assert fleet.state.record.incidents[0].last_ns == ns(DAY)


def test_of_very_many_gpus_only_some_are_remembered() -> None:
    fleet = Fleet()
    keys = [KEY._replace(gpu=f"{number:04x}:00:00") for number in range(1000)]
    fleet.fires(MINUTE, *keys)

    assert len(fleet.seen.firings) == GPUS_MOST


def test_each_alert_needs_its_own_exporter() -> None:
    fleet = firing()
    rule = replace(fleet.policy.alerts[NAME], exporter="node")
    fleet.policy = replace(fleet.policy, alerts={NAME: rule})
    fleet.is_silent_for(2 * MINUTE, OVER)

    assert fleet.fires(3 * MINUTE + OVER) == []


def test_a_firing_is_forgotten_with_its_node_and_once_it_is_over_and_no_record_has_it() -> None:
    fleet = firing()
    fleet.change(name="gpu-2", record=NodeRecord())
    fleet.is_silent(2 * MINUTE)
    assert fleet.seen.firings == {}

    fleet = Fleet(f"{RULE}.mode: shadow")
    fleet.fires(0)
    fleet.is_silent_for(MINUTE, OVER + MINUTE)
    assert fleet.seen.firings == {}


def test_a_boot_ends_the_other_suspicions_as_always() -> None:
    fleet = firing()
    fleet.change(record=NodeRecord())
    fleet.is_silent(2 * MINUTE)
    fleet.step(3 * MINUTE, fault(rule="xid.63", severity=Severity.SUSPECT, seconds=150, stamp=150))
    fleet.boots()
    fleet.step(4 * MINUTE)

    assert [(i.key.rule, i.met_by) for i in fleet.state.record.incidents] == [("xid.63", MetBy.REBOOT)]


@pytest.mark.parametrize(("gap", "again"), [(GAP, True), (GAP + 1, False)])
def test_nothing_is_known_of_the_time_in_which_prometheus_did_not_answer(gap: float, again: bool) -> None:
    fleet = firing()
    fleet.is_silent_for(2 * MINUTE, OVER - MINUTE)
    last = MINUTE + OVER
    fleet.is_silent(last + gap)

    assert bool(fleet.fires(last + gap + MINUTE)) is again


def test_without_an_answer_nothing_changes() -> None:
    fleet = firing()
    for minute in range(2, 3 * int(OVER / MINUTE)):
        assert fleet.step(minute * MINUTE) == []

    assert fleet.fires(4 * OVER) == []


def test_a_restart_repeats_nothing() -> None:
    fleet = firing()
    fleet.restart()
    assert fleet.fires(10 * MINUTE) == []

    fleet.restart()
    fleet.is_silent_for(20 * MINUTE, OVER - MINUTE)
    assert fleet.fires(20 * MINUTE + OVER) == []


def test_after_a_restart_an_absence_is_measured_anew() -> None:
    fleet = firing()
    fleet.is_silent_for(2 * MINUTE, OVER - MINUTE)
    fleet.restart()
    fleet.is_silent_for(2 * MINUTE + OVER, OVER)

    assert fleet.fires(3 * MINUTE + 2 * OVER) == [TEXT]


@pytest.mark.parametrize("boots", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_after_a_release_the_same_firing_says_nothing(restarts: bool, boots: bool) -> None:
    fleet = firing()
    fleet.reset(5 * MINUTE)
    if boots:
        fleet.boots()
        fleet.fires(5.5 * MINUTE)
    if restarts:
        fleet.restart()
    for minute in range(6, 200):
        assert fleet.fires(minute * MINUTE) == []
    assert [state for *_, state in fleet.incidents] == [IncidentState.RELEASED]

    fleet.is_silent_for(200 * MINUTE, OVER)
    assert fleet.fires(201 * MINUTE + OVER) == [TEXT]


def test_another_node_of_the_same_name_is_accused_of_what_fires_for_it_now() -> None:
    fleet = firing()
    machine = replace(fleet.state.machine, node_uid="another")
    fleet.change(machine=machine, record=NodeRecord(), created_ns=ns(1.5 * MINUTE))

    assert fleet.fires(2 * MINUTE) == [TEXT]
    assert fleet.state.record.incidents[0].first_ns == ns(2 * MINUTE)


def test_a_node_that_registered_again_with_its_record_has_the_same_firing() -> None:
    fleet = firing()
    fleet.change(created_ns=ns(1.5 * MINUTE))

    assert fleet.fires(2 * MINUTE) == []


def test_after_a_restart_an_alert_that_was_released_and_is_absent_is_over() -> None:
    fleet = firing()
    fleet.reset(2 * MINUTE)
    fleet.restart()
    fleet.is_silent(DAY)

    assert fleet.fires(DAY + 10 * MINUTE) == [TEXT]


def test_after_a_restart_a_released_alert_that_fires_and_flaps_is_the_same_firing() -> None:
    fleet = firing()
    fleet.reset(2 * MINUTE)
    fleet.restart()
    assert fleet.fires(DAY) == []
    fleet.is_silent(DAY + MINUTE)

    assert fleet.fires(DAY + 2 * MINUTE) == []


def test_after_a_restart_an_absence_without_the_exporter_proves_nothing_of_a_released_alert() -> None:
    fleet = firing()
    fleet.reset(2 * MINUTE)
    fleet.restart()
    fleet.is_silent(DAY, up=frozenset())

    assert fleet.fires(DAY + 10 * MINUTE) == []


@pytest.mark.parametrize("odd", [{"ready": False}, {"gpus": GpuCount(0, 8, paused=True)}], ids=str)
def test_a_node_that_is_away_is_accused_when_it_is_back(odd: dict[str, Any]) -> None:
    fleet = Fleet()
    before = {name: getattr(fleet.state, name) for name in odd}
    fleet.is_silent(0)
    fleet.change(**odd)
    assert fleet.fires(MINUTE) == []

    fleet.change(**before)
    assert fleet.fires(2 * MINUTE) == [TEXT]


def test_an_alert_that_ended_while_the_node_was_away_is_no_fault() -> None:
    fleet = Fleet()
    fleet.change(ready=False)
    fleet.fires(MINUTE)
    fleet.change(ready=True)

    assert fleet.is_silent(2 * MINUTE) == []
    assert fleet.incidents == []


@pytest.mark.parametrize(
    ("installed", "first", "taints"), [(0.0, True, False), (0.0, False, True), (-DAY, True, True)]
)
def test_what_fires_when_the_controller_is_installed_never_taints(
    installed: float, first: bool, taints: bool
) -> None:
    fleet = Fleet(f"{RULE}.severity: fatal")
    fleet.first_start = installed
    fleet.restart()
    if not first:
        fleet.is_silent(0)
    fleet.fires(MINUTE)

    assert fleet.incidents[0][0] == RULE
    assert fleet.state.tainted is taints


@pytest.mark.parametrize("fires_at_once", [False, True])
def test_an_answer_in_part_is_not_the_first_one(fires_at_once: bool) -> None:
    fleet = Fleet(f"{RULE}.severity: fatal")
    fleet.first_start = 0.0
    fleet.restart()
    (fleet.fires if fires_at_once else fleet.is_silent)(0, complete=False)
    fleet.fires(MINUTE)

    assert not fleet.state.tainted


def test_a_boot_ends_the_fault_only_when_the_firing_is_over() -> None:
    fleet = firing()
    fleet.boots()
    fleet.is_silent(10 * MINUTE)
    fleet.is_silent(11 * MINUTE)
    assert fleet.incidents == [OPEN]
    assert fleet.fires(12 * MINUTE) == []  # the alert's own `for` has passed again
    assert fleet.incidents == [OPEN]

    fleet.is_silent_for(13 * MINUTE, OVER)
    [incident] = fleet.state.record.incidents
    assert (incident.state, incident.met_by) == (IncidentState.RELEASED, MetBy.REBOOT)


def test_a_released_firing_that_is_over_is_forgotten_at_the_next_boot() -> None:
    fleet = firing()
    fleet.reset(2 * MINUTE)
    fleet.is_silent_for(3 * MINUTE, OVER)
    fleet.boots()
    fleet.is_silent(4 * MINUTE + OVER)
    fleet.step(
        5 * MINUTE + OVER,
        fault(rule="xid.63", severity=Severity.SUSPECT, seconds=2500, stamp=1, boot="boot-b"),
    )

    assert [rule for rule, *_ in fleet.incidents] == ["xid.63"]


def test_after_a_restart_a_boot_ends_nothing_before_the_first_answer() -> None:
    fleet = firing()
    fleet.boots()
    fleet.restart()
    fleet.answer = None
    fleet.step(10 * MINUTE)

    assert fleet.incidents == [OPEN]


def test_once_alerts_are_no_longer_read_a_boot_ends_the_fault() -> None:
    fleet = firing()
    fleet.boots()
    [change] = decide(Snapshot({"gpu-1": fleet.state}), (), fleet.policy, at(10 * MINUTE)).changes

    assert change.record is not None
    assert [each.state for each in change.record.incidents] == [IncidentState.RELEASED]


@pytest.mark.parametrize(
    ("absent", "last", "ends"),
    [(MINUTE, 0.0, True), (3 * DAY, 0.0, False), (MINUTE, GAP + 1, False)],
    ids=["long enough", "too short", "no answer lately"],
)
def test_quiet_ends_the_fault_only_while_the_exporter_is_up(absent: float, last: float, ends: bool) -> None:
    fleet = firing()
    fleet.is_silent(absent + MINUTE)
    firing_ = replace(fleet.seen.firings[KEY])
    fleet.hearing = {"gpu-1": Hearing("boot-a", ns(-DAY), ns(9 * DAY))}
    answer = AlertsAnswer(ns(9 * DAY - last), {}, UP)
    fleet.seen = replace(fleet.seen, answer=answer, firings={KEY: firing_})
    fleet.answer = answer
    fleet.step(9 * DAY)

    assert [state for *_, state in fleet.incidents] == [
        IncidentState.RELEASED if ends else IncidentState.ACTIVE
    ]


def test_an_alert_that_fires_for_weeks_never_ends_by_quiet() -> None:
    fleet = firing()
    fleet.hearing = {"gpu-1": Hearing("boot-a", ns(-DAY), ns(30 * DAY))}
    fleet.fires(30 * DAY)

    assert fleet.incidents == [OPEN]


def test_a_clock_that_was_set_back_neither_ends_nor_repeats_a_firing() -> None:
    fleet = firing()
    fleet.is_silent(3 * MINUTE)
    fleet.is_silent(-DAY)

    assert fleet.fires(4 * MINUTE) == []


def test_the_gpu_that_the_labels_name_is_noted_with_every_fault_of_its_place_and_boot() -> None:
    fleet, gpu = Fleet(), Gpu(GPU, "GPU-6b1f4a1e-0a7c-4d8b-8f5e-3c2d1b0a9f87", "1654")
    fleet.is_silent(0)
    fleet.fires(MINUTE, told=ToldAlert(TEXT, gpu))
    fleet.step(2 * MINUTE, fault(rule="xid.63", severity=Severity.SUSPECT, seconds=90, stamp=90))
    other = Gpu(GPU, "GPU-00000000-0a7c-4d8b-8f5e-3c2d1b0a9f87")
    fleet.fires(3 * MINUTE, told=ToldAlert(TEXT, other))
    fleet.boots()
    fleet.change(booted_after_ns=ns(200))
    fleet.step(
        4 * MINUTE, fault(rule="xid.64", severity=Severity.SUSPECT, seconds=230, stamp=1, boot="boot-b")
    )

    noted = {each.key.rule: each.uuid for each in fleet.state.record.incidents}
    assert noted == {RULE: gpu.uuid, "xid.63": gpu.uuid, "xid.64": ""}


def test_the_same_answer_is_used_once() -> None:
    fleet = firing()
    seen = fleet.seen
    fleet.step(90)

    assert fleet.seen is seen
