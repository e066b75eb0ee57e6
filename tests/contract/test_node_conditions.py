"""What the Node condition relies on: patches of a Node's status that merge conditions by type."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from konductor_like.cluster.node.condition import patch_of
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import CONDITION_MARK, Condition
from tests.contract.kubernetes_target import (
    JSON_PATCH,
    STRATEGIC_MERGE_PATCH,
    Answer,
    Target,
    node_path,
    path_of,
    put,
    refused,
)

AT = datetime(2026, 11, 2, 10, 4, 11, tzinfo=UTC)
THEN = "2026-11-02T09:00:00Z"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}
NOBODY = {"Impersonate-User": "contract-nobody"}


def ours(kind: str = "ContractFaulty", status: str = "True") -> Condition:
    return Condition(kind, status, "XidFault", f"{CONDITION_MARK}Xid 79; needs: reboot", THEN)


def on_status(target: Target, node: Answer, body: Any, kind: str = STRATEGIC_MERGE_PATCH) -> Answer:
    return target.patch(f"{path_of(node)}/status", body, kind)


def write(target: Target, node: Answer, condition: Condition | None) -> Answer:
    """Write the condition with the patch that the controller sends, on the present state."""
    state = decode_node(target.get(path_of(node)).body)
    answer = on_status(target, node, patch_of(state, condition, AT))
    assert answer.status == 200, answer.body
    return answer


def conditions(target: Target, node: Answer) -> dict[str, Any]:
    found = target.get(path_of(node)).body["status"].get("conditions", [])
    return {each["type"]: each for each in found}


@pytest.fixture
def with_ready(target: Target, node: Answer) -> Answer:
    """A Node with a condition of its kubelet."""
    assert on_status(target, node, {"status": {"conditions": [READY]}}).status == 200
    return node


def test_our_condition_is_merged_by_type_beside_the_others(target: Target, with_ready: Answer) -> None:
    before = conditions(target, with_ready)["Ready"]

    write(target, with_ready, ours())
    found = conditions(target, with_ready)

    assert found["Ready"] == before
    assert found["ContractFaulty"] == {
        "type": "ContractFaulty",
        "status": "True",
        "reason": "XidFault",
        "message": f"{CONDITION_MARK}Xid 79; needs: reboot",
        "lastHeartbeatTime": "2026-11-02T10:04:11Z",
        "lastTransitionTime": THEN,
    }


def test_our_condition_is_decoded_as_written(target: Target, with_ready: Answer) -> None:
    write(target, with_ready, ours())

    assert decode_node(target.get(path_of(with_ready)).body).conditions == (ours(),)


def test_a_second_write_changes_the_condition_in_its_place(target: Target, with_ready: Answer) -> None:
    write(target, with_ready, ours())
    write(target, with_ready, ours(status="False"))

    assert [*conditions(target, with_ready)] == ["ContractFaulty", "Ready"]
    assert conditions(target, with_ready)["ContractFaulty"]["status"] == "False"


def test_under_another_name_the_old_condition_goes_in_the_same_patch(
    target: Target, with_ready: Answer
) -> None:
    write(target, with_ready, ours("ContractOld"))
    write(target, with_ready, ours())

    assert [*conditions(target, with_ready)] == ["ContractFaulty", "Ready"]


def test_only_our_condition_is_removed_when_none_is_wanted(target: Target, with_ready: Answer) -> None:
    write(target, with_ready, ours())
    write(target, with_ready, None)

    assert [*conditions(target, with_ready)] == ["Ready"]


def test_removing_a_condition_that_is_not_there_changes_nothing(target: Target, with_ready: Answer) -> None:
    before = target.get(path_of(with_ready)).meta["resourceVersion"]
    gone = {"status": {"conditions": [{"$patch": "delete", "type": "ContractFaulty"}]}}

    assert on_status(target, with_ready, gone).meta["resourceVersion"] == before


def test_a_patch_for_a_node_that_was_made_again_is_refused(target: Target, node: Answer) -> None:
    state = decode_node(node.body)
    target.send("DELETE", path_of(node))
    again = target.create_node(metadata={"name": node.meta["name"]})

    answer = on_status(target, again, patch_of(state, ours(), AT))

    assert answer.status in (409, 422), answer.body
    assert "ContractFaulty" not in conditions(target, again)


def test_a_patch_of_a_status_leaves_the_spec_alone(target: Target, node: Answer) -> None:
    answer = on_status(target, node, {"spec": {"unschedulable": True}})

    assert answer.status == 200
    assert "unschedulable" not in target.get(path_of(node)).body["spec"]


def test_a_patch_of_a_node_leaves_its_status_alone(target: Target, with_ready: Answer) -> None:
    body = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}

    assert target.patch(path_of(with_ready), body, STRATEGIC_MERGE_PATCH).status == 200
    assert conditions(target, with_ready)["Ready"]["status"] == "True"


def test_an_omitted_time_is_kept_by_the_server_as_null(target: Target, node: Answer) -> None:
    on_status(target, node, {"status": {"conditions": [READY]}})

    found = conditions(target, node)["Ready"]

    assert (found["lastHeartbeatTime"], found["lastTransitionTime"]) == (None, None)


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param({"status": "True"}, id="no type"),
        pytest.param({"$patch": "delete"}, id="a removal of no type"),
        pytest.param({"type": "ContractFaulty", "$patch": "frobnicate"}, id="an unknown directive"),
    ],
)
def test_a_condition_that_cannot_be_merged_is_an_error_of_the_server(
    target: Target, with_ready: Answer, condition: dict[str, str]
) -> None:
    assert on_status(target, with_ready, {"status": {"conditions": [condition]}}).status == 500


def test_a_time_that_is_none_is_refused(target: Target, node: Answer) -> None:
    wrong = {"type": "ContractFaulty", "status": "True", "lastTransitionTime": "yesterday"}

    answer = on_status(target, node, {"status": {"conditions": [wrong]}})

    assert refused(answer, 422, "Invalid")


def test_another_kind_of_body_is_refused(target: Target, node: Answer) -> None:
    unsupported = on_status(target, node, {"status": {}}, "application/json")
    a_list = on_status(target, node, [])

    assert refused(unsupported, 415, "UnsupportedMediaType")
    assert refused(a_list, 400, "BadRequest")


def test_a_json_patch_of_the_status_is_taken_too(target: Target, with_ready: Answer) -> None:
    answer = on_status(target, with_ready, [put("/status/conditions/0/status", "False")], JSON_PATCH)

    assert answer.status == 200
    assert conditions(target, with_ready)["Ready"]["status"] == "False"


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_a_status_is_neither_created_nor_deleted(target: Target, node: Answer, method: str) -> None:
    body = node.body if method == "POST" else None

    assert refused(target.send(method, f"{path_of(node)}/status", body), 405, "MethodNotAllowed")
    assert target.get(path_of(node)).status == 200


def test_the_right_to_patch_a_node_is_not_the_right_to_patch_its_status(target: Target, node: Answer) -> None:
    answer = target.send(
        "PATCH", f"{node_path(node.meta['name'])}/status", {}, STRATEGIC_MERGE_PATCH, headers=NOBODY
    )

    assert refused(answer, 403, "Forbidden")
    assert (
        'cannot patch resource "nodes/status" in API group "" at the cluster scope' in answer.body["message"]
    )
