"""Refusals of the admission policy, without an API server; ``tests/contract`` has the allowed changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from konductor_like.model import (
    HEALTH_LABEL,
    NEEDS_LABEL,
    RECORD_ANNOTATION,
    SUSPECT_TAINT_EFFECT,
    SUSPECT_TAINT_KEY,
    TAINT_KEY,
    TAINT_VALUE,
)
from konductor_like_sandbox.kubernetes import Review
from tests.manifests import node_changes
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER
from tools.manifests.manifests import documents, only

DOCS = documents("controller_deployment.yaml")
POLICY = only(DOCS, "ValidatingAdmissionPolicy")["spec"]
Change = Callable[[dict[str, Any]], object]


def refusal(change: Change, user: str = CONTROLLER, **review: str) -> str:
    """Return the policy's refusal of a change of a Node; "" if it is allowed."""
    old = node_changes.node("gpu-1", ours=True)
    old["spec"] |= {"podCIDR": "10.9.0.0/24", "later": {"deep": [1]}}
    old["metadata"] |= {"uid": "1", "finalizers": ["policy.example/a"]}
    new = copy.deepcopy(old)
    change(new)
    asked = {"operation": "UPDATE", "group": "", "resource": "nodes", "subresource": "", **review}
    return Policy(DOCS)(Review(user=user, name="gpu-1", object=new, old_object=old, **asked))


def cordon(node: dict[str, Any]) -> None:
    node["spec"]["unschedulable"] = True


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda node: node["spec"].update(latest={"a": 1}), "spec", id="new in spec"),
        pytest.param(lambda node: node["spec"].update(latest=False), "spec", id="new and false in spec"),
        pytest.param(lambda node: node["spec"]["later"].update(deep=[2]), "spec", id="deep in spec"),
        pytest.param(lambda node: node["spec"].pop("later"), "spec", id="gone from spec"),
        pytest.param(lambda node: node["metadata"].update(later=["a"]), "metadata", id="new in metadata"),
        pytest.param(lambda node: node["metadata"].pop("finalizers"), "metadata", id="gone from metadata"),
    ],
)
def test_an_unknown_field_is_protected_too(change: Change, expected: str) -> None:
    assert f"nothing in a Node's {expected}" in refusal(change)


def test_only_metadata_that_the_api_server_writes_by_itself_may_change() -> None:
    def changed(field: str) -> str:
        return refusal(lambda node: node["metadata"].update({field: "changed"}))

    for field in ("resourceVersion", "generation", "managedFields"):
        assert changed(field) == "", field
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "selfLink"):
        assert "nothing in a Node's metadata" in changed(field), field


def test_a_time_on_our_taint_is_no_change_of_other_taints() -> None:
    assert refusal(lambda node: node["spec"]["taints"][1].update(timeAdded="2026-01-01T00:00:00Z")) == ""
    assert "no other taint" in refusal(
        lambda node: node["spec"]["taints"][0].update(timeAdded="2026-01-01T00:00:00Z")
    )


def test_the_suspect_taint_of_an_earlier_version_may_only_go() -> None:
    assert refusal(lambda node: node["spec"]["taints"].pop(2)) == ""
    assert "no other taint" in refusal(
        lambda node: node["spec"]["taints"][2].update(timeAdded="2026-01-01T00:00:00Z")
    )


def test_every_refusal_is_a_403_that_names_what_is_allowed_and_has_a_case() -> None:
    """The controller would read 422, the default, as a conflict with another writer."""
    for validation in POLICY["validations"]:
        assert validation["reason"] == "Forbidden"
        assert validation["message"].startswith("konductor-like may change no")

    parts = {part for _, part in node_changes.FORBIDDEN.values()}

    for validation in POLICY["validations"]:
        assert any(part in validation["message"] for part in parts)
    assert len(parts) == len(POLICY["validations"])


def test_the_policy_names_the_marks_and_the_account_that_the_code_uses() -> None:
    text = "\n".join(
        each["expression"]
        for part in ("matchConditions", "variables", "validations")
        for each in POLICY[part]
    )
    account = only(DOCS, "ServiceAccount")["metadata"]

    assert f"'system:serviceaccount:{account['namespace']}:{account['name']}'" in text
    softer = (SUSPECT_TAINT_KEY, SUSPECT_TAINT_EFFECT)
    for name in (TAINT_KEY, TAINT_VALUE, *softer, HEALTH_LABEL, NEEDS_LABEL, RECORD_ANNOTATION):
        assert f"'{name}'" in text
