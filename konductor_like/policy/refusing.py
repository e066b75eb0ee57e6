"""Why nodes are not tainted although something stands against them: nothing is held back in silence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from konductor_like.model import Ignored, IncidentState, NodeRecord, Refusal, Refused, Role
from konductor_like.policy.brakewords import settling_words
from konductor_like.policy.change import Case
from konductor_like.policy.judge import NO_GPU, OPTED_OUT
from konductor_like.policy.roles import Waiting

USER_WRITTEN = "a user wrote it into the kernel log"
_OF_IGNORED = {
    OPTED_OUT: Refusal.OPTED_OUT,
    NO_GPU: Refusal.NO_GPU,
    USER_WRITTEN: Refusal.USER_WRITTEN,
}
"""Why a line led to nothing, where it would have tainted otherwise. Other reasons say that it is no news."""


def refusals(
    cases: Mapping[str, Case],
    settling: Waiting,
    refused: Mapping[str, Refusal],
    ignored: Iterable[Ignored],
) -> tuple[Refused, ...]:
    """Every node that is not tainted although something stands against it, once for each reason.

    ``settling`` are incidents that wait, ``refused`` is what the brake said; ``ignored`` faults would have
    tainted but for what their node or their line is.
    """
    told: dict[Refused, None] = {}
    for name, case in cases.items():
        if case.state.tainted:
            continue
        record, gravest = case.judgement.record, case.gravest
        for key, until_ns in sorted(settling.get(name, {}).items(), key=str):
            told[Refused(name, key, Refusal.SETTLING, settling_words(until_ns), record.incident(key))] = None
        why = None if gravest is None else _of_node(case) or refused.get(name)
        if why is not None and gravest is not None:
            told[Refused(name, gravest.key, why, about=gravest)] = None
        told |= dict.fromkeys(_of_incidents(name, record))
    for item in ignored:
        reason = _OF_IGNORED.get(item.reason)
        if reason is not None and item.fault.severity.taints and item.fault.node is not None:
            told[Refused(item.fault.node, item.fault.key, reason, about=item.fault)] = None
    return tuple(told)


def _of_node(case: Case) -> Refusal | None:
    if case.state.opted_out:
        return Refusal.OPTED_OUT
    if not case.state.selected:
        return Refusal.NOT_SELECTED
    if case.state.blocked:
        return Refusal.BLOCKED
    return Refusal.AMBIGUOUS if case.ambiguous else None


def _of_incidents(name: str, record: NodeRecord) -> Iterator[Refused]:
    """What would taint, and is no reason to: it waits for its boot, or followed from something elsewhere."""
    for incident in record.incidents:
        if not incident.taints or incident.state is IncidentState.RELEASED:
            continue
        if incident.state is IncidentState.PENDING:
            yield Refused(name, incident.key, Refusal.PENDING, f"boot {incident.last.boot_id}", incident)
        elif incident.role is Role.COLLATERAL:
            yield Refused(name, incident.key, Refusal.COLLATERAL, incident.event or "", incident)
