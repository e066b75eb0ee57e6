"""Repeats that can lead to nothing by themselves wait until their node is decided upon for another reason.

Most of a history is that: the same job's fault for the thousandth time. It adds to counts and to evidence, in
order, whenever it is judged; so it is judged together with the next line of its node that may lead to
something, before its node is released, or once there are many. What is decided stays the same, line for line.

Such a repeat is a kernel line of an incident that stands on its node's record, in the node's boot; it would
not taint, or its node is out already; no threshold that can be reached without a job, no wait and no other
rule looks at its rule; and its node has no part in a job or an NVLink domain, so that no other depends on it.
"""

from __future__ import annotations

from konductor_like.model import (
    APPLICATION_XIDS,
    Distinct,
    Fault,
    IncidentState,
    NodeRecord,
    NodeState,
    Severity,
    Source,
)
from konductor_like.policy.config import PolicyConfig

WAIT_MOST = 64
"""So many of one node are judged at once: bounds the memory."""
WAIT_NS = 24 * 3600 * 10**9
"""None waits longer, by its timestamp: no rule looks further back."""

_Key = tuple[str, str | None, bool]


class Repeats:
    """The repeats that wait, by node."""

    def __init__(self, rules: PolicyConfig) -> None:
        self._rules = rules
        self._waiting: dict[str, list[Fault]] = {}
        self._standing: dict[str, tuple[NodeRecord, frozenset[_Key]]] = {}
        self._alone: dict[tuple[str, Severity], bool] = {}

    def copy(self) -> Repeats:
        """Another one that goes on from here."""
        twin = Repeats(self._rules)
        twin._waiting = {name: list(faults) for name, faults in self._waiting.items()}
        return twin

    def keep(self, fault: Fault, state: NodeState, *, is_related: bool) -> bool:
        """Whether the fault waits now. ``is_related``: its node has a part in a job or a domain."""
        if is_related or fault.source is not Source.KERNEL or not self._is_repeat(fault, state):
            return False
        waiting = self._waiting.setdefault(state.name, [])
        if waiting and (len(waiting) == WAIT_MOST or fault.timestamp_ns - waiting[0].timestamp_ns >= WAIT_NS):
            return False
        waiting.append(fault)
        return True

    def take(self, name: str) -> list[Fault]:
        """What waited for this node, in order; none waits any more."""
        return self._waiting.pop(name, [])

    def names(self) -> list[str]:
        """The nodes that something waits for."""
        return list(self._waiting)

    def _is_repeat(self, fault: Fault, state: NodeState) -> bool:
        finding, severity = fault.finding, fault.severity
        if finding.clears is not None or (severity.taints and not state.tainted):
            return False
        boot_id = finding.position.boot_id
        if boot_id not in (None, state.machine.boot_id) or state.opted_out or not state.is_gpu_node:
            return False
        if (finding.rule, finding.gpu, severity.taints) not in self._keys(state):
            return False
        of_rule = (finding.rule, severity)
        if of_rule not in self._alone:
            self._alone[of_rule] = self._counts_alone(*of_rule)
        return self._alone[of_rule]

    def _keys(self, state: NodeState) -> frozenset[_Key]:
        """The incidents that stand on a node, by what a fault of its boot is known by."""
        known = self._standing.get(state.name)
        if known is not None and known[0] is state.record:
            return known[1]
        record = state.record
        keys = frozenset(
            (incident.key.rule, incident.key.gpu, incident.severity.taints)
            for incident in record.incidents
            if incident.state is IncidentState.ACTIVE
            and incident.last.boot_id == state.machine.boot_id
            and incident.ack is None
            and not incident.before_install
            and record.machine == state.machine
        )
        self._standing[state.name] = (record, keys)
        return keys

    def _counts_alone(self, rule: str, severity: Severity) -> bool:
        """Whether one more of it on a node without jobs is nothing to any rule."""
        own = self._rules.escalation(rule)
        needs_jobs = own.threshold is None or own.threshold.distinct is Distinct.JOBS
        if own.settle_seconds or own.together_with is not None or not needs_jobs:
            return False
        worse = severity in (Severity.FATAL, Severity.SUSPECT) and rule not in APPLICATION_XIDS
        asked_for = {
            rule
            for each in self._rules.escalations.values()
            if each.together_with
            for rule in each.together_with.rules
        }
        families = {name.removesuffix("*") for name in asked_for if name.endswith(".*")}
        return rule not in asked_for and not (worse and rule.startswith(tuple(families)))
