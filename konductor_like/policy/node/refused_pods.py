"""GPU pods that a node's kubelet refuses, as a fault of the node (rule 45).

The device plugin asks NVML about all GPUs of a node for each pod. If one GPU is lost, the kubelet refuses
each pod, the Node looks healthy, and the scheduler sends the next pod (NVIDIA/k8s-device-plugin#2038).

Pods are also refused on healthy nodes: after a boot, while the kubelet or the device plugin restarts, and in
a driver roll-out (kubernetes/kubernetes#125579). So several pods of several namespaces have to be refused in
a short time, on a node that was steady before, while few other nodes refuse pods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from konductor_like.model import (
    REFUSES_PODS,
    Fault,
    Finding,
    Incident,
    IncidentState,
    KernelPosition,
    NodeState,
    PodsSeen,
    RefusedPod,
    RefusedPods,
    Snapshot,
    Source,
    SteadyNode,
)
from konductor_like.model.text import clipped, printable
from konductor_like.model.time import SECOND_NS, span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.conditions import may_accuse
from konductor_like.policy.node.covers import known_to_ns
from konductor_like.policy.node.gpu_counts import FALLING_PERCENT

REASON = "UnexpectedAdmissionError"
"""The reason of a pod's status, and of its Event, if the kubelet refuses the pod for an error of a plugin."""
SPAN_NS = span_ns(1800)
"""Nanoseconds within which the pods must be refused, and within which nodes refuse pods at the same time."""
SETTLED_NS = span_ns(900)
"""Nanoseconds for which a node must be steady before a pod that it refuses says anything about it."""
PODS_LEAST = 3
NAMESPACES_LEAST = 2
"""Namespaces of the refused pods, at least: the pods of one tenant make no node suspect."""
_MESSAGE_CHARS = 120
_CLAUSES = 3
_BY_PLUGIN = re.compile(
    r"(Pod )?(was rejected: )?(Allocate|Update plugin resources) failed due to (device plugin|rpc error:) "
)
_NVML = re.compile(
    r"\b(nvml|GPU is lost|GPU requires re(set|start)|ERROR_(GPU_IS_LOST|RESET_REQUIRED))\b", re.IGNORECASE
)
"""Words of NVML's errors, by ``nvmlErrorString`` and, without the library, by go-nvml's ``return.go``."""
_NO_FAULT = re.compile(r"Insufficient Permissions|ERROR_NO_PERMISSION")
"""The device plugin may not see GPUs that are split by MIG (NVIDIA/k8s-device-plugin#260)."""


def names_nvml(message: str) -> bool:
    """Whether a kubelet refused a pod because a device plugin could not use NVML, or found a lost GPU.

    Only the text of a plugin's error counts: no name that a user chose can be in it.
    """
    said = _BY_PLUGIN.match(message)
    if said is None or _NO_FAULT.search(message):
        return False
    return _NVML.search(message, said.end()) is not None


def refusing_faults(
    snapshot: Snapshot, before: RefusedPods, policy: PolicyConfig, now: datetime
) -> tuple[list[Fault], RefusedPods]:
    """Return the faults of nodes that refuse GPU pods, and what the next decision must know.

    The first fault of a node needs several pods; each later one has the pods that were refused since. The
    occurrences of a fault are pods.
    """
    now_ns = unix_ns(now)
    after = replace(before, steady=_steady(snapshot.nodes, before.steady, now_ns))
    recent = {
        name: [pod for pod in seen.refused if now_ns - SPAN_NS <= pod.at_ns <= now_ns]
        for name, seen in before.seen.items()
        if name in after.steady
    }
    refusing = sorted(name for name, pods in recent.items() if pods)
    at_once = [name for name in refusing if not _refuses_long(snapshot.nodes[name], now_ns)]
    rule = policy.refuses_pods
    if rule is None or len(at_once) > max(1.0, len(after.steady) * FALLING_PERCENT / 100):
        return [], after
    found, shadowed = [], dict(before.shadowed)
    for name in refusing:
        steady, counted_ns = after.steady[name], known_to_ns(REFUSES_PODS, snapshot.nodes[name], snapshot)
        from_ns = max(steady.since_ns + SETTLED_NS, counted_ns + 1, shadowed.get(name, -1) + 1)
        pods = [pod for pod in recent[name] if pod.at_ns >= from_ns]
        if not may_accuse(steady.state) or not (_is_enough(pods) or (pods and refusals_of(steady.state))):
            continue
        found.append(_fault(rule, steady.state, pods, before.seen[name].message))
        if rule.shadow:
            shadowed[name] = pods[-1].at_ns
    return found, replace(after, shadowed=shadowed)


def refusals_of(state: NodeState) -> list[Incident]:
    """Return the incidents of refused pods, of the node's present boot, that are open."""
    found = (each for each in state.record.incidents if each.refuses_pods)
    is_open = (each for each in found if each.state is not IncidentState.RELEASED)
    return [each for each in is_open if each.last.boot_id == state.machine.boot_id]


def quiet_since_ns(incident: Incident, seen: PodsSeen | None) -> int | None:
    """Return since when the node refuses no pod any more; None if nothing shows that.

    Only a GPU pod that was admitted later shows it: a node that gets no pods refuses none.
    """
    admitted_ns = seen.admitted_ns if seen is not None else None
    return None if admitted_ns is None or admitted_ns <= incident.last_ns else incident.last_ns


def _steady(
    nodes: Mapping[str, NodeState], before: Mapping[str, SteadyNode], now_ns: int
) -> dict[str, SteadyNode]:
    """Return the GPU nodes. A node that is new to this controller is steady since now."""
    found: dict[str, SteadyNode] = {}
    for name, state in nodes.items():
        if not state.is_gpu_node:
            continue
        known = before.get(name)
        if known is None or known.state is not state:
            is_steady = known is not None and _circumstances(known.state) == _circumstances(state)
            known = SteadyNode(state, known.since_ns if known and is_steady else now_ns)
        found[name] = known
    return found


def _circumstances(state: NodeState) -> tuple[object, ...]:
    """Return what must not change: kubelet and device plugin refuse pods for minutes after a change."""
    return state.machine, state.ready, state.ready_since_ns, state.gpus


def _refuses_long(state: NodeState, now_ns: int) -> bool:
    """Whether the node is known to refuse pods for longer than nodes that refuse them at the same time."""
    return any(each.first_ns < now_ns - SPAN_NS for each in refusals_of(state))


def _is_enough(pods: Sequence[RefusedPod]) -> bool:
    return len(pods) >= PODS_LEAST and len({pod.namespace for pod in pods}) >= NAMESPACES_LEAST


def _fault(rule: Finding, state: NodeState, pods: Sequence[RefusedPod], message: str) -> Fault:
    finding = rule._replace(text=_words(pods, message), position=KernelPosition(state.machine.boot_id))
    return Fault(finding, Source.KERNEL, pods[-1].at_ns, state.name, times=len(pods))


def _words(pods: Sequence[RefusedPod], message: str) -> str:
    """Return ``refused 7 GPU pods of 3 namespaces in 22 min: Allocate failed … GPU is lost``."""
    number, namespaces = len(pods), len({pod.namespace for pod in pods})
    minutes = max(1, -(-(pods[-1].at_ns - pods[0].at_ns) // (60 * SECOND_NS)))
    why = ": ".join(printable(message).removesuffix(", which is unexpected").split(": ")[-_CLAUSES:])
    what = f"{number} GPU pod{'s'[: number > 1]} of {namespaces} namespace{'s'[: namespaces > 1]}"
    return f"refused {what} in {minutes} min: Allocate failed … {clipped(why, _MESSAGE_CHARS)}"
