"""A ValidatingAdmissionPolicy carried out as the API server does, for the stand-in's ``admission``.

It uses a policy's request rules, conditions, variables and validations, and its own implementation of CEL.
``tests/contract`` runs the same cases against a real API server, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cel

from konductor_like.sandbox.kubernetes import Denial, Review
from tests.manifests.manifests import documents, only

WITHOUT_NEEDS = "../tests/manifests/policy_without_needs.yaml"
"""The policy of versions without the label for needs; an upgrade meets it if the controller comes first."""


def old_policy(*, reason: str = "") -> Policy:
    """Return the policy of versions without the label for needs."""
    return Policy(documents(WITHOUT_NEEDS), reason=reason)


class Policy:
    """The policy and the binding of a manifest; call it with a review."""

    def __init__(self, docs: Sequence[Mapping[str, Any]], *, reason: str = "") -> None:
        """``reason`` replaces the reasons of the policy, as a policy of a user may have others."""
        self._reason = reason
        objects = [dict(doc) for doc in docs]
        self._policy = only(objects, "ValidatingAdmissionPolicy")
        self._binding = only(objects, "ValidatingAdmissionPolicyBinding")
        self._spec = self._policy["spec"]
        assert self._spec["failurePolicy"] == "Fail"
        assert self._binding["spec"] == {
            "policyName": self._policy["metadata"]["name"],
            "validationActions": ["Deny"],
        }
        self.validated = 0
        """Number of reviews that met its conditions and were validated."""

    def __call__(self, review: Review) -> str:
        """Return why the write is denied; "" if it is allowed."""
        if not any(_about(rule, review) for rule in self._spec["matchConstraints"]["resourceRules"]):
            return ""
        known: dict[str, Any] = {
            "object": _plain(review.object),
            "oldObject": _plain(review.old_object),
            "request": {"userInfo": {"username": review.user}, "operation": review.operation},
        }
        try:
            if not all(cel.evaluate(each["expression"], known) for each in self._spec["matchConditions"]):
                return ""
            self.validated += 1
            known["variables"] = {}
            for variable in self._spec["variables"]:
                known["variables"][variable["name"]] = cel.evaluate(variable["expression"], known)
            for validation in self._spec["validations"]:
                if not cel.evaluate(validation["expression"], known):
                    return Denial(self._denied(validation["message"]), self._reason or validation["reason"])
        except (ValueError, TypeError, KeyError, RuntimeError) as error:  # cel raises any of these
            return self._denied(f"expression resulted in error: {error}")
        return ""

    def _denied(self, why: str) -> str:
        policy, binding = self._policy["metadata"]["name"], self._binding["metadata"]["name"]
        return f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}"


def _about(rule: Mapping[str, Any], review: Review) -> bool:
    resource = "/".join(filter(None, (review.resource, review.subresource)))
    return (
        review.group in rule["apiGroups"]
        and review.operation in rule["operations"]
        and resource in rule["resources"]
    )


def _plain(item: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if item is None else dict(item)
