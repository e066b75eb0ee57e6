"""The softer taint in the same patch: others' taints and their order untouched, ours where they belong."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster import node_patch
from konductor_like.cluster.node_patch import OUR_TAINT, SUSPECT_TAINT
from konductor_like.model import Change, Verb
from konductor_like.sandbox.kubernetes import jsonpatch
from tests.cluster.scenes import OURS, TEAM, incident, raw_node, record, state_of

SOFT = dict(SUSPECT_TAINT)
TWIN = {**SOFT, "effect": "NoSchedule"}
STALE = {**SOFT, "timeAdded": "2026-05-01T00:00:00Z"}


def change(verb: Verb = Verb.RECORD, *, soft: bool) -> Change:
    tainted = verb is Verb.TAINT
    return Change("gpu-1", verb, record(incident(), tainted=tainted), "suspect", suspect_taint=soft)


def taints_after(before: list[dict[str, Any]] | None, wanted: Change) -> list[dict[str, Any]]:
    """What a server makes of the list; what we believe it makes of it is held to that."""
    node = raw_node() if before is None else raw_node(taints=before)
    state = state_of(node)
    after: list[dict[str, Any]] = jsonpatch.apply(copy.deepcopy(node), node_patch.build(state, wanted))[
        "spec"
    ].get("taints", [])
    believed = node_patch.applied(state, wanted)
    assert list(believed.as_read.taints or ()) == after
    assert sorted((t.key, t.value or "", t.effect) for t in believed.taints) == sorted(
        (t["key"], t.get("value") or "", t["effect"]) for t in after
    )
    return after


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        pytest.param(None, change(soft=True), [SOFT], id="on a node without taints"),
        pytest.param([], change(soft=True), [SOFT], id="on an empty list"),
        pytest.param([TEAM], change(soft=True), [TEAM, SOFT], id="behind another's"),
        pytest.param([STALE, TEAM], change(soft=True), [STALE, TEAM], id="there already"),
        pytest.param([TEAM, STALE, TWIN], change(soft=False), [TEAM, TWIN], id="off, the twin stays"),
        pytest.param([OURS, TEAM], change(soft=True), [OURS, TEAM, SOFT], id="a record keeps our taint"),
        pytest.param([SOFT, TEAM], change(Verb.TAINT, soft=False), [TEAM, OURS], id="a taint in its place"),
        pytest.param([OURS, SOFT], change(Verb.UNTAINT, soft=False), [], id="both off"),
        pytest.param([SOFT, OURS, TEAM], change(Verb.PURGE, soft=False), [TEAM], id="purged"),
    ],
)
def test_the_list_after_the_patch(
    before: list[dict[str, Any]] | None, wanted: Change, after: list[dict[str, Any]]
) -> None:
    assert taints_after(before, wanted) == after


def test_the_patch_tests_the_list_that_it_changes() -> None:
    operations = node_patch.build(state_of(raw_node(taints=[TEAM, SOFT])), change(soft=False))

    assert {"op": "test", "path": "/spec/taints", "value": [TEAM, SOFT]} in operations
    assert {"op": "remove", "path": "/spec/taints/1"} in operations


OTHERS = st.sampled_from([TEAM, TWIN, {"key": "x", "effect": "NoExecute"}])


@given(
    before=st.lists(st.one_of(OTHERS, st.sampled_from([SOFT, dict(OUR_TAINT)])), max_size=5, unique_by=str),
    verb=st.sampled_from(list(Verb)),
    soft=st.booleans(),
)
def test_others_and_their_order_are_never_touched(
    before: list[dict[str, Any]], verb: Verb, soft: bool
) -> None:
    after = taints_after(before, change(verb, soft=soft))

    mine = (SOFT, dict(OUR_TAINT))
    assert [each for each in after if each not in mine] == [each for each in before if each not in mine]
    assert (SOFT in after) is soft
    assert (dict(OUR_TAINT) in after) is (
        verb is Verb.TAINT or (verb is Verb.RECORD and dict(OUR_TAINT) in before)
    )
