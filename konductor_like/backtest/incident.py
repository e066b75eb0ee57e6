"""A saved incident: what the controller saw and did around one outage, as one JSON file.

The file has the kernel lines with faults of the node and of the nodes of its failure group, what the record
told of these nodes before, the numbers of the policy, the rules, and which of the nodes were tainted, when
and for which fault. It has no names of persons, of jobs and of namespaces; lines of pods only if somebody
asked for them. A digest shows whether somebody has changed the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from konductor_like.cluster.lenient_json import Fields, Ns, read
from konductor_like.cluster.node import record as records
from konductor_like.cluster.published import Published, decode_settings, encode_settings
from konductor_like.model import LogLine, NodeRecord, Source
from konductor_like.model.time import text_of, text_of_ns

API_VERSION, KIND = "konductor-like/v1", "SavedIncident"
VERSION = 1
LINES_MOST = 20_000
"""Lines of one file, at most."""
GPU_NODES_MOST = 100_000
"""GPU nodes of the fleet, at most: a replay makes each of them."""
BYTES_MOST = 64 * 2**20
"""Bytes of a file that is read, at most."""


class IncidentFileError(Exception):
    """The file is no saved incident of this version, or is damaged; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class SavedNode:
    """A node whose lines were saved."""

    name: str
    pool: str | None = None
    domain: str | None = None
    """The multi-node NVLink domain."""
    record: NodeRecord = field(default_factory=NodeRecord)
    """What the record told before the incident: earlier times out, releases, probation."""


@dataclass(frozen=True, slots=True)
class SavedOutage:
    """A taint that the controller set on a saved node."""

    node: str
    at: datetime
    rule: str
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class OtherOutage:
    """A time out of service of another node, which takes a place of the brake."""

    since: datetime
    until: datetime | None = None
    """When it ended; None if it lasted."""


@dataclass(frozen=True, slots=True)
class OtherNodes:
    """The GPU nodes of one pool, without the saved nodes."""

    gpu_nodes: int
    pool: str | None = None
    outages: tuple[OtherOutage, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedIncident:
    """One saved incident."""

    node: str
    start: datetime
    end: datetime
    """The span of the lines."""
    saved_at: datetime
    program: str
    """Version and build of the program that saved it."""
    controller: str
    """Version and build of the controller; empty if they are not known."""
    settings: Published
    """The controller's settings, without names of namespaces and selectors."""
    rules: str | None
    """The text of the rules file; None for the built-in rules alone."""
    with_pods: bool
    nodes: tuple[SavedNode, ...]
    others: tuple[OtherNodes, ...]
    outages: tuple[SavedOutage, ...]
    lines: tuple[LogLine, ...]
    missing: tuple[str, ...] = ()
    """What the file does not have, in sentences."""


def without_names(settings: Published) -> Published:
    """Return settings without what names a site: the pod, its namespaces, selectors."""
    return replace(
        settings,
        by="",
        namespaces=(),
        further_namespaces=0,
        validation_namespace="",
        gpu_node_selector="",
        node_selector="",
        recovery_node_selector="",
        kernel_selector="",
        extra_matchers="",
    )


def encode(incident: SavedIncident) -> str:
    """Return the file's text."""
    found = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "version": VERSION,
        "node": incident.node,
        "from": text_of(incident.start),
        "to": text_of(incident.end),
        "savedAt": text_of(incident.saved_at),
        "program": incident.program,
        "controller": incident.controller,
        "settings": json.loads(encode_settings(incident.settings)),
        "rules": incident.rules,
        "withPods": incident.with_pods,
        "missing": list(incident.missing),
        "outages": [
            {"node": e.node, "at": text_of(e.at), "rule": e.rule, "gpu": e.gpu} for e in incident.outages
        ],
        "nodes": [
            {
                "name": e.name,
                "pool": e.pool,
                "domain": e.domain,
                "record": json.loads(records.encode(e.record)),
            }
            for e in incident.nodes
        ],
        "others": [
            {
                "gpuNodes": each.gpu_nodes,
                "pool": each.pool,
                "outages": [
                    {"since": text_of(o.since), "until": text_of(o.until) if o.until else None}
                    for o in each.outages
                ],
            }
            for each in incident.others
        ],
        "lines": [_line_json(each) for each in incident.lines],
    }
    return json.dumps({**found, "sha256": _digest(found)}, indent=1, ensure_ascii=False) + "\n"


def decode(text: str) -> SavedIncident:
    """Read a file's text. Raises IncidentFileError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise IncidentFileError("it is no saved incident, or it is damaged")
    if (version := found.get("version")) != VERSION:
        raise IncidentFileError(f"it has version {version!s:.20}, and this program reads version {VERSION}")
    given = found.pop("sha256", None)
    if given != _digest(found):
        raise IncidentFileError("it was changed after it was saved, or it is damaged")
    fields = read(text)
    settings, problem = decode_settings(json.dumps(found.get("settings")))
    node, start, end = fields.need("node", str), fields.need("from", datetime), fields.need("to", datetime)
    saved_at = fields.need("savedAt", datetime)
    others = fields.decoded("others", _others)
    nodes, outages = fields.decoded("nodes", _node), fields.decoded("outages", _outage)
    lines = fields.decoded("lines", _line)
    missing = fields.texts("missing")
    if sum(each.gpu_nodes for each in others) > GPU_NODES_MOST:
        fields.complain(f"gpuNodes are more than {GPU_NODES_MOST:,} in all")
    problem = problem or fields.problem
    if problem or settings is None or not (node and start and end and saved_at):
        raise IncidentFileError(f"it cannot be read: {problem or 'settings, node or times are missing'}")
    return SavedIncident(
        *(node, start, end, saved_at),
        program=fields.get("program", str) or "",
        controller=fields.get("controller", str) or "",
        settings=settings,
        rules=fields.get("rules", str),
        with_pods=fields.get("withPods", bool) or False,
        nodes=nodes,
        others=others,
        outages=outages,
        lines=tuple(sorted(lines, key=lambda line: line.timestamp_ns)),
        missing=missing,
    )


def _digest(found: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _line_json(line: LogLine) -> dict[str, Any]:
    found: dict[str, Any] = {"at": text_of_ns(line.timestamp_ns), "node": line.node, "text": line.text}
    if line.source is Source.POD:
        found |= {"labels": dict(line.labels), "namespace": line.namespace}
        found |= {"pod": line.pod, "container": line.container}
    return found


def _line(found: Fields) -> LogLine | None:
    at_ns, text = found.need("at", Ns), found.need("text", str)
    if at_ns is None or text is None:
        return None
    labels = found.get("labels", dict)
    if labels is not None and not all(isinstance(value, str) for value in labels.values()):
        found.complain("labels are not text")
        return None
    return LogLine(
        Source.KERNEL if labels is None else Source.POD,
        at_ns,
        text,
        labels or {},
        *(found.get(name, str) for name in ("node", "namespace", "pod", "container")),
    )


def _node(found: Fields) -> SavedNode | None:
    name = found.need("name", str)
    if name is None:
        return None
    record = records.record_in(found.inner("record"))
    return SavedNode(name, found.get("pool", str), found.get("domain", str), record)


def _outage(found: Fields) -> SavedOutage | None:
    node, at, rule = found.need("node", str), found.need("at", datetime), found.need("rule", str)
    return SavedOutage(node, at, rule, found.get("gpu", str)) if node and at and rule else None


def _others(found: Fields) -> OtherNodes | None:
    number = found.need("gpuNodes", int)
    return (
        None
        if number is None
        else OtherNodes(number, found.get("pool", str), found.decoded("outages", _other_outage))
    )


def _other_outage(found: Fields) -> OtherOutage | None:
    since = found.need("since", datetime)
    return OtherOutage(since, found.get("until", datetime)) if since else None
