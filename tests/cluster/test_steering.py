"""What people tell the controller by annotations of the Lease, mangled ones included."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.errors import KubeConflict, KubeNotFound
from konductor_like.cluster.lease import read_lease
from konductor_like.cluster.lease_notes import annotate_lease
from konductor_like.cluster.lease_object import Carried
from konductor_like.cluster.steering import (
    PAUSE_ANNOTATION,
    PURGE_ANNOTATION,
    PURGED_MOST,
    REARM_ANNOTATION,
    RESUME_ANNOTATION,
    TAINTED_ANNOTATION,
    TAINTED_BYTES,
    decode_steering,
    encode_pause,
    encode_purge,
    encode_rearm,
    encode_resume,
    encode_tainted,
)
from konductor_like.model import Machine, Pause, Purge, Rearm, Resume, Steering, TaintedNode
from konductor_like.sandbox.kubernetes import KubernetesServer
from tests.cluster.lease_scenes import NAME, NAMESPACE, Clock, candidate, cursor, saved
from tests.cluster.scenes import NOON


@pytest.fixture
def kube(server: KubernetesServer, client: KubeClient) -> KubeClient:
    """A client of a server that has our namespace."""
    server.create_namespace(NAMESPACE)
    return client


PAUSE = Pause(NOON, "kim@laptop", "driver roll-out — 550 → 570", NOON + timedelta(hours=2), "a1b2c3d4e5f6")
REARM = Rearm(NOON, "kim@laptop", "false alarm", "0123456789ab")
RESUME = Resume(NOON, "kim@laptop", "ba9876543210")
PURGE = Purge(NOON, "kim@laptop", 3)
OUT = TaintedNode("gpu-1", Machine("uid-1"), NOON)
GONE = TaintedNode(
    "gpu-2", Machine("uid-2", "system-2", "boot-2"), NOON, "a100 — ü", NOON + timedelta(seconds=5)
)


@pytest.mark.parametrize("pause", [PAUSE, Pause(NOON, "kim", "x")], ids=["with an end", "without"])
def test_what_is_written_is_what_is_read(pause: Pause) -> None:
    notes = {
        PAUSE_ANNOTATION: encode_pause(pause),
        REARM_ANNOTATION: encode_rearm(REARM),
        RESUME_ANNOTATION: encode_resume(RESUME),
        PURGE_ANNOTATION: encode_purge(PURGE),
        TAINTED_ANNOTATION: encode_tainted([OUT, GONE]),
    }

    assert decode_steering(notes) == (Steering(pause, REARM, RESUME, PURGE, (GONE, OUT)), [])


@pytest.mark.parametrize("notes", [{}, {PAUSE_ANNOTATION: "  "}, {PAUSE_ANNOTATION: 7}], ids=str)
def test_nobody_told_anything(notes: dict[str, object]) -> None:
    assert decode_steering(notes) == (Steering(), [])


@pytest.mark.parametrize("text", ["maintenance", "[]", '{"at": "soon", "until": 5}'])
def test_a_pause_that_cannot_be_read_is_one_without_an_end_and_is_reported(text: str) -> None:
    steering, problems = decode_steering({PAUSE_ANNOTATION: text})

    assert steering.pause is not None
    assert steering.pause.until is None
    assert (steering.pause.by, steering.pause.reason) == ("somebody", "no reason given")
    assert steering.pause.holds(NOON)
    assert [problem.startswith(f"annotation {PAUSE_ANNOTATION}: ") for problem in problems] == [True]


@pytest.mark.parametrize("text", ["now", "{}", '{"at": "soon"}'])
def test_a_reset_that_cannot_be_read_resets_nothing_and_is_reported(text: str) -> None:
    steering, problems = decode_steering({REARM_ANNOTATION: text})

    assert steering.rearm is None
    assert len(problems) == 1


@pytest.mark.parametrize("key", [RESUME_ANNOTATION, PURGE_ANNOTATION])
@pytest.mark.parametrize("text", ["now", "{}", '{"at": "soon", "nodes": "many"}'])
def test_a_mangled_note_of_a_resume_or_a_purge_is_reported_and_changes_nothing(key: str, text: str) -> None:
    steering, problems = decode_steering({key: text})

    assert steering == Steering()
    assert len(problems) == 1


def test_a_purge_of_more_nodes_than_there_can_be_is_cut_short() -> None:
    steering, _ = decode_steering({PURGE_ANNOTATION: encode_purge(Purge(NOON, "kim", 10**15))})

    assert steering.purge is not None
    assert steering.purge.nodes == PURGED_MOST


@pytest.mark.parametrize("text", ["gpu-1", "[]", '{"nodes": [{"name": "gpu-1", "uid": 7}]}'])
def test_a_mangled_note_of_tainted_nodes_is_reported_and_tells_of_none(text: str) -> None:
    steering, problems = decode_steering({TAINTED_ANNOTATION: text})

    assert steering == Steering()
    assert len(problems) == 1


def test_of_more_tainted_nodes_than_there_is_room_for_the_latest_deletions_are_kept() -> None:
    tainted = [replace(OUT, name=f"out-{number:04}") for number in range(1000)]
    deleted = [
        replace(GONE, name=f"gone-{number:04}", deleted_at=NOON + timedelta(seconds=number))
        for number in range(1000)
    ]

    text = encode_tainted([*tainted, *deleted])

    steering, problems = decode_steering({TAINTED_ANNOTATION: text})
    kept = [each.name for each in steering.tainted]
    assert problems == []
    assert len(text.encode()) < TAINTED_BYTES + 100
    assert len(kept) > 150
    assert kept == [f"gone-{number:04}" for number in range(999, 999 - len(kept), -1)]


def test_the_holder_saves_which_nodes_are_tainted_and_whoever_follows_finds_them(kube: KubeClient) -> None:
    lease = candidate(kube, Clock())
    assert lease.try_acquire().held
    lease.renew(Carried(cursor(5), None, (OUT,)))
    lease.renew(Carried(cursor(6)))  # before its first look it leaves what is there
    assert lease.release(Carried(cursor(7), None, (GONE,)))

    seen = read_lease(kube, NAMESPACE, NAME)

    assert seen is not None
    assert seen.steering.tainted == (GONE,)


def test_the_holder_renews_over_a_pause_that_came_in_between(kube: KubeClient) -> None:
    lease = candidate(kube, Clock())
    assert lease.try_acquire().held

    annotate_lease(kube, NAMESPACE, NAME, PAUSE_ANNOTATION, encode_pause(PAUSE))
    lease.renew(Carried(cursor(5)))

    seen = read_lease(kube, NAMESPACE, NAME)
    assert seen is not None
    assert seen.steering.pause == PAUSE
    assert saved(kube) == cursor(5)


def test_taking_a_note_off_leaves_the_others_and_tells_what_it_was(kube: KubeClient) -> None:
    candidate(kube, Clock()).try_acquire()
    annotate_lease(kube, NAMESPACE, NAME, PAUSE_ANNOTATION, encode_pause(PAUSE))
    annotate_lease(kube, NAMESPACE, NAME, REARM_ANNOTATION, encode_rearm(REARM))

    before = annotate_lease(kube, NAMESPACE, NAME, PAUSE_ANNOTATION, None)

    seen = read_lease(kube, NAMESPACE, NAME)
    assert seen is not None
    assert (before.steering.pause, seen.steering) == (PAUSE, Steering(None, REARM))


def test_a_controller_that_is_faster_is_no_error_and_one_that_always_is_becomes_one(
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
    annotate_lease(kube, NAMESPACE, NAME, PAUSE_ANNOTATION, encode_pause(PAUSE))
    left[0] = 1000

    with pytest.raises(KubeConflict):
        annotate_lease(kube, NAMESPACE, NAME, PAUSE_ANNOTATION, None)


def test_without_a_lease_there_is_nothing_to_write_on(kube: KubeClient) -> None:
    with pytest.raises(KubeNotFound):
        annotate_lease(kube, NAMESPACE, NAME, PAUSE_ANNOTATION, None)
