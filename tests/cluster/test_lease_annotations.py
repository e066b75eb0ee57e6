"""The annotations of the Lease: those of operators and those of the holder, mangled ones included."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeConflict, KubeNotFound
from konductor_like.cluster.lease.annotations import (
    CONTROLS_ANNOTATION,
    PURGED_MOST,
    RETURNED_ANNOTATION,
    TAINTED_ANNOTATION,
    TAINTED_BYTES,
    LeasePayload,
    LeaseView,
    add_control_act,
    encode_payload,
    encode_returned,
    encode_tainted,
    view,
    with_act,
)
from konductor_like.cluster.lease.election import read_lease
from konductor_like.model import Control, ControlAct, Controls, Machine, ReturnedNode, TaintedNode
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cluster.lease_scenes import NAME, NAMESPACE, Clock, candidate, cursor
from tests.cluster.scenes import NOON


@pytest.fixture
def kube(server: KubernetesServer, client: KubeClient) -> KubeClient:
    """A client of a server with our namespace."""
    server.create_namespace(NAMESPACE)
    return client


HOURS = timedelta(hours=2)
PAUSE = ControlAct(Control.PAUSE, NOON, "kim@laptop", "driver roll-out — 550 → 570", NOON + HOURS, act="a1b2")
RESUME = ControlAct(Control.RESUME, NOON, "kim@laptop", act="ba98")
RESET = ControlAct(Control.BRAKE_RESET, NOON, "kim@laptop", "false alarm", act="0123")
PURGE = ControlAct(Control.PURGE, NOON, "kim@laptop", nodes=3)
OUT = TaintedNode("gpu-1", Machine("uid-1"), NOON)
GONE = TaintedNode(
    *("gpu-2", Machine("uid-2", "system-2", "boot-2"), NOON, "a100 — ü", NOON + timedelta(seconds=5)),
    why="xid 79, a person's taint (RMA — ü)",
    needs="inspection",
)


def read(**notes: object) -> tuple[Controls, str | None]:
    """Decode a Lease with these annotations; return its content and the problem."""
    keys = {
        "controls": CONTROLS_ANNOTATION,
        "tainted": TAINTED_ANNOTATION,
        "returned": RETURNED_ANNOTATION,
    }
    found = view({"metadata": {"annotations": {keys[name]: text for name, text in notes.items()}}})
    return found.controls, found.problem


def written(*acts: ControlAct) -> str:
    """Return the annotation after these acts."""
    text: str | None = None
    for act in acts:
        text = with_act(text, act)
    assert text is not None
    return text


def tell(kube: KubeClient, act: ControlAct) -> Controls:
    """Write an act to the Lease; return the controls before."""
    return add_control_act(kube, NAMESPACE, NAME, lambda _: act)[1]


@pytest.mark.parametrize(
    "pause", [PAUSE, ControlAct(Control.PAUSE, NOON, "kim", "x")], ids=["ends", "does not"]
)
def test_acts_are_read_as_they_were_written(pause: ControlAct) -> None:
    found = read(controls=written(pause, RESET, PURGE), tainted=encode_tainted([OUT, GONE]))

    assert found == (Controls((pause, RESET, PURGE), (GONE, OUT)), None)


RELAPSED = ReturnedNode("gpu-7", NOON, NOON + timedelta(microseconds=5_000_001))


def test_returns_are_read_as_they_were_written() -> None:
    returns = (ReturnedNode("gpu-8", NOON + HOURS), RELAPSED)

    assert read(returned=encode_returned(returns)) == (Controls(returned=returns), None)
    assert encode_payload(LeasePayload(returned=returns)) == {RETURNED_ANNOTATION: encode_returned(returns)}
    assert encode_payload(LeasePayload()) == {}  # the annotation stays as it is


def test_a_resume_keeps_the_relapses_that_no_longer_count() -> None:
    resume = replace(RESUME, relapses=(RELAPSED, ReturnedNode("gpu-8", NOON + HOURS, NOON + HOURS)))

    assert read(controls=written(resume)) == (Controls((resume,)), None)
    # A resume of an older version names none: it ended no stop.
    assert "relapses" not in written(RESUME)
    assert read(controls=written(RESUME)) == (Controls((RESUME,)), None)


def test_a_damaged_relapse_of_a_resume_counts_again_and_is_reported() -> None:
    text = written(replace(RESUME, relapses=(RELAPSED, RELAPSED)))
    text = text.replace('"at":"2026-05-06T12:00:00Z","relapsed"', '"at":"soon","relapsed"', 1)

    controls, problem = read(controls=text)

    assert controls.resume == replace(RESUME, relapses=(RELAPSED,))
    assert "acts[0].relapses[0].at" in (problem or "")


@pytest.mark.parametrize(
    ("text", "kept", "problem"),
    [
        ("oops", (), "it is not JSON"),
        ("[]", (), "it is not a JSON object"),
        ('{"returned": 7}', (), "returned is not a list"),
        ('{"returned": [{"name": "gpu-9"}, %s]}', (RELAPSED,), ""),
        ('{"returned": [%s, {"name": 7, "at": "soon"}]}', (RELAPSED,), "returned[1].name"),
    ],
)
def test_a_damaged_list_of_returns_is_reported_and_the_rest_counts(
    text: str, kept: tuple[ReturnedNode, ...], problem: str
) -> None:
    good = json.loads(encode_returned([RELAPSED]))["returned"][0]

    controls, found = read(returned=text.replace("%s", json.dumps(good)))

    assert controls.returned == kept
    assert problem in (found or "")


@pytest.mark.parametrize(
    ("acts", "left"),
    [
        ((PAUSE, RESET, RESUME), (RESET, RESUME)),
        ((PAUSE, RESUME, PURGE, PAUSE), (RESUME, PURGE, PAUSE)),
        ((RESET, PAUSE, replace(RESET, act="4567")), (PAUSE, replace(RESET, act="4567"))),
    ],
    ids=[
        "a resume ends the pause",
        "a pause keeps the resume, after which relapses count",
        "the latest of a kind",
    ],
)
def test_an_act_replaces_the_acts_that_it_ends(
    acts: tuple[ControlAct, ...], left: tuple[ControlAct, ...]
) -> None:
    controls = Controls()
    for act in acts:
        controls = controls.with_act(act)

    assert controls.acts == left
    assert read(controls=written(*acts))[0] == controls


def test_unknown_acts_and_fields_survive_a_rewrite() -> None:
    later = {"control": "drain", "at": "tomorrow"}
    text = json.dumps({"v": 9, "owner": "ops", "acts": [later, {"control": "pause", "ticket": 7}]})

    found = json.loads(with_act(text, RESET))

    assert (found["owner"], found["acts"][:2]) == ("ops", [later, {"control": "pause", "ticket": 7}])
    assert read(controls=json.dumps(found))[0].brake_reset == RESET


@pytest.mark.parametrize("text", ["  ", 7, "{}"])
def test_without_an_annotation_there_are_no_acts(text: object) -> None:
    assert read(controls=text) == (Controls(), None)


@pytest.mark.parametrize(
    "acts", ["please", "[]", '{"acts": "x"}', '{"acts":[{"control":"pause","at":"soon","until":5}]}']
)
def test_an_unreadable_pause_is_a_pause_without_an_end_and_is_reported(acts: str) -> None:
    for text in (acts, with_act(acts, RESET)):
        controls, _ = read(controls=text)
        assert controls.pause is not None
        assert controls.pause.until is None
        assert (controls.pause.by, controls.pause.reason) == ("somebody", "no reason given")
        assert controls.pause.holds(NOON)
    assert (read(controls=acts)[1] or "").startswith(f"annotation {CONTROLS_ANNOTATION}: ")

    assert read(controls=with_act(acts, RESUME))[0].acts == (RESUME,)


@pytest.mark.parametrize("control", ["resume", "brake-reset", "purge", "drain", 5])
def test_another_act_that_cannot_be_read_changes_nothing_and_is_reported(control: object) -> None:
    controls, problem = read(controls=json.dumps({"acts": [{"control": control, "at": "soon"}]}))

    assert controls == Controls()
    assert problem


def test_a_purge_of_more_nodes_than_there_can_be_is_cut_short() -> None:
    controls, _ = read(controls=written(replace(PURGE, nodes=10**15)))

    assert controls.purge is not None
    assert controls.purge.nodes == PURGED_MOST


@pytest.mark.parametrize("text", ["gpu-1", "[]", '{"nodes": [{"name": "gpu-1", "uid": 7}]}'])
def test_a_mangled_annotation_of_tainted_nodes_is_reported_and_names_no_nodes(text: str) -> None:
    controls, problem = read(tainted=text)

    assert controls == Controls()
    assert problem


def test_if_not_all_tainted_nodes_fit_the_latest_deletions_are_kept() -> None:
    tainted = [replace(OUT, name=f"out-{number:04}") for number in range(1000)]
    deleted = [
        replace(GONE, name=f"gone-{number:04}", deleted_at=NOON + timedelta(seconds=number))
        for number in range(1000)
    ]

    text = encode_tainted([*tainted, *deleted])

    controls, problem = read(tainted=text)
    kept = [each.name for each in controls.tainted]
    assert problem is None
    assert len(text.encode()) < TAINTED_BYTES + 100
    assert len(kept) > 100
    assert kept == [f"gone-{number:04}" for number in range(999, 999 - len(kept), -1)]


def test_the_holder_saves_which_nodes_are_tainted_and_whoever_follows_finds_them(kube: KubeClient) -> None:
    lease = candidate(kube, Clock())
    assert lease.try_acquire().is_ours
    lease.renew(LeasePayload(cursor(5), None, (OUT,)))
    lease.renew(LeasePayload(cursor(6)))  # before its first reconcile it keeps the annotation
    assert lease.release(LeasePayload(cursor(7), None, (GONE,)))

    seen = read_lease(kube, NAMESPACE, NAME)

    assert seen is not None
    assert seen.controls.tainted == (GONE,)


def test_an_act_depends_on_the_present_lease(kube: KubeClient) -> None:
    candidate(kube, Clock()).try_acquire()
    tell(kube, PAUSE)
    seen: list[Controls] = []

    def reset(before: LeaseView) -> ControlAct:
        seen.append(before.controls)
        return RESET

    assert add_control_act(kube, NAMESPACE, NAME, reset) == (RESET, Controls((PAUSE,)))
    assert seen == [Controls((PAUSE,))]


def test_a_conflict_with_a_renewal_is_tried_again_and_too_many_are_an_error(
    kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate(kube, Clock()).try_acquire()
    real, left = KubeClient.replace, [2]

    def replace(self: KubeClient, path: str, body: dict[str, object]) -> dict[str, object]:
        left[0] -= 1
        if left[0] >= 0:
            raise KubeConflict("conflict")
        return real(self, path, body)

    monkeypatch.setattr(KubeClient, "replace", replace)
    tell(kube, PAUSE)
    left[0] = 1000

    with pytest.raises(KubeConflict):
        tell(kube, RESUME)


def test_without_a_lease_there_is_nothing_to_write_on(kube: KubeClient) -> None:
    with pytest.raises(KubeNotFound):
        tell(kube, RESUME)
