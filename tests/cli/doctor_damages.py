"""Ways to damage a site before `doctor` looks at it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from konductor_like.cli.doctor.link import State
from konductor_like.model import Verb
from konductor_like.model.attempts import Attempt, Doing, Unwritten
from konductor_like.model.controls import Control, ControlAct
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.kubernetes.access import Review
from konductor_like_sandbox.loki.limits import LokiLimits
from tests.cli.doctor_site import GPU_NODES, Site, deployment
from tests.manifests.roles import rules_of, single
from tools.manifests.manifests import documents, only

Damage = Callable[[Site], object]
POLICY_KINDS = {
    "validatingadmissionpolicies": "ValidatingAdmissionPolicy",
    "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
}
FIRST, SECOND, THIRD = GPU_NODES
POLICY, BINDING = (f"validatingadmissionpolic{end}/konductor-like" for end in ("ies", "ybindings"))


def change(**parts: Any) -> Damage:
    """Return a damage that sets these parts of the site."""

    def damage(site: Site) -> None:
        for name, value in parts.items():
            setattr(site, name, value)

    return damage


def put(key: str, thing: dict[str, Any]) -> Damage:
    """Return a damage that puts an object in place of another, or adds it."""
    return lambda site: site.objects.update({key: thing})


def remove(*keys: str) -> Damage:
    """Return a damage that removes objects."""
    return lambda site: [site.objects.pop(key) for key in keys]


def kube(act: Callable[[Any], object]) -> Damage:
    """Return a damage that changes the API server when it runs."""
    return change(before=lambda kube, _loki: act(kube))


def loki(act: Callable[[Any], object]) -> Damage:
    """Return a damage that changes Loki when it runs."""
    return change(before=lambda _kube, loki: act(loki))


def limits(**limits: Any) -> Damage:
    """Return a damage that sets limits of Loki."""
    return change(limits=LokiLimits(**limits))


def both(*damages: Damage) -> Damage:
    """Return one fault that shows in two places."""
    return lambda site: [damage(site) for damage in damages]


def policy_with(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Return a damage that edits a copy of the admission policy."""

    def damage(site: Site) -> None:
        copy = json.loads(json.dumps(site.objects[POLICY]))
        change(copy["spec"])
        site.objects[POLICY] = copy

    return damage


@dataclass(frozen=True)
class Case:
    """One broken site."""

    fault: str
    damage: Damage
    link: str
    state: State
    says: str
    """A part of the text or the advice."""
    also: tuple[str, ...] = ()
    """Other links that the same fault breaks."""


def broken(fault: str, damage: Damage, link: str, says: str, *also: str) -> Case:
    return Case(fault, damage, link, State.BROKEN, says, also)


def warned(fault: str, damage: Damage, link: str, says: str, *also: str) -> Case:
    return Case(fault, damage, link, State.WARN, says, also)


def failing(*doings: Doing, error: str = "Loki: cannot connect: Connection refused") -> Damage:
    """Return a damage for which these attempts of the controller have failed for 25 seconds."""

    def damage(site: Site) -> None:
        attempt = Attempt(None, datetime.now(UTC) - timedelta(seconds=25), error)
        site.attempts = {**site.attempts, **dict.fromkeys(doings, attempt)}

    return damage


def succeeded(doing: Doing, seconds_ago: float) -> Damage:
    """Return a damage for which this attempt last went well so long ago."""

    def damage(site: Site) -> None:
        site.attempts = {**site.attempts, doing: Attempt(datetime.now(UTC) - timedelta(seconds=seconds_ago))}

    return damage


def account_without(*rights: tuple[str, str]) -> Damage:
    """Return a damage that takes rights from the controller's account, while it runs."""

    def damage(site: Site) -> None:
        site.account = tuple(
            each for each in single(site.account) if (*each.verbs, *each.resources) not in rights
        )

    return damage


def binding_with(**parts: Any) -> Damage:
    """Return a damage that changes the binding of the policy."""

    def damage(site: Site) -> None:
        old = site.objects[BINDING]
        site.objects[BINDING] = {**old, "spec": {**old["spec"], **parts}}

    return damage


def optional_parts(condition: str) -> Damage:
    """Return the change of a site that switches the Node condition and the jobs' Events on."""

    def damage(site: Site) -> None:
        site.settings = {"node_condition": condition, "job_events": True}
        for file in ("node_condition.yaml", "job_events.yaml"):
            docs = documents(file)
            site.account += rules_of(docs)
            for table, kind in POLICY_KINDS.items():
                each = json.loads(json.dumps(only(docs, kind)).replace("TrainyGPUFaulty", condition))
                site.objects[f"{table}/{each['metadata']['name']}"] = each

    return damage


def validations(namespace: str = "konductor-like-validation") -> Damage:
    """Return the change of a site that switches validations on."""

    def damage(site: Site) -> None:
        site.policy = replace(site.policy, validates=True)
        site.settings = {**site.settings, "validation_namespace": namespace}
        docs = renamed(documents("validation.yaml"), namespace)
        site.account += rules_of(docs)
        kinds = {**POLICY_KINDS, "namespaces": "Namespace", "priorityclasses": "PriorityClass"}
        for table, kind in kinds.items():
            each = only(docs, kind)
            site.objects[f"{table}/{each['metadata']['name']}"] = each

    return damage


def renamed(docs: list[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    """Return the manifest of validations for another namespace, as the chart renders it."""
    text = json.dumps(docs)
    for name in ("namespace", "kubernetes.io/metadata.name"):
        text = text.replace(f'"{name}": "konductor-like-validation"', f'"{name}": "{namespace}"')
    found: list[dict[str, Any]] = json.loads(text)
    only(found, "Namespace")["metadata"]["name"] = namespace
    return found


def deny_taints(server: Any) -> None:
    """Let a webhook of somebody else deny every taint, after the policies."""
    policies = server._writes._admission

    def admission(review: Review) -> str:
        denied = 'admission webhook "x.example.com" denied the request: no taints, says the webhook'
        return policies(review) or (denied if (review.object or {}).get("spec", {}).get("taints") else "")

    server._writes._admission = admission


def for_another_account(spec: dict[str, Any]) -> None:
    """Change a policy to that of an installation in another namespace."""
    [condition] = spec["matchConditions"]
    condition["expression"] = condition["expression"].replace(":konductor-like:", ":gpu-ops:")


def for_pods(spec: dict[str, Any]) -> None:
    """Change a policy so that it is about pods."""
    spec["matchConstraints"]["resourceRules"][0]["resources"] = ["pods"]


def selecting_few(spec: dict[str, Any]) -> None:
    """Change a policy so that it is about labelled Nodes only."""
    spec["matchConstraints"]["objectSelector"] = {"matchLabels": {"no": "such"}}


def rename(node: str, name: str) -> Damage:
    return lambda site: site.names.update({node: name})


NOT_SERVED = Mishap(
    status=404,
    body='{"kind":"Status","message":"the server could not find the requested resource","code":404}',
    content_type="application/json",
)
PAUSE = ControlAct(Control.PAUSE, datetime.now(UTC), "kim", "driver roll-out")
NO_DRY_RUN = deployment("konductor-like", "konductor-like", "run", "--dry-run")
REFUSE_TEAM_A = kube(lambda kube: kube.access.deny("list", "pods", "", "", "team-a"))

NO_TAINT = {"expression": "false", "message": "no taints here", "reason": "Forbidden"}
SELECTING_NONE = {"objectSelector": {"matchLabels": {"no": "such"}}}
NOBODY_ACTS = kube(lambda kube: kube.access.deny("impersonate", "*"))
UNWRITTEN = (Unwritten(FIRST, Verb.TAINT, "xid.79"),)
RECENTLY_NAMELESS = dict.fromkeys(GPU_NODES, "")
RECENTLY_SHORT = {name: name.partition(".")[0] for name in GPU_NODES}
OTHER_MATCHERS = {"extra_matchers": 'cluster="other"'}
OTHER_SELECTOR = {"kernel_selector": '{k8s_namespace_name="gpu-logs"}'}
NOT_LOKI = Mishap(status=501, body="<title>Error response</title>", content_type="text/html")
MAX_STREAMS = {"recent_names": {THIRD: None}, "unheard": frozenset({THIRD})}
"""Loki has as many active streams as it allows, and refuses a node's new one."""
POD_RULES = [
    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"], "scope": "*"}
]
VALIDATION_POLICY = f"{POLICY}-validation"
CONDITION_POLICY, EVENTS_POLICY = f"{POLICY}-node-condition", f"{POLICY}-job-events"
