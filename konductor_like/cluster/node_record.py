"""The record on the node: a ``NodeRecord`` as the text of one annotation, and back.

Version 2 is JSON that a person can read: times are RFC 3339 (to the nanosecond), absent means unknown or
default. What all incidents of a rule have in common stands once under ``rules``; a position without
``boot`` is of the boot under ``machine``. The text never exceeds ``RECORD_BYTES``; what had to go is said
under ``truncated``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from konductor_like.cluster.lenient_json import Fields, present, read
from konductor_like.model import (
    Ack,
    Act,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Machine,
    NodeRecord,
    Quarantine,
    Release,
    Role,
    Severity,
    Source,
)
from konductor_like.model.time import text_of, text_of_ns

VERSION = 2
RECORD_BYTES = 8192
_EVIDENCE_CHARS = (240, 120, 60)
_NAME_CHARS = 48  # the longest that still fits when every character takes six bytes
_WORDS_CHARS = {
    "line": _EVIDENCE_CHARS[-1],
    "needs": _NAME_CHARS,
    "id": _NAME_CHARS,
    "rules": _NAME_CHARS,
    **dict.fromkeys(("title", "advice", "job", "failure_group", "root_cause", "escalated_because"), 120),
    **dict.fromkeys(("by", "reason", "how", "warning"), 120),
}
"""How long the texts that only people read may be where there is little room."""
_NOTHING_CUT: Mapping[str, int] = {}
_BOOTS = 8
_QUARANTINES = 4


def encode(record: NodeRecord) -> str:
    """The annotation's text, at most ``RECORD_BYTES`` bytes of UTF-8."""
    return _fit(record)


def is_shortened(text: str) -> bool:
    """Whether :func:`encode` had to leave something out."""
    return '"truncated":' in text


def decode(text: str) -> tuple[NodeRecord, str | None]:
    """What an annotation says, as far as it can be understood, and what could not be; never raises."""
    fields = read(text)
    return record_in(fields), fields.problem


def record_in(fields: Fields) -> NodeRecord:
    """The record that a JSON object holds, as far as it can be understood."""
    version = fields.number("v")
    if fields.problem is None and version != VERSION:
        fields.complain(f"it is of version {version or 'unknown'}, this program writes version {VERSION}")
    machine = _machine(fields.inner("machine")) if "machine" in fields else None
    boot_id = machine.boot_id if machine else None
    rules = fields.inner("rules")
    return NodeRecord(
        machine=machine,
        tainted_at=fields.moment("tainted"),
        incidents=fields.decoded("incidents", lambda item: _incident(item, rules, boot_id)),
        releases=fields.decoded("releases", lambda item: _release(item, boot_id)),
        read=_position(fields, "read", boot_id),
        past_boots=fields.texts("boots"),
        booted_after_ns=fields.ns("booted_after"),
        quarantines=fields.decoded("quarantines", _quarantine),
        hold_until=fields.moment("hold_until"),
        replace_since=fields.moment("replace"),
        contested_at=fields.moment("contested"),
        act=_act(fields.inner("act")) if "act" in fields else None,
    )


def _text(
    record: NodeRecord, truncated: str | None = None, most_chars: Mapping[str, int] = _NOTHING_CUT
) -> str:
    boot_id = record.machine.boot_id if record.machine else None
    rules: dict[str, dict[str, Any]] = {}
    for incident in record.incidents:
        rules.setdefault(incident.key.rule, _common_json(incident))
    parts: dict[str, Any] = {
        "v": VERSION,
        "tainted": _moment_json(record.tainted_at),
        "machine": _machine_json(record.machine) if record.machine else None,
        "read": _position_json(record.read, boot_id),
        "rules": {rule: present(common) for rule, common in rules.items()} or None,
        "incidents": [_incident_json(each, rules[each.key.rule], boot_id) for each in record.incidents]
        or None,
        "releases": [_release_json(release, boot_id) for release in record.releases] or None,
        "boots": list(record.past_boots) or None,
        "booted_after": None if record.booted_after_ns is None else text_of_ns(record.booted_after_ns),
        "quarantines": [_quarantine_json(each) for each in record.quarantines] or None,
        "hold_until": _moment_json(record.hold_until),
        "replace": _moment_json(record.replace_since),
        "contested": _moment_json(record.contested_at),
        "act": _act_json(record.act) if record.act else None,
        "truncated": truncated,
    }
    text = json.dumps(_cut(present(parts), most_chars), separators=(",", ":"))
    # The API server compares strings as they are written and writes these three escaped (see ``patch``).
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _cut(found: Any, most_chars: Mapping[str, int], key: str = "") -> Any:
    """The same JSON, in which the texts of these fields are no longer than that."""
    if isinstance(found, dict):
        return {name: _cut(value, most_chars, name) for name, value in found.items()}
    if isinstance(found, list):
        return [_cut(each, most_chars) for each in found]
    most = most_chars.get(key, 0)
    return found[: most - 1] + "…" if isinstance(found, str) and 0 < most < len(found) else found


def _common_json(incident: Incident) -> dict[str, Any]:
    return {
        "kind": incident.kind.value,
        "code": incident.code,
        "severity": incident.severity.value,
        "source": None if incident.source is Source.KERNEL else incident.source.value,
        "title": incident.title or None,
        "advice": incident.advice or None,
        "needs": incident.needs or None,
    }


def _incident_json(incident: Incident, common: dict[str, Any], boot_id: str | None) -> dict[str, Any]:
    # A null here says that this incident differs from what its rule has in common by having nothing.
    own = {name: value for name, value in _common_json(incident).items() if value != common[name]}
    parts = {
        "gpu": incident.key.gpu,
        "state": incident.state.value,
        "count": incident.count,
        "first": text_of_ns(incident.first_ns),
        "last": text_of_ns(incident.last_ns),
        "at": _position_json(incident.last, boot_id),
        "line": incident.evidence or None,
        "before_install": incident.before_install or None,
        "released": None if incident.released_ns is None else text_of_ns(incident.released_ns),
        "user_written": incident.user_written or None,
        "job": incident.job,
        "failure_group": incident.failure_group,
        "role": None if incident.role is None else incident.role.value,
        "root_cause": incident.root_cause,
        "escalated_because": incident.escalated_because or None,
        "ack": _ack_json(incident.ack) if incident.ack else None,
        "ended": None if incident.ended_ns is None else text_of_ns(incident.ended_ns),
    }
    return {"rule": incident.key.rule, **own, **present(parts)}


def _incident(fields: Fields, rules: Fields, boot_id: str | None) -> Incident | None:
    rule = fields.text("rule")
    if rule is None:
        fields.complain("it names no rule")
        return None
    if rule in rules:
        fields = fields.over(rules.inner(rule))
    kind, severity = fields.choice("kind", FaultKind), fields.choice("severity", Severity)
    state = fields.choice("state", IncidentState)
    if kind is None or severity is None or state is None:
        fields.complain("it lacks a kind, severity or state")
        return None
    first_ns, last_ns = fields.ns("first"), fields.ns("last")
    if first_ns is None and last_ns is None:
        fields.complain("it says no time")
    return Incident(
        key=IncidentKey(rule, fields.text("gpu")),
        kind=kind,
        severity=severity,
        state=state,
        count=max(fields.number("count") or 1, 1),
        first_ns=first_ns if first_ns is not None else last_ns or 0,
        last_ns=last_ns if last_ns is not None else first_ns or 0,
        last=_position(fields, "at", boot_id),
        code=fields.number("code"),
        evidence=fields.text("line") or "",
        title=fields.text("title") or "",
        advice=fields.text("advice") or "",
        needs=fields.text("needs") or "",
        source=fields.choice("source", Source) or Source.KERNEL,
        before_install=fields.flag("before_install"),
        released_ns=fields.ns("released"),
        user_written=fields.flag("user_written"),
        job=fields.text("job"),
        failure_group=fields.text("failure_group"),
        role=fields.choice("role", Role) if "role" in fields else None,
        root_cause=fields.text("root_cause"),
        escalated_because=fields.text("escalated_because") or "",
        ack=_ack(fields.inner("ack")) if "ack" in fields else None,
        ended_ns=fields.ns("ended"),
    )


def _release_json(release: Release, boot_id: str | None) -> dict[str, Any]:
    read_ns = {s.value: text_of_ns(release.read_ns[s]) for s in Source if s in release.read_ns}
    return present(
        {
            "at": text_of(release.at),
            "by": release.by,
            "reason": release.reason or None,
            "how": release.how,
            "read": _position_json(release.read, boot_id),
            "until": read_ns or None,
            "warning": release.warning,
        }
    )


def _release(fields: Fields, boot_id: str | None) -> Release | None:
    at = fields.moment("at")
    if at is None:
        fields.complain("it says no time")
        return None
    until = fields.inner("until")
    read_ns = {source: until.ns(source.value) for source in Source}
    return Release(
        at=at,
        by=fields.text("by") or "",
        reason=fields.text("reason") or "",
        how=fields.text("how") or "",
        read=_position(fields, "read", boot_id),
        read_ns={source: ns for source, ns in read_ns.items() if ns is not None},
        warning=fields.text("warning"),
    )


def _ack_json(ack: Ack) -> dict[str, Any]:
    return present({"at": text_of(ack.at), "by": ack.by, "reason": ack.reason or None})


def _ack(fields: Fields) -> Ack | None:
    at = fields.moment("at")
    return None if at is None else Ack(at, fields.text("by") or "", fields.text("reason") or "")


def _act_json(act: Act) -> dict[str, Any]:
    return present({"id": act.id, "at": text_of(act.at), "rules": act.rules or None})


def _act(fields: Fields) -> Act | None:
    at = fields.moment("at")
    return None if at is None else Act(fields.text("id") or "", at, fields.text("rules") or "")


def _quarantine_json(quarantine: Quarantine) -> dict[str, Any]:
    out, back = text_of(quarantine.tainted_at), text_of(quarantine.released_at)
    return {"out": out, "back": back, "rule": quarantine.rule}


def _quarantine(fields: Fields) -> Quarantine | None:
    out, back = fields.moment("out"), fields.moment("back")
    return None if out is None or back is None else Quarantine(out, back, fields.text("rule") or "")


def _moment_json(moment: datetime | None) -> str | None:
    return None if moment is None else text_of(moment)


def _machine_json(machine: Machine) -> dict[str, Any]:
    return present({"uid": machine.node_uid, "system": machine.system_id, "boot": machine.boot_id})


def _machine(fields: Fields) -> Machine:
    return Machine(fields.text("uid") or "", fields.text("system"), fields.text("boot"))


def _position_json(position: KernelPosition, boot_id: str | None) -> dict[str, Any] | None:
    if position == KernelPosition():
        return None
    own_boot: dict[str, Any] = {} if position.boot_id == boot_id else {"boot": position.boot_id}
    return own_boot | present({"seq": position.sequence, "us": position.stamp_us})


def _position(fields: Fields, name: str, boot_id: str | None) -> KernelPosition:
    if name not in fields:
        return KernelPosition()
    parts = fields.inner(name)
    own_boot = parts.text("boot") if "boot" in parts else boot_id
    return KernelPosition(own_boot, parts.number("seq"), parts.number("us"))


def _fit(record: NodeRecord) -> str:
    """The record's text if it fits, else that of as much of it as does; at most ``RECORD_BYTES`` bytes.

    Evidence lines are shortened first. Then whole entries go, the least needed first: what never taints, then
    released incidents, then older releases, and only then incidents that the taint stands for; of each the
    oldest first.
    """
    text = _text(record)
    for limit in _EVIDENCE_CHARS:
        if _fits(text):
            return text
        text = _text(record, "lines shortened", {"line": limit})
    return text if _fits(text) else _fewer(record)


def _fewer(record: NodeRecord) -> str:
    """Keep as many entries as fit, in the order of how much they are needed."""
    record = replace(
        record, past_boots=record.past_boots[:_BOOTS], quarantines=record.quarantines[:_QUARANTINES]
    )
    order = _by_need(record)

    def keeping(count: int) -> str:
        kept = set(order[:count])
        left_out = len(order) - len(kept)
        shorter = replace(
            record,
            incidents=tuple(i for n, i in enumerate(record.incidents) if ("incident", n) in kept),
            releases=tuple(r for n, r in enumerate(record.releases) if ("release", n) in kept),
        )
        also = f", {left_out} entries left out" if left_out else ""
        return _text(shorter, f"words shortened{also}", _WORDS_CHARS)

    low, high = 0, len(order)  # ``low`` is known to fit, unless not even an empty record does
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(keeping(middle)):
            low = middle
        else:
            high = middle - 1
    text = keeping(low)
    return text if _fits(text) else _text(_bare(record), "everything but names left out")


def _by_need(record: NodeRecord) -> list[tuple[str, int]]:
    """All entries, the most needed first."""
    by_age = sorted(enumerate(record.incidents), key=lambda entry: entry[1].last_ns, reverse=True)
    live = [("incident", n) for n, i in by_age if i.taints and not _is_released(i)]
    done = [("incident", n) for n, i in by_age if _keeps_from_tainting(i)]
    minor = [("incident", n) for n, i in by_age if not (i.taints or _keeps_from_tainting(i))]
    marks = sorted(enumerate(record.releases), key=lambda entry: entry[1].at, reverse=True)
    releases = [("release", n) for n, _ in marks]
    return [*releases[:1], *live, *releases[1:], *done, *minor]


def _keeps_from_tainting(incident: Incident) -> bool:
    """Whether it is remembered so that a replay of its lines does not taint: released, or from before us."""
    return incident.before_install or (incident.taints and _is_released(incident))


def _is_released(incident: Incident) -> bool:
    return incident.state is IncidentState.RELEASED


def _bare(record: NodeRecord) -> NodeRecord:
    """Only which machine it is, with names that long cut: nothing of this size comes from a real node."""
    known = record.machine
    machine = known and Machine(_name(known.node_uid) or "", _name(known.system_id), _name(known.boot_id))
    read = KernelPosition(_name(record.read.boot_id), record.read.sequence, record.read.stamp_us)
    boots = tuple(boot[:_NAME_CHARS] for boot in record.past_boots)
    return NodeRecord(
        machine,
        record.tainted_at,
        read=read,
        past_boots=boots,
        hold_until=record.hold_until,
        replace_since=record.replace_since,
    )


def _name(text: str | None) -> str | None:
    return text and text[:_NAME_CHARS]


def _fits(text: str) -> bool:
    return len(text.encode("utf-8")) <= RECORD_BYTES
