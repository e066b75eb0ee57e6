"""The forms of a write: the taint waits for no record and for no label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeForbidden, KubeRejected
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.patch import SUSPECT_TAINT, Form, RecordForm
from konductor_like.cluster.node.record import decode
from konductor_like.cluster.node.short_record import SHORT_BYTES
from konductor_like.cluster.node.store import list_nodes
from konductor_like.cluster.node.writer import REFUSED_SECONDS, NodeWriter, Outcome
from konductor_like.model import HEALTH_LABEL, RECORD_ANNOTATION, Change, Life, Needs, NodeState, Verb
from konductor_like_sandbox.kubernetes import KubernetesServer, refusal
from konductor_like_sandbox.kubernetes.validation import ANNOTATIONS_BYTES
from tests.cluster.scenes import NOON, OURS, TEAM, incident, raw_node, record, release, taint
from tests.cluster.writer_scenes import PATCHES, Waits, make_writer, taints

FILLER = "filler.example.com/reason"
WANTED = replace(taint(recorded=record(incident(79, line="x" * 240))), needs=Needs.REBOOT)
DENIED = "ValidatingAdmissionPolicy 'strangers' with binding 'strangers' denied request: no"


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def writer(client: KubeClient, waits: Waits) -> NodeWriter:
    return make_writer(client, waits)


def node_with(server: KubernetesServer, client: KubeClient, left: int, **parts: Any) -> NodeState:
    """Create a Node with only so many bytes left for annotations."""
    raw = raw_node(**{"taints": [TEAM], **parts})
    notes = raw["metadata"]["annotations"]
    used = sum(len(key) + len(text) for key, text in notes.items()) + len(FILLER)
    notes[FILLER] = "x" * (ANNOTATIONS_BYTES - used - left)
    server.put_node(raw)
    server.clear_calls()
    return list_nodes(client, node_decoder())["gpu-1"]


def text_on(server: KubernetesServer) -> str | None:
    found: str | None = server.node("gpu-1")["metadata"]["annotations"].get(RECORD_ANNOTATION)
    return found


def labels_on(server: KubernetesServer) -> dict[str, str]:
    found: dict[str, str] = server.node("gpu-1")["metadata"]["labels"]
    return found


@pytest.mark.parametrize(
    ("left", "form"), [(60, RecordForm.NONE), (400, RecordForm.SHORT), (9000, RecordForm.FULL)]
)
def test_a_node_with_too_little_room_is_tainted_with_as_much_record_as_fits(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter, left: int, form: RecordForm
) -> None:
    state = node_with(server, client, left)

    result = writer.write(state, WANTED)

    assert (result.outcome, result.form.record) == (Outcome.APPLIED, form)
    assert taints(server) == [TEAM, OURS]
    assert labels_on(server)[HEALTH_LABEL] == "faulty"
    text = text_on(server)
    assert (text is None) == (form is RecordForm.NONE)
    if form is RecordForm.SHORT and text is not None:
        assert len(text) <= SHORT_BYTES
        assert decode(text)[0].incidents[0].needs == "reboot"


def test_an_object_that_is_too_large_for_the_server_is_written_with_less(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter
) -> None:
    """413: the store takes 1.5 MiB an object."""
    state = node_with(server, client, 9000)
    server.mishaps.add(refusal(413), when=PATCHES, times=2)

    result = writer.write(state, WANTED)

    assert (result.outcome, result.form.record) == (Outcome.APPLIED, RecordForm.NONE)


def test_a_node_that_is_too_large_for_anything_fails_with_the_first_answer(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter
) -> None:
    state = node_with(server, client, 9000)
    server.mishaps.add(refusal(413), when=PATCHES, times=99)

    result = writer.write(state, WANTED)

    assert (result.outcome, isinstance(result.error, KubeRejected)) == (Outcome.FAILED, True)


def test_a_released_node_without_room_loses_its_taint_and_keeps_what_is_covered(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter
) -> None:
    state = node_with(server, client, 400, taints=[OURS])
    released = Change("gpu-1", Verb.UNTAINT, record(incident(), tainted=False, releases=(release(),)), None)

    result = writer.write(state, released)

    assert (result.outcome, taints(server)) == (Outcome.APPLIED, [])
    assert decode(text_on(server) or "")[0].releases[0].read == release().read


def test_for_a_while_a_full_node_is_asked_once_for_each_write(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter, waits: Waits
) -> None:
    state = node_with(server, client, 60)
    first = writer.write(state, WANTED)
    assert first.state is not None
    server.clear_calls()
    change = replace(WANTED, verb=Verb.RECORD, health="suspect")

    writer.write(first.state, change)
    assert [call.status for call in server.calls("patch")] == [200]

    waits.now += REFUSED_SECONDS
    second = list_nodes(client, node_decoder())["gpu-1"]
    server.clear_calls()
    writer.write(second, replace(change, health="faulty"))
    assert [call.status for call in server.calls("patch")] == [422, 422, 200]


Denies = Callable[[Any], bool]


def changes_record(review: Any) -> bool:
    def notes(item: Any) -> Any:
        return (item or {}).get("metadata", {}).get("annotations", {}).get(RECORD_ANNOTATION)

    return bool(notes(review.object) != notes(review.old_object))


def changes_labels(review: Any) -> bool:
    return bool(review.object["metadata"]["labels"] != review.old_object["metadata"]["labels"])


@pytest.mark.parametrize(
    ("denies", "form"),
    [
        (changes_record, Form(RecordForm.NONE)),
        (
            lambda review: changes_record(review) or changes_labels(review),
            Form(RecordForm.NONE, False, False),
        ),
    ],
    ids=["record", "record and labels"],
)
def test_a_policy_of_somebody_else_keeps_no_node_in_service(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter, denies: Denies, form: Form
) -> None:
    state = node_with(server, client, 9000)
    deny(server, denies)

    result = writer.write(state, WANTED)

    assert (result.outcome, result.form) == (Outcome.APPLIED, form)
    assert taints(server) == [TEAM, OURS]


def test_a_policy_that_denies_the_taint_itself_is_asked_once_by_a_dry_run(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter
) -> None:
    state = node_with(server, client, 9000)
    deny(server, lambda _: True)

    result = writer.write(state, WANTED)

    assert isinstance(result.error, KubeForbidden)
    assert [call.status for call in server.calls("patch")] == [403, 403, 403]
    assert taints(server) == [TEAM]


def test_a_purge_leaves_no_record_behind(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter
) -> None:
    """A record that a policy protects would claim a taint that is gone."""
    state = node_with(server, client, 9000)
    tainted = writer.write(state, WANTED).state
    assert tainted is not None
    deny(server, changes_record)

    result = writer.write(tainted, Change("gpu-1", Verb.PURGE, None, None))

    assert result.outcome is Outcome.FAILED
    assert taints(server) == [TEAM, OURS]


def deny(server: KubernetesServer, denies: Denies) -> None:
    server._writes._admission = lambda review: DENIED if denies(review) else ""


def test_a_policy_that_keeps_another_effect_of_our_taint_gets_ours_beside_it_in_the_same_round(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter
) -> None:
    other = {**OURS, "effect": "NoExecute"}
    server.put_node(raw_node(taints=[TEAM, other]))
    state = list_nodes(client, node_decoder())["gpu-1"]

    def keeps(review: Any) -> bool:
        return other not in review.object["spec"]["taints"]

    deny(server, keeps)
    claimed = replace(record(incident()), life=Life(NOON))
    result = writer.write(state, Change("gpu-1", Verb.RECORD, claimed, "faulty"))

    assert (result.outcome, result.form.record) == (Outcome.APPLIED, RecordForm.FULL)
    assert taints(server) == [TEAM, other, OURS]


@pytest.mark.parametrize("may_wait", [False, True], ids=["a taint", "a write that may wait"])
def test_a_policy_that_keeps_the_suspect_taint_stops_only_the_write_that_may_wait(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter, may_wait: bool
) -> None:
    suspect = dict(SUSPECT_TAINT)
    server.put_node(raw_node(taints=[suspect, TEAM]))
    state = list_nodes(client, node_decoder())["gpu-1"]
    deny(server, lambda review: suspect not in review.object["spec"]["taints"])
    change = replace(WANTED, verb=Verb.RECORD, upkeep=True) if may_wait else WANTED

    result = writer.write(state, change)

    assert result.outcome is (Outcome.FAILED if may_wait else Outcome.APPLIED)
    assert taints(server) == ([suspect, TEAM] if may_wait else [suspect, TEAM, OURS])


@pytest.mark.parametrize("verb", [Verb.RECORD, Verb.TAINT])
@pytest.mark.parametrize("effect", ["NoExecute", "PreferNoSchedule"])
def test_another_effect_of_our_claimed_taint_is_replaced(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter, verb: Verb, effect: str
) -> None:
    server.put_node(raw_node(taints=[{**OURS, "effect": effect}, TEAM]))
    state = list_nodes(client, node_decoder())["gpu-1"]

    writer.write(state, Change("gpu-1", verb, replace(record(incident()), life=Life(NOON)), "faulty"))

    assert taints(server) == [TEAM, OURS]


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_a_release_takes_all_taints_with_our_key_and_value(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter, effect: str
) -> None:
    others = {**OURS, "value": "rma-42", "effect": "NoExecute"}
    ours = [{**OURS, "effect": each} for each in ("PreferNoSchedule", effect)]
    server.put_node(raw_node(taints=[*ours, others]))
    state = list_nodes(client, node_decoder())["gpu-1"]

    writer.write(state, Change("gpu-1", Verb.UNTAINT, replace(record(), releases=(release(),)), None))

    assert taints(server) == [others]


def test_ours_beside_another_effect_stays_as_it_is(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter
) -> None:
    both = [{**OURS, "effect": "NoExecute"}, OURS]
    server.put_node(raw_node(taints=both))
    state = list_nodes(client, node_decoder())["gpu-1"]

    writer.write(state, Change("gpu-1", Verb.RECORD, replace(record(incident()), life=Life(NOON)), "faulty"))

    assert taints(server) == both
