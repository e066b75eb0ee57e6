from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeBadAnswer, KubeConfigError, KubeUnavailable
from konductor_like.cluster.preflight import (
    chain_test_permissions,
    controller_permissions,
    ensure_namespace,
    missing_permissions,
    optional_permissions,
    ready_to_write,
)
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import JSON
from konductor_like_sandbox.kubernetes import KubernetesServer, Rule, matching, refusal

NEEDED = controller_permissions("gpu-health", "konductor-like")
LEASES = ("coordination.k8s.io",)
MANIFEST = (
    Rule(("get", "list", "watch", "patch"), ("nodes",)),
    Rule(("create",), ("events",), namespaces=("default", "gpu-health")),
    Rule(("create",), ("leases",), LEASES, namespaces=("gpu-health",)),
    Rule(("get", "update"), ("leases",), LEASES, names=("konductor-like",), namespaces=("gpu-health",)),
)


@pytest.fixture
def as_manifest(server: KubernetesServer, tmp_path: Path) -> Iterator[KubeClient]:
    """The client of an account with exactly the permissions that it needs."""
    server.create_namespace("gpu-health")
    token = server.access.add_user("system:serviceaccount:gpu-health:konductor-like", MANIFEST)
    client = KubeClient.connect(str(server.kubeconfig(tmp_path / "sa", token)), None, 5.0)
    yield client
    client.close()


def namespaces(server: KubernetesServer) -> set[str]:
    """Return the names of all namespaces."""
    return {each["metadata"]["name"] for each in server.objects("namespaces")}


def test_the_least_rights_are_enough(as_manifest: KubeClient) -> None:
    assert ready_to_write(as_manifest, "gpu-health") == []


def test_a_subresource_is_asked_for_apart_from_its_resource() -> None:
    [get, *_] = chain_test_permissions("dmesg-logging")

    where = {"resource": "pods", "subresource": "exec", "namespace": "dmesg-logging"}
    assert get.attributes == {"verb": "get", **where}


def test_a_lease_of_another_name_needs_other_rights(as_manifest: KubeClient) -> None:
    assert len(ready_to_write(as_manifest, "gpu-health", "other")) == 2


@pytest.mark.parametrize(
    ("verb", "resource", "group", "place", "rule"),
    [
        ("patch", "nodes", "", "ClusterRole", '{apiGroups: [""], resources: [nodes], verbs: [patch]}'),
        (
            "create",
            "events",
            "",
            "Role in namespace default",
            '{apiGroups: [""], resources: [events], verbs: [create]}',
        ),
        (
            "update",
            "leases",
            "coordination.k8s.io",
            "Role in namespace gpu-health",
            (
                '{apiGroups: ["coordination.k8s.io"], resources: [leases], '
                "resourceNames: [konductor-like], verbs: [update]}"
            ),
        ),
    ],
    ids=["nodes", "events", "leases"],
)
def test_a_missing_permission_is_reported_with_the_rule_to_add(
    server: KubernetesServer,
    as_manifest: KubeClient,
    verb: str,
    resource: str,
    group: str,
    place: str,
    rule: str,
) -> None:
    where = place.rpartition(" ")[2] if place.startswith("Role ") else ""
    server.access.deny(verb, resource, group, namespace=where)

    (sentence,) = ready_to_write(as_manifest, "gpu-health")

    assert sentence.startswith(f"konductor-like may not {verb} {resource}")
    assert sentence.endswith(f"add to its {place} {rule}")


def test_all_missing_permissions_are_reported_at_once(
    server: KubernetesServer, as_manifest: KubeClient
) -> None:
    server.access.deny("*", "nodes")

    assert [each.verb for each in missing_permissions(as_manifest, NEEDED) or ()] == [
        "list",
        "watch",
        "get",
        "patch",
    ]


@pytest.mark.parametrize("code", [403, 404])
def test_a_server_that_takes_no_such_question_is_no_denial(
    server: KubernetesServer, client: KubeClient, code: int
) -> None:
    server.mishaps.add(refusal(code), None, matching("POST", "selfsubjectaccessreviews"))

    assert missing_permissions(client, NEEDED) is None
    assert ready_to_write(client, "default") == []


def test_answers_before_a_refused_question_do_not_count(server: KubernetesServer, client: KubeClient) -> None:
    """A server that answers one question and refuses the next shows no missing permission for certain."""
    server.access.deny("list", "nodes")
    server.mishaps.add(refusal(403), when=lambda request: b'"watch"' in request.body)

    assert missing_permissions(client, NEEDED) is None


def test_a_server_in_trouble_is_no_denial_either(server: KubernetesServer, client: KubeClient) -> None:
    server.mishaps.add(refusal(503), when=matching("POST", "selfsubjectaccessreviews"))

    with pytest.raises(KubeUnavailable) as caught:
        missing_permissions(client, NEEDED)
    assert caught.value.transient


@pytest.mark.parametrize("body", ["{}", '{"status":{}}', '{"status":{"allowed":"yes"}}'])
def test_an_answer_without_a_decision_is_an_error(
    server: KubernetesServer, client: KubeClient, body: str
) -> None:
    server.mishaps.add(Mishap(201, body, JSON))

    with pytest.raises(KubeBadAnswer):
        missing_permissions(client, NEEDED)


# The namespace.


def test_a_missing_namespace_is_created(server: KubernetesServer, client: KubeClient) -> None:
    assert ready_to_write(client, "gpu-health") == []

    assert "gpu-health" in namespaces(server)


def test_an_existing_namespace_is_left_unchanged(server: KubernetesServer, client: KubeClient) -> None:
    server.create_namespace("gpu-health")

    ensure_namespace(client, "gpu-health")

    assert [call.verb for call in server.calls(resource="namespaces")] == ["get"]


def test_without_the_permission_to_create_it_the_error_has_the_command(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.access.deny("create", "namespaces")

    with pytest.raises(KubeConfigError, match="namespace gpu-health does not exist") as caught:
        ensure_namespace(client, "gpu-health")
    assert caught.value.hint == "create it with: kubectl create namespace gpu-health"
    assert not caught.value.transient


def test_who_may_not_look_goes_on(as_manifest: KubeClient) -> None:
    ensure_namespace(as_manifest, "nowhere")


def test_somebody_who_creates_it_first_is_no_problem(server: KubernetesServer, client: KubeClient) -> None:
    server.create_namespace("gpu-health")
    server.mishaps.add(refusal(404), when=matching("GET", "namespaces"))

    ensure_namespace(client, "gpu-health")


def test_unknown_settings_need_the_parts_that_are_on_by_default() -> None:
    assert [str(each) for each in optional_permissions(None)] == ["list pods", "list resourceslices"]
