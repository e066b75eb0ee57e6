"""The links that Kubernetes shows: API server, rights, controller, policy, nodes, readers, tools. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from konductor_like.doctor.facts import Controller, Facts, Unseen, Workload
from konductor_like.doctor.link import Link, Named, ago, few, number, some_of, span
from konductor_like.doctor.others import tools_in
from konductor_like.model import NEEDS_LABEL
from konductor_like.model.time import stamp

CLUSTER, RIGHTS, CONTROLLER = Named("API server"), Named("rights"), Named("controller")
READING, POLICY, NODES = Named("reading"), Named("admission policy"), Named("GPU nodes")
READERS, COLLECTOR, TOOLS = Named("readers"), Named("collector"), Named("other tools")
POLICY_DIGEST = "72c2196fe969"
"""Digest of the rules of the admission policy in manifests/controller_deployment.yaml; a test compares it."""
_APPLY = "kubectl apply -f manifests/controller_deployment.yaml"
_COLLECTORS = re.compile(r"opentelemetry-collector|otelcol|otel-collector|/alloy|promtail|fluent|vector")
_LOGS = "kubectl -n {namespace} logs deploy/konductor-like --tail=20"


def cluster(facts: Facts) -> Link:
    """Check that the API server answers, and knows the caller."""
    if isinstance(facts.cluster, Unseen):
        return CLUSTER.unseen(facts.cluster)
    return CLUSTER.ok(f"{facts.cluster.server} knows {facts.cluster.user}")


def rights(facts: Facts) -> Link:
    """Check that the caller may use the commands; a viewer without the right to write is whole."""
    if isinstance(facts.rights, Unseen):
        return RIGHTS.unseen(facts.rights)
    details = [f"{commands}: not without {', '.join(lacks)}" for commands, lacks in facts.rights.items()]
    if not details:
        return RIGHTS.ok("every command of this program is allowed")
    if any(commands.startswith("status") for commands in facts.rights):
        do = "ask for the roles of manifests/people_rbac.yaml (docs/use/permissions.md)"
        return RIGHTS.warn("you may not read what `status` needs", do, details)
    return RIGHTS.ok(f"you may look, and not use: {', '.join(facts.rights)}", details)


def _deployment(facts: Facts) -> Workload | None:
    """Return the controller's Deployment, if it was seen."""
    if isinstance(facts.deployments, Unseen) or isinstance(facts.controller, Unseen):
        return None
    namespace = facts.controller.lease.partition("/")[0]
    found = (each for each in facts.deployments if each.namespace == namespace)
    return next((each for each in found if each.name == "konductor-like"), None)


def controller(facts: Facts) -> Link:
    """Check that a controller holds the Lease and may taint nodes."""
    seen = facts.controller
    if isinstance(seen, Unseen):
        return CONTROLLER.unseen(seen)
    namespace = seen.lease.partition("/")[0]
    deployment = _deployment(facts)
    if not seen.alive:
        return _not_running(facts, seen, deployment)
    version = f", version {seen.version}" if seen.version else ""
    words = f"{seen.holder} holds the Lease {seen.lease}{version}"
    if seen.pause:
        return CONTROLLER.warn(f"{seen.pause}: no node is tainted", "konductor-like resume", [words])
    if seen.holds_all:
        do = f"kubectl -n {namespace} get configmap konductor-like -o yaml"
        why = "KONDUCTOR_BRAKE_MAX_NODES is 0: the brake holds back every taint"
        return CONTROLLER.warn(why, do, [words])
    if seen.problem:
        return CONTROLLER.warn(f"a part of the Lease cannot be read: {seen.problem}", "konductor-like status")
    return CONTROLLER.ok(words)


def _not_running(facts: Facts, seen: Controller, deployment: Workload | None) -> Link:
    namespace = seen.lease.partition("/")[0]
    logs = _LOGS.format(namespace=namespace)
    details = []
    if deployment is not None:
        if "--dry-run" in deployment.arguments and deployment.ready:
            why = "the Deployment runs with --dry-run: it takes no Lease and taints no node"
            return CONTROLLER.warn(why, f"kubectl -n {namespace} edit deployment konductor-like")
        details = [f"Deployment: {deployment.ready} of {number(deployment.desired, 'pod')} ready"]
        if not deployment.desired:
            do = f"kubectl -n {namespace} scale deployment/konductor-like --replicas=1"
            return CONTROLLER.broken("the Deployment konductor-like has 0 replicas", do)
    elif not isinstance(facts.deployments, Unseen):
        do = _APPLY if not seen.exists else logs
        details = [f"no Deployment konductor-like in namespace {namespace}"]
        return CONTROLLER.broken("no controller is installed, or it runs outside the cluster", do, details)
    if not seen.exists:
        return CONTROLLER.broken(f"there is no Lease {seen.lease}: no controller ever ran", logs, details)
    if seen.holder is None:
        return CONTROLLER.broken(f"nobody holds the Lease {seen.lease}", logs, details)
    when = ago(seen.renewed, facts.now) if seen.renewed else "never"
    return CONTROLLER.broken(f"{seen.holder} renewed the Lease {when}: it is dead or stuck", logs, details)


def reading(facts: Facts) -> Link:
    """Check that the controller reads both sources up to the present."""
    seen = facts.controller
    if isinstance(seen, Unseen):
        return READING.unseen(seen)
    if not seen.alive:
        return READING.after(CONTROLLER)
    do = _LOGS.format(namespace=seen.lease.partition("/")[0])
    if seen.kernel_read is None or seen.coverage is None:
        return READING.unknown("the controller has not published yet how far it has read", do)
    stale = timedelta(seconds=seen.stale_seconds)
    kernel = min(seen.kernel_read, seen.coverage.at)
    if facts.now - kernel > stale:
        return READING.broken(f"blind: kernel logs were read up to {stamp(kernel)} only", do)
    if seen.pods_read is not None and facts.now - seen.pods_read > stale:
        return READING.warn(f"pod logs were read up to {stamp(seen.pods_read)} only", do)
    return READING.ok(f"kernel logs are read up to {ago(kernel, facts.now)}")


def is_reading(facts: Facts) -> Controller | None:
    """Return the controller if it runs and reads the kernel logs up to the present."""
    whole = reading(facts).state in ("ok", "warn")
    return facts.controller if whole and not isinstance(facts.controller, Unseen) else None


def digest_of(spec: Mapping[str, Any]) -> str:
    """Return a digest of the variables and validations of an admission policy."""
    parts = [
        str(each.get("expression"))
        for name in ("variables", "validations")
        for each in spec.get(name) or ()
        if isinstance(each, Mapping)
    ]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:12]


def policy(facts: Facts) -> Link:
    """Check that the policy that limits the controller's writes is in force."""
    seen = facts.policies
    if isinstance(seen, Unseen):
        return POLICY.unseen(seen)
    if not seen.served:
        do = "upgrade to Kubernetes 1.30 or newer"
        return POLICY.warn("this API server has no admission policies: only roles limit the controller", do)
    if seen.spec is None:
        return POLICY.broken("there is no ValidatingAdmissionPolicy konductor-like", _APPLY)
    if seen.actions is None:
        why = "the policy has no binding konductor-like, so nothing applies it"
        return POLICY.broken(why, _APPLY)
    if "Deny" not in seen.actions:
        why = f"the policy's binding does not deny: validationActions is {', '.join(seen.actions) or 'empty'}"
        return POLICY.broken(why, _APPLY)
    if NEEDS_LABEL not in str(seen.spec.get("validations")):
        why = f"the policy is older than the label {NEEDS_LABEL}, which the controller then leaves out"
        return POLICY.warn(why, _APPLY)
    if digest_of(seen.spec) != POLICY_DIGEST:
        why = "the policy differs from the manifest of this version"
        return POLICY.warn(why, _APPLY.replace("apply", "diff"))
    return POLICY.ok("present, bound, and as in the manifest of this version")


def gpu_nodes_of(facts: Facts) -> frozenset[str]:
    """Return the names of the GPU nodes; empty if the Nodes were not seen."""
    if isinstance(facts.nodes, Unseen):
        return frozenset()
    return frozenset(name for name, node in facts.nodes.items() if node.is_gpu_node)


def nodes(facts: Facts) -> Link:
    """Check that the cluster has GPU nodes."""
    if isinstance(facts.nodes, Unseen):
        return NODES.unseen(facts.nodes)
    found = len(gpu_nodes_of(facts))
    if not found:
        do = "set KONDUCTOR_GPU_NODE_SELECTOR to a label of the GPU nodes (docs/start/own-loki.md)"
        return NODES.broken(f"none of {number(len(facts.nodes), 'Node')} counts as a GPU node", do)
    return NODES.ok(f"{found} of {number(len(facts.nodes), 'Node')}")


def without_reader(facts: Facts) -> frozenset[str]:
    """Return the GPU nodes that are known to have no ready reader."""
    if isinstance(facts.readers, Unseen):
        return frozenset()
    return frozenset(name for name in gpu_nodes_of(facts) if not facts.readers.get(name))


def readers(facts: Facts) -> Link:
    """Check that the kernel-log reader runs on every GPU node."""
    namespace, every = facts.expected.reader_namespace, gpu_nodes_of(facts)
    if isinstance(facts.readers, Unseen):
        return READERS.unseen(facts.readers)
    if not every:
        return READERS.after(NODES)
    if not facts.readers:
        do = "kubectl apply -f manifests/dmesg_daemonset.yaml"
        return READERS.broken(f"no pod runs in namespace {namespace}", do, _sets(facts, namespace))
    missing = without_reader(facts)
    absent, unready = missing - set(facts.readers), missing & set(facts.readers)
    details = _sets(facts, namespace)
    if absent:
        do = f"kubectl -n {namespace} describe daemonset"
        details += [f"not ready: {few(unready)}"] if unready else []
        return READERS.broken(
            f"no reader runs on {some_of(sorted(absent), len(every), 'GPU node')}", do, details
        )
    if unready:
        do = f"kubectl -n {namespace} get pods -o wide"
        words = some_of(sorted(unready), len(every), "GPU node")
        return READERS.broken(f"the reader is not ready on {words}", do, details)
    return READERS.ok(f"a reader is ready on every GPU node ({len(every)})", details)


def _sets(facts: Facts, namespace: str) -> list[str]:
    sets = () if isinstance(facts.daemonsets, Unseen) else facts.daemonsets
    return [_ready(each) for each in sets if each.namespace == namespace]


def _ready(each: Workload) -> str:
    return f"DaemonSet {each.namespace}/{each.name}: {each.ready} of {number(each.desired, 'pod')} ready"


def collector(facts: Facts) -> Link:
    """Check the DaemonSet that ships the lines, if it is a known one."""
    if isinstance(facts.daemonsets, Unseen):
        return COLLECTOR.unseen(facts.daemonsets)
    found = [
        each
        for each in facts.daemonsets
        if any(_COLLECTORS.search(text) for text in (each.name, *each.images))
    ]
    details = [_ready(each) for each in found]
    if short := [each for each in found if each.ready < each.desired]:
        do = f"kubectl -n {short[0].namespace} get pods -o wide"
        return COLLECTOR.broken(_ready(short[0]), do, details[1:])
    if not found:
        return COLLECTOR.ok("no known collector is a DaemonSet here; the kernel stream shows if lines arrive")
    return COLLECTOR.ok(details[0], details[1:])


def tools(facts: Facts) -> Link:
    """Name the other tools that act on nodes."""
    workloads: list[Workload] = []
    taints: list[tuple[str, str]] = []
    unseen = [each for each in (facts.daemonsets, facts.deployments) if isinstance(each, Unseen)]
    for each in (facts.daemonsets, facts.deployments):
        workloads += () if isinstance(each, Unseen) else each
    if not isinstance(facts.nodes, Unseen):
        taints = [(key, name) for name, node in sorted(facts.nodes.items()) for key in node.taints]
    groups = frozenset[str]() if isinstance(facts.groups, Unseen) else facts.groups
    found = tools_in(workloads, groups, taints)
    details = [f"{each.tool.name} ({each.trace}): {each.tool.does}" for each in found]
    if acting := [each.tool.name for each in found if not each.harmless]:
        words = f"{', '.join(acting)} {'acts' if len(acting) == 1 else 'act'} on nodes too"
        return TOOLS.warn(words, "read docs/use/daemonsets-and-autoscalers.md", details)
    if unseen:
        return TOOLS.unseen(unseen[0])
    return TOOLS.ok("no known tool repairs or removes nodes here", details)


def clock_words(seconds: float) -> str:
    """Return ``40 s ahead`` or ``40 s behind``."""
    return f"{span(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}"
