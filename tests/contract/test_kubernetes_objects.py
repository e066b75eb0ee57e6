"""The behaviour that we rely on besides Nodes: Leases, Events, Namespaces and permissions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.kubernetes_target import (
    AGENT,
    JSON_PATCH,
    Answer,
    Target,
    node_path,
    refused,
)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/api/v1/namespaces/default/events"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
USER_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
MOMENT = "2026-02-03T04:05:06.000007Z"
SOMEBODY = {"Impersonate-User": "contract-nobody"}


# Leases


def lease(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": MOMENT, **spec}
    metadata = {"name": name, "annotations": {"contract.example/cursor": "1"}}
    return {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "spec": spec}


@pytest.fixture
def held(target: Target) -> Answer:
    """A Lease, as created."""
    answer = target.create(LEASES, lease(target.name()))
    assert answer.status == 201
    return answer


def path_of(held: Answer) -> str:
    return f"{LEASES}/{held.meta['name']}"


def test_a_lease_is_kept_as_written_annotations_and_microseconds_included(
    target: Target, held: Answer
) -> None:
    stored = target.get(path_of(held))

    assert stored.body["spec"] == {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": MOMENT}
    assert stored.meta["annotations"] == {"contract.example/cursor": "1"}


def test_a_lease_that_exists_cannot_be_created(target: Target, held: Answer) -> None:
    name = held.meta["name"]
    answer = target.send("POST", LEASES, lease(name))

    assert refused(answer, 409, "AlreadyExists")
    assert answer.body["message"] == f'leases.coordination.k8s.io "{name}" already exists'
    assert answer.body["details"] == {"name": name, "group": "coordination.k8s.io", "kind": "leases"}


def test_one_write_renews_and_checkpoints_and_only_the_first_of_two_wins(
    target: Target, held: Answer
) -> None:
    ours, theirs = target.get(path_of(held)).body, target.get(path_of(held)).body
    ours["spec"]["holderIdentity"] = "b"
    ours["metadata"]["annotations"]["contract.example/cursor"] = "2"
    won, lost = (target.send("PUT", path_of(held), body) for body in (ours, theirs))
    stored = target.get(path_of(held))

    assert won.status == 200
    assert refused(lost, 409, "Conflict")
    assert stored.body["spec"]["holderIdentity"] == "b"
    assert stored.meta["annotations"] == {"contract.example/cursor": "2"}


def test_a_lease_is_not_replaced_without_a_version(target: Target, held: Answer) -> None:
    answer = target.send("PUT", path_of(held), lease(held.meta["name"]))

    assert refused(answer, 422, "Invalid")
    assert {c["field"] for c in answer.body["details"]["causes"]} == {"metadata.resourceVersion"}


@pytest.mark.parametrize("time", ["2026-02-03T04:05:06.007Z", "yesterday"])
def test_a_time_without_microseconds_is_a_bad_request(target: Target, time: str) -> None:
    assert refused(target.send("POST", LEASES, lease(target.name(), renewTime=time)), 400, "BadRequest")


def test_a_lease_in_a_namespace_that_is_not_there_is_not_found(target: Target) -> None:
    name = target.name()
    answer = target.send("POST", LEASES.replace("default", name), lease("any"))

    assert refused(answer, 404, "NotFound")
    assert answer.body["message"] == f'namespaces "{name}" not found'
    assert answer.body["details"] == {"name": name, "kind": "namespaces"}


# Namespaces


def test_a_namespace_can_be_made_and_used(target: Target) -> None:
    name = target.name()
    body = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
    made = target.create("/api/v1/namespaces", body)
    inside = target.create(LEASES.replace("default", name), lease("inside"))

    assert (made.status, inside.status) == (201, 201)
    assert made.meta["labels"] == {"kubernetes.io/metadata.name": name}
    assert refused(target.send("POST", "/api/v1/namespaces", body), 409, "AlreadyExists")


# Events


def event(node: Answer, **parts: Any) -> dict[str, Any]:
    about = {"kind": "Node", "apiVersion": "v1", "name": node.meta["name"], "uid": node.meta["uid"]}
    times = {"firstTimestamp": "2026-02-03T04:05:06Z", "lastTimestamp": "2026-02-03T04:05:06Z", "count": 1}
    said = {"type": "Warning", "reason": "GPUFaultTainted", "message": "Xid 79", "action": "Taint"}
    by = {"source": {"component": AGENT}, "reportingComponent": AGENT, "reportingInstance": "a"}
    metadata = {"name": f"{node.meta['name']}.contract", "namespace": "default"}
    head = {"kind": "Event", "apiVersion": "v1", "metadata": metadata, "involvedObject": about}
    return {**head, **times, **said, **by, **parts}


def test_an_event_on_a_node_lives_in_the_default_namespace_and_is_found_by_uid(
    target: Target, node: Answer
) -> None:
    made = target.create(EVENTS, event(node))
    found = target.get(
        EVENTS, fieldSelector=f"involvedObject.uid={node.meta['uid']},involvedObject.kind=Node"
    )

    assert made.status == 201
    assert [item["metadata"]["name"] for item in found.body["items"]] == [made.meta["name"]]
    assert made.body["eventTime"] is None


def test_an_event_name_that_exists_cannot_be_created(target: Target, node: Answer) -> None:
    target.create(EVENTS, event(node))

    assert refused(target.send("POST", EVENTS, event(node, message="again")), 409, "AlreadyExists")


def test_an_event_on_a_node_outside_the_default_namespace_is_refused(target: Target, node: Answer) -> None:
    body = event(node, metadata={"name": f"{node.meta['name']}.contract", "namespace": "kube-public"})
    answer = target.send("POST", EVENTS.replace("default", "kube-public"), body)

    assert refused(answer, 422, "Invalid")
    assert {c["field"] for c in answer.body["details"]["causes"]} == {"involvedObject.namespace"}


# Access


def review(target: Target, headers: dict[str, str], **attributes: str) -> Any:
    body = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": attributes},
    }
    answer = target.send("POST", REVIEWS, body, headers=headers)
    assert answer.status == 201
    return answer.body["status"]["allowed"]


def test_a_user_can_ask_for_their_permissions(target: Target) -> None:
    assert review(target, {}, verb="patch", resource="nodes") is True
    assert review(target, {}, verb="update", group="coordination.k8s.io", resource="leases", name="x") is True
    assert review(target, SOMEBODY, verb="patch", resource="nodes") is False


def test_a_user_can_ask_for_their_name(target: Target) -> None:
    body = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    answer = target.send("POST", USER_REVIEWS, body, headers=SOMEBODY)
    refusal = target.send("GET", USER_REVIEWS)

    assert answer.status == 201
    assert answer.body["metadata"].keys() == {"creationTimestamp"}
    assert answer.body["status"]["userInfo"]["username"] == "contract-nobody"
    assert "system:authenticated" in answer.body["status"]["userInfo"]["groups"]
    assert refused(refusal, 405, "MethodNotAllowed")


def test_a_user_without_permissions_gets_that_answer(target: Target) -> None:
    name = target.create_node().meta["name"]
    listing = target.send("GET", "/api/v1/nodes", headers=SOMEBODY)
    patching = target.send("PATCH", node_path(name), [], JSON_PATCH, SOMEBODY)
    leasing = target.send("POST", LEASES, lease("x"), headers=SOMEBODY)

    assert {answer.status for answer in (listing, patching, leasing)} == {403}
    assert listing.body["message"] == (
        'nodes is forbidden: User "contract-nobody" cannot list resource "nodes"'
        ' in API group "" at the cluster scope'
    )
    assert patching.body["message"].startswith(
        f'nodes "{name}" is forbidden: User "contract-nobody" cannot patch'
    )
    assert leasing.body["message"].endswith('in API group "coordination.k8s.io" in the namespace "default"')
    assert patching.body["details"] == {"name": name, "kind": "nodes"}


def test_a_token_that_nobody_has_is_unauthorized(target: Target) -> None:
    answer = target.send("GET", "/api/v1/nodes", headers={"Authorization": "Bearer nobody-has-this"})

    assert refused(answer, 401, "Unauthorized")
    assert "details" not in answer.body
