"""Missing GPUs through a whole reconcile: the fault, its end, shadow mode, writes and reports (rule 38)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.catalog.user_rules import read_user_rules
from konductor_like.cluster.node.writer import Outcome, WriteResult
from konductor_like.controller import logs
from konductor_like.controller.loop import reconciler as module
from konductor_like.model import EventReason, GpuCount, IncidentState, NodeRecord, Plan, Verb
from konductor_like.policy.decide import decide
from tests.controller.reconciling import Scene, xid
from tests.policy.scenes import fleet

MINUTE = 60


def scene(size: int = 40, overrides: str = "") -> Scene:
    """Return a fleet whose nodes have eight GPUs each, after its first reconcile."""
    nodes = {name: replace(state, gpus=GpuCount(8, 8)) for name, state in fleet(size).items()}
    text = f"overrides: {{{overrides}}}" if overrides else ""
    found = Scene(nodes=nodes, rules=read_user_rules(text, "rules.yaml", load_catalog()))
    found.run(seconds=0)
    return found


def has(found: Scene, name: str, allocatable: int, capacity: int = 8) -> None:
    state = found.cluster.nodes[name]
    found.cluster.nodes[name] = replace(state, gpus=GpuCount(allocatable, capacity))


def events(found: Scene) -> list[tuple[str, EventReason]]:
    return [(name, reason) for name, reason in found.cluster.events if reason is not None]


def run(found: Scene, first: int, last: int) -> None:
    """Reconcile each minute."""
    for minute in range(first, last + 1):
        found.run(seconds=minute * MINUTE)


def test_missing_gpus_are_recorded_after_half_an_hour_and_announced_once() -> None:
    found = scene()
    has(found, "gpu-7", 7)
    run(found, 1, 30)
    assert events(found) == []
    assert found.count("gpus_missing") == 1
    run(found, 31, 90)

    state = found.cluster.nodes["gpu-7"]
    [incident] = state.record.incidents
    assert (incident.evidence, incident.count) == ("7 of 8 GPUs are allocatable (capacity 8)", 1)
    assert (state.as_read.health, state.record.gpus, state.tainted) == ("suspect", 8, False)
    [told] = [change for change in found.cluster.written if change.event]
    assert told.event is EventReason.RECORDED
    assert told.message.startswith("node gpus missing: GPUs are missing. Run `nvidia-bug-report.sh`, then ")
    assert told.message.endswith(" 7 of 8 GPUs are allocatable (capacity 8). Needs: reboot.")
    assert found.count("faults_total", source="kernel", kind="node", code="", severity="suspect") == 1


def test_the_end_is_written_and_announced() -> None:
    found = scene()
    has(found, "gpu-7", 7)
    run(found, 1, 40)
    has(found, "gpu-7", 8)
    run(found, 41, 60)

    state = found.cluster.nodes["gpu-7"]
    [incident] = state.record.incidents
    assert incident.state is IncidentState.RELEASED
    assert (state.as_read.health, found.count("gpus_missing")) == (None, 0)
    assert len(events(found)) == 2


def test_a_write_that_fails_is_tried_again_and_the_fault_is_counted_once() -> None:
    found = scene()
    has(found, "gpu-7", 7)
    run(found, 1, 30)
    found.cluster.moods["gpu-7"] = [WriteResult(replace(found.cluster.written[0]), Outcome.FAILED)] * 3
    run(found, 31, 60)

    [incident] = found.cluster.nodes["gpu-7"].record.incidents
    assert (incident.count, found.reconciler.unfinished) == (1, 0)
    assert found.count("faults_total", source="kernel", kind="node", code="", severity="suspect") == 1


def test_nothing_is_written_while_nothing_happens() -> None:
    found = scene(size=500)
    run(found, 1, 60)

    assert found.cluster.written == []


def test_a_fall_is_noted_after_five_minutes_by_one_write_that_is_not_urgent() -> None:
    found = scene()
    has(found, "gpu-7", 7, 7)
    run(found, 1, 5)
    assert found.cluster.written == []
    run(found, 6, 20)

    [change] = found.cluster.written
    assert (change.verb, change.upkeep, change.event) == (Verb.RECORD, True, None)
    assert change.record is not None
    assert (change.record.gpus, change.record.incidents) == (8, ())


def test_the_write_of_another_fault_has_the_count() -> None:
    found = scene()
    found.run(xid("gpu-3", seconds=61), seconds=62)

    assert found.cluster.nodes["gpu-3"].record.gpus == 8


def test_the_decision_knows_at_once_which_nodes_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Plan] = []

    def watched(*arguments: Any, **more: Any) -> Plan:
        seen.append(decide(*arguments, **more))
        return seen[-1]

    monkeypatch.setattr(module, "decide", watched)
    found = scene()
    has(found, "gpu-7", 6)
    found.run(seconds=60)

    assert seen[-1].gpus is not None
    assert seen[-1].gpus.short == {"gpu-7": "6 of 8 GPUs"}


def test_in_shadow_mode_a_fall_is_counted_once_and_not_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logs.LOGGER.name)
    found = scene(overrides="node.gpus_missing.mode: shadow")
    has(found, "gpu-7", 7)
    run(found, 1, 120)

    assert (
        found.count("faults_shadow_total", source="kernel", rule="node.gpus_missing", severity="suspect") == 1
    )
    assert "in shadow mode): 7 of 8 GPUs are allocatable" in caplog.text
    assert not found.cluster.nodes["gpu-7"].record.incidents
    assert events(found) == []


def test_in_shadow_mode_a_rule_that_would_taint_sends_its_event() -> None:
    found = scene(overrides="node.gpus_missing.mode: shadow, node.gpus_missing.severity: fatal")
    has(found, "gpu-7", 7)
    run(found, 1, 60)

    assert events(found) == [("gpu-7", EventReason.SHADOW)]
    assert found.cluster.tainted == set()


def test_a_rule_that_is_off_finds_nothing_and_still_ends_what_it_found() -> None:
    found = scene(overrides="node.gpus_missing.mode: off")
    has(found, "gpu-7", 7)
    run(found, 1, 60)
    assert not found.cluster.nodes["gpu-7"].record.incidents

    enforced = scene()
    has(enforced, "gpu-7", 7)
    run(enforced, 1, 40)
    found.cluster.nodes["gpu-7"] = enforced.cluster.nodes["gpu-7"]
    run(found, 61, 62)
    has(found, "gpu-7", 8)
    run(found, 63, 64)
    [incident] = found.cluster.nodes["gpu-7"].record.incidents
    assert incident.state is IncidentState.RELEASED


def test_a_fatal_override_taints() -> None:
    found = scene(overrides="node.gpus_missing.severity: fatal")
    has(found, "gpu-7", 7)
    run(found, 1, 40)

    assert found.cluster.tainted == {"gpu-7"}


def test_a_threshold_taints_a_node_that_loses_gpus_again_and_again() -> None:
    text = "overrides: {node.gpus_missing.threshold: 2 in 24h on one node}"
    rules = read_user_rules(text, "rules.yaml", load_catalog())
    found = scene()
    found.reconciler.policy = replace(found.reconciler.policy, escalations=rules.catalog.escalations)
    for hour in range(2):
        has(found, "gpu-7", 7)
        run(found, hour * 60 + 1, hour * 60 + 40)
        assert bool(found.cluster.tainted) is (hour == 1)
        has(found, "gpu-7", 8)
        run(found, hour * 60 + 41, hour * 60 + 60)


def test_many_nodes_that_fall_together_are_logged_and_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    found = scene(size=20)
    for name in ("gpu-1", "gpu-2"):
        has(found, name, 0)
    run(found, 1, 90)

    [line] = [text for text in caplog.messages if "lost GPUs" in text]
    assert line.startswith("2 of 20 nodes lost GPUs at about the same time: gpu-1, gpu-2.")
    assert found.cluster.written == []
    assert found.count("gpus_missing") == 16


def test_the_gpus_of_tainted_nodes_are_out_of_service_with_those_that_are_missing() -> None:
    found = scene()
    assert (found.count("gpus"), found.count("gpus_out_of_service")) == (320, 0)

    found.run(xid("gpu-7"), seconds=5)
    has(found, "gpu-7", 0, 0)  # the device plugin does not see them any more
    found.run(seconds=10)

    assert (found.count("gpus"), found.count("gpus_out_of_service")) == (320, 8)


def test_gpus_that_are_split_do_not_count() -> None:
    found = scene()
    state = found.cluster.nodes["gpu-7"]
    found.cluster.nodes["gpu-7"] = replace(state, gpus=GpuCount(56, 56, comparable=False))
    found.run(xid("gpu-7"), seconds=5)
    found.run(seconds=10)

    assert (found.count("gpus"), found.count("gpus_out_of_service")) == (312, 0)


def test_a_deleted_node_is_forgotten() -> None:
    found = scene()
    has(found, "gpu-7", 7)
    run(found, 1, 3)
    gone = found.cluster.nodes.pop("gpu-7")
    run(found, 4, 5)
    found.cluster.nodes["gpu-7"] = replace(gone, record=NodeRecord(), gpus=GpuCount(7, 7))
    run(found, 6, 60)

    assert found.cluster.written == []
