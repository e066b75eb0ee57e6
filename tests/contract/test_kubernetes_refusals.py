"""What the API server refuses, and in which words: we show them to people and act on some."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.kubernetes_target import (
    MERGE_PATCH,
    OURS,
    Answer,
    Target,
    node_path,
    path_of,
    put,
    refused,
    same,
)


@pytest.mark.parametrize(
    ("taints", "cause"),
    [
        pytest.param(
            [{**OURS, "effect": "Never"}], "FieldValueNotSupported", id="an effect that does not exist"
        ),
        pytest.param([{"key": "a"}], "FieldValueRequired", id="no effect"),
        pytest.param([OURS, {**OURS, "value": "x"}], "FieldValueDuplicate", id="key and effect twice"),
        pytest.param([{**OURS, "key": "a b"}], "FieldValueInvalid", id="a key that is none"),
        pytest.param([{**OURS, "value": "a b"}], "FieldValueInvalid", id="a value that is none"),
    ],
)
def test_a_bad_taint_is_refused_by_name(
    target: Target, node: Answer, taints: list[dict[str, str]], cause: str
) -> None:
    answer = target.patch(path_of(node), [put("/spec/taints", taints)])

    assert refused(answer, 422, "Invalid")
    assert answer.body["message"].startswith(f'Node "{node.meta["name"]}" is invalid: metadata.taints[')
    assert {c["reason"] for c in answer.body["details"]["causes"]} == {cause}


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        pytest.param({"labels": {"a b": "c"}}, "metadata.labels", id="label key"),
        pytest.param({"labels": {"a": "c d"}}, "metadata.labels", id="label value"),
        pytest.param({"labels": {"a": "x" * 64}}, "metadata.labels", id="label of 64 characters"),
        pytest.param({"annotations": {"a/b/c": ""}}, "metadata.annotations", id="annotation key"),
        pytest.param(
            {"annotations": {"a": "x" * 262_145}}, "metadata.annotations", id="annotation above 256 KiB"
        ),
    ],
)
def test_bad_metadata_is_refused_by_name(
    target: Target, node: Answer, metadata: dict[str, Any], field: str
) -> None:
    answer = target.patch(path_of(node), {"metadata": metadata}, MERGE_PATCH)

    assert refused(answer, 422, "Invalid")
    assert {c["field"] for c in answer.body["details"]["causes"]} == {field}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"metadata": {"labels": {"a": 1}}}, id="a label that is a number"),
        pytest.param({"metadata": {"annotations": {"a": {}}}}, id="an annotation that is an object"),
        pytest.param({"metadata": "x"}, id="metadata that is text"),
        pytest.param({"spec": {"taints": "x"}}, id="taints that are text"),
        pytest.param({"spec": {"taints": [{"key": 1}]}}, id="a taint's key that is a number"),
        pytest.param({"kind": "Pod"}, id="another kind"),
    ],
)
def test_a_patch_to_a_wrong_type_is_refused(target: Target, node: Answer, body: dict[str, Any]) -> None:
    answer = target.patch(path_of(node), body, MERGE_PATCH)

    assert refused(answer, 422, "Invalid")
    assert {c["field"] for c in answer.body["details"]["causes"]} == {"patch"}


@pytest.mark.parametrize("name", ["another", None])
def test_a_patch_may_not_change_the_name(target: Target, node: Answer, name: str | None) -> None:
    assert refused(target.patch(path_of(node), {"metadata": {"name": name}}, MERGE_PATCH), 400, "BadRequest")


def test_fields_that_nobody_knows_are_dropped_in_silence(target: Target) -> None:
    node = target.create_node(metadata={"labels": {"a": "b"}})
    body = {"bogus": 1, "spec": {"bogus": 1}, "metadata": {"bogus": 1}}

    assert target.patch(path_of(node), body, MERGE_PATCH).body == node.body
    answer = target.patch(path_of(node), [put("/spec/taints", [{**OURS, "unknown": "x"}])])
    assert answer.body["spec"]["taints"] == [OURS]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="half an object"),
        pytest.param([], id="a list"),
        pytest.param({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}, id="another kind"),
        pytest.param({"metadata": {"name": "x", "labels": {"a": 1}}}, id="a label that is a number"),
    ],
)
def test_an_object_that_cannot_be_read_is_a_bad_request(target: Target, body: Any) -> None:
    assert refused(target.send("POST", "/api/v1/nodes", body), 400, "BadRequest")


def test_only_all_of_it_can_be_run_dry(target: Target, node: Answer) -> None:
    assert refused(target.patch(path_of(node), [], dryRun="Some"), 422, "Invalid")


def test_a_patch_of_a_node_that_is_not_there_is_not_found(target: Target) -> None:
    name = target.name()
    answer = target.patch(node_path(name), [same("/metadata/uid", "x")])

    assert refused(answer, 404, "NotFound")
    assert answer.body["message"] == f'nodes "{name}" not found'


def test_a_patch_without_a_patch_type_is_an_unsupported_media_type(target: Target, node: Answer) -> None:
    assert refused(target.patch(path_of(node), {}, "application/json"), 415, "UnsupportedMediaType")


def test_a_body_above_three_megabytes_is_too_large(target: Target, node: Answer) -> None:
    body = {"metadata": {"annotations": {"a": "x" * 3_200_000}}}
    try:
        answer = target.patch(path_of(node), body, MERGE_PATCH)
    except OSError:
        assert target.server is None  # a real one hangs up before it has read so much
    else:
        assert refused(answer, 413, "RequestEntityTooLarge")
