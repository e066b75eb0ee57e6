"""The content of the Node condition, and how a Node's conditions are read (rule 40)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import LeadershipLost
from konductor_like.cluster.api.transport import FIELD_MANAGER
from konductor_like.cluster.node.condition import significant, wanted
from konductor_like.cluster.node.decoder import decode_node, last_writer, node_decoder
from konductor_like.cluster.node.store import list_nodes
from konductor_like.cluster.node.writer import NoDeadline, NodeWriter
from konductor_like.model import (
    CONDITION_MARK,
    OPERATOR_RULE,
    Condition,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    Life,
    NodeState,
    Severity,
)
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_node
from tests.cluster.scenes import NOON, OURS, incident, raw_node, record, state_of
from tests.cluster.writer_scenes import Closing

KIND = "TrainyGPUFaulty"


def condition(state: NodeState, *, silent: bool = False, heard: bool = True) -> Condition | None:
    return wanted(KIND, state, silent=silent, heard=heard)


def told(state: NodeState, *, silent: bool = False, heard: bool = True) -> tuple[str, str]:
    found = condition(state, silent=silent, heard=heard)
    assert found is not None
    return found.status, found.reason


def tainted(*incidents: Incident, needs: str | None = None) -> NodeState:
    state = replace(state_of(raw_node(taints=[OURS])), record=record(*incidents))
    return replace(state, as_read=replace(state.as_read, needs=needs))


def in_service(*incidents: Incident) -> NodeState:
    return replace(state_of(raw_node()), record=record(*incidents, tainted=False))


def standing(state: NodeState, status: str) -> NodeState:
    stands = Condition(KIND, status, "NoFault", f"{CONDITION_MARK}x", "2026-05-06T11:00:00Z")
    return replace(state, conditions=(stands,))


def test_a_faulty_node_is_true_with_its_gravest_fault_and_what_it_needs() -> None:
    state = tainted(incident(48, seconds=60), incident(79), needs="reboot")

    assert condition(state) == Condition(
        KIND,
        "True",
        "XidFault",
        "konductor-like: Xid 79 on GPU 0000:3b:00 since 2026-05-06T12:00:00Z; needs: reboot",
    )


def test_without_the_label_the_needs_are_those_of_the_gravest_fault() -> None:
    found = condition(tainted(incident(79)))

    assert found is not None
    assert found.message.endswith("; needs: reboot")


def of_kind(kind: FaultKind, rule: str, code: int | None = None) -> Incident:
    return replace(incident(), kind=kind, key=IncidentKey(rule, "0000:3b:00"), code=code)


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        (tainted(of_kind(FaultKind.SXID, "sxid.12028", 12028)), "SXidFault", "SXid 12028 on switch"),
        (tainted(incident(14, severity=Severity.TEST)), "XidTest", "Xid 14 on GPU"),
        (tainted(of_kind(FaultKind.NVRM, "nvrm.gpu_lost")), "DriverFault", "nvrm gpu lost on GPU"),
        (tainted(of_kind(FaultKind.AER, "aer.fatal")), "OtherFault", "aer fatal on PCIe device"),
        (tainted(of_kind(FaultKind.CUSTOM, OPERATOR_RULE)), "OperatorTaint", "a person's taint since"),
        (tainted(), "TaintWithoutFault", "its record names no fault"),
    ],
    ids=["switch", "test", "driver", "another family", "a person", "no record"],
)
def test_the_reason_of_a_faulty_node_is_the_family_of_its_gravest_fault(
    state: NodeState, reason: str, said: str
) -> None:
    found = condition(state)

    assert found is not None
    assert (found.status, found.reason) == ("True", reason)
    assert said in found.message


def test_a_node_in_service_is_false_also_if_it_is_suspect_held_or_on_probation() -> None:
    held = in_service(replace(incident(), state=IncidentState.HELD))
    suspect = in_service(incident(63, severity=Severity.SUSPECT))
    until = datetime(2026, 5, 7, 12, tzinfo=UTC)
    probation = in_service()
    probation = replace(probation, record=replace(probation.record, life=Life(probation_until=until)))

    assert told(in_service()) == ("False", "NoFault")
    assert told(suspect) == ("False", "Suspect")
    assert told(held) == ("False", "TaintHeld")
    assert told(probation) == ("False", "Probation")


def test_a_silent_node_is_unknown_unless_it_is_faulty() -> None:
    suspect = in_service(incident(63, severity=Severity.SUSPECT))

    assert told(suspect, silent=True, heard=False) == ("Unknown", "KernelLogSilent")
    assert told(tainted(incident()), silent=True, heard=False) == ("True", "XidFault")


@pytest.mark.parametrize(
    ("status", "heard", "expected"),
    [
        ("Unknown", False, "Unknown"),
        ("Unknown", True, "False"),
        ("False", False, "False"),
        ("True", False, "False"),
    ],
)
def test_a_node_that_is_neither_silent_nor_heard_stays_unknown_but_never_true(
    status: str, heard: bool, expected: str
) -> None:
    """Loki cannot be read, or much of the fleet fell silent together."""
    assert told(standing(in_service(), status), heard=heard)[0] == expected


def test_only_gpu_nodes_that_the_controller_may_taint_have_a_condition() -> None:
    gpu, cpu = decode_node(make_node("gpu-1")), decode_node(make_cpu_node("cpu-1"))
    assert condition(gpu) is not None

    for other in (cpu, replace(gpu, opted_out=True), replace(gpu, selected=False)):
        assert condition(other) is None


def test_a_condition_stays_while_a_gpu_cannot_be_seen() -> None:
    cpu = decode_node(make_cpu_node("cpu-1"))

    assert told(standing(cpu, "False")) == ("False", "NoFault")


def test_without_a_name_no_node_has_a_condition() -> None:
    assert wanted("", tainted(incident()), silent=False, heard=True) is None


def test_a_count_and_a_later_fault_are_no_reason_to_write() -> None:
    before = condition(tainted(incident(seconds=60), needs="reboot"))
    more = replace(incident(31, seconds=0), count=900)
    after = condition(tainted(more, incident(seconds=60), needs="reboot"))

    assert before != after
    assert significant(before) == significant(after)
    assert significant(before) != significant(condition(tainted(incident(), needs="replacement")))


def test_a_message_has_300_characters_at_most() -> None:
    long = replace(incident(), key=IncidentKey(f"custom.{'x' * 400}", "0000:3b:00"), code=None)

    found = condition(tainted(replace(long, kind=FaultKind.CUSTOM), needs="application-restart"))

    assert found is not None
    assert len(found.message) <= 300
    assert found.message.endswith("; needs: application-restart")


# Reading


def test_our_conditions_are_recognised_by_their_message_under_any_name() -> None:
    def as_sent(kind: str, message: Any) -> dict[str, Any]:
        return {"type": kind, "status": "True", "reason": "XidFault", "message": message}

    node = make_node("gpu-1")
    before = node["status"]["conditions"]
    old = as_sent("OldName", f"{CONDITION_MARK}Xid 79")
    others = [as_sent("Theirs", "of konductor-like: x"), as_sent("Odd", 7), {"type": "Ready"}, "odd"]
    node["status"]["conditions"] = [*before, old, *others, {"message": f"{CONDITION_MARK}no type"}]

    found = decode_node(node)

    assert found.conditions == (Condition("OldName", "True", "XidFault", f"{CONDITION_MARK}Xid 79", ""),)
    assert found.ready


def test_a_page_of_nodes_has_the_conditions_too() -> None:
    node, decode = make_node("gpu-1"), node_decoder()
    stands = {
        "type": KIND,
        "status": "False",
        "reason": "NoFault",
        "message": f"{CONDITION_MARK}no open fault",
    }
    node["status"]["conditions"].append({**stands, "lastTransitionTime": "2026-05-06T11:00:00Z"})
    page = {"kind": "NodeList", "metadata": {}, "items": [node]}

    [item] = decode.parsed(json.dumps(page).encode())["items"]

    assert decode(item).conditions == decode(node).conditions
    assert decode(item).conditions[0].since == "2026-05-06T11:00:00Z"


def test_a_change_of_our_condition_is_no_change_of_the_node() -> None:
    """Otherwise each written condition would start a reconcile."""
    assert standing(in_service(), "True") == in_service()


def test_our_write_of_a_status_hides_nobody_who_wrote_the_spec_before() -> None:
    fields: dict[str, Any] = {"f:spec": {"f:taints": {}}}
    entries = [
        {"manager": "kubectl", "time": "2026-05-06T11:00:00Z", "fieldsV1": fields},
        {"manager": FIELD_MANAGER, "time": "2026-05-06T10:00:00Z", "fieldsV1": fields},
        {
            "manager": FIELD_MANAGER,
            "time": "2026-05-06T12:00:00Z",
            "subresource": "status",
            "fieldsV1": {"f:status": {}},
        },
    ]

    assert last_writer(entries) == "kubectl"


# Writing


def test_a_write_returns_the_nodes_new_state(server: KubernetesServer, client: KubeClient) -> None:
    server.put_node(make_node("gpu-1"))
    decode = node_decoder()
    writer = NodeWriter(client, decode, NoDeadline(), timeout_seconds=5.0)
    state = list_nodes(client, decode)["gpu-1"]
    wants = Condition(KIND, "True", "XidFault", f"{CONDITION_MARK}Xid 79", "2026-05-06T12:00:00Z")

    written = writer.write_condition(state, wants, NOON)
    removed = writer.write_condition(written, None, NOON)

    assert (written.conditions, removed.conditions) == ((wants,), ())
    assert removed.ready


def test_nothing_is_sent_after_the_write_deadline(server: KubernetesServer, client: KubeClient) -> None:
    server.put_node(make_node("gpu-1"))
    state = list_nodes(client, node_decoder())["gpu-1"]
    writer = NodeWriter(client, node_decoder(), Closing(0), timeout_seconds=5.0)

    with pytest.raises(LeadershipLost):
        writer.write_condition(state, None, NOON)

    assert server.calls("patch") == []
