"""What people see of other programs' conditions and of announced work (rule 42)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.catalog.fault_names import parse_fault_name
from konductor_like.cli.explain.node import explain_node, paragraphs
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import Fleet
from konductor_like.cli.status.text import View, status_lines
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import Severity
from konductor_like.model.time import stamp
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.conftest import Run
from tests.cli.scenes import NOW, RULES, ago, incident, with_record
from tests.cli.test_status_counts import report

TOLD = "GPUProblem is True (GPUsAreDown): no GPU"


def bad(**more: Any) -> dict[str, Any]:
    return {
        "type": "GPUProblem",
        "status": "True",
        "reason": "GPUsAreDown",
        "message": "no GPU",
        "lastTransitionTime": stamp(ago(600)),
        "lastHeartbeatTime": stamp(ago(60)),
        **more,
    }


def node(*conditions: dict[str, Any], **labels: str) -> dict[str, Any]:
    raw = make_node("gpu-1", labels=labels)
    raw["metadata"]["creationTimestamp"] = stamp(ago(86_400))
    raw["status"]["conditions"] += conditions
    return raw


def explained(raw: dict[str, Any]) -> dict[str, Any]:
    states = {"gpu-1": decode_node(raw)}
    return dict(
        paragraphs(explain_node("gpu-1", Fleet(NOW, states, ControllerReport("ns/lease"), states), RULES))
    )


def test_status_shows_a_recorded_condition_as_any_fault() -> None:
    found = replace(incident("condition.GPUProblem", severity=Severity.SUSPECT, evidence=TOLD), code=None)
    shown = report([with_record(node(bad()), found)])

    assert any(line.startswith("condition GPUProblem ") for line in status_lines(shown))
    [fault] = status_document(shown)["nodes"][0]["faults"]
    assert (fault["name"], fault["kind"], fault["source"], fault["evidence"]) == (
        "condition GPUProblem", "condition", None, TOLD,
    )  # fmt: skip


def test_explain_shows_a_condition_that_is_not_healthy_and_whether_it_tells_anything() -> None:
    assert explained(node(bad()))["Reported"] == [f"{TOLD}, since {stamp(ago(600))}"]
    [old] = explained(node(bad(lastHeartbeatTime=None, lastTransitionTime=stamp(ago(3600)))))["Reported"]
    assert old.endswith(". It is out of date, and tells nothing")


@pytest.mark.parametrize(
    "healthy",
    [bad(status="False"), bad(type="AcceleratedHardwareReady"), bad(type="KubeletProblem")],
    ids=str,
)
def test_explain_shows_no_condition_that_is_healthy_or_has_no_rule(healthy: dict[str, Any]) -> None:
    assert explained(node(healthy))["Reported"] == []


@pytest.mark.parametrize(
    ("raw", "mark"),
    [
        (node(bad(type="VMEventScheduled")), "maintenance planned"),
        (node(bad(type="VMEventScheduled"), bad(type="MaintenanceInProgress")), "maintenance in progress"),
        (node(**{"cloud.google.com/scheduled-maintenance-time": "1777982400"}), "maintenance planned"),
    ],
    ids=["scheduled", "in progress", "label"],
)
def test_status_marks_a_node_with_announced_work(raw: dict[str, Any], mark: str) -> None:
    shown = report([raw])

    lines = status_lines(shown, View(states=frozenset({"healthy"})))
    assert (
        next(line for line in lines if line.startswith("gpu-1 ")).split("  ")[1].strip()
        == f"healthy ({mark})"
    )
    [told] = status_document(shown)["nodes"]
    assert told["qualifier"] == mark
    assert told["plannedWork"]


def test_announced_work_is_told_with_its_time_and_text() -> None:
    raw = node(bad(type="VMEventScheduled"), **{"cloud.google.com/scheduled-maintenance-time": "1777982400"})
    words = [
        f"VMEventScheduled since {stamp(ago(600))}: GPUsAreDown: no GPU",
        "cloud.google.com/scheduled-maintenance-time for 2026-05-05T12:00:00Z",
    ]

    assert explained(raw)["Planned"] == words
    [told] = status_document(report([raw]))["nodes"]
    assert told["notes"][:2] == [f"announced: {each}" for each in words]
    assert told["plannedWork"][1] == {
        "name": "cloud.google.com/scheduled-maintenance-time",
        "inProgress": False,
        "at": "2026-05-05T12:00:00Z",
        "since": None,
        "text": "",
    }


def test_a_node_without_announced_work_shows_nothing() -> None:
    [told] = status_document(report([node()]))["nodes"]

    assert (told["qualifier"], told["plannedWork"]) == (None, [])
    assert (explained(node())["Planned"], explained(node())["Reported"]) == ([], [])


def test_a_condition_has_an_explanation_whatever_the_case_of_its_name(run: Run) -> None:
    assert run("explain", "GPUProblem").out == run("explain", "condition.GPUProblem").out
    assert "Fault:        alert KonductorGPUNVLinkDown" in run("explain", "KonductorGPUNVLinkDown").out
    names = ("condition.GPUProblem", "condition gpuproblem", "Condition.GPUPROBLEM")
    assert {parse_fault_name(name, load_catalog()).rule for name in names} == {"condition.GPUProblem"}
    out = run("explain", "condition.GPUProblem").out

    assert "records the fault; it does not taint the node" in out
    assert "condition.GPUProblem.severity: fatal" in out
