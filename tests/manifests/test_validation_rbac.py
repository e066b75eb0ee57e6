"""The Role of validations, against every request of their client under the controller's account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.preflight import optional_permissions, policy_names, validation_permissions
from konductor_like.cluster.published import published
from konductor_like.cluster.validation_jobs import Order, ValidationClient
from konductor_like.model.nodes import TAINT_EFFECT, TAINT_KEY, TAINT_VALUE
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.access import Attempt
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER, rules_of, single
from tests.manifests.schema import problems
from tools.manifests.manifests import documents, only

DOCS = documents("validation.yaml")
RULES = rules_of(DOCS)
SETTINGS = Settings(validation_image="dcgm:4")
TAINT = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    node = make_node("gpu-1", taints=[TAINT])
    policy = Policy(DOCS)
    with KubernetesServer(nodes=[node], require_token=True, schema=problems, admission=policy) as server:
        server.put("namespaces", only(DOCS, "Namespace"))
        server.put("priorityclasses", only(DOCS, "PriorityClass"))
        yield server


def test_the_client_needs_each_right_of_the_role_and_no_other(
    server: KubernetesServer, tmp_path: Path
) -> None:
    token = server.access.add_user(CONTROLLER, RULES)
    path = server.kubeconfig(tmp_path / "config", token)
    order = Order("k7f3q2ab", "gpu-1", server.node("gpu-1")["metadata"]["uid"], 3, 8)
    with closing(KubeClient.connect(str(path), None, 5.0)) as kube:
        client = ValidationClient(kube, SETTINGS, "konductor-like")
        job = client.create(order)
        assert client.create(order) == job  # as after a create that was not answered
        assert client.jobs() == [job]
        assert client.refusal(job) == ""
        pod = client.pod(job)
        assert pod is not None
        assert pod.node == "gpu-1"
        client.log(pod, 1000)
        client.delete(job)

    calls = server.calls()
    used = [Attempt(c.verb, c.resource, c.group, c.namespace, c.name) for c in calls]
    assert [call for call in calls if call.status in (401, 403)] == []
    assert [rule for rule in single(RULES) if not any(map(rule.covers, used))] == []


def test_the_role_grants_what_is_checked_and_no_more() -> None:
    checked = {
        (each.verb, each.resource, each.group, each.namespace) for each in validation_permissions(SETTINGS)
    }
    granted = {
        (*rule.verbs, *rule.resources, *rule.groups, *rule.namespaces, *rule.names) for rule in single(RULES)
    }

    assert granted == checked


def test_without_an_image_no_right_of_validations_is_needed() -> None:
    off = Settings()
    known = published(off, by="a", version="1", rules_digest="0")

    for settings in (off, known, None):
        assert not {each for each in optional_permissions(settings) if "validation" in each.namespace}
    assert "konductor-like-validation" not in policy_names(known)


def test_with_an_image_the_right_to_list_pods_is_needed_whatever_else_is_set() -> None:
    settings = Settings(validation_image="dcgm:4", ask_for_pods=False)
    known = published(settings, by="a", version="1", rules_digest="0")

    for each in (settings, known):
        found = {str(permission) for permission in optional_permissions(each)}
        assert "list pods" in found
        assert found >= {str(permission) for permission in validation_permissions(each)}
    assert "konductor-like-validation" in policy_names(known)
