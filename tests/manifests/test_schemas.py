"""What `kubectl apply` is given is right in every field, and is taken by a server that looks at each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from konductor_like.sandbox.kubernetes import FieldProblem, Flaw, KubernetesServer
from konductor_like.sandbox.kubernetes.resources import RESOURCES
from tests.manifests.manifests import MANIFESTS, OPTIONAL, documents, kubectl_manifests, only
from tests.manifests.schema import problems
from tests.sandbox.kubectl import kubectl, needs_kubectl

DOCS = {name: documents(name) for name in (*kubectl_manifests(), *OPTIONAL)}
OBJECTS = [
    pytest.param(doc, id=f"{name}-{doc['kind']}-{doc['metadata']['name']}")
    for name, docs in DOCS.items()
    for doc in docs
]


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer(schema=problems) as server:
        yield server


def test_the_manifests_for_kubectl_are_these() -> None:
    assert kubectl_manifests() == ["controller_deployment.yaml", "dmesg_daemonset.yaml"]


@pytest.mark.parametrize("doc", OBJECTS)
def test_every_field_exists_and_is_of_the_right_type_and_a_namespace_is_named(doc: dict[str, Any]) -> None:
    assert problems(doc) == []

    [resource] = [r for r in RESOURCES if (r.api_version, r.kind) == (doc["apiVersion"], doc["kind"])]
    assert ("namespace" in doc["metadata"]) is resource.namespaced


@needs_kubectl
@pytest.mark.parametrize(
    ("side", "told"),
    [(["--server-side"], ("serverside-applied", "serverside-applied")), ([], ("created", "unchanged"))],
    ids=["on the server side", "on the client side"],
)
@pytest.mark.parametrize("name", DOCS)
def test_kubectl_applies_a_manifest_once_and_again(
    server: KubernetesServer, tmp_path: Path, name: str, side: list[str], told: tuple[str, str]
) -> None:
    apply = ("apply", *side, "--validate=strict", "-f", str(MANIFESTS / name))
    if name in OPTIONAL:
        server.create_namespace("konductor-like")

    first = kubectl(server, tmp_path, *apply).splitlines()
    objects = stored(server)
    again = kubectl(server, tmp_path, *apply).splitlines()

    assert len(first) == len(again) == len(DOCS[name])
    assert {line.split()[-1] for line in first} == {told[0]}, first
    assert {line.split()[-1] for line in again} == {told[1]}, again
    assert stored(server) == objects  # and so were all versions


@needs_kubectl
def test_kubectl_is_told_of_a_misspelt_field(server: KubernetesServer, tmp_path: Path) -> None:
    text = (MANIFESTS / "controller_deployment.yaml").read_text(encoding="utf-8")
    misspelt = tmp_path / "misspelt.yaml"
    misspelt.write_text(text.replace("  replicas: 1\n", "  replica: 1\n"), encoding="utf-8")
    apply = ("apply", "--validate=strict", "-f", str(misspelt))

    assert 'strict decoding error: unknown field "spec.replica"' in kubectl(server, tmp_path, *apply)
    said = kubectl(server, tmp_path, *apply, "--server-side")
    assert ".spec.replica: field not declared in schema" in said


def stored(server: KubernetesServer) -> dict[str, list[dict[str, Any]]]:
    """Everything on the server."""
    return {resource.plural: server.objects(resource.plural) for resource in RESOURCES}


def broken(**changes: Any) -> list[FieldProblem]:
    """What is said of the Deployment with these changes in its spec."""
    deployment = only(DOCS["controller_deployment.yaml"], "Deployment")
    return problems({**deployment, "spec": {**deployment["spec"], **changes}})


@pytest.mark.parametrize(
    ("changes", "flaw", "place"),
    [
        pytest.param({"replica": 1}, Flaw.UNKNOWN, "spec.replica", id="unknown"),
        pytest.param({"replicas": "1"}, Flaw.WRONG_TYPE, "spec.replicas", id="text for a number"),
        pytest.param({"strategy": "Recreate"}, Flaw.WRONG_TYPE, "spec.strategy", id="text for an object"),
        pytest.param({"selector": None}, Flaw.MISSING, "spec.selector", id="missing"),
        pytest.param(
            {"selector": {"matchLabels": {"a": 1}}},
            Flaw.WRONG_TYPE,
            "spec.selector.matchLabels.a",
            id="number for a label",
        ),
    ],
)
def test_the_check_finds_what_is_wrong(changes: dict[str, Any], flaw: Flaw, place: str) -> None:
    assert [(problem.flaw, problem.place) for problem in broken(**changes)] == [(flaw, place)]


def test_the_check_looks_into_lists() -> None:
    containers = [{"name": "a"}, {"image": "b", "ports": [{"name": "c"}]}]

    found = broken(template={"spec": {"containers": containers}})

    assert {(problem.flaw, problem.place) for problem in found} == {
        (Flaw.MISSING, "spec.template.spec.containers[1].name"),
        (Flaw.MISSING, "spec.template.spec.containers[1].ports[0].containerPort"),
    }
