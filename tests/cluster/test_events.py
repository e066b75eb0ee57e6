from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.events import JobEvents, LeaseEvents, NodeEvents, event_name, events_of, shortened
from konductor_like.cluster.lease.election import LeaderLease
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import list_nodes
from konductor_like.cluster.pods import Owner
from konductor_like.model import Act, Change, EventReason, NodeRecord, NodeState, Release, ReleaseHow, Verb
from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.kubernetes import KubernetesServer, refusal
from tests.cluster.scenes import NOON, raw_node, state_of

TAINTED = EventReason.TAINTED


@pytest.fixture
def node(server: KubernetesServer, client: KubeClient) -> NodeState:
    """A Node that exists."""
    server.put_node(raw_node())
    return list_nodes(client, node_decoder())["gpu-1"]


@pytest.fixture
def events(client: KubeClient) -> NodeEvents:
    """A sender at noon, whose sleeps take no time."""
    return NodeEvents(client, "konductor-like-0", lambda: NOON, sleep=lambda _: None)


def test_an_event_shows_in_kubectl_describe_node(
    server: KubernetesServer, events: NodeEvents, node: NodeState
) -> None:
    assert events.send(node, TAINTED, "Xid 79: GPU lost", "xid.79")

    (event,) = server.objects("events", "default")
    assert event["involvedObject"]["uid"] == server.node("gpu-1")["metadata"]["uid"]
    assert (event["type"], event["reason"], event["message"]) == ("Warning", TAINTED, "Xid 79: GPU lost")
    assert event["source"] == {"component": "konductor-like"}
    assert event["reportingComponent"] == "konductor-like"
    assert event["lastTimestamp"] == "2026-05-06T12:00:00Z"


def test_the_same_event_sent_twice_is_one_event(
    server: KubernetesServer, events: NodeEvents, node: NodeState
) -> None:
    assert events.send(node, TAINTED, "first", "xid.79")
    assert events.send(node, TAINTED, "again", "xid.79")

    assert [event["message"] for event in server.objects("events", "default")] == ["first"]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (EventReason.TAINTED, "Warning"),
        (EventReason.HELD, "Warning"),
        (EventReason.RELEASED, "Normal"),
        (EventReason.RECORDED, "Normal"),
    ],
)
def test_events_that_need_a_person_are_warnings(
    server: KubernetesServer, events: NodeEvents, node: NodeState, reason: EventReason, kind: str
) -> None:
    events.send(node, reason, "x", "y")

    assert server.objects("events", "default")[0]["type"] == kind


TROUBLE = [refusal(500), refusal(429), Mishap(drop=Drop.RESET), Mishap(200, "<html>")]


@pytest.mark.parametrize("mishap", TROUBLE)
def test_trouble_that_passes_is_waited_out_and_the_event_is_there_once(
    server: KubernetesServer, events: NodeEvents, node: NodeState, mishap: Mishap
) -> None:
    server.mishaps.add(replace(mishap, after=True), times=4)

    assert events.send(node, TAINTED, "x", "y")
    assert len(server.objects("events", "default")) == 1


@pytest.mark.parametrize("mishap", [refusal(403), *TROUBLE])
def test_an_event_that_cannot_be_sent_fails_nothing(
    server: KubernetesServer, events: NodeEvents, node: NodeState, mishap: Mishap
) -> None:
    server.mishaps.add(mishap, times=None)

    assert not events.send(node, TAINTED, "x", "y")
    server.mishaps.clear()
    assert events.send(node, TAINTED, "x", "y")


def test_the_server_is_given_the_time_it_asks_for(
    server: KubernetesServer, client: KubeClient, node: NodeState
) -> None:
    server.mishaps.add(refusal(429, retry_after_seconds=30), times=2)
    slept: list[float] = []

    assert NodeEvents(client, "konductor-like-0", sleep=slept.append).send(node, TAINTED, "x", "y")
    assert slept == [30.0, 30.0]


@pytest.mark.parametrize(("status", "tries"), [(500, 2), (403, 1)], ids=["may pass", "stays"])
def test_an_event_to_the_owner_of_a_job_is_tried_twice_at_most(
    server: KubernetesServer, client: KubeClient, status: int, tries: int
) -> None:
    server.mishaps.add(refusal(status), times=None)
    events = JobEvents(client, "konductor-like-0", sleep=lambda _: None)

    assert events.send(Owner("batch/v1", "Job", "ml", "train", "uid"), "Node gpu-1 failed.", "x", "act")
    assert len(server.calls("create", "events")) == tries


def test_a_stop_ends_the_waiting(server: KubernetesServer, client: KubeClient, node: NodeState) -> None:
    server.mishaps.add(refusal(429, retry_after_seconds=30), times=None)

    assert not NodeEvents(client, "konductor-like-0", sleep=lambda _: True).send(node, TAINTED, "x", "y")
    assert len(server.calls("create", "events")) == 1


def test_one_write_has_an_event_for_each_incident_that_ended_and_a_later_write_has_its_own(
    node: NodeState,
) -> None:
    """A node that was released before: the release must not name the Events of later ends."""

    def names(act: str) -> list[str]:
        record = NodeRecord(releases=(Release(NOON, "kim", "", ReleaseHow.RESET),), act=Act(act, NOON))
        ended = [(EventReason.ENDED, f"xid {code} ended: the machine has rebooted.") for code in (63, 94)]
        change = Change("gpu-1", Verb.RECORD, record, None, *ended[0], also=tuple(ended[1:]))
        return [event_name(node, reason, subject) for reason, _, subject in events_of(change)]

    assert names("act-1") == names("act-1")
    assert len({*names("act-1"), *names("act-2")}) == 4


def test_another_node_reason_or_subject_is_another_event() -> None:
    node = state_of(raw_node())
    reborn = replace(node, machine=replace(node.machine, node_uid="another"))

    names = {
        event_name(node, TAINTED, "a"),
        event_name(node, TAINTED, "b"),
        event_name(node, EventReason.RELEASED, "a"),
        event_name(reborn, TAINTED, "a"),
    }

    assert len(names) == 4


@given(
    st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True),
    st.text(st.characters(), max_size=50),
)
def test_the_server_accepts_every_name(node_name: str, about: str) -> None:
    name = event_name(state_of(raw_node(node_name)), TAINTED, about)

    assert len(name) <= 253
    assert re.fullmatch(r"[a-z0-9][-a-z0-9.]*[a-z0-9]", name)


@given(st.text(st.characters(), max_size=3000))
def test_every_message_fits(message: str) -> None:
    assert len(shortened(message).encode()) < 1024


def test_a_long_message_keeps_both_ends() -> None:
    text = shortened("Xid 79 on GPU 0. " + "x" * 5000 + " Reboot the node.")

    assert text.startswith("Xid 79 on GPU 0. xx")
    assert text.endswith("xx Reboot the node.")
    assert " … " in text


def test_an_event_about_the_fleet_shows_in_kubectl_describe_lease_once(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.create_namespace("konductor-like")
    holder = LeaderLease(
        client,
        "konductor-like",
        "konductor-like",
        "konductor-like-0",
        duration_seconds=30,
        renew_deadline_seconds=20,
        renew_interval_seconds=10,
    )
    assert holder.try_acquire().is_ours
    events = LeaseEvents(client, "konductor-like-0", lambda: NOON)

    for _ in range(2):
        assert events.send(holder.reference, EventReason.SILENT, "600 nodes are silent")

    (event,) = server.objects("events", "konductor-like")
    (lease,) = server.objects("leases", "konductor-like")
    assert event["involvedObject"] == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "namespace": "konductor-like",
        "name": "konductor-like",
        "uid": lease["metadata"]["uid"],
    }
    assert (event["type"], event["reason"]) == ("Warning", "KernelLogSilent")


def test_the_id_of_the_write_ends_the_message_and_is_in_an_annotation(
    server: KubernetesServer, events: NodeEvents, node: NodeState
) -> None:
    events.send(node, TAINTED, "x" * 5000, "y", "0123456789ab")

    (event,) = server.objects("events", "default")
    assert str(event["message"]).endswith(" (audit id 0123456789ab)")
    assert event["metadata"]["annotations"] == {"trainy.konduktor.ai/act": "0123456789ab"}
