"""The need of a node before it can return to service: the value of the label ``trainy.konduktor.ai/needs``.

Every incident has a need of its own. The need of the node is the gravest of those that count and are not met.
The incident with that need is the node's fault (:func:`fault_of`). The label, Events, notifications, the
audit trail, ``status`` and ``explain`` all ask this module, so they name the same fault, need and advice.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from konductor_like.model import (
    MET_BY_REBOOT,
    Incident,
    IncidentState,
    MetBy,
    Needs,
    NodeRecord,
    NodeState,
    Severity,
)
from konductor_like.model.time import moment_of, stamp
from konductor_like.policy.node.health import Health, health_of, suspicious, tainting
from konductor_like.policy.wording import name_of

RANK = {needs: place for place, needs in enumerate(Needs)}
"""The place of each need: a later one outweighs an earlier."""
REPEAT_ADVICE = "A reboot did not help. Run `nvidia-bug-report.sh`, drain, and have the hardware checked."
REPLACE_ADVICE = "Run `nvidia-bug-report.sh`, drain, and have the hardware checked or replaced."
_MET_BY = {
    MetBy.REBOOT: "the reboot seen at",
    MetBy.HEALTHY_LINE: "the driver's healthy line at",
    MetBy.QUIET: "a quiet kernel log up to",
    MetBy.TIME: "the end of the test at",
}


class NodeNeed(NamedTuple):
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
        and not (incident.is_count or incident.by_person)
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
        if incident.is_count:
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
    asked = node_need(record, tainted=tainted)
    return None if asked is None else asked.needs


def needed_since(record: NodeRecord, *, tainted: bool) -> datetime | None:
    """Return since when the node needs what it needs; None without a need, and if nothing tells the time.

    A need begins with the first line of the fault that asks for it, a replacement for too many failures with
    the mark. A node that needs nothing more waits since its last need was met.
    """
    asked = node_need(record, tainted=tainted)
    if asked is None:
        return None
    if asked.by is not None:
        return moment_of(asked.by.first_ns)
    if asked.needs is Needs.REPLACEMENT:
        return record.life.replace_since
    fault = fault_of(record, tainted=tainted)
    if fault is not None and asked.needs is Needs.NONE:
        return moment_of(fault.met_ns or fault.first_ns)
    return record.life.tainted_at


def labels_of(record: NodeRecord, state: NodeState, *, tainted: bool) -> tuple[Health | None, Needs | None]:
    """Return the values of the labels for health and needs; an ignored node has neither."""
    health = health_of(record, tainted=tainted, opted_out=state.opted_out)
    return health, None if health is None else need_of(record, tainted=tainted)


def node_need(record: NodeRecord, *, tainted: bool) -> NodeNeed | None:
    """Return what the node needs, and why; None for a node without a health label.

    The tainting incidents count on a node that is faulty or held, the suspicious ones on any other.
    """
    found, tainted = counting(record, tainted=tainted), tainted or record.life.claimed
    if not tainted and not found:
        return None
    if tainted and record.life.marked:
        return NodeNeed(Needs.REPLACEMENT, None, "the node failed too often")
    if not found:
        return NodeNeed(Needs.INSPECTION, None, "no recorded fault explains the taint")
    fault = fault_of(record, tainted=tainted)
    if fault is None or fault.met_by is not None:
        return NodeNeed(Needs.NONE)
    return NodeNeed(need_of_incident(fault), fault)


def fault_of(record: NodeRecord, *, tainted: bool) -> Incident | None:
    """Return the node's fault: the open incident with the gravest need that is not met.

    If all needs are met, it is the incident whose need was met last. Of equal needs, a machine's comes before
    a person's, then the most urgent one. None for a node without incidents that matter, and for a taint that
    no recorded incident explains.
    """
    is_marked = (tainted or record.life.claimed) and record.life.marked
    found = counting(record, tainted=tainted)
    unmet = [each for each in found if each.met_by is None]
    if found and not unmet:
        unmet = [each for each in suspicious(record) if each.met_by is None]

    def order(incident: Incident) -> tuple[int, bool, tuple[int, int]]:
        is_replaced = is_marked and not incident.by_person
        needs = Needs.REPLACEMENT if is_replaced else need_of_incident(incident)
        return -RANK[needs], incident.by_person, incident.urgency

    gravest, met = min(unmet, key=order, default=None), latest_met(record, tainted=tainted)
    if gravest is None or (met is not None and need_of_incident(gravest) is Needs.NONE):
        return met
    return gravest


def counting(record: NodeRecord, *, tainted: bool) -> list[Incident]:
    """Return the incidents behind the node's state: those that taint, or without any the suspicious ones."""
    is_out = tainted or record.life.claimed
    return tainting(record) if is_out else tainting(record) or suspicious(record)


def need_in_words(record: NodeRecord, *, tainted: bool) -> str:
    """Return ``reboot (xid 79 on GPU 0000:4e:00)``, or which reboot met the need; empty without a label.

    The words also name the fault whose need was met last, if the node needs something else.
    """
    asked = node_need(record, tainted=tainted)
    if asked is None:
        return ""
    latest = latest_met(record, tainted=tainted)
    met = met_words(latest)
    if asked == NodeNeed(Needs.NONE) and met:
        return f"{asked.needs}: {met}"
    why = f"{name_of(asked.by)}{asked.why}" if asked.by else asked.why
    before = f"; {need_of_incident(latest)} ({name_of(latest)}) was {met}" if latest and met else ""
    return f"{asked.needs} ({why}){before}"


def need_sentence(record: NodeRecord, told: Incident | None, *, tainted: bool) -> str:
    """Return the end of an Event: the need of the node; empty without a health label.

    ``told`` is the fault that the Event describes. ``Needs: reboot.`` is the need of that fault. The need of
    another one names it: ``The node needs: reboot (xid 79 on GPU 0000:4e:00).``
    """
    asked = node_need(record, tainted=tainted)
    if asked is None:
        return ""
    own, by = None if told is None else _still_needed(told), asked.by
    is_same = by is None or (told is not None and (told.key, told.last.boot_id) == (by.key, by.last.boot_id))
    if own is asked.needs and is_same and not asked.why:
        return f"Needs: {own}."
    why = "" if asked.needs is Needs.NONE else name_of(by) if by else asked.why
    return f"The node needs: {asked.needs}" + (f" ({why})." if why else ".")


def latest_met(record: NodeRecord, *, tainted: bool) -> Incident | None:
    """Return the incident whose need was met last, of those that count; None if no need was met."""
    met = (each for each in counting(record, tainted=tainted) if each.met_by is not None)
    return min(met, key=lambda each: (-(each.met_ns or 0), each.urgency), default=None)


def met_words(incident: Incident | None) -> str:
    """Return ``met by the reboot seen at 2026-05-06T12:00:00Z``; empty if the need is not met."""
    if incident is None or incident.met_by is None:
        return ""
    by = "the return of the GPUs at" if incident.is_count else _MET_BY[incident.met_by]
    return f"met by {by} {stamp(moment_of(incident.met_ns or 0))}"


def needs_on(incident: Incident, state: NodeState) -> Needs:
    """Return what an incident still needs on this node as it is now."""
    if state.faulty and state.record.life.marked and not incident.by_person:
        return Needs.REPLACEMENT
    return _still_needed(incident)


def unrepaired(state: NodeState) -> list[Incident]:
    """Return the machine's faults behind a taint whose need nothing has met.

    The gravest comes first. A fault of an earlier boot counts only if its need is one that no reboot meets,
    such as an inspection: the machine has rebooted since.
    """
    boots = (None, state.machine.boot_id)
    found = [
        each
        for each in _failures(state.record)
        if _asks(each) and (each.last.boot_id in boots or need_of_incident(each) not in MET_BY_REBOOT)
    ]
    return sorted(found, key=lambda each: (-RANK[need_of_incident(each)], each.urgency))


def worsening(before: NodeRecord, record: NodeRecord) -> Incident | None:
    """Return the new fault of a tainted node with which it needs more than before; None without one.

    ``before`` is the record as it was read. The node needs more if the need is graver than those of the known
    faults, or if the fault came back after its need was met. People hear of the first such fault only: one
    that comes back again and again, boot after boot, needs an inspection ever since the first time.
    """
    known = {(each.key, each.last.boot_id) for each in tainting(before)}
    failures = _failures(record)
    new = [each for each in failures if (each.key, each.last.boot_id) not in known]
    old = [each for each in failures if (each.key, each.last.boot_id) in known]
    open_ones = [each for each in old if each.met_by is None]
    rank = max((RANK[need_of_incident(each)] for each in open_ones), default=RANK[Needs.NONE])
    met = {each.key for each in old} - {each.key for each in open_ones}
    worse = [e for e in new if _asks(e) and (e.key in met or RANK[need_of_incident(e)] > rank)]
    return max(worse, key=lambda each: RANK[need_of_incident(each)], default=None)


def worse_words(worse: Incident, record: NodeRecord) -> str:
    """Return why the fault of :func:`worsening` makes the node need more, in a sentence."""
    same = (each for each in tainting(record) if each.key == worse.key and each.met_by is not None)
    before = max(same, key=lambda each: each.met_ns or 0, default=None)
    if before is None and any(each.by_person for each in tainting(record)):
        return "The node that a person had tainted has a fault of its own."
    if before is None:
        return "The tainted node needs more than before."
    return f"The fault came back after its need was {met_words(before)}."


def _failures(record: NodeRecord) -> list[Incident]:
    """Return the reasons for a taint that are the machine's own: no test, and no person's taint."""
    return [i for i in tainting(record) if i.severity is not Severity.TEST and not i.by_person]


def _asks(incident: Incident) -> bool:
    """Whether the incident still needs something."""
    return _still_needed(incident) is not Needs.NONE


def _still_needed(incident: Incident) -> Needs:
    return need_of_incident(incident) if incident.met_by is None else Needs.NONE


def need_of_incident(incident: Incident) -> Needs:
    """Return the incident's own need, met or not; an unknown one counts as an inspection."""
    try:
        return Needs(incident.needs)
    except ValueError:  # a newer version's, or nobody knows: a person's own taint
        return Needs.INSPECTION
