"""The state of a node follows from its record and its heartbeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.node import NodeReport, node_report
from konductor_like.cli.status.report import node_reports
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import (
    BrakeState,
    Coverage,
    Doubt,
    Incident,
    IncidentState,
    KernelPosition,
    NodeState,
    Release,
    ReleaseHow,
    Severity,
)
from konductor_like.policy.node.health import Health
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_node
from tests.cli.scenes import NOW, OUR_TAINT, ago, boot_of, faulty, incident, with_record

ALL_MEASURED = Coverage(NOW, listed_are_measured=False)


def reported(state: NodeState, coverage: Coverage | None = ALL_MEASURED) -> NodeReport:
    return node_report(state, ControllerReport("ns/lease", coverage=coverage), BrakeState(1, 0, 1), NOW)


def report_of(node: dict[str, Any], *, unknown: frozenset[str] = frozenset()) -> NodeReport:
    """Return the report on a Node object."""
    return reported(decode_node(node), replace(ALL_MEASURED, unknown=unknown))


def recorded(*incidents: Incident, tainted: bool = False) -> dict[str, Any]:
    """Return a GPU node with these incidents."""
    return with_record(make_node("gpu-1"), *incidents, tainted=tainted)


@pytest.mark.parametrize(
    ("found", "health", "qualifier"),
    [
        (incident(severity=Severity.SUSPECT), Health.SUSPECT, ""),
        (incident(severity=Severity.SUSPECT, before_install=True), Health.SUSPECT, "before install"),
        (incident(severity=Severity.SUSPECT, doubt=Doubt.MAY_BE_NEW), Health.SUSPECT, "may be new"),
        (incident(state=IncidentState.HELD), Health.HELD, ""),
        (incident("xid.14", severity=Severity.TEST, state=IncidentState.HELD), Health.HELD, "test"),
        (incident(state=IncidentState.PENDING), Health.SUSPECT, "other boot"),
        (incident(severity=Severity.APPLICATION), Health.HEALTHY, ""),
        (incident(severity=Severity.INFO), Health.HEALTHY, ""),
        (incident(state=IncidentState.RELEASED), Health.HEALTHY, ""),
    ],
    ids=[
        *("suspect", "before install", "may be new", "held", "held test"),
        *("other boot", "application", "info", "released"),
    ],
)
def test_the_record_decides_the_state(found: Incident, health: Health, qualifier: str) -> None:
    report = report_of(recorded(found))

    assert (report.health, report.qualifier) == (health, qualifier)


def test_a_node_shows_the_fault_that_taints_and_its_advice_before_a_suspicion() -> None:
    doubt = incident("xid.94", severity=Severity.SUSPECT, seconds_ago=900)
    grounds = replace(
        incident("xid.31", severity=Severity.APPLICATION),
        escalated_because="3 times within 24h on this GPU, from 3 jobs",
        advice="Drain the node and run diagnostics on this GPU.",
    )

    report = report_of(recorded(doubt, grounds, tainted=True))

    assert report.fault == grounds
    assert report.verdict.advice == "Drain the node and run diagnostics on this GPU."


def test_the_notes_mark_a_line_that_a_user_wrote_into_the_kernel_log() -> None:
    app = incident("xid.31", severity=Severity.APPLICATION, user_written=True)
    notes = report_of(recorded(app, incident(user_written=True), tainted=True)).notes

    assert "xid 79 on GPU 0000:9b:00 was written by a user, not by the driver" in notes
    assert "xid 31 on GPU 0000:9b:00 x1 (application, written by a user)" in notes


def test_a_faulty_node_whose_heartbeat_stops_stays_faulty_with_a_note() -> None:
    report = report_of(faulty("gpu-1"), unknown=frozenset({"gpu-1"}))

    assert report.health is Health.FAULTY
    assert "its kernel-log heartbeat stopped" in report.notes


def test_the_gravest_fault_comes_first_and_the_others_are_counted() -> None:
    first = incident("xid.48", "0000:18:00", seconds_ago=300)
    lesser = incident("xid.63", severity=Severity.SUSPECT, seconds_ago=9_000)
    app = incident("xid.31", severity=Severity.APPLICATION, seconds_ago=9_999)
    report = report_of(recorded(app, lesser, incident(seconds_ago=200), first, tainted=True))

    assert report.fault is not None
    assert (report.fault.code, len(report.accusing)) == (48, 3)
    assert [note.split(" x")[0] for note in report.notes] == [
        "xid 31 on GPU 0000:9b:00",
        "xid 63 on GPU 0000:9b:00",
        "xid 79 on GPU 0000:9b:00",
    ]


def test_another_boots_fault_does_not_explain_a_taint() -> None:
    report = report_of(recorded(incident(state=IncidentState.PENDING), tainted=True))

    assert (report.health, report.fault) == (Health.FAULTY, None)


def test_a_taint_removed_by_hand_is_noted_until_the_controller_records_it() -> None:
    node = faulty("gpu-1")
    node["spec"]["taints"] = []

    report = report_of(node)
    assert (report.health, report.qualifier) == (Health.FAULTY, "taint removed")
    assert any("removed the taint without a release" in each for each in report.alarms)


def test_a_node_that_the_controller_ignores_is_not_plainly_healthy() -> None:
    state = replace(decode_node(make_node("gpu-1")), opted_out=True)

    assert (reported(state).health, reported(state).qualifier) == (Health.IGNORED, "")
    tainted = replace(decode_node(faulty("gpu-1")), opted_out=True)
    assert (reported(tainted).health, reported(tainted).qualifier) == (Health.FAULTY, "ignored")


@pytest.mark.parametrize(("rebooted", "warned"), [(False, True), (True, False)])
def test_the_warning_of_a_release_stays_until_the_boot_changes(rebooted: bool, warned: bool) -> None:
    node = make_node("gpu-1")
    release = Release(
        ago(60),
        "kim",
        "",
        ReleaseHow.RESET,
        KernelPosition(boot_of(node)),
        warning="It still needs a reboot.",
    )
    with_record(node, incident(state=IncidentState.RELEASED), release=release)
    state = decode_node(node)
    if rebooted:
        state = replace(state, machine=replace(state.machine, boot_id="another"))

    assert ("It still needs a reboot." in reported(state).warnings) is warned


def test_nodes_without_gpus_and_without_a_trace_are_not_listed() -> None:
    tainted = make_cpu_node("cpu-2")
    tainted["spec"]["taints"] = [dict(OUR_TAINT)]
    nodes = [make_cpu_node("cpu-1"), tainted, make_node("gpu-1")]

    controller = ControllerReport("ns/lease", coverage=ALL_MEASURED)
    reports = node_reports(map(decode_node, nodes), controller, BrakeState(1, 0, 1), NOW)
    assert [report.name for report in reports] == [
        "cpu-2",
        "gpu-1",
    ]


def test_no_node_is_healthy_by_an_old_report() -> None:
    coverage = Coverage(ago(9_000), listed=frozenset({"gpu-2"}), listed_are_measured=False)
    nodes = [decode_node(make_node("gpu-1")), decode_node(make_node("gpu-2"))]
    old = ControllerReport("ns/lease", coverage=coverage)

    reports = node_reports([*nodes, decode_node(faulty("gpu-3"))], old, BrakeState(3, 1, 1), NOW)

    assert [report.health for report in reports] == [Health.FAULTY, Health.UNKNOWN, Health.UNKNOWN]
    assert "its kernel log has not been read since 2026-05-06T09:30:00Z" in reports[0].notes
    assert {reported(node, None).health for node in nodes} == {Health.NOT_MEASURED}


def test_a_name_that_two_machines_use_is_a_warning_on_that_node_alone() -> None:
    coverage = replace(ALL_MEASURED, ambiguous=frozenset({"gpu-1"}))

    alarms = [reported(decode_node(make_node(name)), coverage).alarms for name in ("gpu-1", "gpu-2")]

    assert [len(each) for each in alarms] == [1, 0]
