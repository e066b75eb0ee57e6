"""The Node condition: what it says of a node, and the patch that writes it (rule 40).

A strategic merge patch merges conditions by type, so two writers of conditions do not disturb each other.
True means faulty: every tool that acts on the conditions of others can act on that.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from konductor_like.model import CONDITION_MARK, Condition, FaultKind, Incident, NodeState, Severity
from konductor_like.model.text import clipped
from konductor_like.model.time import moment_of, stamp
from konductor_like.policy.node.health import Health, health_of
from konductor_like.policy.node.needs import fault_of, need_of
from konductor_like.policy.wording import name_of

HEAD_CHARS = 240
"""Characters of a message before the needs, at most. With the needs a message has fewer than 300."""
_NEEDS = "; needs: "


_Fault = Literal["XidFault", "XidTest", "SXidFault", "DriverFault", "OtherFault"]
_Faulty = Literal[_Fault, "OperatorTaint", "TaintWithoutFault"]
_NotFaulty = Literal["NoFault", "Suspect", "Probation", "TaintHeld", "KernelLogSilent"]
"""The reasons of the condition: a closed list, so that tools can rely on it."""
_BY_KIND: Mapping[FaultKind, _Faulty] = {
    FaultKind.XID: "XidFault",
    FaultKind.SXID: "SXidFault",
    **dict.fromkeys((FaultKind.NVRM, FaultKind.PEERMEM, FaultKind.NVLINK, FaultKind.FM), "DriverFault"),
}
_IN_SERVICE: Mapping[str | None, tuple[_NotFaulty, str]] = {
    None: ("NoFault", "no open fault"),
    Health.SUSPECT: ("Suspect", "in service, but suspect"),
    Health.PROBATION: ("Probation", "in service, on probation"),
    "held": ("TaintHeld", "the node has a fault that taints, and the taint is held back"),
}
"""By health label. A held node is in service: a tool that repairs nodes must not do what the brake holds
back."""


def standing(kind: str, state: NodeState) -> Condition | None:
    """Return our condition of this type as the Node has it; None without one."""
    return next((each for each in state.conditions if each.type == kind), None)


def wanted(kind: str, state: NodeState, *, silent: bool, heard: bool) -> Condition | None:
    """Return the condition that the Node should have; None for no condition.

    ``silent`` is whether the node's kernel log certainly does not arrive, ``heard`` whether it certainly
    does. If neither is certain, a condition that is Unknown stays.
    """
    stands, needs = standing(kind, state), state.as_read.needs
    if not kind or state.opted_out or not state.selected or not (state.is_gpu_node or stands):
        return None
    reason: _Faulty | _NotFaulty
    if state.faulty:
        status, (reason, message) = "True", _fault(fault_of(state.record, tainted=True))
        needs = needs or need_of(state.record, tainted=True)  # an old policy may refuse the label
    elif silent:
        status, reason, message = "Unknown", "KernelLogSilent", "the node's kernel log does not arrive"
    elif stands is not None and stands.status == "Unknown" and not heard:
        return stands
    else:
        status, (reason, message) = "False", _IN_SERVICE[health_of(state.record, tainted=False)]
    tail = f"{_NEEDS}{needs}" if needs else ""
    return Condition(kind, status, reason, f"{CONDITION_MARK}{clipped(message, HEAD_CHARS)}{tail}")


def _fault(fault: Incident | None) -> tuple[_Faulty, str]:
    if fault is None:
        return "TaintWithoutFault", "the node has the taint, and its record names no fault"
    reason: _Faulty = "OperatorTaint" if fault.by_person else _BY_KIND.get(fault.kind, "OtherFault")
    if fault.severity is Severity.TEST:
        reason = "XidTest"
    name = name_of(fault).replace("sxid", "SXid").replace("xid", "Xid")
    return reason, f"{name} since {stamp(moment_of(fault.first_ns))}"


def significant(condition: Condition | None) -> tuple[str, ...]:
    """Return what must differ before a condition is written again: status, reason and needs, not the text."""
    if condition is None:
        return ()
    return condition.status, condition.reason, condition.message.partition(_NEEDS)[2]


def patch_of(state: NodeState, condition: Condition | None, now: datetime) -> dict[str, Any]:
    """Return the strategic merge patch that writes ``condition`` and removes our other conditions."""
    kind = condition.type if condition else ""
    changes: list[dict[str, str]] = [
        {"$patch": "delete", "type": old.type} for old in state.conditions if old.type != kind
    ]
    if condition is not None:
        written = {name: getattr(condition, name) for name in ("type", "status", "reason", "message")}
        changes.append({**written, "lastHeartbeatTime": stamp(now), "lastTransitionTime": condition.since})
    # The server refuses the patch if the Node has another UID: the Node was deleted and created again.
    return {"metadata": {"uid": state.as_read.uid}, "status": {"conditions": changes}}
