"""``explain`` of a node: the same decision as the controller's, on one screen."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from konductor_like.cli.explain.node import (
    FAULTS_SHOWN,
    NodeExplanation,
    document,
    explain_node,
    paragraphs,
)
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.report import Fleet
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.model import (
    OPT_OUT_LABEL,
    Control,
    ControlAct,
    Controls,
    Coverage,
    IncidentState,
    NodeState,
    Quarantine,
    Release,
    Severity,
    Source,
)
from konductor_like.policy.config import PolicyConfig
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import HOLDER, NOW, RULES, SCENES, ago, ago_ns, incident, settings_of

RUNNING = ControllerReport("ns/lease", holder=HOLDER, renewed=ago(4), duration_seconds=30)


def nodes(scene: str) -> dict[str, NodeState]:
    return {state.name: state for state in map(decode_node, SCENES[scene]())}


def explained(
    name: str,
    states: dict[str, NodeState],
    *,
    controls: Controls = Controls(),  # noqa: B008  # a frozen value
    coverage: Coverage | None = None,
    policy: PolicyConfig = PolicyConfig(),  # noqa: B008  # a frozen value
) -> NodeExplanation:
    controller = replace(RUNNING, controls=controls, coverage=coverage, settings=settings_of(policy))
    explanation = explain_node(name, Fleet(NOW, states, controller, states), RULES)
    assert explanation is not None
    return explanation


def shown(one: NodeExplanation) -> dict[str, str]:
    """Each paragraph by its label."""
    return {
        label: lines if isinstance(lines, str) else "\n".join(lines)
        for label, lines in paragraphs(one)
        if lines
    }


def test_a_pause_is_the_reason_while_it_lasts() -> None:
    pause = Controls(
        (ControlAct(Control.PAUSE, ago(60), "kim", "driver roll-out", NOW + timedelta(hours=1)),)
    )
    one = explained("gpu-2", nodes("brake full"), controls=pause)

    assert "paused by kim" in shown(one)["Held back"]
    assert "driver roll-out" in shown(one)["Held back"]


def test_what_the_next_look_lets_through_is_not_called_held_back() -> None:
    roomy = explained("gpu-2", nodes("brake full"), policy=PolicyConfig(brake_max_percent=100))

    assert roomy.held_back == ()
    assert "it is tainted at the next poll" in shown(roomy)["Decided"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"opted_out": True}, OPT_OUT_LABEL),
        ({"selected": False}, "KONDUCTOR_NODE_SELECTOR"),
    ],
    ids=["opted out", "not selected"],
)
def test_what_the_node_itself_says_against_a_taint_is_shown(change: dict[str, Any], words: str) -> None:
    states = nodes("brake full")
    states["gpu-2"] = replace(states["gpu-2"], **change)

    assert words in shown(explained("gpu-2", states))["Held back"]


def test_a_name_that_two_machines_share_is_shown() -> None:
    coverage = Coverage(ago(5), ambiguous=frozenset({"gpu-2"}))

    one = explained("gpu-2", nodes("brake full"), coverage=coverage)

    assert "two machines" in shown(one)["Held back"]
    assert "two machines" in shown(one)["Warning"]


def test_a_kernel_log_that_is_not_read_is_no_silence() -> None:
    coverage = Coverage(ago(20), listed_are_measured=False, read_ns={Source.KERNEL: ago_ns(400)})

    page = shown(explained("gpu-2", nodes("healthy"), coverage=coverage))

    assert page["Node"] == "gpu-2 is unknown"
    assert page["Decided"] == "nothing: nothing is recorded against it up to 2026-05-06T11:53:20Z"
    assert page["Coverage"].startswith("UNKNOWN: its kernel log has not been read since 2026-05-06T11:53:20Z")


def test_earlier_times_out_and_who_let_it_go_are_shown() -> None:
    states = nodes("one faulty")
    state = states["gpu-1"]
    record = replace(
        state.record,
        quarantines=tuple(Quarantine(ago(9_000 - n), ago(8_000 - n), "xid.79") for n in range(5)),
        replace_since=ago(100),
        releases=(Release(ago(8_000), "kim@laptop", "riser swapped", "reset"),),
    )
    states["gpu-1"] = replace(state, record=record)

    said = shown(explained("gpu-1", states))

    assert "marked for replacement" in said["Stays out"]
    assert "for 16m, for xid.79" in said["Times out"]
    assert "and 2 times before that" in said["Times out"]
    assert "by kim@laptop (reset): riser swapped" in said["Released"]


def test_that_the_driver_called_a_fault_over_is_told_with_its_time_and_what_that_changes() -> None:
    states = nodes("one faulty")
    state = states["gpu-1"]
    over = replace(incident("xid.154"), ended_ns=ago_ns(60))
    states["gpu-1"] = replace(state, record=replace(state.record, incidents=(over,)))

    one = explained("gpu-1", states)

    assert "over: 60s ago (" in shown(one)["Fault"]
    assert "it stands until `konductor-like reset`" in shown(one)["Fault"]
    [fault] = document(one)["node"]["faults"]
    assert fault["endedAt"] == "2026-05-06T11:59:00Z"


def test_a_collateral_node_names_the_origin_and_the_others() -> None:
    said = shown(explained("gpu-5", nodes("events")))

    assert "began on gpu-1; 7 collateral" in said["Failure"]
    assert "this node: collateral; with it: gpu-1, " in said["Failure"]
    assert said["Failure"].endswith("and 1 more")


def test_of_many_faults_the_open_and_tainting_ones_are_told_and_the_others_counted() -> None:
    states = nodes("one faulty")
    state = states["gpu-1"]
    minor = tuple(
        incident(f"xid.{number}", severity=Severity.APPLICATION, seconds_ago=number, boot="b")
        for number in range(10, 10 + FAULTS_SHOWN)
    )
    closed = incident("xid.95", state=IncidentState.RELEASED, boot="b", seconds_ago=1)
    states["gpu-1"] = replace(
        state, record=replace(state.record, incidents=(closed, *minor, *state.record.incidents))
    )

    faults = [lines[0] for label, lines in paragraphs(explained("gpu-1", states)) if label == "Fault"]

    assert len(faults) == FAULTS_SHOWN
    assert faults[0].startswith("xid 79 ")
    assert shown(explained("gpu-1", states))["And"].startswith("2 more faults")


def test_a_nodes_name_is_looked_up_where_it_is_no_rule(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")

    by_name = run("explain", "gpu-1", "-o", "json").document

    assert run("explain", "node", "gpu-1", "-o", "json").document == by_name
    assert by_name["node"]["state"] == "faulty"
    assert server.calls("patch") == []


def test_a_rule_needs_no_cluster(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")

    assert "Fault:" in run("explain", "xid-79").out

    assert server.calls() == []


def test_a_node_that_may_not_be_looked_at_is_a_failure_and_not_a_wrong_word(
    cluster: Cluster, run: Run
) -> None:
    server = cluster("one faulty")
    server.access.deny("list", "nodes")

    done = run("explain", "gpu-2")

    assert done.code == 1
    assert "to check: kubectl auth can-i list nodes" in done.err
