"""The objects of a list out of an answer of any size, of which little is held at once."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.client import FRAME_BYTES_MOST, Objects

MIB = 1 << 20

_TEXT = st.text(alphabet='ab"\\\n{}[],:0é😀', max_size=12)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_OBJECT = st.dictionaries(_TEXT, _VALUE, max_size=4)


def pieces(text: bytes, size: int) -> Iterator[bytes]:
    """The text as it may come over the network."""
    return (text[start : start + size] for start in range(0, len(text), size))


def objects(text: bytes, size: int = 1000, *, most: int = MIB, total: int = 64 * MIB) -> Objects:
    return Objects(pieces(text, size), object_bytes=most, total_bytes=total)


def pod_list(items: list[Any], **more: Any) -> bytes:
    return json.dumps(
        {"kind": "PodList", "metadata": {"x": ["]", {"}": "{"}]}, **more, "items": items}
    ).encode()


@given(items=st.lists(_OBJECT, max_size=6), size=st.integers(1, 40), escaped=st.booleans())
def test_the_objects_are_those_of_the_list_however_it_is_cut(
    items: list[dict[str, Any]], size: int, *, escaped: bool
) -> None:
    listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
    found = objects(json.dumps(listed, ensure_ascii=escaped).encode(), size)

    assert list(found) == items
    assert found.complete


@pytest.mark.parametrize("items", [[], None, [1, "a", [{}]]], ids=str)
def test_what_is_no_object_is_left_out(items: Any) -> None:
    found = objects(pod_list(items))

    assert list(found) == []
    assert found.complete


@pytest.mark.parametrize("size", [7, 65_536])
def test_nothing_is_read_after_an_object_that_is_too_large(size: int) -> None:
    small, large = {"name": "a"}, {"name": "b", "env": "x" * 200_000}
    found = objects(pod_list([small, large, small]), size, most=3000)

    assert list(found) == [small]
    assert not found.complete


def test_no_more_is_read_than_was_asked_for() -> None:
    pulled = 0

    def endless() -> Iterator[bytes]:
        nonlocal pulled
        yield b'{"kind":"PodList","items":['
        while True:
            pulled += 1
            yield b'{"name":"a"},'

    found = Objects(endless(), object_bytes=100, total_bytes=1300)

    assert 95 < len(list(found)) <= 101
    assert (pulled <= 101, found.complete) == (True, False)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>[{}]</html>", id="another page"),
        pytest.param(b'{"kind":"Pod","items":[{}]}', id="no list"),
        pytest.param(b'{"kind":"PodList","items":[{"a":1}', id="cut off between objects"),
        pytest.param(b'{"kind":"PodList","items":[{"a":"1', id="cut off in an object"),
        pytest.param(b'{"kind":"PodList","items":[{"a":1]}', id="brackets that do not match"),
        pytest.param(b'{"kind":"PodList","items":[{"a" 1}]}', id="an object that is no JSON"),
        pytest.param(b"]", id="a bracket too many"),
        pytest.param(b"x" * (FRAME_BYTES_MOST + 1), id="more than a list has around its objects"),
    ],
)
def test_what_is_no_list_is_an_error_and_not_an_empty_list(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(objects(text))


def test_many_large_pods_take_no_more_memory_than_a_few() -> None:
    pod = json.dumps({"metadata": {"name": "a"}, "spec": {"env": "x" * 1_400_000}}).encode()

    def many() -> Iterator[bytes]:
        yield b'{"kind":"PodList","items":['
        for number in range(40):
            yield from pieces(pod if number == 39 else pod + b",", 1 << 16)
        yield b"]}"

    found = Objects(many(), object_bytes=2 * MIB, total_bytes=64 * MIB)
    tracemalloc.start()
    try:
        count = sum(1 for _ in found)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (count, found.complete) == (40, True)
    assert peak < 16 * MIB
