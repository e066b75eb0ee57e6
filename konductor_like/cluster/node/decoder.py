"""Decode a Node's JSON into a ``NodeState``. Malformed parts of a Node never raise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from pydantic_core import SchemaValidator, core_schema

from konductor_like.catalog import condition_rules
from konductor_like.cluster.api.transport import FIELD_MANAGER, JsonObject, json_object, parsed
from konductor_like.cluster.node import record as records
from konductor_like.cluster.node.gpu_counts import COUNT_LABELS, PLUGIN_RESOURCES, SlicedGpus, gpu_count
from konductor_like.cluster.node.managers import writers_of
from konductor_like.model import (
    CONDITION_MARK,
    EVIDENCE_CHARS,
    HEALTH_LABEL,
    NEEDS_LABEL,
    OPT_OUT_LABEL,
    RECORD_ANNOTATION,
    UNLABELLED,
    AsRead,
    Condition,
    Hardware,
    Machine,
    NodeRecord,
    NodeState,
    PlannedWork,
    ReportedCondition,
    Source,
    Taint,
)
from konductor_like.model.nodes import proper_system_id
from konductor_like.model.time import SECOND_NS, ns_of_text
from konductor_like.selectors import Selector, parse_selector

_CONDITION_FIELDS = ("type", "status", "reason", "message", "lastTransitionTime")
_MAINTENANCE = "cloud.google.com/scheduled-maintenance-time"
"""GKE's label on GPU nodes: when the maintenance of the host begins, in seconds since the Unix epoch."""
_PLANNED = {
    "VMEventScheduled": False,  # AKS' node-problem-detector: a scheduled event of the virtual machine
    "CSPMaintenance": False,  # NVSentinel
    "MaintenancePlanned": False,  # Kubernetes, KEP-5683
    "MaintenanceInProgress": True,
}
"""Types of conditions that announce work on the machine while they are True; whether it is in progress."""
NodeDecoder = Callable[[JsonObject], NodeState]


class NodeSettings(Protocol):
    """The settings that decoding a Node needs."""

    @property
    def gpu_node_selector(self) -> str: ...
    @property
    def node_selector(self) -> str: ...
    @property
    def pool_label(self) -> str: ...
    @property
    def domain_label(self) -> str: ...
    @property
    def rack_label(self) -> str: ...
    @property
    def recovery_node_selector(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """The same settings, parsed."""

    gpu: Selector = ()
    """Nodes with these labels are GPU nodes too; empty for none."""
    include: Selector = ()
    """Only nodes with these labels may be tainted; empty for all nodes."""
    pool_label: str = ""
    domain_label: str = ""
    rack_label: str = ""
    recovery: Selector = ()
    """Only nodes with these labels are validated and returned unasked; empty for all nodes."""
    sliced: Callable[[], Mapping[str, SlicedGpus]] = dict
    """Returns the nodes with a ResourceSlice of a GPU, each with its GPUs; see
    ``store.ResourceSlices``."""


class PageDecoder:
    """A decoder that can also parse a page of Nodes: only the fields that :func:`decode_node` reads.

    Parsing whole pages takes twice the time: most of a Node is images, labels and managedFields. Without
    managedFields ``last_writer`` is None.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        selected = [key for key, _ in (*reading.gpu, *reading.include, *reading.recovery)]
        labels = {*_LABELS, *selected, reading.pool_label, reading.domain_label, reading.rack_label}
        node = _fields(
            metadata=_fields(
                *("name", "uid", "resourceVersion", "creationTimestamp"),
                labels=_fields(*labels),
                annotations=_fields(RECORD_ANNOTATION),
            ),
            spec=_fields("taints", "unschedulable", "providerID"),
            status=_fields(
                "capacity",
                allocatable=_fields(*PLUGIN_RESOURCES),
                conditions=core_schema.list_schema(_fields("lastHeartbeatTime", *_CONDITION_FIELDS)),
                nodeInfo=_fields("systemUUID", "bootID"),
            ),
        )
        page = _fields("kind", "metadata", items=core_schema.list_schema(node))
        self._page = SchemaValidator(page)

    def __call__(self, node: JsonObject) -> NodeState:
        """Decode one Node."""
        return decode_node(node, self._reading)

    def parsed(self, data: bytes) -> Any:
        """Parse a page. If a field has not the type that it has in Kubernetes, the page is parsed whole."""
        try:
            return self._page.validate_json(data)
        except ValueError:
            return parsed(data)


def _fields(*names: str, **kinds: core_schema.CoreSchema) -> core_schema.CoreSchema:
    """Return the schema of an object with these fields, each of any kind or of the given one."""
    every = {**dict.fromkeys(names, core_schema.any_schema()), **kinds}
    found = {name: core_schema.typed_dict_field(kind, required=False) for name, kind in every.items()}
    return core_schema.typed_dict_schema(found, extra_behavior="ignore")


def node_decoder(
    settings: NodeSettings | None = None, sliced: Callable[[], Mapping[str, SlicedGpus]] = dict
) -> PageDecoder:
    """Return a decoder for these settings. Raises ValueError if a selector cannot be parsed.

    Without settings (a command may not know the controller's) the decoder uses no selector, no pool label and
    no domain label. The decoder calls ``sliced`` for each Node.
    """
    reading = Reading(sliced=sliced)
    if settings is not None:
        reading = Reading(
            parse_selector(settings.gpu_node_selector),
            parse_selector(settings.node_selector),
            settings.pool_label,
            settings.domain_label,
            settings.rack_label,
            parse_selector(settings.recovery_node_selector),
            sliced,
        )
    return PageDecoder(reading)


def decode_node(node: JsonObject, reading: Reading = Reading()) -> NodeState:
    """Decode one Node. A Node without a name gets an empty name."""
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
    conditions = _conditions(status)
    ready = next((each for each in conditions if each.get("type") == "Ready"), {})
    others = [each for each in conditions if each.get("type").__class__ is str and each["type"] in _READ]
    name = _text(metadata, "name") or ""
    machine = _machine(uid, spec, status)
    capacity, sliced = json_object(status, "capacity"), reading.sliced().get(name, _NOT_SLICED)
    return NodeState(
        name=name,
        machine=machine,
        created_ns=_ns(metadata, "creationTimestamp") or 0,
        is_gpu_node=sliced is not _NOT_SLICED
        or says_gpu(labels, capacity, reading.gpu)
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
            needs=labels.get(NEEDS_LABEL),
            has_annotations=isinstance(metadata.get("annotations"), dict),
            has_labels=isinstance(metadata.get("labels"), dict),
        ),
        opted_out=labels.get(OPT_OUT_LABEL) == "true",
        selected=not reading.include or matches(labels, reading.include),
        recovery_selected=not reading.recovery or matches(labels, reading.recovery),
        pool=labels.get(reading.pool_label),
        domain=labels.get(reading.domain_label),
        record_problem=problem,
        record_kept=text is not None and records.is_in_short(text),
        last_writer=last_writer(metadata.get("managedFields")),
        writers=writers_of(metadata.get("managedFields")),
        reported_ns=_ns(ready, "lastHeartbeatTime"),
        booted_after_ns=record.booted_after_ns if record.machine == machine else None,
        conditions=_our_conditions(conditions),
        reported=_reported(others) if others else (),
        planned=_planned(others, labels) if others or _MAINTENANCE in labels else (),
        ready_since_ns=_ns(ready, "lastTransitionTime"),
        gpus=gpu_count(labels, capacity, json_object(status, "allocatable"), sliced.number),
        seen_gpus=sliced.seen,
        hardware=_hardware(labels, reading.rack_label),
    )


def _hardware(labels: Mapping[str, str], rack_label: str) -> Hardware:
    """Return what NVIDIA's GPU feature discovery writes in the labels, and the rack."""
    driver = labels.get(_DRIVER) or ".".join(filter(None, (labels.get(name) for name in _DRIVER_PARTS)))
    found = Hardware(labels.get(_MODEL, ""), driver, labels.get(rack_label, ""))
    return found if any(astuple(found)) else UNLABELLED


def _machine(uid: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> Machine:
    info = json_object(status, "nodeInfo")
    uuid = _text(info, "systemUUID")
    system_id = uuid if proper_system_id(uuid) else _text(spec, "providerID")
    return Machine(uid, system_id, _text(info, "bootID"))


def _taint(taint: Mapping[str, Any]) -> Taint:
    return Taint(_text(taint, "key") or "", _text(taint, "value"), _text(taint, "effect") or "")


def _ns(parent: Mapping[str, Any], name: str) -> int | None:
    try:
        return ns_of_text(_text(parent, name) or "")
    except ValueError:
        return None


def _conditions(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    conditions = status.get("conditions")
    return [c for c in conditions if isinstance(c, dict)] if isinstance(conditions, list) else []


def _our_conditions(conditions: Iterable[Mapping[str, Any]]) -> tuple[Condition, ...]:
    """Return the conditions that a controller of ours wrote, under whatever name."""
    return tuple(
        Condition(*(_text(c, name) or "" for name in _CONDITION_FIELDS))
        for c in conditions
        if _text(c, "type") and (_text(c, "message") or "").startswith(CONDITION_MARK)
    )


def _reported(conditions: Iterable[Mapping[str, Any]]) -> tuple[ReportedCondition, ...]:
    """Return the conditions of other programs that the catalogue has rules for.

    Each type is a key of the list, but the API server does not enforce it. If two programs have written two
    conditions of one type, nobody knows which one is right.
    """
    found: dict[str, ReportedCondition] = {}
    for each in conditions:
        kind, message = each["type"], _text(each, "message") or ""
        if kind not in _TYPES or message.startswith(CONDITION_MARK):
            continue
        reported = "Unknown" if kind in found else _text(each, "status") or "Unknown"
        reason, message = (_text(each, "reason") or "")[:_REASON_CHARS], message[:EVIDENCE_CHARS]
        times = _ns(each, "lastTransitionTime"), _ns(each, "lastHeartbeatTime")
        found[kind] = ReportedCondition(kind, reported, reason, message, *times)
    return tuple(found.values())


def _planned(conditions: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> tuple[PlannedWork, ...]:
    """Return the work on the machine that conditions and GKE's label announce."""
    found = []
    for each in conditions:
        if (kind := each["type"]) in _PLANNED and each.get("status") == "True":
            said = (_text(each, "reason"), _text(each, "message"))
            text = ": ".join(filter(None, said))[:EVIDENCE_CHARS]
            found.append(PlannedWork(kind, _PLANNED[kind], None, _ns(each, "lastTransitionTime"), text))
    at = labels.get(_MAINTENANCE, "")
    if at.isascii() and at.isdecimal() and len(at) <= _SECONDS_DIGITS:
        found.append(PlannedWork(_MAINTENANCE, at_ns=int(at) * SECOND_NS))
    return tuple(found)


def _seen_before(record: NodeRecord) -> bool:
    """Whether the record has an incident of the kernel log that only a node with a GPU can have."""
    return any(incident.kind.proves_gpu and incident.source is Source.KERNEL for incident in record.incidents)


def _texts(parent: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: value for key, value in json_object(parent, name).items() if isinstance(value, str)}


def _text(parent: Mapping[str, Any], name: str) -> str | None:
    """Return a non-empty string, or None."""
    found = parent.get(name)
    return found if isinstance(found, str) and found else None


_NOT_SLICED = SlicedGpus(0)
_TYPES = frozenset(condition_rules())
_READ = _TYPES | _PLANNED.keys()
_REASON_CHARS = 128
_SECONDS_DIGITS = 11
_PRESENT = (
    "nvidia.com/gpu.present",  # NVIDIA's GPU operator and GPU feature discovery
    "feature.node.kubernetes.io/pci-10de.present",  # node feature discovery as the GPU operator sets it up
    "feature.node.kubernetes.io/pci-0302_10de.present",  # node feature discovery by itself: 3D controllers
    "feature.node.kubernetes.io/pci-0300_10de.present",  # and display controllers
)
"""Labels that are ``true`` on a node with an NVIDIA GPU; the last three also if its driver failed."""
_ACCELERATORS = (
    "cloud.google.com/gke-accelerator",  # GKE: nvidia-h100-80gb, …
    "k8s.amazonaws.com/accelerator",  # EKS with cluster-autoscaler: nvidia-tesla-v100, …
    "kubernetes.azure.com/accelerator",  # AKS: nvidia
    "accelerator",  # AKS of old: nvidia
    "karpenter.k8s.aws/instance-gpu-manufacturer",  # nvidia, amd, …
    "karpenter.azure.com/sku-gpu-manufacturer",
)
"""Labels whose value names a GPU product or its maker."""
_COUNTS = {
    "karpenter.k8s.aws/instance-gpu-count": "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.azure.com/sku-gpu-count": "karpenter.azure.com/sku-gpu-manufacturer",
}
"""Labels with the number of GPUs, each with the label that names the GPUs' maker."""
_MODEL = "nvidia.com/gpu.product"
_DRIVER = "nvidia.com/cuda.driver-version.full"
_DRIVER_PARTS = ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev")
"""The driver's version before GPU feature discovery 0.15 (NVIDIA/k8s-device-plugin), in three labels."""
_LABELS = (
    *(HEALTH_LABEL, NEEDS_LABEL, OPT_OUT_LABEL, _MODEL, _DRIVER, *_DRIVER_PARTS),
    *(*_PRESENT, *_ACCELERATORS, *_COUNTS, *COUNT_LABELS, _MAINTENANCE),
)
"""All labels that decoding a Node reads, beside those that the settings name."""
_OTHER_MAKERS = ("amd", "habana", "intel", "aws", "inferentia", "trainium", "neuron", "xilinx", "qualcomm")


def says_gpu(labels: Mapping[str, str], capacity: Mapping[str, object], selector: Selector) -> bool:
    """Whether labels, capacity keys or the user's own selector mark a node as a GPU node.

    A capacity of 0 counts too: when all GPUs are dead, the capacity still has the key, with the number 0.
    """
    return (
        any(labels.get(name) == "true" for name in _PRESENT)
        or any(_of_nvidia(labels.get(name, "")) for name in _ACCELERATORS)
        or any(_counts_ours(labels, count, maker) for count, maker in _COUNTS.items())
        or any(_is_gpu_resource(name) for name in capacity)
        or (bool(selector) and matches(labels, selector))
    )


def _of_nvidia(value: str) -> bool:
    """Whether an accelerator label names a product of NVIDIA: any value that is not of another maker.

    Clouds write a product (``nvidia-l4``, ``a100``) or a maker.
    """
    return value not in ("", "none", "false") and not value.lower().startswith(_OTHER_MAKERS)


def _counts_ours(labels: Mapping[str, str], count: str, maker: str) -> bool:
    return labels.get(count, "0") != "0" and _of_nvidia(labels.get(maker, "nvidia"))


def _is_gpu_resource(name: str) -> bool:
    return name == "nvidia.com/gpu" or name.startswith(("nvidia.com/gpu.", "nvidia.com/mig-"))


def matches(labels: Mapping[str, str], selector: Selector) -> bool:
    """Whether a node's labels satisfy the selector."""
    return all(key in labels and value in (None, labels[key]) for key, value in selector)


_ROUTINE = frozenset(
    {"kubelet", "kube-controller-manager", "cloud-controller-manager", "kubelite", "k3s", "rke2"}
)
"""Field managers that write to every Node all the time: kubelets, node controllers, programs with both."""


def last_writer(managed_fields: object) -> str | None:
    """Return the field manager that last wrote to spec or metadata; None if unknown.

    We and the managers in ``_ROUTINE`` do not count, nor do entries older than our own last write to spec or
    metadata. The result is a guess: the server keeps one entry per manager, in whole seconds, and no entry
    for a manager that has only removed fields.
    """
    entries = [e for e in managed_fields if isinstance(e, dict)] if isinstance(managed_fields, list) else []
    ours = (e for e in entries if e.get("manager") == FIELD_MANAGER and not e.get("subresource"))
    ours_ns = max(map(_written_ns, ours), default=0)
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
