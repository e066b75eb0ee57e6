"""The link of the admission policies, which limit what the controller's account may write. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from konductor_like.cli.doctor.acting import Acting
from konductor_like.cli.doctor.controller_links import is_outside
from konductor_like.cli.doctor.facts import Facts
from konductor_like.cli.doctor.link import (
    APPLY,
    APPLY_VALIDATION,
    Link,
    State,
    broken,
    known,
    ok,
    seen,
    warn,
)
from konductor_like.cluster.preflight import ACCOUNT, VALIDATION_POLICY, account_of, admission_objects
from konductor_like.model import NEEDS_LABEL

_OURS = "ours"
"""The variable with the names of the conditions that the controller may write; people may add to it."""
_RULES = ("variables", "validations")
_DEFAULTS: tuple[object, ...] = ({}, [], None, "Equivalent")
"""Values that the API server adds to a policy, and that change nothing."""
_TRY = "docs/use/check-the-chain.md#the-admission-policies"
_WORST_FIRST = (State.BROKEN, State.UNKNOWN, State.WARN, State.OK)


def policy(facts: Facts) -> Link:
    """Check that each policy is in force for the controller's account."""
    links = [_checked(name, facts) for name in seen(facts.policies)]
    worst = min(links, key=lambda link: _WORST_FIRST.index(link.state))
    if worst.state is State.BROKEN and is_outside(facts):
        why = "no policy limits the controller: it runs outside the cluster, with the rights of a person"
        return warn(why, "nothing on a laptop; to stay, install it (docs/start/cluster.md)")
    return worst


def _checked(name: str, facts: Facts) -> Link:
    apply = APPLY_VALIDATION if name == VALIDATION_POLICY else APPLY
    found, binding = ({**each.get("spec", {})} for each in seen(facts.policies)[name])
    lease = known(facts.controller, None)
    namespace = lease.namespace if lease else "konductor-like"
    settings = lease.settings if lease else None
    wanted, wanted_binding = (each["spec"] for each in admission_objects(namespace, settings)[name])
    if not found:
        return broken(f"there is no ValidatingAdmissionPolicy {name}", apply)
    if not binding:
        return broken(f"the policy has no binding {name}, so nothing applies it", apply)
    actions = [str(each) for each in binding.get("validationActions") or ()]
    if "Deny" not in actions:
        acts = ", ".join(actions) or "empty"
        return broken(f"the policy's binding does not deny: validationActions is {acts}", apply)
    for each in (binding, wanted_binding):
        each.pop("validationActions")  # "Audit" or "Warn" beside "Deny" changes nothing
    if unlike := _unlike(binding, wanted_binding):
        return broken(f"the binding {name} differs from the manifest in {', '.join(unlike)}", apply)
    if unlike := [each for each in _unlike(found, wanted) if each not in _RULES]:
        account = f" for {account_of(namespace)}" if "matchConditions" in unlike else ""
        return broken(f"the policy {name} differs from the manifest{account} in {', '.join(unlike)}", apply)
    if name == ACCOUNT and isinstance(facts.acting, Acting) and (why := facts.acting.own_refusal):
        return broken(f"the API server refuses the controller's own taint: {why}", apply)
    return _rules(name, found, wanted, facts)


def _rules(name: str, found: Mapping[str, Any], wanted: Mapping[str, Any], facts: Facts) -> Link:
    """Compare the expressions. A person may have changed them; only a dry run shows what they do."""
    if name == ACCOUNT and NEEDS_LABEL not in str(found.get("validations")):
        why = f"the policy is older than the label {NEEDS_LABEL}, which the controller then leaves out"
        return warn(why, APPLY)
    if condition := _condition_refused(found, facts):
        return broken(f"the policy {name} does not list the condition {condition} as the controller's", APPLY)
    if _expressions(found) != _expressions(wanted):
        why = f"the policy {name} differs from the manifest of this version in its expressions"
        return Link(State.UNKNOWN, f"{why}; what they deny is not known", f"{APPLY}; to try yours: {_TRY}")
    return ok("present, bound, and as in the manifest of this version")


def _unlike(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two specs differ, apart from what the API server adds."""
    return [key for key in sorted({*found, *wanted}) if _plain(found.get(key)) != _plain(wanted.get(key))]


def _plain(part: object) -> object:
    if not isinstance(part, Mapping):
        return None if part in _DEFAULTS else part
    kept = {key: value for key, value in part.items() if value not in _DEFAULTS}
    return kept or None


def _expressions(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the expressions of variables and validations, without the names of our own conditions."""
    rules = [each for part in _RULES for each in spec.get(part) or () if isinstance(each, Mapping)]
    return [
        (str(each.get("reason")), str(each.get("expression"))) for each in rules if each.get("name") != _OURS
    ]


def _condition_refused(found: Mapping[str, Any], facts: Facts) -> str:
    """Return the condition that the controller writes and the policy does not list; empty if it does."""
    lease = known(facts.controller, None)
    condition = lease.settings.node_condition if lease and lease.settings else ""
    variables = [each for each in found.get("variables") or () if isinstance(each, Mapping)]
    ours = [str(each.get("expression")) for each in variables if each.get("name") == _OURS]
    return condition if ours and f"'{condition}'" not in ours[0] else ""
