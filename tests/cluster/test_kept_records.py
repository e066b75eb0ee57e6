"""Records that the Lease keeps in short for Nodes without room, written by the holder and by commands."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeRejected
from konductor_like.cluster.lease.annotations import (
    LeasePayload,
    controls_of,
    forget_records,
    keep_record,
    view,
)
from konductor_like.cluster.lease.kept import (
    KEPT_ANNOTATION,
    KEPT_MOST,
    Kept,
    decode_kept,
    encode_kept,
    that_fit,
)
from konductor_like.model import Act, KeptRecord, NodeRecord, NodeState, kept_beside, with_kept
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cluster.lease_scenes import NAME, NAMESPACE, PATH, Clock, candidate, cursor
from tests.cluster.scenes import NOON, OURS, incident, raw_node, record, release, state_of

OUT = replace(record(incident(line="")), act=Act("a1", NOON))
BACK = replace(record(tainted=False, releases=(release(),)), act=Act("b2", NOON + timedelta(minutes=1)))


def node(text: str | None = None, *, tainted: bool = True, name: str = "gpu-1") -> NodeState:
    notes = {} if text is None else {"trainy.konduktor.ai/record": text}
    return state_of(raw_node(name, annotations=notes, taints=[OURS] if tainted else []))


def entry(record: NodeRecord = OUT, name: str = "gpu-1", *, waits: bool = False) -> KeptRecord:
    return kept_beside(node(name=name), record, None, ahead=waits)


def seen(state: NodeState, *kept: KeptRecord) -> NodeRecord:
    return with_kept({state.name: state}, kept)[state.name].record


def test_a_node_without_annotation_has_the_record_that_the_lease_keeps() -> None:
    state = with_kept({"gpu-1": node()}, [entry()])["gpu-1"]

    assert state.record.life.claimed
    assert state.record_kept
    assert state.as_read.record is None, "a patch tests what the Node has"


def test_an_annotation_that_somebody_has_written_since_is_newer() -> None:
    short = '{"v":2,"tainted":"2026-05-06T12:00:00Z"}'
    kept = kept_beside(node(short), OUT, short)

    assert seen(node(short), kept).incidents, "the same annotation"
    assert seen(node(), kept).incidents, "no annotation any more"
    assert not seen(node('{"v":2}'), kept).incidents


def test_another_node_of_that_name_has_nothing_of_it() -> None:
    other = replace(entry(), record=replace(OUT, machine=replace(node().machine, node_uid="another")))

    assert seen(node(), other) == NodeRecord()


def test_a_release_counts_once_the_taint_is_off() -> None:
    kept = entry(BACK, waits=True)

    assert seen(node(tainted=True), kept) == NodeRecord()
    assert seen(node(tainted=False), kept).releases


def test_the_lease_keeps_records_as_they_were_written() -> None:
    kept = (entry(), replace(entry(BACK, "gpu-2", waits=True), beside="0123456789abcdef"))

    text = encode_kept(Kept(kept))

    assert text is not None
    found, problem = decode_kept(text)
    assert problem is None
    assert {each.name: (each.beside, each.ahead, each.act, each.uid) for each in found} == {
        each.name: (each.beside, each.ahead, each.act, each.uid) for each in kept
    }
    assert encode_kept(Kept()) is None


@pytest.mark.parametrize("text", ["oops", "[]", '{"nodes":[{"node":"gpu-1"}]}', '{"nodes":7}'])
def test_a_damaged_annotation_is_reported_and_counts_for_nothing(text: str) -> None:
    found = view({"metadata": {"annotations": {KEPT_ANNOTATION: text}}})

    assert found.controls.kept == ()
    assert KEPT_ANNOTATION in (found.problem or "")


def test_a_writer_never_replaces_an_entry_that_it_has_not_read() -> None:
    """A command has released the node since the holder read the Lease."""
    released = encode_kept(Kept((entry(BACK, waits=True),)))
    newer = replace(OUT, act=Act("c3", NOON + timedelta(minutes=2)))

    def kept(*records: KeptRecord, superseded: frozenset[str] = frozenset()) -> list[str]:
        text = encode_kept(Kept(records, superseded), released)
        return [each.act for each in decode_kept(text or "{}")[0]]

    assert kept(entry(newer)) == [entry(BACK).act]
    assert kept() == [entry(BACK).act]
    assert kept(entry(newer), superseded=frozenset({entry(BACK).act})) == [entry(newer).act]
    assert kept(superseded=frozenset({entry(BACK).act})) == []


def test_of_too_many_nodes_the_tainted_ones_are_kept() -> None:
    out = [entry(OUT, f"gpu-{n}") for n in range(KEPT_MOST - 1)]
    others = [entry(BACK, f"back-{n}") for n in range(9)]

    assert [each.name for each in that_fit([*others, *out])][: len(out)] == [each.name for each in out]
    assert len(that_fit([*others, *out])) == KEPT_MOST


@pytest.fixture
def kube(server: KubernetesServer, client: KubeClient) -> KubeClient:
    server.create_namespace(NAMESPACE)
    return client


def on_lease(kube: KubeClient) -> list[str]:
    return [each.act for each in controls_of(kube.get(PATH)).controls.kept]


def test_a_command_and_the_holder_write_the_same_lease(kube: KubeClient) -> None:
    clock = Clock()
    lease = candidate(kube, clock)
    lease.try_acquire()
    lease.renew(LeasePayload(cursor(1), kept=Kept((entry(),))))
    assert on_lease(kube) == [entry().act]

    before = keep_record(kube, NAMESPACE, NAME, entry(BACK, waits=True))
    clock.seconds += 5
    lease.renew(LeasePayload(cursor(2), kept=Kept((entry(),))))

    assert [each.act for each in before] == [entry().act]
    assert on_lease(kube) == [entry(BACK).act]
    known = frozenset({entry().act, entry(BACK).act})
    lease.renew(LeasePayload(cursor(3), kept=Kept((), known)))
    assert on_lease(kube) == []


def test_the_next_leader_reads_what_the_last_one_kept(kube: KubeClient) -> None:
    clock = Clock()
    first, second = candidate(kube, clock), candidate(kube, clock, "b")
    first.try_acquire()
    first.renew(LeasePayload(cursor(1), kept=Kept((entry(),))))
    first.release(LeasePayload(cursor(1), kept=Kept((entry(),))))

    assert [each.act for each in second.try_acquire().controls.kept] == [entry().act]


def test_a_release_that_was_not_written_is_taken_back(kube: KubeClient) -> None:
    candidate(kube, Clock()).try_acquire()
    keep_record(kube, NAMESPACE, NAME, entry())
    before = keep_record(kube, NAMESPACE, NAME, entry(BACK, waits=True))

    forget_records(kube, NAMESPACE, NAME, {entry().uid}, before)

    assert on_lease(kube) == [entry().act]


def test_a_reason_without_a_place_is_an_error_and_not_silence(kube: KubeClient) -> None:
    candidate(kube, Clock()).try_acquire()
    for n in range(KEPT_MOST):
        keep_record(kube, NAMESPACE, NAME, entry(OUT, f"gpu-{n}"))

    with pytest.raises(KubeRejected, match="no place for the record of node back-1"):
        keep_record(kube, NAMESPACE, NAME, entry(BACK, "back-1"))
    keep_record(kube, NAMESPACE, NAME, entry(BACK, "back-1", waits=True))  # a release that waits has a place
