"""Matches what really happened with the records on the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from konductor_like.model import (
    HEALTH_LABEL,
    NEEDS_LABEL,
    RECORD_ANNOTATION,
    SUSPECT_TAINT_EFFECT,
    SUSPECT_TAINT_KEY,
    TAINT_KEY,
    TAINT_VALUE,
    Incident,
    IncidentState,
    KernelPosition,
    NodeRecord,
    NodeState,
    Source,
)
from tests.chaos.machines import Occurrence

Node = dict[str, Any]
_OUR_NAMES = (HEALTH_LABEL, NEEDS_LABEL, RECORD_ANNOTATION)
_SUSPECTS = (SUSPECT_TAINT_KEY, TAINT_VALUE, SUSPECT_TAINT_EFFECT)


def is_key(o: Occurrence, incident: Incident) -> bool:
    """Whether an occurrence and an incident have the same rule and GPU.

    An incident without a GPU may be of all the GPUs of its rule that are too many.
    """
    return o.finding.rule == incident.key.rule and incident.key.gpu in (None, o.finding.gpu)


def belongs_to(o: Occurrence, incident: Incident) -> bool:
    """Whether an occurrence belongs to an incident: by key, by whether it taints, and by boot."""
    boot = incident.last.boot_id in (None, o.boot_id)
    return is_key(o, incident) and incident.severity.taints == o.taints and boot


def recorded_in(o: Occurrence, incidents: list[Incident]) -> bool:
    """Whether one of the incidents includes this occurrence, by its last position."""
    for incident in incidents:
        if o.in_loki and belongs_to(o, incident):
            last = incident.last
            if o.machine.plain or last.sequence is None:
                return last.newest_us is not None and o.stamp_us <= last.newest_us
            return o.sequence <= last.sequence
    return False


def read_by(o: Occurrence, read: KernelPosition) -> bool:
    """Whether the kernel log was read past this occurrence, so that a release covers it (rule 4)."""
    known = o.source is Source.KERNEL and not o.machine.plain and read.sequence is not None
    return known and o.boot_id == read.boot_id and o.sequence <= (read.sequence or 0)


def is_open_in(o: Occurrence, state: NodeState) -> bool:
    """Whether an open incident of the Node's present boot includes this occurrence."""
    present = [i for i in state.record.incidents if i.last.boot_id == state.machine.boot_id]
    return recorded_in(o, [i for i in present if i.state is not IncidentState.RELEASED])


def recorded(o: Occurrence, record: NodeRecord) -> bool:
    return recorded_in(o, list(record.incidents))


def listed(occurrences: list[Occurrence]) -> str:
    """Describe the latest three occurrences."""
    shown = [str(o) for o in occurrences[-3:]]
    return ", ".join(shown if len(occurrences) <= 3 else [f"{len(occurrences) - 3} more", *shown])


def version(node: Node) -> str:
    return str(node["metadata"]["resourceVersion"])


def without_ours(node: Mapping[str, Any]) -> Node:
    """Return a Node without our taints, label and record, in its own order."""
    meta = {k: v for k, v in node["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    for part in ("labels", "annotations"):
        meta[part] = {key: value for key, value in meta.get(part, {}).items() if key not in _OUR_NAMES}
    taints = [
        taint
        for taint in node.get("spec", {}).get("taints", [])
        if (taint["key"], taint.get("value"), taint["effect"]) != _SUSPECTS
        and (taint["key"], taint.get("value")) != (TAINT_KEY, TAINT_VALUE)  # whatever its effect
    ]
    return {**node, "metadata": meta, "spec": {**node.get("spec", {}), "taints": taints}}


# Taints that no fatal line explains


def may_justify_taint(uncovered: Sequence[Occurrence]) -> bool:
    """Whether lines may reach a threshold together: three of one GPU, or a kernel line and a pod's."""
    gpus = Counter(o.finding.gpu for o in uncovered if o.source is Source.KERNEL)
    return any(times >= 3 for times in gpus.values()) or bool(gpus and len(gpus) < len(uncovered))
