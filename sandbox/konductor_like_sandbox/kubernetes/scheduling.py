"""Whether a pod is admitted to its namespace, and the node on which the scheduler puts it. Pure.

Words and order are those of Kubernetes 1.36: plugin/pkg/admission/priority, pod-security-admission,
k8s.io/apiserver/pkg/admission/plugin/resourcequota, pkg/scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Item = Mapping[str, Any]
_ENFORCE = "pod-security.kubernetes.io/enforce"
_MUST_SPECIFY = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def refusal(
    pod: dict[str, Any],
    namespace: Item,
    classes: Iterable[Item],
    quotas: Iterable[Item],
    others: Iterable[Item],
) -> str:
    """Return why admission refuses a new pod; empty if it is admitted. Writes the priority into it.

    ``others`` are the pods of the namespace.
    """
    return (
        _by_priority(pod["spec"], classes)
        or _by_security(pod["spec"], namespace)
        or _by_quota(pod, quotas, others)
    )


def _by_priority(spec: dict[str, Any], classes: Iterable[Item]) -> str:
    name = spec.get("priorityClassName", "")
    found = next((each for each in classes if each["metadata"]["name"] == name), None)
    if name and found is None:
        return f"no PriorityClass with name {name} was found"
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    if spec.get("preemptionPolicy", policy) != policy:
        return (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod "
            f"spec; priority admission controller computed {policy} from the given PriorityClass name"
        )
    spec["priority"], spec["preemptionPolicy"] = (found or {}).get("value", 0), policy
    return ""


def _by_security(spec: Item, namespace: Item) -> str:
    labels = namespace["metadata"].get("labels", {})
    level = labels.get(_ENFORCE, "privileged")
    if level == "privileged":
        return ""
    found = [*_baseline(spec), *(_restricted(spec) if level == "restricted" else ())]
    version = labels.get(f"{_ENFORCE}-version", "latest")
    return f'violates PodSecurity "{level}:{version}": {", ".join(found)}' if found else ""


def _baseline(spec: Item) -> Iterator[str]:
    shared = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    if shared:
        yield f"host namespaces ({', '.join(shared)})"
    if any("hostPath" in volume for volume in spec.get("volumes", ())):
        yield "hostPath volumes"
    for name, context in _contexts(spec):
        if context.get("privileged"):
            yield f'privileged (container "{name}" must not set securityContext.privileged=true)'


def _restricted(spec: Item) -> Iterator[str]:
    of_pod = spec.get("securityContext", {})
    for name, context in _contexts(spec):
        if context.get("allowPrivilegeEscalation") is not False:
            yield (
                f'allowPrivilegeEscalation != false (container "{name}" must set '
                "securityContext.allowPrivilegeEscalation=false)"
            )
        if "ALL" not in context.get("capabilities", {}).get("drop", ()):
            yield (
                f'unrestricted capabilities (container "{name}" must set '
                'securityContext.capabilities.drop=["ALL"])'
            )
        if not context.get("runAsNonRoot", of_pod.get("runAsNonRoot")):
            yield (
                f'runAsNonRoot != true (pod or container "{name}" must set securityContext.runAsNonRoot=true)'
            )
        profile = context.get("seccompProfile", of_pod.get("seccompProfile", {})).get("type")
        if profile not in ("RuntimeDefault", "Localhost"):
            yield (
                f'seccompProfile (pod or container "{name}" must set securityContext.seccompProfile.type to '
                '"RuntimeDefault" or "Localhost")'
            )


def _contexts(spec: Item) -> Iterator[tuple[str, Item]]:
    for container in spec["containers"]:
        yield container["name"], container.get("securityContext", {})


def _by_quota(pod: Item, quotas: Iterable[Item], others: Iterable[Item]) -> str:
    present = [each for each in others if not _ended(each)]
    for quota in quotas:
        name, hard = quota["metadata"]["name"], quota.get("spec", {}).get("hard", {})
        for resource in (each for each in hard if each in _MUST_SPECIFY):
            part, _, plain = resource.rpartition(".")
            lacking = [
                container["name"]
                for container in pod["spec"]["containers"]
                if plain not in container.get("resources", {}).get(part or "requests", {})
            ]
            if lacking:
                return f"failed quota: {name}: must specify {resource} for: {','.join(lacking)}"
        over = [
            (resource, needed, used, limit)
            for resource, limit in sorted(hard.items())
            if resource == "pods" or resource.startswith("requests.nvidia.com/")
            if (needed := _counted(pod, resource))
            if (used := sum(_counted(each, resource) for each in present)) + needed > int(limit)
        ]
        if over:
            requested, used_, limited = (
                ",".join(f"{each[0]}={each[place]}" for each in over) for place in (1, 2, 3)
            )
            return f"exceeded quota: {name}, requested: {requested}, used: {used_}, limited: {limited}"
    return ""


def _counted(pod: Item, resource: str) -> int:
    return 1 if resource == "pods" else requested(pod, resource.removeprefix("requests."))


def requested(pod: Item, resource: str) -> int:
    """Return how much of an extended resource a pod requests."""
    resources = (container.get("resources", {}) for container in pod["spec"].get("containers", ()))
    return sum(
        int({**each.get("limits", {}), **each.get("requests", {})}.get(resource, 0)) for each in resources
    )


def _ended(pod: Item) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def place(pod: Item, nodes: Sequence[Item], pods: Iterable[Item]) -> tuple[str, str]:
    """Return the node for a pod, or an empty name and the scheduler's message."""
    present = [each for each in pods if not _ended(each)]
    reasons: Counter[str] = Counter()
    for node in nodes:
        reason = _unfit(pod, node, present)
        if not reason:
            return node["metadata"]["name"], ""
        reasons[reason] += 1
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    message = (
        f"0/{len(nodes)} nodes are available: {listed}." if nodes else "no nodes available to schedule pods"
    )
    helps = "not eligible due to preemptionPolicy=Never."
    if pod["spec"].get("preemptionPolicy") != "Never":
        helps = f"0/{len(nodes)} nodes are available: {len(nodes)} Preemption is not helpful for scheduling."
    return "", f"{message} no new claims to deallocate, preemption: {helps}" if nodes else message


def _unfit(pod: Item, node: Item, pods: Iterable[Item]) -> str:
    spec, name = pod["spec"], node["metadata"]["name"]
    if not _selected(spec, name):
        return "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    taints = node["spec"].get("taints", ())
    unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node["spec"].get("unschedulable") and not _tolerated(spec, unschedulable):
        return "node(s) were unschedulable"
    if any(each["effect"] != "PreferNoSchedule" and not _tolerated(spec, each) for each in taints):
        return "node(s) had untolerated taint(s)"
    here = [each for each in pods if each["spec"].get("nodeName") == name]
    wanted = {
        resource
        for container in spec["containers"]
        for resource in container.get("resources", {}).get("limits", {})
        if "/" in resource
    }
    for resource in sorted(wanted):
        free = int(node["status"].get("allocatable", {}).get(resource, 0))
        free -= sum(requested(each, resource) for each in here)
        if requested(pod, resource) > free:
            return f"Insufficient {resource}"
    return ""


def _selected(spec: Item, name: str) -> bool:
    """Whether the required affinity allows this node; only that by the node's name is known here."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        term.get("matchFields")
        and all((name in each["values"]) == (each["operator"] == "In") for each in term["matchFields"])
        for term in required["nodeSelectorTerms"]
    )


def _tolerated(spec: Item, taint: Item) -> bool:
    return any(
        each.get("effect", taint["effect"]) == taint["effect"]
        and each.get("key", taint["key"]) == taint["key"]
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in spec.get("tolerations", ())
    )
