"""Why nodes are not tainted although something stands against them: nothing is held back in silence."""

from __future__ import annotations

from collections.abc import Mapping

from konductor_like.model import IncidentKey, Refusal, Refused
from konductor_like.policy.change import Case


def refusals(
    cases: Mapping[str, Case],
    settling: Mapping[str, frozenset[IncidentKey]],
    refused: Mapping[str, Refusal],
) -> tuple[Refused, ...]:
    """One for each node that the brake ``refused``, that is ``settling``, or that must not be touched."""
    told: list[Refused] = []
    for name, case in cases.items():
        if name in settling:
            told.extend(Refused(name, key, Refusal.SETTLING) for key in sorted(settling[name], key=str))
        if case.gravest is None or case.state.tainted:
            continue
        why = _reason(case) or refused.get(name)
        if why is not None:
            told.append(Refused(name, case.gravest.key, why))
    return tuple(told)


def _reason(case: Case) -> Refusal | None:
    if case.state.opted_out:
        return Refusal.OPTED_OUT
    if not case.state.selected:
        return Refusal.NOT_SELECTED
    if case.state.blocked:
        return Refusal.BLOCKED
    return Refusal.AMBIGUOUS if case.ambiguous else None
