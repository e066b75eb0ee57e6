"""Broken sites, each with one fault, and the link that `doctor` must name."""

from __future__ import annotations

from konductor_like.model.attempts import Doing
from konductor_like.policy.config import PolicyConfig
from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.kubernetes.access import admit_all
from konductor_like.sandbox.kubernetes.errors import matching
from konductor_like.sandbox.kubernetes.fleet import make_cpu_node
from konductor_like.sandbox.loki import HTML_ANSWER
from tests.cli.doctor_damages import (
    AUTOSCALER,
    BINDING,
    FIRST,
    NO_DRY_RUN,
    NO_TAINT,
    NOT_SERVED,
    PAUSE,
    POLICY,
    RECENTLY_NAMELESS,
    RECENTLY_SHORT,
    SECOND,
    SELECTING_NONE,
    THIRD,
    UNWRITTEN,
    account_without,
    binding_with,
    both,
    broken,
    change,
    deny_taints,
    failing,
    for_another_account,
    for_pods,
    kube,
    limits,
    loki,
    policy_with,
    put,
    remove,
    rename,
    selecting_few,
    warned,
)
from tests.cli.doctor_site import GPU_NODES, daemonset, deployment, pod
from tools.manifests.manifests import documents

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
        "nobody may list Nodes",
        kube(lambda kube: kube.access.deny("list", "nodes")),
        "rights",
        "list nodes",
        "account",
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
    broken(
        "a taint cannot be written",
        both(failing(Doing.WRITE, error="patch nodes is forbidden"), change(unwritten=UNWRITTEN)),
        "account",
        "1 node should be tainted and cannot be for 2",
    ),
    broken(
        "the account may not patch Nodes",
        account_without(("patch", "nodes")),
        "account",
        "may not: patch nodes",
    ),
    broken(
        "the account may not list Nodes", account_without(("list", "nodes")), "account", "may not: list nodes"
    ),
    broken(
        "the controller lost the watch of the Nodes",
        failing(Doing.NODES, error="watch nodes is forbidden"),
        "account",
        "it cannot follow the Nodes for 2",
    ),
    broken(
        "the account may list neither pods nor ResourceSlices",
        account_without(("list", "pods"), ("list", "resourceslices")),
        "account",
        "may not: list pods, list resourceslices",
    ),
    broken(
        "the account lost a right, and the caller may not act as the account",
        both(
            failing(Doing.RIGHTS, error="patch nodes"),
            kube(lambda kube: kube.access.deny("impersonate", "*")),
        ),
        "account",
        "may not: patch nodes",
    ),
    broken(
        "the controller has another LOG_ENDPOINT",
        failing(Doing.KERNEL, Doing.HEARTBEAT, Doing.POD),
        "reading",
        "the controller cannot read kernel lines for 2",
    ),
    broken(
        "the controller's query of pods fails", failing(Doing.POD), "reading", "cannot read pod lines for 2"
    ),
    broken(
        "Loki went down 25 seconds ago",
        both(loki(lambda loki: loki.stop()), failing(Doing.KERNEL)),
        "Loki",
        "cannot connect",
        "reading",
    ),
    broken(
        "the controller has other matchers, and started minutes ago",
        change(heard=0, leading_seconds=200.0),
        "kernel stream",
        "the controller hears no node, and Loki has heartbeats of 3 GPU nodes here",
    ),
    broken(
        "the controller has another tenant, and started hours ago",
        change(unheard=frozenset(GPU_NODES)),
        "kernel stream",
        "the controller hears no node",
    ),
    broken(
        "the controller's matchers leave out a node",
        change(unheard=frozenset({THIRD})),
        "heartbeats",
        f"the controller does not hear: 1 of 3 GPU nodes: {THIRD}",
    ),
    broken(
        "the collector sends no names for two minutes",
        change(recent_names=RECENTLY_NAMELESS),
        "node label",
        "heartbeats without k8s_node_name, and none with it from 3 of 3 GPU nodes",
    ),
    broken(
        "the collector of a node sends no names for six minutes",
        change(recent_names={THIRD: ""}, last_named=400.0, unheard=frozenset({THIRD})),
        "node label",
        f"and none with it from 1 of 3 GPU nodes: {THIRD}",
    ),
    broken(
        "the collector sends short names for two minutes",
        change(recent_names=RECENTLY_SHORT),
        "node names",
        f"the lines say gpu-1, the Node is {FIRST}",
    ),
    broken(
        "Loki refuses every line for six minutes",
        change(
            recent_names=dict.fromkeys(GPU_NODES),
            last_named=400.0,
            unheard=frozenset(GPU_NODES),
        ),
        "kernel stream",
        "had some before",
    ),
    broken(
        "the binding names another policy",
        binding_with(policyName="old"),
        "admission policy",
        "in policyName",
    ),
    broken(
        "the binding selects nothing",
        binding_with(matchResources=SELECTING_NONE),
        "admission policy",
        "the binding konductor-like differs from the manifest in matchResources",
    ),
    broken(
        "the policy is for another account",
        policy_with(for_another_account),
        "admission policy",
        "for system:serviceaccount:konductor-like:konductor-like in matchConditions",
    ),
    broken("the policy is about pods", policy_with(for_pods), "admission policy", "in matchConstraints"),
    broken("the policy selects few", policy_with(selecting_few), "admission policy", "in matchConstraints"),
    broken(
        "the policy is ignored on failure",
        policy_with(lambda spec: spec.update(failurePolicy="Ignore")),
        "admission policy",
        "in failurePolicy",
    ),
    broken(
        "the policy denies the controller's own taint",
        policy_with(lambda spec: spec["validations"].append(NO_TAINT)),
        "admission policy",
        "refuses the controller's own taint",
    ),
    broken(
        "a webhook denies the controller's own taint",
        kube(deny_taints),
        "admission policy",
        "no taints, says the webhook",
    ),
    broken(
        "the API server carries out no policies",
        kube(lambda kube: setattr(kube._writes, "_admission", admit_all)),
        "admission policy",
        "does not apply to the account: a dry run",
    ),
    broken(
        "the policy for conditions is missing",
        change(settings={"node_condition": "TrainyGPUFaulty"}),
        "admission policy",
        "no ValidatingAdmissionPolicy konductor-like-node-condition",
    ),
    broken(
        "the policy for the jobs' Events is missing",
        change(settings={"job_events": True}),
        "admission policy",
        "no ValidatingAdmissionPolicy konductor-like-job-events",
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
        'set KONDUCTOR_KERNEL_SELECTOR=\'{k8s_namespace_name="gpu-logs", k8s_container_name="dmesg"}\'',
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
