"""The controller's answers about one node, with the node and the answer as JSON.

The recorded decisions (``test_recorded_decisions.py``) and the earlier build (``test_earlier_build.py``; a
copy of this module is in its zip) ask the same questions. So this module imports only what builds of any age
have: the codec of records, ``decide``, and the functions of a person's commands.

A question is a JSON object. ``record`` is the annotation's text. ``node`` has the facts of the Node that are
not those of a healthy one with 8 GPUs. ``ask`` says what happens: the time ``now``, the act of a person
(``by``), or new faults (each ``[code, GPU, boot id, kernel stamp in microseconds]``), and the settings.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from konductor_like import model
from konductor_like.cluster.node.record import decode, encode
from konductor_like.model import (
    NO_GPUS,
    AsRead,
    Change,
    Control,
    ControlAct,
    Controls,
    Fault,
    FaultKind,
    Finding,
    GpuCount,
    Hearing,
    KernelPosition,
    Machine,
    NodeRecord,
    NodeState,
    Plan,
    Severity,
    Snapshot,
    Source,
    Taint,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.node import gpu_counts
from konductor_like.policy.node.release import release
from konductor_like.policy.operator import operator_taint

NAME = "gpu-1"
NODES = 4
CREATED = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
OURS = Taint(model.TAINT_KEY, model.TAINT_VALUE, model.TAINT_EFFECT)
SUSPECTS = Taint(model.SUSPECT_TAINT_KEY, model.TAINT_VALUE, model.SUSPECT_TAINT_EFFECT)
KINDS = {
    14: (Severity.TEST, "none"),
    31: (Severity.APPLICATION, "application-restart"),
    48: (Severity.FATAL, "gpu-reset"),
    63: (Severity.SUSPECT, "gpu-reset"),
    79: (Severity.FATAL, "reboot"),
    95: (Severity.FATAL, "gpu-reset"),
    140: (Severity.FATAL, "support"),
    154: (Severity.SUSPECT, "gpu-reset"),
}
"""Severity and need of the Xids that the questions use; they do not follow the catalogue."""
GPUS_MISSING = Finding(
    FaultKind.NODE, "node.gpus_missing", Severity.SUSPECT, "GPUs are missing", "Reboot.", "", needs="reboot"
)


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the build makes of one question: the write, and why the node is not tainted."""
    record, problem = (NodeRecord(), None) if asked["record"] is None else _decoded(asked["record"])
    state = state_of(asked["node"], record, problem, asked["record"])
    ask, now = asked["ask"], datetime.fromisoformat(asked["ask"]["now"])
    read_ns = {Source.KERNEL: unix_ns(now)}
    match ask.get("by"):
        case "reset":
            person = {"at": now, "by": "ann", "reason": ask.get("reason", "")}
            return shown(release(state, **person, read_ns=read_ns))
        case "taint":
            return shown(operator_taint(state, at=now, by="kim", reason="riser swap"))
    plan = planned(
        snapshot_of(state, ask, now),
        [fault_of(*each, at=now) for each in ask.get("faults", ())],
        policy_of(ask),
        now,
    )
    change = next((each for each in plan.changes if each.node == NAME), None)
    refused = [[each.why.value, each.key.rule, each.detail] for each in plan.refused]
    return shown(change) | ({"refused": refused} if refused else {})


_decoded = lru_cache(decode)


def shown(change: Change | None) -> dict[str, Any]:
    """Return a write as JSON; fields that are empty are left out."""
    if change is None:
        return {}
    parts = {
        "verb": change.verb.value,
        "event": change.event and change.event.value,
        "message": change.message,
        "also": [[reason.value, message] for reason, message in change.also],
        "health": change.health,
        "needs": change.needs and str(change.needs),
        "upkeep": change.upkeep,
        "record": change.record and encode(change.record),
        "incident": change.incident and [*change.incident.key],
    }
    return {name: part for name, part in parts.items() if part}


def state_of(
    facts: Mapping[str, Any], record: NodeRecord, problem: str | None, text: str | None
) -> NodeState:
    """Return the node with these facts."""
    uid = facts.get("uid", "uid-1")
    taints = [OURS] if facts.get("tainted") else []
    taints += [SUSPECTS] if facts.get("suspect_tainted") else []
    taints += [Taint(key, value, effect) for key, value, effect in facts.get("taints", ())]
    health, needs = facts.get("health"), facts.get("needs")
    return NodeState(
        name=NAME,
        machine=Machine(uid, facts.get("system", "system-1"), facts.get("boot", "boot-a")),
        created_ns=unix_ns(CREATED),
        is_gpu_node=facts.get("gpu_node", True),
        ready=facts.get("ready", True),
        unschedulable=facts.get("cordoned", False),
        taints=tuple(taints),
        record=record,
        as_read=AsRead(uid, "1", None, text, health, has_annotations=True, has_labels=True, needs=needs),
        opted_out=facts.get("opted_out", False),
        record_problem=problem,
        removed_by=facts.get("writer"),
        booted_after_ns=facts.get("booted_after_ns"),
        gpus=GpuCount(**facts["gpus"]) if "gpus" in facts else GpuCount(8, 8),
    )


@cache
def _others() -> dict[str, NodeState]:
    """The other nodes: healthy, and without a record."""
    state = state_of({}, NodeRecord(), None, None)
    names = [f"other-{number}" for number in range(1, NODES)]
    machines = {name: Machine(f"uid-{name}", f"system-{name}", "boot-x") for name in names}
    return {
        name: replace(state, name=name, machine=machines[name], gpus=NO_GPUS, created_ns=unix_ns(CREATED))
        for name in names
    }


def snapshot_of(state: NodeState, ask: Mapping[str, Any], now: datetime) -> Snapshot:
    """Return the fleet with this node; its log is heard for the last ``heard`` seconds of its boot."""
    heard: dict[str, Hearing] = {}
    if "heard" in ask:
        first = now - timedelta(seconds=ask["heard"])
        is_cut = bool(ask.get("gap"))
        boot_id = str(state.machine.boot_id)
        heard[NAME] = Hearing(boot_id, unix_ns(first), unix_ns(now), has_gap=is_cut, has_any_gap=is_cut)
    acts = (ControlAct(Control.PAUSE, now, "kim", "move"),) if ask.get("pause") else ()
    standing: Any = {}
    if hasattr(model, "Standing"):  # an earlier build looks at the Node of this moment only
        standing = {"standing": {NAME: model.Standing(*(ask.get("stood", 86_400.0),) * 2)}}
    return Snapshot(
        {NAME: state, **_others()},
        read_ns={Source.KERNEL: unix_ns(now)},
        hearing=heard,
        controls=Controls(acts),
        left={NAME: frozenset(ask["left"])} if "left" in ask else {},
        **standing,
    )


def policy_of(ask: Mapping[str, Any]) -> PolicyConfig:
    """Return the settings: the defaults, but for those of the question."""
    return PolicyConfig(
        returns_by_reboot=ask.get("returns", False),
        brake_max_nodes=0 if ask.get("brake") else None,
        brake_max_percent=100,
        version="rules",
    )


def fault_of(code: int, gpu: str | None, boot: str | None, stamp_us: int | None, *, at: datetime) -> Fault:
    """Return the fault of an Xid that the node prints now."""
    severity, needs = KINDS[code]
    finding = Finding(
        FaultKind.XID,
        f"xid.{code}",
        severity,
        f"Title {code}",
        f"Do as Xid {code} asks.",
        f"NVRM: Xid (PCI:{gpu}): {code}",
        code,
        gpu,
        position=KernelPosition(boot, None, stamp_us),
        needs=needs,
    )
    return Fault(finding, Source.KERNEL, unix_ns(at), NAME)


def planned(snapshot: Snapshot, faults: Sequence[Fault], policy: PolicyConfig, now: datetime) -> Plan:
    """Return the decision of a controller that has just begun to count GPUs."""
    old: Any = gpu_counts
    if not hasattr(old, "with_counts"):  # the decision counts the GPUs itself
        counting: Any = {"gpus": model.GpuCounts()}
        ruled: Any = {"gpus_missing": GPUS_MISSING}
        return decide(replace(snapshot, **counting), faults, replace(policy, **ruled), now)
    seconds = policy.gpu_count_seconds
    counts = old.counted(old.GpuCounts(), snapshot.nodes, seconds, now)
    found = [*faults, *old.faults_of(counts, GPUS_MISSING, seconds, now)]
    short: Any = {"short_of_gpus": counts.short}
    plan = decide(replace(snapshot, **short), found, policy, now)
    counted_plan: Plan = old.with_counts(plan, counts, snapshot.nodes, policy.version, now)
    return counted_plan


def main() -> None:
    """Answer the questions on stdin, one a line; each answer has the record encoded again."""
    for line in sys.stdin:
        asked = json.loads(line)
        text = asked["record"] and encode(decode(asked["record"])[0])
        print(json.dumps({"text": text, "answer": answer(asked)}))  # noqa: T201  # the answer is the output


if __name__ == "__main__":
    main()
