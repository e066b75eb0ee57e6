"""The links that Kubernetes shows: API server, rights, controller, policy, nodes, readers, tools. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.resources import files
from typing import Any

from konductor_like.cli.columns import age_of, count
from konductor_like.cli.doctor.facts import Facts, Workload
from konductor_like.cli.doctor.link import Link, Unseen, after, broken, few, known, ok, seen, some_of, warn
from konductor_like.cli.session import ControllerReport
from konductor_like.cluster.preflight import admission_objects
from konductor_like.cluster.reader_pods import reader_place
from konductor_like.model import NEEDS_LABEL, CoverageState, Source
from konductor_like.model.time import stamp
from konductor_like.policy.wording import pause_words

_INSTALL = "helm upgrade --install konductor-like charts/konductor-like -n konductor-like -f mine.yaml"
_APPLY = f"{_INSTALL} (or kubectl apply -k .)"
"""A bare `kubectl apply -f` would undo the image and the settings of a chart or a kustomization."""
_COLLECTORS = re.compile(r"opentelemetry-collector|otelcol|otel-collector|/alloy|promtail|fluent|vector")


def cluster(facts: Facts) -> Link:
    """Check that the API server answers, and knows the caller."""
    found = seen(facts.cluster)
    return ok(f"{found.server} knows {found.user}")


def rights(facts: Facts) -> Link:
    """Check that the caller may use the commands; a viewer without the right to write is whole."""
    missing = seen(facts.rights)
    details = [f"{commands}: not without {lacks}" for commands, lacks in missing.items()]
    if not details:
        return ok("every command of this program is allowed")
    if any(commands.startswith("status") for commands in missing):
        do = "ask for the roles of manifests/people_rbac.yaml (docs/use/permissions.md)"
        return warn("you may not read what `status` needs", do, *details)
    return ok(f"you may look, and not use: {', '.join(missing)}", *details)


def controller(facts: Facts) -> Link:
    """Check that a controller holds the Lease and may taint nodes."""
    lease = seen(facts.controller)
    namespace, pause = lease.lease.partition("/")[0], lease.controls.pause
    if not lease.alive(facts.now):
        return _not_running(facts, lease, namespace)
    words = f"{lease.holder} holds the Lease {lease.lease}"
    if pause and (pause.until is None or pause.until > facts.now):
        return warn(f"{pause_words(pause)}: no node is tainted", "konductor-like resume", words)
    if lease.policy.brake_max_nodes == 0:
        do = f"kubectl -n {namespace} get configmap konductor-like -o yaml"
        return warn("KONDUCTOR_BRAKE_MAX_NODES is 0: the brake holds back every taint", do, words)
    if lease.problem:
        return warn(f"a part of the Lease cannot be read: {lease.problem}", "konductor-like status")
    return ok(f"{words}, version {lease.program}" if lease.program else words)


def _not_running(facts: Facts, lease: ControllerReport, namespace: str) -> Link:
    details, do = tuple[str, ...](), _log(lease)
    if not isinstance(facts.deployments, Unseen):
        mine = (each for each in facts.deployments if each.namespace == namespace)
        deployment = next((each for each in mine if each.name == "konductor-like"), None)
        if deployment is None:
            why = "no controller is installed, or it runs outside the cluster"
            why = f"{_renewed(lease, facts.now)}; {why}" if lease.renewed else why
            return broken(why, _APPLY, f"no Deployment konductor-like in namespace {namespace}")
        if "--dry-run" in deployment.arguments and deployment.ready:
            why = "the Deployment runs with --dry-run: it takes no Lease and taints no node"
            return warn(why, f"kubectl -n {namespace} edit deployment konductor-like")
        if not deployment.desired:
            do = f"kubectl -n {namespace} scale deployment/konductor-like --replicas=1"
            return broken("the Deployment konductor-like has 0 replicas", do)
        details = (f"Deployment: {deployment.ready} of {count(deployment.desired, 'pod')} ready",)
        if not deployment.ready:
            do = f"kubectl -n {namespace} describe deployment,pods"
    why = f"{_renewed(lease, facts.now)}: it is dead or stuck"
    if not lease.exists or lease.holder is None:
        nobody = f"nobody holds the Lease {lease.lease}"
        why = nobody if lease.exists else f"there is no Lease {lease.lease}: no controller ever ran"
    return broken(why, do, *details)


def _renewed(lease: ControllerReport, now: datetime) -> str:
    when = f"{age_of(lease.renewed, now)} ago" if lease.renewed else "never"
    return f"{lease.holder} renewed the Lease {when}"


def _log(lease: ControllerReport) -> str:
    return f"kubectl -n {lease.lease.partition('/')[0]} logs deploy/konductor-like --tail=20"


def reading(facts: Facts) -> Link:
    """Check that the controller reads both sources up to the present."""
    lease = seen(facts.controller)
    if not lease.alive(facts.now):
        raise after("controller")
    if Source.KERNEL not in lease.reached_ns or lease.coverage is None:
        raise Unseen("the controller has not published yet how far it has read", _log(lease))
    if since := lease.unread_since(facts.now):
        return broken(f"blind: kernel logs were read up to {stamp(since)} only", _log(lease))
    if since := lease.unread_since(facts.now, Source.POD):
        return warn(f"pod logs were read up to {stamp(since)} only", _log(lease))
    return ok(f"kernel logs are read up to {age_of(lease.coverage.at, facts.now)} ago")


def is_reading(facts: Facts) -> bool:
    """Whether the controller runs and reads the kernel logs up to the present."""
    try:
        return reading(facts).state != "broken"
    except Unseen:
        return False


def measured(facts: Facts) -> frozenset[str]:
    """Return the GPU nodes that the controller hears."""
    coverage = seen(facts.controller).coverage if is_reading(facts) else None
    every = gpu_nodes_of(facts) if coverage else ()
    return frozenset(name for name in every if coverage and coverage.of(name) is CoverageState.MEASURED)


def _rules(spec: Mapping[str, Any]) -> list[str]:
    """Return the expressions of the variables and validations of an admission policy."""
    rules = [each for name in ("variables", "validations") for each in spec.get(name) or ()]
    return [str(each.get("expression")) for each in rules if isinstance(each, Mapping)]


def policy(facts: Facts) -> Link:
    """Check that the policy that limits the controller's writes is in force."""
    spec, binding = (seen(each).get("spec") or {} for each in (facts.policy, facts.binding))
    if not spec:
        return broken("there is no ValidatingAdmissionPolicy konductor-like", _APPLY)
    if not binding:
        return broken("the policy has no binding konductor-like, so nothing applies it", _APPLY)
    actions = [str(each) for each in binding.get("validationActions") or ()]
    if "Deny" not in actions:
        acts = ", ".join(actions) or "empty"
        return broken(f"the policy's binding does not deny: validationActions is {acts}", _APPLY)
    if NEEDS_LABEL not in str(spec.get("validations")):
        why = f"the policy is older than the label {NEEDS_LABEL}, which the controller then leaves out"
        return warn(why, _APPLY)
    if _rules(spec) != _rules(admission_objects()[0]["spec"]):
        return warn("the policy differs from the manifest of this version", _APPLY)
    return ok("present, bound, and as in the manifest of this version")


def gpu_nodes_of(facts: Facts) -> frozenset[str]:
    """Return the names of the GPU nodes; empty if the Nodes were not seen."""
    return frozenset(name for name, node in known(facts.nodes, {}).items() if node.is_gpu_node)


def nodes(facts: Facts) -> Link:
    """Check that the cluster has GPU nodes."""
    every, found = seen(facts.nodes), len(gpu_nodes_of(facts))
    if not found:
        do = "set KONDUCTOR_GPU_NODE_SELECTOR to a label of the GPU nodes (docs/start/own-loki.md)"
        return broken(f"none of {count(len(every), 'Node')} counts as a GPU node", do)
    return ok(f"{found} of {count(len(every), 'Node')}")


def without_reader(facts: Facts) -> frozenset[str]:
    """Return the GPU nodes that are known to have no ready reader."""
    ready = known(facts.readers, dict.fromkeys(gpu_nodes_of(facts), True))
    return frozenset(name for name in gpu_nodes_of(facts) if not ready.get(name))


def readers(facts: Facts) -> Link:
    """Check that the kernel-log reader runs on every GPU node."""
    pods, every, namespace = seen(facts.readers), gpu_nodes_of(facts), reader_place(facts.settings)[0]
    details = [_ready(each) for each in known(facts.daemonsets, ()) if each.namespace == namespace]
    if not every:
        raise after("GPU nodes")
    if not pods:
        do = f"kubectl -n {namespace} describe daemonset" if details else _APPLY
        return broken(f"no pod runs in namespace {namespace}", do, *details)
    missing = without_reader(facts)
    unready = sorted(missing & set(pods))
    if absent := sorted(missing - set(pods)):
        details += [f"not ready: {few(unready)}"] if unready else []
        do = f"kubectl -n {namespace} describe daemonset"
        return broken(f"no reader runs on {some_of(absent, len(every))}", do, *details)
    if unready:
        do = f"kubectl -n {namespace} get pods -o wide"
        return broken(f"the reader is not ready on {some_of(unready, len(every))}", do, *details)
    return ok(f"a reader is ready on every GPU node ({len(every)})", *details)


def _ready(each: Workload) -> str:
    return f"DaemonSet {each.namespace}/{each.name}: {each.ready} of {count(each.desired, 'pod')} ready"


def collector(facts: Facts) -> Link:
    """Check the DaemonSet that ships the lines, if it is a known one."""
    found = [each for each in seen(facts.daemonsets) if any(map(_COLLECTORS.search, each.names))]
    found.sort(key=lambda each: each.ready >= each.desired)
    first, *others = map(_ready, found) if found else ["no known collector is a DaemonSet here"]
    if found and found[0].ready < found[0].desired:
        return broken(first, f"kubectl -n {found[0].namespace} get pods -o wide", *others)
    return ok(first, *others)


def tools(facts: Facts) -> Link:
    """Name the other tools that act on nodes; tools.toml describes the fields of a tool."""
    known_tools = tomllib.loads((files(__package__) / "tools.toml").read_text("utf-8"))["tool"]
    found = [(tool, *trace) for tool in known_tools if (trace := next(_traces(tool, facts), None))]
    details = [f"{tool['name']} ({trace}): {tool['does']}" for tool, trace, _ in found]
    if acting := [tool["name"] for tool, _, harmless in found if not harmless]:
        words = f"{', '.join(acting)} {'acts' if len(acting) == 1 else 'act'} on nodes too"
        return warn(words, "read docs/use/daemonsets-and-autoscalers.md", *details)
    seen(facts.daemonsets), seen(facts.deployments)
    return ok("no known tool repairs or removes nodes here", *details)


def _traces(tool: Mapping[str, Any], facts: Facts) -> Iterator[tuple[str, bool]]:
    """Yield the traces of a tool, each with whether the tool leaves tainted nodes alone."""
    harmless, groups = tool.get("harmless"), known(facts.groups, frozenset())
    for each in (*known(facts.daemonsets, ()), *known(facts.deployments, ())):
        if any(word in name for word in tool.get("words", ()) for name in each.names):
            yield f"{each.namespace}/{each.name}", harmless in ("*", *each.arguments)
    yield from ((f"API group {each}", harmless == "*") for each in tool.get("groups", ()) if each in groups)
    for name, node in sorted(known(facts.nodes, {}).items()):
        mine = (key for key in node.taints if key.startswith(tuple(tool.get("taints", ()))))
        yield from ((f"taint {key} on {name}", harmless == "*") for key in mine)
