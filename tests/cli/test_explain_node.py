"""``explain`` of a node: it shows the same decision as the controller's."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from konductor_like.cli.explain.history import FAULTS_SHOWN
from konductor_like.cli.explain.node import (
    NodeExplanation,
    document,
    explain_node,
    paragraphs,
)
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.report import Fleet
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import (
    OPT_OUT_LABEL,
    Act,
    Control,
    ControlAct,
    Controls,
    Coverage,
    Doubt,
    IncidentState,
    Life,
    MetBy,
    NodeState,
    Quarantine,
    Release,
    ReleaseHow,
    Severity,
    Source,
)
from konductor_like.model.attempts import Attempts
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.operator import operator_taint
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import (
    HOLDER,
    NOW,
    OTHER_BOOT,
    RULES,
    SCENES,
    ago,
    ago_ns,
    incident,
    settings_of,
    with_record,
)

RUNNING = ControllerReport(
    "ns/lease", holder=HOLDER, renewed=ago(4), duration_seconds=30, attempts=Attempts(HOLDER, kept_out={})
)


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
    return explain_node(name, Fleet(NOW, states, controller, states), RULES)


def recorded(**changes: Any) -> NodeExplanation:
    """Explain a faulty node with these changes to its record."""
    states = nodes("one faulty")
    state = states["gpu-1"]
    return explained("gpu-1", states | {"gpu-1": replace(state, record=replace(state.record, **changes))})


def shown(one: NodeExplanation) -> dict[str, str]:
    """Return each paragraph by its label."""
    return {
        label: lines if isinstance(lines, str) else "\n".join(lines)
        for label, lines in paragraphs(one)
        if lines
    }


PAUSE = ControlAct(Control.PAUSE, ago(60), "kim", "driver roll-out", NOW + timedelta(hours=1))


@pytest.mark.parametrize(
    ("node", "given", "words"),
    [
        ({}, {"controls": Controls((PAUSE,))}, "paused by kim until 2026-05-06T13:00:00Z: driver roll-out"),
        ({}, {"coverage": Coverage(ago(5), ambiguous=frozenset({"gpu-2"}))}, "two machines"),
        ({"opted_out": True}, {}, OPT_OUT_LABEL),
        ({"selected": False}, {}, "KONDUCTOR_NODE_SELECTOR"),
    ],
    ids=["pause", "two machines", "opted out", "not selected"],
)
def test_the_reason_against_a_taint_is_shown(node: dict[str, Any], given: dict[str, Any], words: str) -> None:
    states = nodes("brake full")
    states["gpu-2"] = replace(states["gpu-2"], **node)

    assert words in shown(explained("gpu-2", states, **given))["Held back"]


def test_a_taint_that_the_next_poll_allows_is_not_shown_as_held_back() -> None:
    roomy = explained("gpu-2", nodes("brake full"), policy=PolicyConfig(brake_max_percent=100))

    assert roomy.held_back == ()
    assert "no longer held; will be tainted within seconds" in shown(roomy)["Decision"]


def test_a_node_whose_kernel_log_is_not_read_is_not_called_healthy() -> None:
    coverage = Coverage(ago(20), listed_are_measured=False, read_ns={Source.KERNEL: ago_ns(400)})

    page = shown(explained("gpu-2", nodes("healthy"), coverage=coverage))

    assert page["Node"] == "gpu-2 is unknown"
    assert page["Decision"] == "no faults recorded up to 2026-05-06T11:53:20Z"
    assert page["Coverage"].startswith("unknown: its kernel log has not been read since 2026-05-06T11:53:20Z")


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("gpu-3", "xid 79 on GPU 0000:9b:00 is older than what a first start acts on, and taints nothing"),
        ("gpu-4", "xid 31 on GPU 0000:9b:00 is the fault of a job's program: alone it does not taint a node"),
    ],
)
def test_the_decision_says_why_a_fault_is_recorded_only(node: str, why: str) -> None:
    assert shown(explained(node, nodes("every state")))["Decision"] == f"recorded only: {why}"


@pytest.mark.parametrize(
    ("doubt", "why"),
    [
        (Doubt.MAY_BE_NEW, "read after a release, and its stamp does not show whether it is new"),
        (Doubt.BEFORE_RELEASE, "printed before the last release and read after it, so it taints nothing"),
    ],
)
def test_the_decision_says_why_a_fatal_line_that_was_read_after_a_release_taints_nothing(
    doubt: Doubt, why: str
) -> None:
    late = incident(severity=Severity.SUSPECT, doubt=doubt)

    page = shown(explained("gpu-1", {"gpu-1": decode_node(with_record(make_node("gpu-1"), late))}))

    assert page["Decision"] == f"recorded only: xid 79 on GPU 0000:9b:00 is {why}"
    assert f"(suspect, active, {doubt})" in page["Fault"]


def test_the_last_write_names_the_person() -> None:
    act, mark = Act("0a1b2c3d4e5f", ago(60)), Release(ago(60), "kim", "", ReleaseHow.RESET)
    tainted = operator_taint(nodes("healthy")["gpu-1"], at=ago(60), by="ann", reason="riser swap")
    assert tainted is not None
    assert tainted.record is not None
    for record, by in (
        ({"releases": (mark,)}, "kim"),
        ({"incidents": tainted.record.incidents}, "ann"),
        ({}, None),
    ):
        node = recorded(act=act, **record)
        assert shown(node)["Last write"].endswith(f"by {by or 'a person'}, audit id 0a1b2c3d4e5f")
        assert document(node)["act"]["by"] == by


def test_a_fault_that_came_after_the_taint_is_not_its_reason() -> None:
    first = replace(
        incident("xid.63", severity=Severity.SUSPECT, seconds_ago=200), escalated_because="3 in 24h"
    )
    later = incident(seconds_ago=50)

    told = shown(recorded(life=Life(tainted_at=ago(199)), incidents=(first, later)))["Decision"]

    assert told.startswith("tainted 3m19s ago ")
    assert told.endswith("for xid 63 on GPU 0000:9b:00")


def test_a_node_that_stays_out_is_released_by_its_name() -> None:
    page = shown(recorded(life=Life(replace_since=ago(100)), incidents=()))

    assert "`konductor-like reset gpu-1` releases the node" in page["Stays out"]


def test_earlier_outages_and_their_releases_are_shown() -> None:
    page = shown(
        recorded(
            life=Life(
                replace_since=ago(100),
                quarantines=(
                    Quarantine(
                        *(ago(9_000), ago(8_000), "xid.79", ReleaseHow.RESET),
                        gpu="0000:4e:00",
                        driver="570.172.08",
                    ),
                    Quarantine(ago(19_000), ago(18_000), "sxid.20034", ReleaseHow.REBOOT, True, "c1:00"),
                    *(Quarantine(ago(29_000 + n), ago(28_000 + n), "xid.48") for n in range(9)),
                ),
            ),
            releases=(Release(ago(8_000), "kim@laptop", "riser swapped", ReleaseHow.RESET),),
        )
    )

    assert "marked for replacement" in page["Stays out"]
    first, second, third, *_, last = page["Earlier outages"].splitlines()
    assert first.endswith(
        ", for 16m, because of xid 79 on GPU 0000:4e:00 with driver 570.172.08; "
        "ended by kim@laptop (reset): riser swapped"
    )
    assert second.endswith("sxid 20034 on switch c1:00; ended by reboot; it failed again on probation")
    assert third.endswith(", for 16m, because of xid 48")
    assert last == "and 1 earlier outage"
    assert "by kim@laptop (reset): riser swapped" in page["Released"]


def test_a_fault_whose_end_the_driver_reported_is_shown_with_the_time() -> None:
    one = recorded(incidents=(replace(incident("xid.154"), ended_ns=ago_ns(60)),))

    assert "ended: the driver reported it 60s ago (" in shown(one)["Fault"]
    assert "it stays open until this node is released" in shown(one)["Fault"]
    [fault] = document(one)["node"]["faults"]
    assert fault["endedAt"] == "2026-05-06T11:59:00Z"


def test_a_collateral_node_names_the_root_cause_and_the_others() -> None:
    failure = shown(explained("gpu-5", nodes("failing jobs")))["Failure group"]

    assert "began on gpu-1; 7 collateral" in failure
    assert "this node: collateral; with it: gpu-1, " in failure
    assert failure.endswith("and 1 more")


def test_open_faults_that_taint_are_shown_first_and_the_rest_is_counted() -> None:
    minor = [
        incident(f"xid.{number}", severity=Severity.APPLICATION, seconds_ago=number)
        for number in range(10, 10 + FAULTS_SHOWN)
    ]
    closed = incident("xid.95", state=IncidentState.RELEASED, seconds_ago=1)
    one = recorded(incidents=(closed, *minor, incident()))

    faults = [lines[0] for label, lines in paragraphs(one) if label == "Fault"]

    assert len(faults) == FAULTS_SHOWN
    assert faults[0].startswith("xid 79 ")
    assert shown(one)["More"].startswith("2 more faults")


def test_the_faults_of_the_same_gpu_before_the_reboot_are_shown_first() -> None:
    here, gpu = nodes("one faulty")["gpu-1"].machine.boot_id, "0000:5d:00"
    before = replace(incident(boot=OTHER_BOOT, seconds_ago=900), met_ns=ago_ns(600), met_by=MetBy.REBOOT)
    other = incident("xid.95", boot=OTHER_BOOT, seconds_ago=900, state=IncidentState.RELEASED)
    later = [incident(f"xid.{number}", gpu, boot=here) for number in range(60, 60 + FAULTS_SHOWN)]
    now = replace(incident(boot=here), needs="inspection")

    one = recorded(incidents=(*later, other, before, now))

    faults = [lines[0] for label, lines in paragraphs(one) if label == "Fault"]
    assert [line.partition(" (")[0] for line in faults[:3]] == [
        "xid 79 on GPU 0000:9b:00",
        "xid 79 on GPU 0000:9b:00",
        "xid 95 on GPU 0000:9b:00",
    ]
    assert "first 15m ago" in faults[1]


def test_a_word_that_is_no_rule_is_looked_up_as_a_node(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")

    by_name = run("explain", "gpu-1", "-o", "json").document

    assert run("explain", "node", "gpu-1", "-o", "json").document == by_name
    assert by_name["node"]["state"] == "faulty"
    assert server.calls("patch") == []


def test_a_rule_needs_no_cluster(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")

    assert "Fault:" in run("explain", "xid-79").out

    assert server.calls() == []


def test_without_a_cluster_a_typing_mistake_gets_one_hint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")

    assert run("explain", "719").err.splitlines()[1:] == [
        "hint: Did you mean: konductor-like explain cuda 719?"
    ]
    assert "/nowhere" not in run("explain", "foo").err
    assert "/nowhere" in run("explain", "foo", "--kubeconfig", "/nowhere").err


def test_a_node_that_may_not_be_read_is_a_failure_and_not_a_usage_error(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    server.access.deny("list", "nodes")

    done = run("explain", "gpu-2")

    assert done.code == 1
    assert "to check: kubectl auth can-i list nodes" in done.err


def test_a_reset_is_the_last_command_and_waits_for_the_repair() -> None:
    held = explained("gpu-2", nodes("brake full"))
    reset = "konductor-like reset gpu-2 --reason '...'"

    assert held.next_commands == [
        "konductor-like brake status",
        "konductor-like taint gpu-2 --reason '...'",
        reset,
    ]
    assert shown(held)["Commands"].endswith(f"{reset}   (after the repair)")
    assert shown(recorded())["Commands"].endswith("   (after the repair)")


def test_while_tainting_is_paused_a_held_node_offers_the_end_of_the_pause() -> None:
    paused, over = Controls((PAUSE,)), Controls((replace(PAUSE, until=ago(1)),))

    assert (
        explained("gpu-2", nodes("brake full"), controls=paused).next_commands[0] == "konductor-like resume"
    )
    assert explained("gpu-2", nodes("brake full"), controls=over).next_commands[0].endswith("brake status")


def test_an_ignored_node_with_a_fault_is_tainted_without_its_label() -> None:
    states = nodes("brake full") | nodes("healthy")
    for name, is_warned in (("gpu-3", True), ("gpu-1", False)):
        ignored = replace(states[name], opted_out=True, taints=())
        commands = shown(explained(name, states | {name: ignored}))["Commands"]
        assert (
            commands.endswith("(taints the node at once, unless its faults are released first)") is is_warned
        )


def test_the_reset_of_a_test_waits_for_no_repair() -> None:
    faulty = nodes("one faulty")
    [fault] = faulty["gpu-1"].record.incidents
    record = replace(faulty["gpu-1"].record, incidents=(replace(fault, severity=Severity.TEST),))

    test = explained("gpu-1", faulty | {"gpu-1": replace(faulty["gpu-1"], record=record)})

    assert shown(test)["Commands"].endswith("konductor-like reset gpu-1 --reason '...'")


def test_the_person_who_tainted_a_faulty_node_is_named() -> None:
    held = nodes("brake full")["gpu-2"]
    change = operator_taint(held, at=ago(3), by="carol", reason="swap the riser")
    assert change is not None
    assert change.record is not None
    tainted = replace(held, record=change.record, taints=nodes("one faulty")["gpu-1"].taints)

    decision = shown(explained("gpu-2", {"gpu-2": tainted}))["Decision"]

    assert decision.startswith("tainted by carol 3s ago (")
    assert decision.endswith("; the node also has xid 95 on GPU 0000:5d:00")


def test_a_person_who_tainted_a_node_after_the_controller_is_not_the_reason() -> None:
    faulty = nodes("one faulty")["gpu-1"]
    change = operator_taint(faulty, at=ago(3), by="carol", reason="swap the riser")
    assert change is not None
    assert change.record is not None
    node = replace(faulty, record=change.record)

    assert shown(explained("gpu-1", {"gpu-1": node}))["Decision"].endswith(" for xid 79 on GPU 0000:9b:00")
