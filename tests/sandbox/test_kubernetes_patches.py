"""The three kinds of patches, as functions: tables and properties."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.sandbox.kubernetes.patches import (
    MalformedPatchError,
    PatchFailedError,
    apply_json_patch,
    equal,
    merge_patch,
    strategic_merge_patch,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)
A_B = {"a": {"b": [1, 2, 3]}, "x/y": "slash", "m~n": "tilde"}


def patched(*operations: dict[str, Any]) -> Any:
    return apply_json_patch(copy.deepcopy(A_B), list(operations))


@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [
        pytest.param({"op": "add", "path": "/a/b/-", "value": 4}, ("a", "b"), [1, 2, 3, 4], id="append"),
        pytest.param({"op": "add", "path": "/a/b/0", "value": 0}, ("a", "b"), [0, 1, 2, 3], id="insert"),
        pytest.param(
            {"op": "add", "path": "/a/b/3", "value": 4}, ("a", "b"), [1, 2, 3, 4], id="insert at the end"
        ),
        pytest.param(
            {"op": "add", "path": "/a/b/-1", "value": 4}, ("a", "b"), [1, 2, 3, 4], id="from the end"
        ),
        pytest.param({"op": "remove", "path": "/a/b/-1"}, ("a", "b"), [1, 2], id="remove from the end"),
        pytest.param(
            {"op": "replace", "path": "/a/b/1", "value": 9}, ("a", "b"), [1, 9, 3], id="replace an item"
        ),
        pytest.param(
            {"op": "replace", "path": "/a/c", "value": 9}, ("a", "c"), 9, id="replace what is not there"
        ),
        pytest.param({"op": "replace", "path": "/x~1y", "value": 9}, ("x/y",), 9, id="a slash in a name"),
        pytest.param({"op": "replace", "path": "/m~0n", "value": 9}, ("m~n",), 9, id="a tilde in a name"),
        pytest.param(
            {"op": "test", "path": "/a/c", "value": None}, ("a",), {"b": [1, 2, 3]}, id="test of nothing"
        ),
        pytest.param({"op": "test", "path": "/a/c"}, ("a",), {"b": [1, 2, 3]}, id="test without a value"),
    ],
)
def test_an_operation_does_what_it_says(
    operation: dict[str, Any], path: tuple[str, ...], expected: Any
) -> None:
    found = patched(operation)
    for part in path:
        found = found[part]

    assert found == expected


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "add", "path": "/a/b/5", "value": 1}, id="an index past the end"),
        pytest.param({"op": "add", "path": "/a/b/x", "value": 1}, id="an index that is none"),
        pytest.param({"op": "add", "path": "/nothing/x", "value": 1}, id="under an absent parent"),
        pytest.param({"op": "add", "path": "/a/b/0/x", "value": 1}, id="under a number"),
        pytest.param({"op": "add", "path": "a", "value": 1}, id="a path without a slash"),
        pytest.param({"op": "add", "value": 1}, id="no path"),
        pytest.param({"op": "remove", "path": "/c"}, id="remove of nothing"),
        pytest.param({"op": "remove", "path": "/a/b/3"}, id="remove past the end"),
        pytest.param({"op": "copy", "from": "/a", "path": "/c"}, id="copy, which nobody sends"),
        pytest.param({"op": "test", "path": "/a/b", "value": [1, 2]}, id="test of a shorter list"),
        pytest.param({"op": "test", "path": "/a/b/0", "value": True}, id="test of true where there is 1"),
        pytest.param(
            {"op": "test", "path": "/a/b/0", "value": "1"}, id="test of text where there is a number"
        ),
        pytest.param({"op": "test", "path": "/a/b", "value": None}, id="test of null where there is a value"),
        pytest.param({"op": "test", "path": "", "value": {}}, id="test of everything"),
        pytest.param({"op": "invent", "path": "/a"}, id="an unknown operation"),
    ],
)
def test_an_operation_that_does_not_apply_fails(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchFailedError):
        patched(operation)


@pytest.mark.parametrize("patch", [{"op": "add"}, "text", 3, None, ["text"], [[]]])
def test_what_is_no_list_of_operations_is_malformed(patch: Any) -> None:
    with pytest.raises(MalformedPatchError):
        apply_json_patch({}, patch)


@given(OBJECTS, st.text(max_size=3), JSON)
def test_what_was_added_is_found_by_a_test(document: dict[str, Any], name: str, value: Any) -> None:
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    operations = [{"op": "add", "path": path, "value": value}, {"op": "test", "path": path, "value": value}]

    assert apply_json_patch(document, operations)[name] == value


@given(OBJECTS)
def test_a_document_equals_itself(document: dict[str, Any]) -> None:
    assert equal(document, copy.deepcopy(document))


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_twice_is_a_merge_patch_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch(document, patch)

    assert merge_patch(once, patch) == once


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_leaves_its_document_alone(document: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    merge_patch(document, patch)

    assert document == before


READY = {"type": "Ready", "status": "True", "reason": "R"}
PRESSURE = {"type": "DiskPressure", "status": "False"}


@pytest.mark.parametrize(
    ("old", "patch", "expected"),
    [
        pytest.param(
            [READY, PRESSURE], [{"type": "Ready", "status": "False"}], ["False", "False"], id="one changes"
        ),
        pytest.param([READY], [PRESSURE], ["True", "False"], id="one is added"),
        pytest.param([READY, PRESSURE], [{"type": "Ready", "$patch": "delete"}], ["False"], id="one goes"),
        pytest.param([READY, PRESSURE], [{"$patch": "replace"}, PRESSURE], ["False"], id="all are replaced"),
    ],
)
def test_conditions_are_merged_by_their_type(
    old: list[dict[str, str]], patch: list[dict[str, str]], expected: list[str]
) -> None:
    merged = strategic_merge_patch({"status": {"conditions": old}}, {"status": {"conditions": patch}})

    assert [c["status"] for c in merged["status"]["conditions"]] == expected


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param({"labels": {"b": "2"}}, {"labels": {"a": "1", "b": "2"}}, id="maps merge"),
        pytest.param({"labels": {"a": None}}, {"labels": {}}, id="null removes"),
        pytest.param(
            {"labels": {"$patch": "replace", "b": "2"}}, {"labels": {"b": "2"}}, id="a map is replaced"
        ),
        pytest.param({"labels": {"$patch": "delete"}}, {"labels": {}}, id="a map is emptied"),
    ],
)
def test_a_strategic_merge_of_maps(patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert strategic_merge_patch({"labels": {"a": "1"}}, patch) == expected


def test_finalizers_are_a_set_that_can_be_taken_from() -> None:
    item = {"metadata": {"finalizers": ["a", "b"]}}
    more = strategic_merge_patch(item, {"metadata": {"finalizers": ["b", "c"]}})
    fewer = strategic_merge_patch(item, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})

    assert more["metadata"]["finalizers"] == ["a", "b", "c"]
    assert fewer["metadata"]["finalizers"] == ["b"]


def test_the_order_that_kubelets_ask_for_is_passed_over() -> None:
    patch = {"status": {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": [READY]}}

    assert strategic_merge_patch({"status": {}}, patch) == {"status": {"conditions": [READY]}}
