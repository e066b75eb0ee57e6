"""Broken sites, each with one fault, and the link that `doctor` must name."""

from __future__ import annotations

from konductor_like.model.attempts import Doing
from konductor_like.policy.config import PolicyConfig
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.kubernetes.errors import matching
from tests.cli.doctor_damages import (
    BINDING,
    CONDITION_POLICY,
    EVENTS_POLICY,
    FIRST,
    MAX_STREAMS,
    NO_DRY_RUN,
    NO_TAINT,
    NOT_LOKI,
    NOT_SERVED,
    OTHER_MATCHERS,
    OTHER_SELECTOR,
    PAUSE,
    POD_RULES,
    POLICY,
    RECENTLY_NAMELESS,
    RECENTLY_SHORT,
    SELECTING_NONE,
    THIRD,
    UNWRITTEN,
    VALIDATION_POLICY,
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
    loki,
    optional_parts,
    policy_with,
    put,
    remove,
    selecting_few,
    validations,
    warned,
)
from tests.cli.doctor_log_cases import LOG_CASES
from tests.cli.doctor_site import GPU_NODES, deployment
from tools.manifests.manifests import documents, only

VALIDATION_NAME = "konductor-like-validation"
POLICY_OF_VALIDATIONS = only(documents("validation.yaml"), "ValidatingAdmissionPolicy")
PREEMPTING = {
    "metadata": {"name": VALIDATION_NAME},
    "preemptionPolicy": "PreemptLowerPriority",
    "value": -1000,
}

CASES = [
    broken("the API server is down", kube(lambda kube: kube.stop()), "API server", "cannot connect"),
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
    warned(
        "a variable is misspelt",
        change(environment={"KONDUCTOR_LOKI_TENNANT": "gpu"}),
        "settings",
        "KONDUCTOR_LOKI_TENNANT",
    ),
    warned(
        "the rules file is missing",
        change(environment={"KONDUCTOR_RULES_FILE": "/nowhere/rules.yaml"}),
        "settings",
        "no such file; only the built-in rules apply",
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
    warned(
        "the file of an earlier version is there",
        change(policy=PolicyConfig(recovery_by_file=True)),
        "controller",
        "delete configmap konductor-like-recovery",
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
    warned(
        "the controller's question about alerts fails",
        failing(Doing.ALERTS, error="Prometheus answered 401"),
        "reading",
        "alerts are not read for 2",
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
        "the policy for conditions is missing",
        both(optional_parts("TrainyGPUFaulty"), remove(CONDITION_POLICY)),
        "admission policy",
        "no ValidatingAdmissionPolicy konductor-like-node-condition",
    ),
    broken(
        "the policy for the jobs' Events is missing",
        both(optional_parts("TrainyGPUFaulty"), remove(EVENTS_POLICY)),
        "admission policy",
        "no ValidatingAdmissionPolicy konductor-like-job-events",
    ),
    broken(
        "the policy for validations is missing",
        both(validations(), remove(VALIDATION_POLICY)),
        "admission policy",
        "no ValidatingAdmissionPolicy konductor-like-validation",
    ),
    broken(
        "the policy for validations is about another namespace",
        both(validations("tests"), put(VALIDATION_POLICY, POLICY_OF_VALIDATIONS)),
        "admission policy",
        "the policy konductor-like-validation differs from the manifest in matchConstraints",
    ),
    broken(
        "the namespace and the PriorityClass of validations are missing",
        both(validations(), remove(f"namespaces/{VALIDATION_NAME}", f"priorityclasses/{VALIDATION_NAME}")),
        "account",
        "the namespace konductor-like-validation does not exist, and the PriorityClass konductor-like-val",
    ),
    broken(
        "the PriorityClass of validations preempts",
        both(validations(), put(f"priorityclasses/{VALIDATION_NAME}", PREEMPTING)),
        "account",
        "the PriorityClass konductor-like-validation may preempt",
    ),
    *(
        broken(
            f"the account may not {verb} {resource} for validations",
            both(validations(), account_without((verb, resource))),
            "account",
            f"{verb} {resource} in namespace konductor-like-validation",
        )
        for verb, resource in (("create", "jobs"), ("list", "pods"), ("get", "pods/log"), ("list", "events"))
    ),
    broken(
        "the controller has other matchers, and started seconds ago",
        change(settings=OTHER_MATCHERS, heard=0, unheard=frozenset(GPU_NODES), leading_seconds=20.0),
        "kernel stream",
        'cluster="other"} has no line in the last hour',
        "namespaces",
    ),
    broken(
        "the controller has another selector, and started seconds ago",
        change(settings=OTHER_SELECTOR, heard=0, unheard=frozenset(GPU_NODES), leading_seconds=20.0),
        "kernel stream",
        '{k8s_namespace_name="gpu-logs"} has no line in the last hour',
    ),
    broken(
        "Loki has too many streams for a node's new one, for six minutes",
        change(**MAX_STREAMS, last_named=400.0),
        "heartbeats",
        f"no heartbeat from 1 of 3 GPU nodes: {THIRD}",
    ),
    broken(
        "Loki accepts the controller's queries and is silent",
        failing(Doing.KERNEL, error="Loki has not answered yet"),
        "reading",
        "cannot read kernel lines for 2",
    ),
    broken(
        "the controller's query of heartbeats fails",
        failing(Doing.HEARTBEAT, error="Loki answered 500: too many outstanding requests"),
        "reading",
        "cannot read heartbeats for 2",
    ),
    broken(
        "the API server fails",
        kube(lambda kube: kube.mishaps.add(Mishap(status=500), None)),
        "API server",
        "500",
    ),
    warned(
        "the address is another web server",
        loki(lambda loki: loki.fail(NOT_LOKI, None)),
        "Loki",
        "LOG_ENDPOINT may point at another server",
    ),
    warned(
        "Loki fails for people only",
        loki(lambda loki: loki.fail(Mishap(status=503, body="not ready"), None)),
        "Loki",
        "503: not ready",
    ),
    *(
        broken(
            f"the account may not {verb} {resource}",
            account_without((verb, resource)),
            "account",
            f"may not: {verb} {resource}",
        )
        for verb, resource in (
            ("watch", "nodes"),
            ("get", "nodes"),
            ("list", "pods"),
            ("list", "resourceslices"),
            ("create", "events"),
            ("create", "leases"),
            ("get", "leases"),
            ("update", "leases"),
        )
    ),
    *(
        broken(
            f"the account may not {verb} {resource} for an optional part",
            both(optional_parts("TrainyGPUFaulty"), account_without((verb, resource))),
            "account",
            f"{verb} {resource}",
        )
        for verb, resource in (("patch", "nodes/status"), ("create", "events"))
    ),
    *(
        broken(
            f"the binding has {part} with {next(iter(value))}",
            binding_with(**{part: value}),
            "admission policy",
            f"in {part}",
        )
        for part, value in (
            ("paramRef", {"name": "x", "parameterNotFoundAction": "Allow"}),
            ("matchResources", {"namespaceSelector": {"matchLabels": {"no": "such"}}}),
            ("matchResources", {"excludeResourceRules": [{"resources": ["nodes"]}]}),
            ("matchResources", {"resourceRules": POD_RULES}),
        )
    ),
    broken(
        "the binding only warns",
        binding_with(validationActions=["Warn"]),
        "admission policy",
        "validationActions is Warn",
    ),
    broken(
        "the policy has parameters",
        policy_with(lambda spec: spec.update(paramKind={"apiVersion": "v1", "kind": "ConfigMap"})),
        "admission policy",
        "in paramKind",
    ),
    broken(
        "the policy is for everybody",
        policy_with(lambda spec: spec.update(matchConditions=[])),
        "admission policy",
        "in matchConditions",
    ),
    broken("the controller is blind", change(kernel_read_seconds=900.0), "reading", "blind: kernel logs"),
    warned("pods' logs are not read", change(pods_read_seconds=900.0), "reading", "pod logs were read"),
    warned(
        "kernel lines are not understood",
        change(unparsed=GPU_NODES[:2]),
        "reading",
        f"2 kernel lines of 2 nodes may report a fault and are not understood: {GPU_NODES[0]}, ",
    ),
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
        "Kubernetes is too old",
        kube(lambda kube: kube.mishaps.add(NOT_SERVED, None, matching(path="admissionregistration"))),
        "admission policy",
        "Kubernetes 1.30",
    ),
    *LOG_CASES,
]
