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
        pytest.param({"op": "add", "path": "/a/b/0/x", "value": 1}, id="under a number"),
        pytest.param({"op": "add", "path": "a", "value": 1}, id="a path without a slash"),
        pytest.param({"op": "add", "value": 1}, id="no path"),
        pytest.param({"op": "remove", "path": "/a/b/3"}, id="remove past the end"),
        pytest.param({"op": "copy", "from": "/a", "path": "/c"}, id="copy, which nobody sends"),
        pytest.param({"op": "test", "path": "/a/b", "value": [1, 2]}, id="test of a shorter list"),
        pytest.param({"op": "test", "path": "/a/b/0", "value": True}, id="test of true where there is 1"),
        pytest.param(
            {"op": "test", "path": "/a/b/0", "value": "1"}, id="test of text where there is a number"
        ),
        pytest.param({"op": "test", "path": "", "value": {}}, id="test of everything"),
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


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_twice_is_a_merge_patch_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch(document, patch)

    assert merge_patch(once, patch) == once


READY = {"type": "Ready", "status": "True", "reason": "R"}
PRESSURE = {"type": "DiskPressure", "status": "False"}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param([{"type": "Ready", "status": "False"}], ["False", "False"], id="one changes"),
        pytest.param(
            [{"type": "MemoryPressure", "status": "True"}], ["True", "False", "True"], id="one is added"
        ),
    ],
)
def test_conditions_are_merged_by_their_type(patch: list[dict[str, str]], expected: list[str]) -> None:
    asked = {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": patch}

    merged = strategic_merge_patch({"status": {"conditions": [READY, PRESSURE]}}, {"status": asked})

    assert [c["status"] for c in merged["status"]["conditions"]] == expected


def test_maps_and_sets_are_merged_and_null_removes() -> None:
    item = {"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["a"]}}

    merged = strategic_merge_patch(item, {"metadata": {"labels": {"a": None}, "finalizers": ["a", "b"]}})

    assert merged == {"metadata": {"labels": {"b": "2"}, "finalizers": ["a", "b"]}}


def test_a_directive_that_nobody_sends_is_refused() -> None:
    with pytest.raises(PatchFailedError):
        strategic_merge_patch({"labels": {"a": "1"}}, {"labels": {"$patch": "delete"}})
