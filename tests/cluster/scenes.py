"""Helpers: Nodes, records and changes for the cluster's tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import (
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    Change,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    Machine,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    Severity,
    Source,
    Verb,
)

NOON = datetime(2026, 5, 6, 12, 0, tzinfo=UTC)
NOON_NS = 1_778_068_800_000_000_000
BOOT = "6f0c1d7e-2f43-4c52-9f5a-0d8a4f3b2c11"
OURS = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}
TEAM = {"key": "team", "value": "vision", "effect": "NoSchedule", "timeAdded": "2026-05-01T00:00:00Z"}


def raw_node(name: str = "gpu-1", **parts: Any) -> dict[str, Any]:
    """Return a Node as the API server sends it, with ``labels``, ``annotations`` and ``taints`` if given."""
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}
    metadata["labels"] = parts.get("labels", {"nvidia.com/gpu.present": "true"})
    metadata["annotations"] = parts.get("annotations", {"node.alpha.kubernetes.io/ttl": "0"})
    node: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": {"nodeInfo": {"bootID": BOOT}}}
    if "taints" in parts:
        node["spec"]["taints"] = parts["taints"]
    for absent in [key for key in ("labels", "annotations") if metadata[key] is None]:
        del metadata[absent]
    return node


def state_of(node: dict[str, Any]) -> NodeState:
    """Return the decoded Node."""
    return decode_node(node)


def incident(
    code: int = 79,
    *,
    gpu: str | None = "0000:3b:00",
    severity: Severity = Severity.FATAL,
    state: IncidentState = IncidentState.ACTIVE,
    seconds: int = 0,
    line: str = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
) -> Incident:
    """Return an incident ``seconds`` after noon."""
    return Incident(
        key=IncidentKey(f"xid.{code}", gpu),
        kind=FaultKind.XID,
        severity=severity,
        state=state,
        count=1,
        first_ns=NOON_NS + seconds * 1_000_000_000,
        last_ns=NOON_NS + seconds * 1_000_000_000,
        last=KernelPosition(BOOT, 1000 + seconds, 5_000_000 + seconds),
        code=code,
        evidence=line,
        title="GPU lost",
        advice="Reboot the node.",
        needs="reboot",
    )


def release(seconds: int = 0, *, reason: str = "replaced the board") -> Release:
    """Return a release by a person."""
    return Release(
        at=NOON.replace(minute=seconds // 60, second=seconds % 60),
        by="kim",
        reason=reason,
        how=ReleaseHow.RESET,
        read=KernelPosition(BOOT, 900, 4_000_000),
        read_ns={Source.KERNEL: NOON_NS, Source.POD: NOON_NS - 5},
    )


def record(*incidents: Incident, tainted: bool = True, releases: tuple[Release, ...] = ()) -> NodeRecord:
    """Return a record with these incidents."""
    return NodeRecord(
        machine=Machine("uid-gpu-1", "4c4c4544-0051-3310-8052-b4c04f564d33", BOOT),
        life=Life(NOON if tainted else None),
        incidents=incidents,
        releases=releases,
        read=KernelPosition(BOOT, 1200, 6_000_000),
    )


def taint(name: str = "gpu-1", recorded: NodeRecord | None = None) -> Change:
    """Return a change that taints the node for an Xid 79."""
    return Change(name, Verb.TAINT, record(incident()) if recorded is None else recorded, "faulty")


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until the condition is true; fail the test if that takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)
