"""What the decoder keeps of other programs' conditions, and of announced work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from konductor_like.cluster.node.decoder import decode_node, node_decoder
from konductor_like.cluster.node.store import _differ
from konductor_like.model import CONDITION_MARK, NodeState, PlannedWork, ReportedCondition
from konductor_like.model.time import ns_of_text
from konductor_like_sandbox.kubernetes.fleet import make_node

SINCE, BEAT = "2026-03-04T12:00:00Z", "2026-03-04T12:05:00Z"
LABEL = "cloud.google.com/scheduled-maintenance-time"


def bad(**more: Any) -> dict[str, Any]:
    return {
        "type": "GPUProblem",
        "status": "True",
        "reason": "GPUsAreDown",
        "message": "no GPU",
        "lastTransitionTime": SINCE,
        "lastHeartbeatTime": BEAT,
        **more,
    }


def state(*conditions: Any, labels: dict[str, str] | None = None) -> NodeState:
    """Return the state of a Node, from a page of which only some fields are parsed."""
    raw = make_node("gpu-1", labels=labels)
    raw["status"]["conditions"] += conditions
    decode = node_decoder()
    page = {"kind": "NodeList", "metadata": {}, "items": [raw]}
    found = decode(decode.parsed(json.dumps(page).encode())["items"][0])
    assert found.reported == decode_node(raw).reported
    return found


def test_only_the_types_that_rules_name_are_kept_with_their_times() -> None:
    found = state(bad(), bad(type="KubeletProblem"), bad(type=["GPUProblem"]), bad(type={}))

    [each] = found.reported
    assert each == ReportedCondition("GPUProblem", "True", since_ns=ns_of_text(SINCE))
    assert (each.reason, each.message, each.beat_ns) == ("GPUsAreDown", "no GPU", ns_of_text(BEAT))


def test_our_own_condition_is_not_read() -> None:
    assert state(bad(message=f"{CONDITION_MARK}xid 79")).reported == ()


def test_two_conditions_of_one_type_tell_nothing() -> None:
    [each] = state(bad(), bad(status="False")).reported

    assert each.status == "Unknown"


def test_a_huge_message_is_cut() -> None:
    [each] = state(bad(message="x" * 100_000, reason="y" * 100_000)).reported

    assert (len(each.message), len(each.reason)) == (512, 128)


@pytest.mark.parametrize("oddity", [None, 7, [], {}, "yesterday"], ids=str)
@pytest.mark.parametrize("name", ["status", "reason", "message", "lastTransitionTime", "lastHeartbeatTime"])
def test_a_malformed_condition_is_decoded(name: str, oddity: object) -> None:
    assert len(state(bad(**{name: oddity})).reported) == 1


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"lastHeartbeatTime": "2026-03-04T12:10:00Z"}, False),
        ({"message": "71 degrees"}, False),
        ({"status": "False"}, True),
        ({"lastTransitionTime": BEAT}, True),
    ],
    ids=str,
)
def test_a_heartbeat_alone_is_no_change_of_the_node(change: dict[str, str], differs: bool) -> None:
    assert _differ(state(bad()), state(bad(**change))) is differs


def test_announced_work_is_kept_while_it_is_announced() -> None:
    found = state(
        bad(type="VMEventScheduled", reason="Freeze", message="in 15 minutes"),
        bad(type="MaintenanceInProgress"),
        bad(type="MaintenancePlanned", status="False"),
        labels={LABEL: "1772625600"},
    )

    since_ns = ns_of_text(SINCE)
    assert found.planned == (
        PlannedWork("VMEventScheduled", since_ns=since_ns),
        PlannedWork("MaintenanceInProgress", in_progress=True, since_ns=since_ns),
        PlannedWork(LABEL, at_ns=ns_of_text(SINCE)),
    )
    assert found.planned[0].text == "Freeze: in 15 minutes"


@pytest.mark.parametrize("value", ["", "soon", "-1", "9" * 30, "\u0661"])
def test_a_time_that_is_none_announces_nothing(value: str) -> None:
    assert state(labels={LABEL: value}).planned == ()
