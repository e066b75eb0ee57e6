"""Broken sites, each with one fault, and the link that `doctor` must name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from konductor_like.cli.doctor.link import State
from konductor_like.model.controls import Control, ControlAct
from konductor_like.policy.config import PolicyConfig
from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.kubernetes.errors import matching
from konductor_like.sandbox.kubernetes.fleet import make_cpu_node
from konductor_like.sandbox.loki import HTML_ANSWER
from konductor_like.sandbox.loki.limits import LokiLimits
from tests.cli.doctor_site import GPU_NODES, Site, daemonset, deployment, pod
from tests.manifests.manifests import documents

Damage = Callable[[Site], object]
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
AUTOSCALER = ("deployments/ca", "kube-system", "cluster-autoscaler")

CASES = [
    broken("the API server is down", kube(lambda kube: kube.stop()), "API server", "cannot be reached"),
    broken(
        "the token has expired",
        kube(lambda kube: [kube.access.revoke(token) for token in list(kube.access._users)]),
        "API server",
        "log in again",
    ),
    broken(
        "another program answers",
        kube(lambda kube: kube.mishaps.add(Mishap(status=404), None)),
        "API server",
        "cannot list the API groups",
    ),
    broken(
        "there is no kubeconfig", change(environment={"KUBECONFIG": "/nowhere"}), "API server", "kubeconfig"
    ),
    warned(
        "the caller may not read Nodes",
        kube(lambda kube: kube.access.deny("list", "nodes")),
        "rights",
        "list nodes",
    ),
    broken("no controller ever ran", change(lease=False), "controller", "no controller ever ran"),
    broken(
        "nothing is installed",
        both(change(lease=False), remove("deployments/konductor-like")),
        "controller",
        "no controller is installed",
    ),
    broken("the controller is dead", change(renewed_seconds=400.0), "controller", "it is dead or stuck"),
    broken("nobody holds the Lease", change(holder=""), "controller", "nobody holds the Lease"),
    broken(
        "the Deployment is scaled down",
        both(
            change(renewed_seconds=400.0),
            put("deployments/konductor-like", deployment("konductor-like", "konductor-like", replicas=0)),
        ),
        "controller",
        "--replicas=1",
    ),
    warned(
        "the controller only pretends",
        both(change(lease=False), put("deployments/konductor-like", NO_DRY_RUN)),
        "controller",
        "--dry-run",
    ),
    warned("somebody paused it", change(pause=PAUSE), "controller", "paused by kim: driver roll-out"),
    warned(
        "the brake holds everything",
        change(policy=PolicyConfig(brake_max_nodes=0)),
        "controller",
        "KONDUCTOR_BRAKE_MAX_NODES is 0",
    ),
    broken("the controller is blind", change(kernel_read_seconds=900.0), "reading", "blind: kernel logs"),
    warned("pods' logs are not read", change(pods_read_seconds=900.0), "reading", "pod logs were read"),
    broken("the policy is missing", remove(POLICY, BINDING), "admission policy", "kubectl apply"),
    broken("the policy is not bound", remove(BINDING), "admission policy", "no binding"),
    broken(
        "the policy only audits",
        lambda site: site.objects.update(
            {BINDING: {**site.objects[BINDING], "spec": {"validationActions": ["Audit"]}}}
        ),
        "admission policy",
        "does not deny: validationActions is Audit",
    ),
    warned(
        "the policy is old",
        policy_with(
            lambda spec: spec.update(documents("../tests/manifests/policy_without_needs.yaml")[0]["spec"])
        ),
        "admission policy",
        "older than the label trainy.konduktor.ai/needs",
    ),
    warned(
        "somebody edited the policy",
        policy_with(lambda spec: spec["validations"].pop(0)),
        "admission policy",
        "differs from the manifest",
    ),
    warned(
        "Kubernetes is too old",
        kube(lambda kube: kube.mishaps.add(NOT_SERVED, None, matching(path="admissionregistration"))),
        "admission policy",
        "Kubernetes 1.30",
    ),
    broken(
        "no node counts as a GPU node",
        change(nodes=[make_cpu_node(name) for name in GPU_NODES]),
        "GPU nodes",
        "KONDUCTOR_GPU_NODE_SELECTOR",
    ),
    broken("no pod of the reader runs", change(pods=[]), "readers", "describe daemonset"),
    broken(
        "one node has no reader",
        both(lambda site: site.pods.pop(0), lambda site: site.names.pop(FIRST)),
        "readers",
        f"1 of 3 GPU nodes: {FIRST}",
    ),
    broken(
        "a reader crashes",
        lambda site: site.pods.__setitem__(1, pod("dmesg-logging", "dmesg-b", SECOND, ready=False)),
        "readers",
        f"not ready on 1 of 3 GPU nodes: {SECOND}",
    ),
    broken(
        "the collector is not ready",
        put("daemonsets/otel", daemonset("otel-collector", "otel-collector-agent", "otel/x", ready=2)),
        "collector",
        "2 of 3 pods ready",
    ),
    broken(
        "Loki is down",
        both(loki(lambda loki: loki.stop()), change(kernel_read_seconds=900.0)),
        "Loki",
        "cannot connect",
        "reading",
    ),
    warned(
        "Loki cannot be reached from here", loki(lambda loki: loki.stop()), "Loki", "does not answer here"
    ),
    warned(
        "the address is a login page",
        loki(lambda loki: loki.fail(HTML_ANSWER, None)),
        "Loki",
        "LOG_ENDPOINT may point at another server",
    ),
    broken("no tenant is set", change(tenants=True), "tenant and login", "KONDUCTOR_LOKI_TENANT"),
    broken(
        "the password is wrong",
        loki(lambda loki: loki.fail(Mishap(status=401, body="unauthorized"), None)),
        "tenant and login",
        "KONDUCTOR_LOKI_BEARER_TOKEN",
    ),
    warned("few lines", limits(max_entries_limit_per_query=500), "limits", "500 lines at most"),
    warned("short queries", limits(max_query_length_seconds=1800), "limits", "over one hour is refused"),
    warned("small messages", limits(grpc_message_bytes=1 << 20), "limits", "less than 4 MiB"),
    warned("patient Loki", limits(query_timeout_seconds=120.0), "limits", "query_timeout"),
    warned("short lookback", limits(max_query_lookback_seconds=7200), "limits", "older than 120m"),
    broken(
        "the kernel log does not arrive",
        change(beats=False, unheard=frozenset(GPU_NODES)),
        "kernel stream",
        "has no line in the last hour",
    ),
    broken(
        "the kernel log has another name",
        change(kernel={"namespace": "gpu-logs"}, unheard=frozenset(GPU_NODES)),
        "kernel stream",
        "KONDUCTOR_KERNEL_SELECTOR",
    ),
    warned(
        "the reader is a plain dmesg",
        change(line="[12.5] usb 1-1: new device", unheard=frozenset(GPU_NODES)),
        "kernel stream",
        "no heartbeat",
    ),
    broken(
        "the lines name no node",
        change(environment={"KONDUCTOR_NODE_LABEL": "node"}),
        "node label",
        "no heartbeat has node",
    ),
    broken("short names", rename(FIRST, "gpu-1"), "node names", f"the lines say gpu-1, the Node is {FIRST}"),
    broken("capitals", rename(FIRST, FIRST.upper()), "node names", "the lines say GPU-1"),
    broken("another domain", rename(FIRST, "gpu-1.other.net"), "node names", "gpu-1.other.net"),
    broken("a cluster prefix", rename(FIRST, f"prod-{FIRST}"), "node names", f"prod-{FIRST}"),
    warned(
        "another cluster's nodes",
        lambda site: site.names.update({"stray-9": ""}),
        "node names",
        "heartbeats of stray-9",
    ),
    broken("a silent node", lambda site: site.names.pop(THIRD), "heartbeats", f"1 of 3 GPU nodes: {THIRD}"),
    broken(
        "a namespace is not shipped", change(shipped_namespaces=()), "namespaces", "Loki has no line: team-a"
    ),
    warned(
        "a namespace may be idle",
        both(
            change(shipped_namespaces=()),
            kube(lambda kube: kube.access.deny("list", "pods", "", "", "team-a")),
        ),
        "namespaces",
        "normal if no pod runs there",
    ),
    warned("a node's clock is fast", change(ahead_seconds=300.0), "clocks", f"{FIRST} is 4m"),
    warned(
        "Loki deletes early", limits(retention_period_seconds=21_600), "retention", "deletes lines after 6h"
    ),
    warned(
        "Loki deletes early and shows no configuration",
        both(
            change(oldest_seconds=4000.0),
            loki(lambda loki: loki.fail(Mishap(status=404), None, matching(path="/config"))),
        ),
        "retention",
        "the controller started 3d ago",
    ),
    warned(
        "Karpenter",
        put("deployments/k", deployment("kube-system", "karpenter")),
        "other tools",
        "Karpenter acts",
    ),
    warned(
        "an autoscaler that does not know the taint",
        put(AUTOSCALER[0], deployment(*AUTOSCALER[1:])),
        "other tools",
        "--status-taint",
    ),
    warned(
        "a tool that left only a taint",
        lambda site: site.nodes[0]["spec"].update(
            taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
        ),
        "other tools",
        f"taint karpenter.sh/disrupted on {FIRST}",
    ),
]
