"""Server-side apply, the schema and the admission that whoever starts the stand-in gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from konductor_like.sandbox.fleet import make_node
from konductor_like.sandbox.kubernetes import FieldProblem, Flaw, KubernetesServer, Review
from tests.contract.kubernetes_target import MERGE_PATCH, Answer, Target

APPLY = "application/apply-patch+yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
KNOWN = {"apiVersion", "kind", "metadata", "data"}


def schema(item: Mapping[str, Any]) -> list[FieldProblem]:
    """ConfigMaps with data, which must be there and must be a map."""
    if item["kind"] != "ConfigMap":
        return []
    found = [FieldProblem(Flaw.UNKNOWN, name) for name in item if name not in KNOWN]
    if "data" not in item:
        found.append(FieldProblem(Flaw.MISSING, "data"))
    elif not isinstance(item["data"], dict):
        found.append(FieldProblem(Flaw.WRONG_TYPE, "data", "expected map, got list"))
    return found


@pytest.fixture
def reviews() -> list[Review]:
    """What the server asked its admission; whatever is called ``denied`` is denied."""
    return []


@pytest.fixture
def target(reviews: list[Review]) -> Iterator[Target]:
    def admission(review: Review) -> str:
        reviews.append(review)
        return "not today" if review.name == "denied" else ""

    with KubernetesServer(nodes=[make_node("gpu-1")], schema=schema, admission=admission) as server:
        reviews.clear()
        yield Target(server.url, {}, server=server)


def config(name: str = "a", **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}, **parts}


def apply(target: Target, body: dict[str, Any], path: str = f"{MAPS}/a", **params: str) -> Answer:
    return target.send("PATCH", path, body, APPLY, params={"fieldManager": "me", **params})


def test_what_is_no_longer_applied_goes_and_the_object_stays_the_same(target: Target) -> None:
    first = apply(target, config(data={"k": "v", "old": "x"}))
    second = apply(target, config(data={"k": "w"}))

    assert second.body["data"] == {"k": "w"}
    assert first.meta["uid"] == second.meta["uid"]


def test_an_unknown_field_is_refused_in_an_apply_and_where_it_was_asked_for(target: Target) -> None:
    body = config(date={})

    assert apply(target, body).status == 500
    assert target.send("POST", MAPS, body, params={"fieldValidation": "Strict"}).status == 400
    assert target.send("POST", MAPS, body).status == 201
    patched = target.patch(f"{MAPS}/a", {"datum": {}}, MERGE_PATCH, fieldValidation="Strict")
    assert patched.status == 422
    assert 'strict decoding error: unknown field "date"' in patched.body["message"]
    assert apply(target, config(data=[])).status == 500


def test_admission_sees_every_write_with_who_and_what(target: Target, reviews: list[Review]) -> None:
    apply(target, config())
    apply(target, config(data={"k": "w"}))
    target.send("DELETE", f"{MAPS}/a")

    assert [(review.operation, review.resource, review.name) for review in reviews] == [
        (operation, "configmaps", "a") for operation in ("CREATE", "UPDATE", "DELETE")
    ]
    assert {review.user for review in reviews} == {"kubernetes-admin"}
    seen = [[part and part["data"]["k"] for part in (r.old_object, r.object)] for r in reviews]
    assert seen == [[None, "v"], ["v", "w"], ["w", None]]


def test_what_admission_denies_is_not_done(target: Target) -> None:
    answer = apply(target, config("denied"), f"{MAPS}/denied")

    assert answer.status == 403
    assert answer.body["message"] == 'configmaps "denied" is forbidden: not today'
    assert target.get(f"{MAPS}/denied").status == 404
