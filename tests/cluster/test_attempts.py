"""The controller's last attempts on the Lease."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.lease.annotations import LeasePayload
from konductor_like.cluster.lease.attempts import (
    ATTEMPTS_ANNOTATION,
    BYTES_MOST,
    KEPT_BYTES_MOST,
    decode_attempts,
    encode_attempts,
)
from konductor_like.cluster.lease.election import read_lease
from konductor_like.model import Verb
from konductor_like.model.attempts import Attempt, Attempts, Doing, Unwritten
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cluster.lease_scenes import NAME, NAMESPACE, Clock, candidate, note
from tests.cluster.scenes import NOON

FAILING = Attempt(NOON, NOON + timedelta(seconds=5), "patch nodes is forbidden")
ATTEMPTS = Attempts(
    "a",
    {Doing.KERNEL: Attempt(NOON), Doing.POD: Attempt(), Doing.WRITE: FAILING},
    (Unwritten("gpu-5", Verb.TAINT, "xid.79"), Unwritten("gpu-6", Verb.RECORD)),
    taints=1,
    others=1,
    heard=10,
    kept_out={"gpu-7": "gap", "gpu-8": "too-young"},
)


@pytest.fixture
def kube(server: KubernetesServer, client: KubeClient) -> KubeClient:
    server.create_namespace(NAMESPACE)
    return client


def test_attempts_are_read_as_they_were_written() -> None:
    assert decode_attempts(encode_attempts(ATTEMPTS)) == (ATTEMPTS, None)
    assert ATTEMPTS.complete


def test_that_no_node_is_kept_out_is_not_the_same_as_nothing_published() -> None:
    for attempts in (Attempts("a", kept_out={}), Attempts("a", kept_out=None)):
        assert decode_attempts(encode_attempts(attempts)) == (attempts, None)


@given(st.lists(st.text(min_size=1, max_size=253), max_size=300), st.text(max_size=160))
def test_the_annotation_is_bounded_and_nodes_that_do_not_fit_are_counted(
    names: list[str], error: str
) -> None:
    unwritten = tuple(Unwritten(name, Verb.TAINT, "xid.79") for name in names)
    latest = dict.fromkeys(Doing, Attempt(NOON, NOON, error))

    kept = dict.fromkeys(names, "too-young")
    attempts = Attempts("a", latest, unwritten, taints=len(names), kept_out=kept)
    text = encode_attempts(attempts)
    found, _ = decode_attempts(text)

    assert len(text.encode("utf-8", "replace")) <= max(BYTES_MOST, 6 * 4 * 160 + 1000) + KEPT_BYTES_MOST
    assert found is not None
    assert found.taints == len(names)
    assert found.complete == (len(found.unwritten) == len(names))
    assert found.kept_out is not None
    assert len(found.kept_out) + found.kept_more == len(kept)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("[]", None),
        ('{"v":1}', None),
        ('{"by":"a","kernel":{"ok":7}}', Attempts("a", {Doing.KERNEL: Attempt()})),
        ('{"by":"a","taints":1,"unwritten":[{"node":"gpu-5"}]}', Attempts("a", taints=1)),
        ('{"by":"a","kept":[{"node":5,"guard":"gap"}]}', Attempts("a")),
        ('{"by":"a","kept":"x"}', Attempts("a")),
    ],
)
def test_a_mangled_annotation_is_reported_and_the_rest_counts(text: str, kept: Attempts | None) -> None:
    found, problem = decode_attempts(text)

    assert found == kept
    assert problem


def test_the_holder_writes_its_attempts_with_the_renewal(kube: KubeClient) -> None:
    lease = candidate(kube, Clock())
    lease.try_acquire()
    lease.renew(LeasePayload(attempts=ATTEMPTS))
    lease.renew(LeasePayload())  # before the first reconcile the annotation stays

    seen = read_lease(kube, NAMESPACE, NAME)

    assert seen is not None
    assert seen.attempts == ATTEMPTS


def test_the_attempts_of_another_controller_prove_nothing(kube: KubeClient) -> None:
    first, second = candidate(kube, Clock()), candidate(kube, Clock(), "b")
    first.try_acquire()
    first.release(LeasePayload(attempts=ATTEMPTS))

    second.try_acquire()
    seen = read_lease(kube, NAMESPACE, NAME)

    assert seen is not None
    assert (seen.holder, seen.attempts, seen.problem) == ("b", None, None)


def test_attempts_that_cannot_be_read_are_named_as_a_problem(kube: KubeClient) -> None:
    candidate(kube, Clock()).try_acquire()
    note(kube, ATTEMPTS_ANNOTATION, "{")

    seen = read_lease(kube, NAMESPACE, NAME)

    assert seen is not None
    assert (seen.attempts, seen.problem) == (None, f"annotation {ATTEMPTS_ANNOTATION}: it is not JSON")
