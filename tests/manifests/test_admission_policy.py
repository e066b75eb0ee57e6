"""The admission policy where no API server is needed; what it lets pass is held by ``tests/contract``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from konductor_like.model import (
    HEALTH_LABEL,
    RECORD_ANNOTATION,
    SUSPECT_TAINT_EFFECT,
    SUSPECT_TAINT_KEY,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
)
from konductor_like.sandbox.kubernetes import Review
from tests.manifests import node_changes
from tests.manifests.manifests import documents, only
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER

DOCS = documents("controller_deployment.yaml")
POLICY = only(DOCS, "ValidatingAdmissionPolicy")["spec"]
Change = Callable[[dict[str, Any]], object]


def judge(change: Change, user: str = CONTROLLER, **review: str) -> str:
    """What the policy says to one change of a Node."""
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
    ("change", "said"),
    [
        pytest.param(lambda node: node["spec"].update(latest={"a": 1}), "spec", id="new in spec"),
        pytest.param(lambda node: node["spec"].update(latest=False), "spec", id="new and false in spec"),
        pytest.param(lambda node: node["spec"]["later"].update(deep=[2]), "spec", id="deep in spec"),
        pytest.param(lambda node: node["spec"].pop("later"), "spec", id="gone from spec"),
        pytest.param(lambda node: node["metadata"].update(later=["a"]), "metadata", id="new in metadata"),
        pytest.param(lambda node: node["metadata"].pop("finalizers"), "metadata", id="gone from metadata"),
    ],
)
def test_a_field_that_nobody_here_knows_is_protected_as_well(change: Change, said: str) -> None:
    assert f"nothing in a Node's {said}" in judge(change)


def test_metadata_may_change_only_where_the_api_server_writes_it_by_itself() -> None:
    def changed(field: str) -> str:
        return judge(lambda node: node["metadata"].update({field: "changed"}))

    for field in ("resourceVersion", "generation", "managedFields"):
        assert changed(field) == "", field
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "selfLink"):
        assert "nothing in a Node's metadata" in changed(field), field


def test_a_time_on_our_own_taint_is_no_change_of_anothers() -> None:
    assert judge(lambda node: node["spec"]["taints"][1].update(timeAdded="2026-01-01T00:00:00Z")) == ""
    assert "no other taint" in judge(
        lambda node: node["spec"]["taints"][0].update(timeAdded="2026-01-01T00:00:00Z")
    )


def test_every_refusal_is_a_403_that_says_what_is_allowed_and_is_met_by_a_case() -> None:
    """The default, 422, would mean to the controller that somebody was faster than it."""
    for validation in POLICY["validations"]:
        assert validation["reason"] == "Forbidden"
        assert validation["message"].startswith("konductor-like may change no")

    expected = {said for _, said in node_changes.FORBIDDEN.values()}

    for validation in POLICY["validations"]:
        assert any(said in validation["message"] for said in expected)
    assert len(expected) == len(POLICY["validations"])


def test_it_names_the_marks_and_the_account_that_the_code_uses() -> None:
    said = "\n".join(
        each["expression"]
        for part in ("matchConditions", "variables", "validations")
        for each in POLICY[part]
    )
    account = only(DOCS, "ServiceAccount")["metadata"]

    assert f"'system:serviceaccount:{account['namespace']}:{account['name']}'" in said
    softer = (SUSPECT_TAINT_KEY, SUSPECT_TAINT_EFFECT)
    for name in (TAINT_KEY, TAINT_VALUE, TAINT_EFFECT, *softer, HEALTH_LABEL, RECORD_ANNOTATION):
        assert f"'{name}'" in said
