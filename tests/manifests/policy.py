"""A ValidatingAdmissionPolicy carried out as the API server does, for the stand-in's ``admission``.

It uses a policy's request rules, conditions, variables and validations, and its own implementation of CEL.
``tests/contract`` runs the same cases against a real API server, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import cel

from konductor_like_sandbox.kubernetes import Denial, KubernetesServer, Review
from tools.manifests.manifests import documents, only

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
        return denial(self._policy, self._binding, review, reason=self._reason, on_validated=self._count)

    def _count(self) -> None:
        self.validated += 1


class StoredPolicies:
    """The policies and bindings that the stand-in ``server`` stores; without it everything is allowed."""

    server: KubernetesServer | None = None

    def __call__(self, review: Review) -> str:
        """Return why the write is denied; "" if it is allowed."""
        if self.server is None:
            return ""
        stored = self.server.objects("validatingadmissionpolicies")
        policies = {each["metadata"]["name"]: each for each in stored}
        for binding in self.server.objects("validatingadmissionpolicybindings"):
            spec = binding["spec"]
            policy = policies.get(spec.get("policyName"))
            applies = "Deny" in spec["validationActions"] and _selects(spec.get("matchResources", {}), review)
            if policy is not None and applies and (why := denial(policy, binding, review)):
                return why
        return ""


def denial(
    policy: Mapping[str, Any],
    binding: Mapping[str, Any],
    review: Review,
    *,
    reason: str = "",
    on_validated: Callable[[], object] = lambda: None,
) -> str:
    """Return why a policy denies a write; "" if it allows it. ``reason`` replaces the policy's reasons."""
    spec = policy["spec"]
    names = policy["metadata"]["name"], binding["metadata"]["name"]
    denied = f"ValidatingAdmissionPolicy '{names[0]}' with binding '{names[1]}' denied request: "
    if not _selects(spec["matchConstraints"], review):
        return ""
    known: dict[str, Any] = {
        "object": _plain(review.object),
        "oldObject": _plain(review.old_object),
        "request": {
            "userInfo": {"username": review.user},
            "operation": review.operation,
            "resource": {"group": review.group, "resource": review.resource},
        },
    }
    context = cel.Context(variables=known)  # made once: each copy of two Nodes takes milliseconds
    variables: dict[str, Any] = {}

    def evaluated(part: Mapping[str, Any]) -> Any:
        if "variables." in part["expression"]:
            context.add_variable("variables", variables)
        return _program(part["expression"]).execute(context)

    try:
        if not all(map(evaluated, spec["matchConditions"])):
            return ""
        on_validated()
        for variable in spec["variables"]:
            variables[variable["name"]] = evaluated(variable)
        for validation in spec["validations"]:
            if not evaluated(validation):
                return Denial(denied + validation["message"], reason or validation["reason"])
    except (ValueError, TypeError, KeyError, RuntimeError) as error:  # cel raises any of these
        return "" if spec["failurePolicy"] == "Ignore" else f"{denied}expression resulted in error: {error}"
    return ""


@cache
def _program(expression: str) -> Any:
    return cel.compile(expression)


def _selects(constraints: Mapping[str, Any], review: Review) -> bool:
    """Whether the rules for requests and for labels select the write; a binding need not have any."""
    rules = constraints.get("resourceRules")
    namespaces = constraints.get("namespaceSelector", {}).get("matchLabels", {})
    wanted = constraints.get("objectSelector", {}).get("matchLabels", {}).items()
    objects = [each for each in (review.object, review.old_object) if each is not None]
    labels = [each["metadata"].get("labels", {}).items() for each in objects]
    return (
        (not rules or any(_about(rule, review) for rule in rules))
        and (not wanted or any(wanted <= each for each in labels))
        and (not namespaces or any(_in(namespaces, each) for each in objects))
    )


def _in(labels: Mapping[str, str], item: Mapping[str, Any]) -> bool:
    """Whether the object is in a namespace with these labels, of which each namespace has only its name."""
    return labels == {"kubernetes.io/metadata.name": item["metadata"].get("namespace")}


def _about(rule: Mapping[str, Any], review: Review) -> bool:
    resource = "/".join(filter(None, (review.resource, review.subresource)))
    resources = {resource} if review.subresource else {resource, "*"}  # the wildcard means no subresource
    return (
        not {review.group, "*"}.isdisjoint(rule["apiGroups"])
        and review.operation in rule["operations"]
        and not resources.isdisjoint(rule["resources"])
    )


def _plain(item: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if item is None else dict(item)
