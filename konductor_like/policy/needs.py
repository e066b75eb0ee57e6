"""What a node needs before it can return to service, as the label ``trainy.konduktor.ai/needs`` says it.

Every incident has a need of its own. The need of the node is the gravest of those that count and are not met.
The label, Events, the audit trail, ``status`` and ``explain`` all ask this module.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from konductor_like.model import (
    MET_BY_REBOOT,
    Incident,
    IncidentState,
    MetBy,
    Needs,
    NodeRecord,
    NodeState,
    Role,
    Severity,
)
from konductor_like.model.time import moment_of, stamp
from konductor_like.policy.health import suspicious, tainting
from konductor_like.policy.wording import name_of

RANK = {needs: place for place, needs in enumerate(Needs)}
"""The place of each need: a later one outweighs an earlier."""
REPEAT_ADVICE = "A reboot did not help. Drain the node and have its hardware checked."
REPLACE_ADVICE = "Drain it and have its hardware checked or replaced."
_MET_BY = {
    MetBy.REBOOT: "the reboot seen at",
    MetBy.HEALTHY_LINE: "the driver's healthy line at",
    MetBy.QUIET: "a quiet kernel log up to",
    MetBy.TIME: "the end of the test at",
}


class Asked(NamedTuple):
    """The need of a node, and the incident that asks for it."""

    needs: Needs
    by: Incident | None = None
    why: str = ""
    """The reason for a need that is not the incident's own."""


def is_met_by_boot(incident: Incident, boot_id: str | None) -> bool:
    """Whether this boot of the Node meets the need of the incident, which nothing has met yet (rule 34).

    Only an open incident of an earlier boot counts; a pending one is of a boot that may still come. A
    person's own taint has no need that a reboot meets, and missing GPUs have to be there again.
    """
    return (
        incident.met_by is None
        and incident.state in (IncidentState.ACTIVE, IncidentState.HELD)
        and boot_id is not None
        and incident.last.boot_id not in (None, boot_id)
        and incident.needs in MET_BY_REBOOT
        and incident.has_line
    )


def with_repeats(record: NodeRecord) -> NodeRecord:
    """Return the record with an inspection as the need of each fault against which a reboot did not help.

    A tainting fault came back after a reboot that met its need, or GPUs are missing since an earlier boot.
    """
    present = record.machine.boot_id if record.machine else None
    before = {each.key: each.last.boot_id for each in record.incidents if each.met_by is MetBy.REBOOT}

    def is_repeat(incident: Incident) -> bool:
        if incident.met_by or incident.by_person or incident.needs not in MET_BY_REBOOT:
            return False
        boot_id = incident.last.boot_id
        if not incident.has_line:
            return incident.state is not IncidentState.RELEASED and boot_id not in (None, present)
        is_grave = incident.taints and incident.severity is not Severity.TEST
        return is_grave and before.get(incident.key, boot_id) != boot_id

    if not any(map(is_repeat, record.incidents)):
        return record
    needs, advice = Needs.INSPECTION.value, REPEAT_ADVICE
    return replace(
        record,
        incidents=tuple(
            replace(each, needs=needs, advice=advice) if is_repeat(each) else each
            for each in record.incidents
        ),
    )


def need_of(record: NodeRecord, *, tainted: bool) -> Needs | None:
    """Return what the node needs, the value of its label; None for a node without a health label."""
    asked = asked_of(record, tainted=tainted)
    return None if asked is None else asked.needs


def asked_of(record: NodeRecord, *, tainted: bool) -> Asked | None:
    """Return what the node needs, and why; None for a node without a health label.

    The tainting incidents count on a node that is faulty or held, the suspicious ones on any other.
    """
    found = counting(record, tainted=tainted)
    if not tainted and not found:
        return None
    if tainted and record.replace_since is not None:
        return Asked(Needs.REPLACEMENT, None, "the node failed too often")
    if not found:
        return Asked(Needs.INSPECTION, None, "no recorded fault explains the taint")
    unmet = [_asked_by(each) for each in found if each.met_by is None]
    unmet = unmet or [_asked_by(each) for each in suspicious(record) if each.met_by is None]
    return max(unmet, key=lambda asked: RANK[asked.needs], default=Asked(Needs.NONE))


def counting(record: NodeRecord, *, tainted: bool) -> list[Incident]:
    """Return the incidents behind the node's state: those that taint, or without any the suspicious ones."""
    return tainting(record) if tainted else tainting(record) or suspicious(record)


def need_in_words(record: NodeRecord, *, tainted: bool) -> str:
    """Return ``reboot (xid 79 on GPU 0000:4e:00)``, or which reboot met the need; empty without a label."""
    asked = asked_of(record, tainted=tainted)
    if asked is None:
        return ""
    met = met_words(latest_met(record, tainted=tainted))
    if asked == Asked(Needs.NONE) and met:
        return f"{asked.needs}: {met}"
    why = f"{name_of(asked.by)}{asked.why}" if asked.by else asked.why
    return f"{asked.needs} ({why})" + (f"; another need was {met}" if met else "")


def latest_met(record: NodeRecord, *, tainted: bool) -> Incident | None:
    """Return the incident whose need was met last, of those that count; None if no need was met."""
    met = (each for each in counting(record, tainted=tainted) if each.met_by is not None)
    return max(met, key=lambda each: each.met_ns or 0, default=None)


def met_words(incident: Incident | None) -> str:
    """Return ``met by the reboot seen at 2026-05-06T12:00:00Z``; empty if the need is not met."""
    if incident is None or incident.met_by is None:
        return ""
    by = _MET_BY[incident.met_by] if incident.has_line else "the return of the GPUs at"
    return f"met by {by} {stamp(moment_of(incident.met_ns or 0))}"


def follows_from(incident: Incident) -> str:
    """Return the advice for an incident that another node's failure caused; empty for any other."""
    if incident.role is not Role.COLLATERAL or incident.root_cause is None:
        return ""
    return f"it followed from a failure on {incident.root_cause}: look there first"


def advice_on(incident: Incident, state: NodeState) -> str:
    """Return what to do about an incident on this node as it is now."""
    if follows := follows_from(incident):
        return follows
    if needs_on(incident, state) == Needs.REPLACEMENT != incident.needs:
        return f"The node failed too often. {REPLACE_ADVICE}"
    if met := met_words(incident):
        return f"Its need was {met}. Test the node, then `konductor-like reset {state.name}`."
    return incident.advice


def needs_on(incident: Incident, state: NodeState) -> str:
    """Return what an incident still needs on this node as it is now; empty if that is not known."""
    if state.tainted and state.record.replace_since is not None and not incident.by_person:
        return Needs.REPLACEMENT
    return incident.needs if incident.met_by is None else Needs.NONE


def _asked_by(incident: Incident) -> Asked:
    try:
        needs = Needs(incident.needs)
    except ValueError:  # a newer version's, or nobody knows: a person's own taint
        needs = Needs.INSPECTION
    return Asked(needs, incident)
