"""A Node's JSON as a ``NodeState``. Whatever somebody put into a Node, this does not raise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from konductor_like.cluster import record as records
from konductor_like.cluster import times
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.gpu import Selector, matches, parse_selector, says_gpu
from konductor_like.cluster.managers import last_writer
from konductor_like.cluster.published import Published
from konductor_like.cluster.slices import GpuSlices
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
from konductor_like.settings import Settings

JsonObject = dict[str, Any]
NodeDecoder = Callable[[JsonObject], NodeState]


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
    gpu_node_selector: str = "",
    *,
    include: str = "",
    pool_label: str = "",
    domain_label: str = "",
    sliced: Callable[[], Collection[str]] = frozenset,
) -> NodeDecoder:
    """A decoder that knows these settings. Raises ValueError if one that should be is no selector."""
    gpu, chosen = parse_selector(gpu_node_selector), parse_selector(include)
    reading = Reading(gpu, chosen, pool_label, domain_label, sliced)
    return lambda node: decode_node(node, reading)


def settled_decoder(
    settings: Settings | Published | None, client: ReadOnlyKubeClient | None = None
) -> NodeDecoder:
    """A decoder as the settings say; with a client it knows ResourceSlices, too. Raises ValueError.

    Without settings, because they are not known, it knows no selector and no label of pools.
    """
    sliced = GpuSlices(client).nodes if client else frozenset
    if settings is None:
        return node_decoder(sliced=sliced)
    return node_decoder(
        settings.gpu_node_selector,
        include=settings.node_selector,
        pool_label=settings.pool_label,
        domain_label=settings.domain_label,
        sliced=sliced,
    )


def decode_node(node: JsonObject, reading: Reading = Reading()) -> NodeState:
    """Decode one Node; a Node without a name gets the name ``""``."""
    metadata, spec, status = _object(node, "metadata"), _object(node, "spec"), _object(node, "status")
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
        or says_gpu(labels, _object(status, "capacity"), reading.gpu)
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
    info = _object(status, "nodeInfo")
    return Machine(uid, _text(info, "systemUUID") or _text(spec, "providerID"), _text(info, "bootID"))


def _taint(taint: Mapping[str, Any]) -> Taint:
    return Taint(_text(taint, "key") or "", _text(taint, "value"), _text(taint, "effect") or "")


def _ns(parent: Mapping[str, Any], name: str) -> int | None:
    try:
        return times.ns_of_text(_text(parent, name) or "")
    except ValueError:
        return None


def _condition(status: Mapping[str, Any], kind: str) -> dict[str, Any]:
    conditions = status.get("conditions")
    found = [c for c in conditions if isinstance(c, dict)] if isinstance(conditions, list) else []
    return next((condition for condition in found if condition.get("type") == kind), {})


def _seen_before(record: NodeRecord) -> bool:
    """Whether the node's own kernel log proved a GPU once, even if nothing shows it any more."""
    return any(incident.kind.proves_gpu and incident.source is Source.KERNEL for incident in record.incidents)


def _object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _texts(parent: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: value for key, value in _object(parent, name).items() if isinstance(value, str)}


def _text(parent: Mapping[str, Any], name: str) -> str | None:
    """A non-empty string, or None."""
    found = parent.get(name)
    return found if isinstance(found, str) and found else None
