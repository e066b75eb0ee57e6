"""A Node's JSON as a ``NodeState``. It does not raise, whatever a Node holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from konductor_like.cluster import node_record as records
from konductor_like.cluster.transport import FIELD_MANAGER, JsonObject, json_object
from konductor_like.model import (
    HEALTH_LABEL,
    OPT_OUT_LABEL,
    RECORD_ANNOTATION,
    AsRead,
    Machine,
    NodeRecord,
    NodeState,
    Source,
    Taint,
)
from konductor_like.model.time import ns_of_text

Selector = tuple[tuple[str, str | None], ...]
"""Labels that must all be there; a value of None accepts any."""
NodeDecoder = Callable[[JsonObject], NodeState]


class NodeSettings(Protocol):
    """The settings that say how a Node is read."""

    @property
    def gpu_node_selector(self) -> str: ...
    @property
    def node_selector(self) -> str: ...
    @property
    def pool_label(self) -> str: ...
    @property
    def domain_label(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What the settings say about reading a Node."""

    gpu: Selector = ()
    """A further way to know a GPU node."""
    include: Selector = ()
    """Which nodes we may taint; empty for all."""
    pool_label: str = ""
    domain_label: str = ""
    sliced: Callable[[], Collection[str]] = frozenset
    """The names of nodes that have a GPU by what stands elsewhere."""


def node_decoder(
    settings: NodeSettings | None = None, sliced: Callable[[], Collection[str]] = frozenset
) -> NodeDecoder:
    """A decoder as the settings say. Raises ValueError if one that should be is no selector.

    Without settings, because they are not known, it knows no selector and no label of pools. ``sliced`` gives
    the names of the nodes that are known to have a ResourceSlice; it is called for each Node.
    """
    reading = Reading(sliced=sliced)
    if settings is not None:
        reading = Reading(
            parse_selector(settings.gpu_node_selector),
            parse_selector(settings.node_selector),
            settings.pool_label,
            settings.domain_label,
            sliced,
        )
    return lambda node: decode_node(node, reading)


def decode_node(node: JsonObject, reading: Reading = Reading()) -> NodeState:
    """Decode one Node; a Node without a name gets the name ``""``."""
    metadata, spec, status = (
        json_object(node, "metadata"),
        json_object(node, "spec"),
        json_object(node, "status"),
    )
    labels, annotations = _texts(metadata, "labels"), _texts(metadata, "annotations")
    text = annotations.get(RECORD_ANNOTATION)
    record, problem = (NodeRecord(), None) if text is None else records.decode(text)
    uid = _text(metadata, "uid") or ""
    raw_taints = spec.get("taints")
    taints = tuple(raw_taints) if isinstance(raw_taints, list) else None
    ready = _condition(status, "Ready")
    name = _text(metadata, "name") or ""
    machine = _machine(uid, spec, status)
    return NodeState(
        name=name,
        machine=machine,
        created_ns=_ns(metadata, "creationTimestamp") or 0,
        is_gpu_node=name in reading.sliced()
        or says_gpu(labels, json_object(status, "capacity"), reading.gpu)
        or _seen_before(record),
        ready=ready.get("status") == "True",
        unschedulable=spec.get("unschedulable") is True,
        taints=tuple(_taint(taint) for taint in taints or () if isinstance(taint, dict)),
        record=record,
        as_read=AsRead(
            uid=uid,
            resource_version=_text(metadata, "resourceVersion") or "",
            taints=taints,
            record=text,
            health=labels.get(HEALTH_LABEL),
            has_annotations=isinstance(metadata.get("annotations"), dict),
            has_labels=isinstance(metadata.get("labels"), dict),
        ),
        opted_out=labels.get(OPT_OUT_LABEL) == "true",
        selected=not reading.include or matches(labels, reading.include),
        pool=labels.get(reading.pool_label),
        domain=labels.get(reading.domain_label),
        record_problem=problem,
        last_writer=last_writer(metadata.get("managedFields")),
        reported_ns=_ns(ready, "lastHeartbeatTime"),
        booted_after_ns=record.booted_after_ns if record.machine == machine else None,
    )


def _machine(uid: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> Machine:
    info = json_object(status, "nodeInfo")
    return Machine(uid, _text(info, "systemUUID") or _text(spec, "providerID"), _text(info, "bootID"))


def _taint(taint: Mapping[str, Any]) -> Taint:
    return Taint(_text(taint, "key") or "", _text(taint, "value"), _text(taint, "effect") or "")


def _ns(parent: Mapping[str, Any], name: str) -> int | None:
    try:
        return ns_of_text(_text(parent, name) or "")
    except ValueError:
        return None


def _condition(status: Mapping[str, Any], kind: str) -> dict[str, Any]:
    conditions = status.get("conditions")
    found = [c for c in conditions if isinstance(c, dict)] if isinstance(conditions, list) else []
    return next((condition for condition in found if condition.get("type") == kind), {})


def _seen_before(record: NodeRecord) -> bool:
    """Whether the node's own kernel log proved a GPU once, even if nothing shows it any more."""
    return any(incident.kind.proves_gpu and incident.source is Source.KERNEL for incident in record.incidents)


def _texts(parent: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: value for key, value in json_object(parent, name).items() if isinstance(value, str)}


def _text(parent: Mapping[str, Any], name: str) -> str | None:
    """A non-empty string, or None."""
    found = parent.get(name)
    return found if isinstance(found, str) and found else None


_PRESENT = (
    "nvidia.com/gpu.present",  # NVIDIA's GPU operator and GPU feature discovery
    "feature.node.kubernetes.io/pci-10de.present",  # node feature discovery as the GPU operator sets it up
    "feature.node.kubernetes.io/pci-0302_10de.present",  # node feature discovery by itself: 3D controllers
    "feature.node.kubernetes.io/pci-0300_10de.present",  # and display controllers
)
"""Say ``true`` where there is an NVIDIA GPU, the last three also where its driver failed."""
_ACCELERATORS = (
    "cloud.google.com/gke-accelerator",  # GKE: nvidia-h100-80gb, …
    "k8s.amazonaws.com/accelerator",  # EKS with cluster-autoscaler: nvidia-tesla-v100, …
    "kubernetes.azure.com/accelerator",  # AKS: nvidia
    "accelerator",  # AKS of old: nvidia
    "karpenter.k8s.aws/instance-gpu-manufacturer",  # nvidia, amd, …
    "karpenter.azure.com/sku-gpu-manufacturer",
)
_COUNTS = {
    "karpenter.k8s.aws/instance-gpu-count": "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.azure.com/sku-gpu-count": "karpenter.azure.com/sku-gpu-manufacturer",
}
"""Labels that count GPUs, each with the one that names their maker."""
_OTHER_MAKERS = ("amd", "habana", "intel", "aws", "inferentia", "trainium", "neuron", "xilinx", "qualcomm")


def parse_selector(text: str) -> Selector:
    """Read ``key``, ``key=value``, separated by commas. Raises ValueError naming the offending part."""
    terms: list[tuple[str, str | None]] = []
    for part in text.split(","):
        key, sign, value = (piece.strip() for piece in part.strip().replace("==", "=").partition("="))
        if not key and not sign:
            continue
        if not key or set(key) & set("!<>() \t") or "=" in value:
            raise ValueError(f"{part.strip()!r} is neither key nor key=value")
        terms.append((key, value if sign else None))
    return tuple(terms)


def says_gpu(labels: Mapping[str, str], capacity: Mapping[str, object], selector: Selector) -> bool:
    """Whether labels, capacity keys or the user's own selector say that this is a GPU node.

    A capacity of 0 counts: dead GPUs vanish from the number, not from the key.
    """
    return (
        any(labels.get(name) == "true" for name in _PRESENT)
        or any(_of_nvidia(labels.get(name, "")) for name in _ACCELERATORS)
        or any(_counts_ours(labels, count, maker) for count, maker in _COUNTS.items())
        or any(_is_gpu_resource(name) for name in capacity)
        or (bool(selector) and matches(labels, selector))
    )


def _of_nvidia(value: str) -> bool:
    """The clouds write the product (``nvidia-l4``, ``a100``) or the maker; other makers are known by name."""
    return value not in ("", "none", "false") and not value.lower().startswith(_OTHER_MAKERS)


def _counts_ours(labels: Mapping[str, str], count: str, maker: str) -> bool:
    return labels.get(count, "0") != "0" and _of_nvidia(labels.get(maker, "nvidia"))


def _is_gpu_resource(name: str) -> bool:
    return name == "nvidia.com/gpu" or name.startswith(("nvidia.com/gpu.", "nvidia.com/mig-"))


def matches(labels: Mapping[str, str], selector: Selector) -> bool:
    """Whether all of the selector's labels are there."""
    return all(key in labels and value in (None, labels[key]) for key, value in selector)


_ROUTINE = frozenset(
    {"kubelet", "kube-controller-manager", "cloud-controller-manager", "kubelite", "k3s", "rke2"}
)
"""Managers that write to every Node all the time: kubelets, node controllers, programs that hold both."""


def last_writer(managed_fields: object) -> str | None:
    """The manager that last updated spec or metadata, unless that was us or routine; None when unknown.

    This can only name a suspect: the server keeps one entry per manager, with whole seconds, and none for a
    manager that only ever removed things. So an entry older than our own last write is no answer.
    """
    entries = [e for e in managed_fields if isinstance(e, dict)] if isinstance(managed_fields, list) else []
    ours_ns = max((_written_ns(e) for e in entries if e.get("manager") == FIELD_MANAGER), default=0)
    others = [e for e in entries if _counts(e) and _written_ns(e) >= ours_ns]
    newest = max(others, key=_written_ns, default=None)
    return None if newest is None else str(newest["manager"])


def _counts(entry: Mapping[str, Any]) -> bool:
    manager = entry.get("manager")
    if not isinstance(manager, str) or not manager or manager == FIELD_MANAGER or manager in _ROUTINE:
        return False
    fields = entry.get("fieldsV1")
    touched = fields if isinstance(fields, dict) else {"f:spec": {}}
    return not entry.get("subresource") and ("f:spec" in touched or "f:metadata" in touched)


def _written_ns(entry: Mapping[str, Any]) -> int:
    written_ns = _ns(entry, "time")
    return -1 if written_ns is None else written_ns
