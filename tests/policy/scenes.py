"""Builders of nodes, faults and clusters for policy tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from konductor_like.model import (
    SUSPECT_TAINT_EFFECT,
    SUSPECT_TAINT_KEY,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    AsRead,
    Change,
    Fault,
    FaultKind,
    Finding,
    KernelPosition,
    Machine,
    NodeRecord,
    NodeState,
    Plan,
    Severity,
    SkipReason,
    Snapshot,
    Source,
    Taint,
    Verb,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.fleet.brake import brake_state
from konductor_like.policy.node.release import release

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
GPU = "0000:4e:00"
SUSPECTS = Taint(SUSPECT_TAINT_KEY, TAINT_VALUE, SUSPECT_TAINT_EFFECT)
OURS = Taint(TAINT_KEY, TAINT_VALUE, TAINT_EFFECT)


def at(seconds: float) -> datetime:
    """Return the time ``seconds`` after noon."""
    return NOON + timedelta(seconds=seconds)


def ns(seconds: float) -> int:
    """Return the Loki timestamp ``seconds`` after noon."""
    return unix_ns(at(seconds))


def node(
    name: str = "gpu-1", *, boot: str = "boot-a", gpu: bool = True, opted_out: bool = False
) -> NodeState:
    """A healthy node."""
    return NodeState(
        name=name,
        machine=Machine(f"uid-{name}", f"system-{name}", boot),
        created_ns=ns(-86_400 * 30),
        is_gpu_node=gpu,
        ready=True,
        unschedulable=False,
        taints=(),
        record=NodeRecord(),
        as_read=AsRead(f"uid-{name}", "1", None, None, None, has_annotations=True, has_labels=True),
        opted_out=opted_out,
    )


def fleet(size: int) -> dict[str, NodeState]:
    """Healthy GPU nodes ``gpu-1`` to ``gpu-<size>``."""
    return {f"gpu-{i}": node(f"gpu-{i}") for i in range(1, size + 1)}


def reset_node(
    cluster: Cluster, name: str, seconds: float, who: str = "ann", *, read: float | None = None
) -> Change:
    """Reset a node as ``konductor-like reset NAME`` does, with both sources read up to ``read``."""
    read_ns = {} if read is None else {Source.KERNEL: ns(read), Source.POD: ns(read)}
    change = release(cluster.nodes[name], at=at(seconds), by=who, reason="new riser", read_ns=read_ns)
    assert change is not None
    cluster.apply(change)
    return change


def why(cluster: Cluster, seconds: float = 0) -> dict[str, SkipReason | None]:
    """Return why the brake holds each node, as ``status`` shows it."""
    brake = brake_state(cluster.nodes, cluster.rules, controls=cluster.snapshot.controls, now=at(seconds))
    return {held.node: held.why for held in brake.held}


def fault(
    name: str | None = "gpu-1",
    *,
    seconds: float = 0,
    stamp: float | None = 100.0,
    boot: str | None = None,
    rule: str = "xid.79",
    gpu: str | None = GPU,
    severity: Severity = Severity.FATAL,
    kind: FaultKind = FaultKind.XID,
    source: Source = Source.KERNEL,
    text: str = "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.",
    before_install: bool = False,
    user_written: bool = False,
    needs: str = "reboot",
    seq: int | None = None,
) -> Fault:
    """A fault, by default an Xid 79; ``stamp`` is kernel seconds since boot."""
    position = KernelPosition(boot, seq, None if stamp is None else round(stamp * 1e6))
    code = int(rule.rpartition(".")[2]) if rule.rpartition(".")[2].isdigit() else None
    finding = Finding(
        kind,
        rule,
        severity,
        "GPU lost",
        "Reboot the node.",
        text,
        code,
        gpu,
        position=position,
        user_written=user_written,
        needs=needs,
    )
    return Fault(finding, source, ns(seconds), name, before_install=before_install)


class Cluster:
    """A cluster in memory that applies plans and keeps all writes."""

    def __init__(self, nodes: Mapping[str, NodeState], rules: PolicyConfig | None = None) -> None:
        self.nodes = dict(nodes)
        self.rules = rules or PolicyConfig()
        self.writes: list[Change] = []
        self.snapshot = Snapshot(self.nodes)

    def tick(self, *faults: Fault, seconds: float = 0, past: Sequence[Fault] | None = None) -> Plan:
        """Decide on the faults at ``seconds`` after noon, and apply the plan."""
        self.snapshot = replace(self.snapshot, nodes=self.nodes)
        plan = decide(self.snapshot, faults, self.rules, at(seconds), past=past)
        for change in plan.changes:
            self.apply(change)
        self.snapshot = replace(self.snapshot, grown=plan.grown, window=plan.window, gpus=plan.gpus)
        return plan

    def apply(self, change: Change | None) -> None:
        """Write one change as the API server would."""
        assert change is not None
        state = self.nodes[change.node]
        taints = state.taints
        is_claimed = change.record is not None and change.record.life.claimed
        if change.verb is Verb.TAINT or (state.wrong_effect is not None and is_claimed):
            taints = (*(taint for taint in taints if not taint.ours), OURS)
        if change.verb in (Verb.UNTAINT, Verb.PURGE):
            taints = tuple(taint for taint in taints if not taint.ours)
        if state.selected or change.verb is not Verb.RECORD:
            taints = tuple(taint for taint in taints if not taint.suspects)
        text = None if change.record is None else "…"
        seen = replace(state.as_read, record=text, health=change.health, needs=change.needs)
        self.nodes[change.node] = replace(
            state,
            taints=taints,
            record=change.record or NodeRecord(),
            as_read=seen,
            removed_by=None if OURS in taints else state.removed_by,
        )
        self.writes.append(change)

    def untaint_by_hand(self, name: str, who: str | None = "kubectl-taint") -> None:
        """Remove the taint as ``kubectl taint nodes NAME …-`` does; the entry of ``who`` changed then."""
        state = self.nodes[name]
        self.nodes[name] = replace(
            state, taints=tuple(taint for taint in state.taints if not taint.ours), removed_by=who
        )

    def hear(self, name: str, began: float) -> None:
        """Hear a heartbeat of the Node's boot, which began ``began`` seconds after noon."""
        boot = self.nodes[name].machine.boot_id or ""
        self.snapshot = replace(self.snapshot, began={**self.snapshot.began, name: (boot, ns(began))})

    def reboot(self, name: str, boot: str, *, reported: float | None = None) -> None:
        """Post a new boot id as the kubelet does; ``reported`` is when the old boot last reported."""
        state = self.nodes[name]
        after_ns = None if reported is None else ns(reported)
        machine = replace(state.machine, boot_id=boot)
        self.nodes[name] = replace(state, machine=machine, booted_after_ns=after_ns)

    @property
    def tainted(self) -> set[str]:
        """The names of the nodes that have our taint."""
        return {name for name, state in self.nodes.items() if state.tainted}
