"""Other programs' conditions on the way from the Node to the record, the Event and the metrics (rule 42)."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from konductor_like.catalog import load_catalog, read_user_rules
from konductor_like.controller import logs
from konductor_like.model import Checkpoint, EventReason, PlannedWork, ReportedCondition, Source
from tests.controller.reconciling import FORBIDDEN, Cluster, Scene, xid
from tests.policy.scenes import fleet, ns

METRIC = {"source": "kernel", "kind": "condition", "code": "", "severity": "suspect"}


def scene(overrides: str = "", *, cluster: Cluster | None = None, first_start: float = -900) -> Scene:
    text = f"overrides: {{{overrides}}}" if overrides else ""
    rules = read_user_rules(text, "rules.yaml", load_catalog())
    start = Checkpoint({Source.KERNEL: ns(0), Source.POD: ns(0)}, act_from_ns=ns(first_start))
    return Scene(nodes=fleet(10), rules=rules, cluster=cluster, start=start)


def says(found: Scene, status: str, since: float, beat: float) -> None:
    told = ReportedCondition("GPUProblem", status, "GPUsAreDown", "", ns(since), ns(beat))
    found.cluster.nodes["gpu-7"] = replace(found.cluster.nodes["gpu-7"], reported=(told,))


def test_a_condition_is_recorded_announced_and_counted_once_by_all_controllers() -> None:
    found = scene()
    says(found, "True", 50, 60)
    for minute in range(1, 5):
        found.run(seconds=minute * 60)
    again = scene(cluster=found.cluster)
    again.run(seconds=300)

    [change] = found.cluster.written
    assert change.event is EventReason.RECORDED
    assert found.cluster.nodes["gpu-7"].as_read.health == "suspect"
    assert (found.count("faults_total", **METRIC), again.count("faults_total", **METRIC)) == (1, 0)


def test_a_write_that_fails_is_tried_again_and_the_fault_is_counted_once() -> None:
    found = scene()
    says(found, "True", 50, 60)
    found.cluster.moods["gpu-7"] = [FORBIDDEN] * 3
    for minute in range(1, 10):
        found.run(seconds=minute * 60)

    [incident] = found.cluster.nodes["gpu-7"].record.incidents
    assert (incident.count, found.reconciler.unfinished) == (1, 0)
    assert found.count("faults_total", **METRIC) == 1


def test_a_condition_from_before_the_first_start_is_so_recorded() -> None:
    found = scene("condition.GPUProblem.severity: fatal", first_start=-900)
    says(found, "True", -901, 60)
    found.run(seconds=60)

    [incident] = found.cluster.nodes["gpu-7"].record.incidents
    assert (incident.before_install, found.cluster.tainted) == (True, set())


def test_in_shadow_mode_a_condition_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logs.LOGGER.name)
    found = scene("condition.GPUProblem.mode: shadow")
    says(found, "True", 50, 60)
    for minute in range(1, 10):
        found.run(seconds=minute * 60)

    labels = {"source": "kernel", "rule": "condition.GPUProblem", "severity": "suspect"}
    assert found.count("faults_shadow_total", **labels) == 1
    assert found.cluster.written == []


def test_a_fault_during_announced_work_taints_and_says_so() -> None:
    found = scene()
    work = PlannedWork("MaintenanceInProgress", in_progress=True, since_ns=ns(-60), text="secret")
    for name in ("gpu-7", "gpu-8"):
        found.cluster.nodes[name] = replace(found.cluster.nodes[name], planned=(work,))
    found.run(xid("gpu-7"), xid("gpu-8", stamp=7.0), xid("gpu-9"), seconds=5)

    assert found.cluster.tainted >= {"gpu-7"}
    sentence = "The Node announces work on its machine: MaintenanceInProgress since 2026-03-04T11:59:00Z."
    words = {change.node: change.message for change in found.cluster.written}
    assert {name for name, each in words.items() if each.endswith(sentence)} == {"gpu-7", "gpu-8"}
    assert not any("secret" in each for each in words.values())


def test_announced_work_alone_writes_nothing() -> None:
    found = scene()
    state = found.cluster.nodes["gpu-7"]
    found.cluster.nodes["gpu-7"] = replace(state, planned=(PlannedWork("VMEventScheduled"),))
    found.run(seconds=5)

    assert found.cluster.written == []
