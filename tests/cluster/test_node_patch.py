from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.node import patch as node_patch
from konductor_like.cluster.node.patch import OUR_TAINT, SUSPECT_TAINT
from konductor_like.cluster.node.record import encode
from konductor_like.model import (
    HEALTH_LABEL,
    RECORD_ANNOTATION,
    TAINT_KEY,
    Change,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    Verb,
)
from konductor_like_sandbox.kubernetes.patches import PatchFailedError, apply_json_patch
from tests.cluster.scenes import BOOT, NOON, OURS, TEAM, incident, raw_node, record, state_of, taint

UNTAINT = Change("gpu-1", Verb.UNTAINT, record(tainted=False), None)
PURGE = Change("gpu-1", Verb.PURGE, None, None)
OLD_TEXT = encode(record(incident(31)))


def written(node: dict[str, Any], change: Change) -> dict[str, Any]:
    """Apply the patch to the node as a server does; empty fields are dropped."""
    patched: dict[str, Any] = apply_json_patch(copy.deepcopy(node), node_patch.build(state_of(node), change))
    if not patched["spec"].get("taints", True):
        del patched["spec"]["taints"]
    return patched


def recorded(**parts: Any) -> dict[str, Any]:
    """Return a tainted node with a record, as we wrote it."""
    notes = {"other": "1", RECORD_ANNOTATION: OLD_TEXT}
    labels = {"nvidia.com/gpu.present": "true", HEALTH_LABEL: "faulty"}
    return raw_node(**{"taints": [TEAM, OURS], "annotations": notes, "labels": labels, **parts})


# The operations.


def test_a_taint_is_one_patch_with_its_tests_in_front() -> None:
    change = taint()

    operations = node_patch.build(state_of(raw_node(taints=[TEAM])), change)

    assert operations == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-gpu-1"},
        {"op": "test", "path": "/spec/taints", "value": [TEAM]},
        {"op": "test", "path": "/metadata/annotations/trainy.konduktor.ai~1record", "value": None},
        {"op": "test", "path": "/status/nodeInfo/bootID", "value": BOOT},
        {"op": "add", "path": "/spec/taints/-", "value": OURS},
        {
            "op": "add",
            "path": "/metadata/annotations/trainy.konduktor.ai~1record",
            "value": encode(change.record or NodeRecord()),
        },
        {"op": "add", "path": "/metadata/labels/trainy.konduktor.ai~1health", "value": "faulty"},
    ]


@pytest.mark.parametrize(("seen", "parts"), [(None, {}), ([], {"taints": []})])
def test_no_taints_are_tested_as_they_were_read(seen: object, parts: dict[str, Any]) -> None:
    operations = node_patch.build(state_of(raw_node(**parts)), taint())

    assert {"op": "test", "path": "/spec/taints", "value": seen} in operations


def test_an_untaint_takes_ours_out_by_its_place() -> None:
    operations = node_patch.build(
        state_of(recorded(taints=[TEAM, OURS, {"key": "x", "effect": "NoExecute"}])), UNTAINT
    )

    assert [op for op in operations if op["op"] == "remove"] == [
        {"op": "remove", "path": "/spec/taints/1"},
        {"op": "remove", "path": "/metadata/labels/trainy.konduktor.ai~1health"},
    ]


@pytest.mark.parametrize("missing", ["annotations", "labels"])
def test_where_a_map_is_absent_the_resource_version_is_tested(missing: str) -> None:
    parts: dict[str, Any] = {missing: None}
    node = raw_node(**parts)
    key = {"annotations": RECORD_ANNOTATION, "labels": HEALTH_LABEL}[missing]

    operations = node_patch.build(state_of(node), taint())

    assert {"op": "test", "path": "/metadata/resourceVersion", "value": "7"} in operations
    assert [op["path"] for op in operations if op["op"] == "add" and key in op["value"]] == [
        f"/metadata/{missing}"
    ]


@pytest.mark.parametrize("odd", ["<b>", "a & b", "…", "\n", "\x7f"])
def test_a_text_with_two_written_forms_is_guarded_by_the_resource_version(odd: str) -> None:
    node = raw_node(annotations={RECORD_ANNOTATION: f'{{"v":1,"x":"{odd}"}}'})

    tested = {op["path"] for op in node_patch.build(state_of(node), taint()) if op["op"] == "test"}

    assert tested - {"/status/nodeInfo/bootID"} == {
        *("/metadata/uid", "/spec/taints", "/metadata/resourceVersion"),
    }


def released(how: ReleaseHow) -> Change:
    """Return a release of the node's record, made in this way."""
    mark = Release(NOON, "konductor-like", "", how)
    return Change("gpu-1", Verb.UNTAINT, record(tainted=False, releases=(mark,)), None)


@pytest.mark.parametrize("how", [ReleaseHow.REBOOT, ReleaseHow.TEST_ENDED])
def test_a_release_by_the_controller_itself_tests_the_whole_node(how: ReleaseHow) -> None:
    operations = node_patch.build(state_of(recorded()), released(how))

    assert {"op": "test", "path": "/metadata/resourceVersion", "value": "7"} in operations


def test_a_persons_reset_does_not_fail_because_the_kubelet_wrote_its_status() -> None:
    operations = node_patch.build(state_of(recorded()), released(ReleaseHow.RESET))

    assert "/metadata/resourceVersion" not in {each["path"] for each in operations}


# Nothing to do.


def test_a_record_with_the_same_content_in_another_text_is_not_written() -> None:
    spaced = json.dumps(json.loads(encode(record(incident()))), indent=2)
    node = recorded(annotations={RECORD_ANNOTATION: spaced})

    assert node_patch.build(state_of(node), Change("gpu-1", Verb.RECORD, record(incident()), "faulty")) == []


def test_a_mangled_record_is_replaced() -> None:
    node = recorded(annotations={RECORD_ANNOTATION: "see ticket"})

    operations = node_patch.build(state_of(node), Change("gpu-1", Verb.RECORD, NodeRecord(), "faulty"))

    assert operations[2] == {
        "op": "test",
        "path": "/metadata/annotations/trainy.konduktor.ai~1record",
        "value": "see ticket",
    }
    assert operations[3]["value"] == '{"v":2}'


# Somebody else wrote first.


def _set(*path: str, to: Any) -> Any:
    def change(node: dict[str, Any]) -> None:
        inner = node
        for step in path[:-1]:
            inner = inner.setdefault(step, {})
        inner[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "meddle",
    [
        pytest.param(_set("metadata", "uid", to="another"), id="another Node under the name"),
        pytest.param(_set("spec", "taints", to=[TEAM]), id="our taint removed"),
        pytest.param(_set("spec", "taints", to=[OURS, TEAM]), id="taints in another order"),
        pytest.param(_set("spec", "taints", to=None), id="no taints any more"),
        pytest.param(_set("metadata", "annotations", RECORD_ANNOTATION, to="{}"), id="another record"),
    ],
)
@pytest.mark.parametrize("verb", [Verb.UNTAINT, Verb.RECORD, Verb.PURGE])
def test_a_patch_fails_on_a_node_that_changed(meddle: Any, verb: Verb) -> None:
    operations = node_patch.build(state_of(recorded()), Change("gpu-1", verb, None, None))
    changed = recorded()
    meddle(changed)

    with pytest.raises(PatchFailedError):
        apply_json_patch(changed, operations)


# Properties, for any node and any change.

TAINTS = st.lists(
    st.sampled_from(
        [
            TEAM,
            OURS,
            {"key": TAINT_KEY, "value": "x", "effect": "NoSchedule"},
            {"key": TAINT_KEY, "effect": "NoExecute"},
            {"key": "a", "effect": "NoExecute"},
            {"key": "a/b~c", "value": "", "effect": "PreferNoSchedule", "new": "field"},
        ]
    ),
    unique_by=lambda each: (each["key"], each["effect"]),
    max_size=4,
)
NOTES = st.none() | st.fixed_dictionaries(
    {"other": st.just("1")},
    optional={RECORD_ANNOTATION: st.sampled_from([OLD_TEXT, "mangled", encode(record(incident()))])},
)
LABELS = st.none() | st.fixed_dictionaries(
    {"pool": st.just("a")}, optional={HEALTH_LABEL: st.sampled_from(["faulty", "suspect"])}
)


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """Any Node, with or without our taint, label and annotation."""
    taints = draw(st.none() | TAINTS)
    parts: dict[str, Any] = {} if taints is None else {"taints": taints}
    return raw_node(annotations=draw(NOTES), labels=draw(LABELS), **parts)


CHANGES = st.builds(
    Change,
    st.just("gpu-1"),
    st.sampled_from([Verb.TAINT, Verb.UNTAINT, Verb.RECORD]),
    st.none() | st.sampled_from([record(incident()), record(incident(31), tainted=False)]),
    st.none() | st.sampled_from(["faulty", "suspect"]),
) | st.just(PURGE)


def without_us(node: dict[str, Any]) -> dict[str, Any]:
    """Return the Node without our taint, label and annotation; empty maps are left out."""
    bare = copy.deepcopy(node)
    for name in ("labels", "annotations"):
        held = bare["metadata"].pop(name, None) or {}
        others = {key: value for key, value in held.items() if key not in (HEALTH_LABEL, RECORD_ANNOTATION)}
        if others:
            bare["metadata"][name] = others
    taints = [each for each in bare["spec"].pop("taints", None) or [] if each != OURS]
    return {**bare, "spec": {**bare["spec"], "taints": taints}}


@given(nodes(), CHANGES)
def test_nothing_but_ours_is_ever_touched(node: dict[str, Any], change: Change) -> None:
    assert without_us(written(node, change)) == without_us(node)


@given(nodes(), CHANGES)
def test_the_node_ends_up_as_the_change_wants_it(node: dict[str, Any], change: Change) -> None:
    after = state_of(written(node, change))

    wanted = {Verb.TAINT: True, Verb.UNTAINT: False, Verb.PURGE: False}
    assert after.tainted is wanted.get(change.verb, state_of(node).tainted)
    assert after.as_read.health == change.health
    assert after.record == (change.record or NodeRecord())
    assert (after.as_read.record is None) is (change.record is None)
    assert node_patch.build(after, change) == []


@given(nodes(), CHANGES)
def test_the_state_of_a_dry_run_is_the_written_one(node: dict[str, Any], change: Change) -> None:
    before = state_of(node)

    assert _comparable(node_patch.applied(before, change)) == _comparable(state_of(written(node, change)))


def _comparable(state: NodeState) -> NodeState:
    """Return a state without what may differ: empty lists and maps, and GPUs known from the record."""
    seen = replace(state.as_read, taints=state.as_read.taints or None, has_labels=True, has_annotations=True)
    return replace(state, as_read=seen, is_gpu_node=True)


SOFT = dict(SUSPECT_TAINT)
TWIN = {**SOFT, "effect": "NoSchedule"}
STALE = {**SOFT, "timeAdded": "2026-05-01T00:00:00Z"}


def change(verb: Verb = Verb.RECORD) -> Change:
    return Change("gpu-1", verb, record(incident(), tainted=verb is Verb.TAINT), "suspect")


def taints_after(
    before: list[dict[str, Any]], wanted: Change, *, selected: bool = True
) -> list[dict[str, Any]]:
    """Return the server's taint list after the patch, and check that ``applied`` returns the same."""
    node = raw_node(taints=before)
    state = replace(state_of(node), selected=selected)
    after: list[dict[str, Any]] = apply_json_patch(copy.deepcopy(node), node_patch.build(state, wanted))[
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
        pytest.param([SOFT], change(), [], id="alone"),
        pytest.param([TEAM, STALE, TWIN], change(), [TEAM, TWIN], id="off, the twin stays"),
        pytest.param([OURS, SOFT, TEAM], change(), [OURS, TEAM], id="a record keeps our taint"),
        pytest.param([SOFT, TEAM], change(Verb.TAINT), [TEAM, OURS], id="a taint in its place"),
        pytest.param([OURS, SOFT], change(Verb.UNTAINT), [], id="both off"),
        pytest.param([SOFT, OURS, TEAM], change(Verb.PURGE), [TEAM], id="purged"),
    ],
)
def test_every_write_takes_the_suspect_taint_of_an_earlier_version_off(
    before: list[dict[str, Any]], wanted: Change, after: list[dict[str, Any]]
) -> None:
    assert taints_after(before, wanted) == after


def test_a_record_alone_leaves_the_suspect_taint_of_a_node_that_may_not_be_tainted() -> None:
    assert taints_after([SOFT, TEAM], change(), selected=False) == [SOFT, TEAM]
    assert taints_after([SOFT, TEAM], change(Verb.UNTAINT), selected=False) == [TEAM]


OTHERS = st.sampled_from([TEAM, TWIN, {"key": "x", "effect": "NoExecute"}])


@given(
    before=st.lists(st.one_of(OTHERS, st.sampled_from([SOFT, dict(OUR_TAINT)])), max_size=5, unique_by=str),
    verb=st.sampled_from(list(Verb)),
)
def test_others_and_their_order_are_never_touched(before: list[dict[str, Any]], verb: Verb) -> None:
    after = taints_after(before, change(verb))

    mine = (SOFT, dict(OUR_TAINT))
    assert [each for each in after if each not in mine] == [each for each in before if each not in mine]
    assert SOFT not in after
    assert (dict(OUR_TAINT) in after) is (
        verb is Verb.TAINT or (verb is Verb.RECORD and dict(OUR_TAINT) in before)
    )
