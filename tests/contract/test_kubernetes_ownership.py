"""What we rely on to see who wrote what: ``metadata.managedFields``.

Held against the stand-in, and against a real API server when ``KONDUCTOR_TEST_KUBECONFIG`` names one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.kubernetes_target import (
    AGENT,
    JSON_PATCH,
    MERGE_PATCH,
    OTHERS,
    OURS,
    STRATEGIC_MERGE_PATCH,
    Answer,
    Target,
    open_target,
    path_of,
    put,
)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with open_target() as target:
        yield target


def managers_of(answer: Answer, field: str) -> list[str]:
    """Who owns a field of ``spec`` (``f:taints``), by the managedFields."""
    return [
        entry["manager"]
        for entry in answer.meta.get("managedFields", [])
        if field in entry["fieldsV1"].get("f:spec", {})
    ]


def test_the_field_manager_owns_what_it_sets_and_says_when(target: Target) -> None:
    node = target.create_node(spec={"taints": [OTHERS]})
    answer = target.patch(path_of(node), [put("/spec/taints/-", OURS)], fieldManager="contract-test")

    assert managers_of(node, "f:taints") == [AGENT]
    assert managers_of(answer, "f:taints") == ["contract-test"]
    entry = next(e for e in answer.meta["managedFields"] if e["manager"] == "contract-test")
    assert (entry["operation"], entry["apiVersion"], entry["fieldsType"]) == ("Update", "v1", "FieldsV1")
    assert entry["fieldsV1"] == {"f:spec": {"f:taints": {}}}
    assert entry["time"].endswith("Z")


def test_without_a_field_manager_the_user_agent_is_it(target: Target) -> None:
    node = target.create_node(metadata={"labels": {"a": "b"}})
    answer = target.send(
        "PATCH", path_of(node), [put("/spec/taints", [OURS])], JSON_PATCH, {"User-Agent": "me/1 x"}
    )

    assert managers_of(answer, "f:taints") == ["me"]


def test_one_annotation_among_others_is_owned_apart(target: Target) -> None:
    node = target.create_node(metadata={"annotations": {"a": "1"}})
    answer = target.patch(path_of(node), [put("/metadata/annotations/b", "1")], fieldManager="contract-test")

    owned = {e["manager"]: e["fieldsV1"]["f:metadata"]["f:annotations"] for e in answer.meta["managedFields"]}
    assert owned == {AGENT: {".": {}, "f:a": {}}, "contract-test": {"f:b": {}}}


def test_taking_one_taint_of_two_shows_who_did_it(target: Target) -> None:
    node = target.create_node(spec={"taints": [OTHERS, OURS]})
    answer = target.patch(path_of(node), {"spec": {"taints": [OTHERS]}}, MERGE_PATCH, fieldManager="a-person")

    assert managers_of(answer, "f:taints") == ["a-person"]


def test_taking_the_last_taint_leaves_no_trace_of_who_did_it(target: Target) -> None:
    node = target.create_node(spec={"taints": [OURS]}, metadata={"labels": {"a": "b"}})
    answer = target.patch(path_of(node), {"spec": {"taints": None}}, MERGE_PATCH, fieldManager="a-person")

    assert [entry["manager"] for entry in answer.meta["managedFields"]] == [AGENT]
    assert managers_of(answer, "f:taints") == []


def test_an_object_in_which_nobody_owns_anything_is_not_tracked_any_more(target: Target) -> None:
    node = target.create_node(metadata={"labels": {"a": "b"}})
    target.patch(path_of(node), {"metadata": {"labels": None}}, MERGE_PATCH)
    answer = target.patch(path_of(node), [put("/spec/taints", [OURS])], fieldManager="contract-test")

    assert answer.status == 200
    assert "managedFields" not in answer.meta


def test_status_writes_are_owned_under_the_subresource(target: Target) -> None:
    node = target.create_node(metadata={"labels": {"a": "b"}})
    body = {"status": {"nodeInfo": {"bootID": "b-2"}}}
    answer = target.patch(f"{path_of(node)}/status", body, STRATEGIC_MERGE_PATCH, fieldManager="a-kubelet")

    entry = next(e for e in answer.meta["managedFields"] if e["manager"] == "a-kubelet")
    assert (entry["subresource"], entry["fieldsV1"]) == (
        "status",
        {"f:status": {"f:nodeInfo": {"f:bootID": {}}}},
    )
