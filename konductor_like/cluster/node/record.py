"""Encode a ``NodeRecord`` as the text of one annotation on the Node, and decode it.

Version 2 is JSON that a person can read. Times are RFC 3339, to the nanosecond. An absent field is unknown or
has its default. Fields that all incidents of a rule share are written once, under ``rules``. A position
without ``boot`` belongs to the boot under ``machine``. The text never exceeds ``RECORD_BYTES``; the field
``truncated`` names what was left out. A record of another version is not read. Unknown fields of version 2
are written back unchanged.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from inspect import signature
from operator import attrgetter
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from konductor_like.cluster.lenient_json import Fields, Ns, read
from konductor_like.detection.gpu_identity import gpu_of
from konductor_like.model import (
    Act,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    Machine,
    Needs,
    NodeRecord,
    Quarantine,
    Release,
    Severity,
    Source,
    Validation,
)
from konductor_like.model.text import clipped
from konductor_like.model.time import text_of, text_of_ns, unix_ns

T = TypeVar("T")
VERSION = 2
RECORD_BYTES = 8192
IN_SHORT = "in short"
_EVIDENCE_CHARS = (240, 120, 60)
"""Characters of each evidence line, at most: the first of these lengths that makes the record fit."""
_NAME_CHARS = 48
_OTHERS = ""
_WORDS_CHARS = {
    _OTHERS: _NAME_CHARS,
    "line": _EVIDENCE_CHARS[-1],
    **dict.fromkeys(("title", "advice", "job", "failure_group", "root_cause", "escalated_because"), 120),
    **dict.fromkeys(("by", "removed_by", "reason", "how", "warning", "why", "waits"), 120),
}
"""Characters of these fields, at most, in a record that does not fit although its lines are short; any other
text has ``_NAME_CHARS``. Each character may take six bytes, as in \\u00e9."""
_BOOTS = 8
_QUARANTINES = 4
"""Past boots and quarantines that such a record keeps."""


_AS_JSON: Mapping[type, Callable[[Any], Any]] = {Ns: text_of_ns, datetime: text_of}


class Codec(Generic[T]):
    """Some fields of a dataclass ``kind`` as JSON, and back.

    For example ``Codec(Incident, "count", first="first_ns")`` writes ``Incident(count=3, first_ns=…)`` as
    ``{"count": 3, "first": "2026-01-31T12:00:00Z"}``: ``count`` has one name in both, and ``first`` is the
    JSON name of the attribute ``first_ns``. Integers whose attribute ends in ``_ns`` are times in the JSON.
    An attribute ``life.hold_until`` is one of an inner value. None and default values are not written.

    A field that is missing in the JSON gets its default. If the dataclass has no default, the field gets
    ``""``, and the caller must test for it.
    """

    def __init__(self, kind: type[T], *same: str, **renamed: str) -> None:
        """``same``: attributes that have the same name in the JSON. ``renamed``: JSON name = attribute."""
        self.kind = kind
        self.attributes = {**{name: name for name in same}, **renamed}
        self._kinds, self._defaults = dict[str, type](), dict[str, Any]()
        for name, attribute in self.attributes.items():
            self._kinds[name], self._defaults[attribute] = _field(kind, attribute)
        self._times = [each for name, each in self.attributes.items() if self._kinds[name] is datetime]
        self._values = attrgetter(*self.attributes.values())
        self._written = [
            (name, self._defaults[attribute], _AS_JSON.get(self._kinds[name]))
            for name, attribute in self.attributes.items()
        ]

    def parts(self, value: T) -> dict[str, Any]:
        """Return the fields of a value as JSON, by their JSON names."""
        parts: dict[str, Any] = {}
        for (name, default, as_json), found in zip(self._written, self._values(value), strict=True):
            if found is not None and found != default:
                parts[name] = as_json(found) if as_json else found
        return parts

    def alike(self, one: T, other: T) -> bool:
        """Whether two values are equal in these fields."""
        return bool(self._values(one) == self._values(other))

    def values(self, found: Fields) -> dict[str, Any]:
        """Read the fields, by attribute. A missing field has its default or, without a default, ``""``."""
        values = {}
        for name, attribute in self.attributes.items():
            value: Any = found.get(name, self._kinds[name])
            values[attribute] = self._defaults[attribute] if value in (None, "") else value
        return values

    def made(self, found: Fields) -> T | None:
        """Read a whole ``kind``; None if a time without a default is missing."""
        values = self.values(found)
        return None if any(values[attribute] == "" for attribute in self._times) else self.kind(**values)


def _field(kind: Any, path: str) -> tuple[type, Any]:
    """Return the type of an attribute, without its ``None``, and the default; ``""`` if it has none."""
    *inner, name = path.split(".")
    for each in inner:
        kind = get_type_hints(kind)[each]
    hint, field = get_type_hints(kind)[name], signature(kind).parameters[name]
    as_type = Ns if name.endswith("_ns") else (get_args(hint) or (hint,))[0]
    return as_type, "" if field.default is field.empty else field.default


_RECORD = Codec(
    NodeRecord,
    hold_until="life.hold_until",
    gpus="gpus",
    gpu_layout="gpu_layout",
    quiet_since="quiet_since",
    tainted="life.tainted_at",
    model="life.model",
    driver="life.driver",
    booted_after="booted_after_ns",
    replace="life.replace_since",
    contested="life.contested_at",
    removed="life.removed_at",
    removed_by="life.removed_by",
    first_removed="life.first_removed_at",
    put_backs="life.put_backs",
    put_back="life.put_back_at",
    probation="life.probation_until",
)
_COMMON = Codec(Incident, "kind", "code", "severity", "source", "title", "advice", "needs")
_INCIDENT = Codec(
    Incident,
    *("state", "count", "before_install", "user_written", "job", "failure_group", "role", "root_cause"),
    *("escalated_because", "met_by", "uuid", "serial", "doubt"),
    met="met_ns",
    first_us="first_us",
    first="first_ns",
    last="last_ns",
    line="evidence",
    released="released_ns",
    ended="ended_ns",
)
_RELEASE = Codec(Release, "at", "by", "reason", "how", "warning", "needs", boot="boot_id")
_ACT = Codec(Act, "id", "at", "rules")
MACHINE = Codec(Machine, uid="node_uid", system="system_id", boot="boot_id")
_QUARANTINE = Codec(
    Quarantine,
    *("rule", "how", "relapse", "gpu", "model", "driver"),
    out="tainted_at",
    back="released_at",
    in_service="in_service_at",
)
_VALIDATION = Codec(
    Validation,
    *("stage", "level", "by", "reason", "waits", "why", "tries", "attempt", "verdict", "driver"),
    asked="asked_at",
    boot="boot_id",
    began="began_at",
    expected="expected_gpus",
    job="job_uid",
    ended="ended_at",
    read_end="read_end_ns",
)
_RECORD_FIELDS = frozenset(
    {"v", "machine", "read", "rules", "incidents", "releases", "boots", "quarantines", "act", "truncated"}
    | {"validation", *_RECORD.attributes}
    | {"part_covers", "failed", "failed_gpu"}  # of a release in part by an earlier build, and written no more
)
_INCIDENT_FIELDS = frozenset({*_COMMON.attributes, *_INCIDENT.attributes, "rule", "gpu", "at", "ack"})
_RELEASE_FIELDS = frozenset({*_RELEASE.attributes, "read", "until"})


def is_shortened(text: str) -> bool:
    """Whether :func:`encode` left something out."""
    return '"truncated":' in text


def is_in_short(text: str) -> bool:
    """Whether the text is a record in short, of which the Lease has more."""
    return f'"truncated":"{IN_SHORT}"' in text


def decode(text: str) -> tuple[NodeRecord, str | None]:
    """Return the readable parts of a record and the problem with the text, if any. Never raises."""
    found = read(text)
    return (NodeRecord(), found.problem) if found.problem else (record_in(found), found.problem)


def record_in(found: Fields) -> NodeRecord:
    """Return the readable parts of a record in a JSON object; an empty record if it has another version."""
    version = found.get("v", int)
    if version != VERSION:
        found.complain(
            f"the record has version {version or 'unknown'}, but this program reads only version {VERSION}; "
            "run the version that wrote the record, or `konductor-like reset NODE`, which writes a new one"
        )
        return NodeRecord()
    parts = MACHINE.values(found.inner("machine"))
    machine = Machine(**parts) if any(parts.values()) else None
    boot_id = parts["boot_id"]
    rules = found.inner("rules")
    incidents = found.decoded("incidents", lambda item: _incident(item, rules, boot_id))
    known = {(each.key, each.last.boot_id) for each in incidents if each.severity.taints}
    covers = found.decoded("part_covers", lambda item: _part_cover(item, boot_id))
    record = NodeRecord(
        machine=machine,
        incidents=(*(each for each in covers if (each.key, boot_id) not in known), *incidents),
        releases=found.decoded("releases", lambda item: _release(item, boot_id)),
        read=_position(found, "read", boot_id),
        past_boots=found.texts("boots"),
        life=Life(quarantines=found.decoded("quarantines", _QUARANTINE.made)),
        validation=_validation(found.inner("validation"), boot_id) if "validation" in found else None,
        act=_ACT.made(found.inner("act")),
        unknown=found.unknown(_RECORD_FIELDS),
    )
    values = _RECORD.values(found)
    life = {name.removeprefix("life."): value for name, value in values.items() if "." in name}
    own = {name: value for name, value in values.items() if "." not in name}
    return replace(record, life=replace(record.life, **life), **own)


def _incident(found: Fields, rules: Fields, boot_id: str | None) -> Incident | None:
    rule = found.get("rule", str)
    if rule is None:
        found.complain("rule is missing")
        return None
    if rule in rules:
        found = found.over(rules.inner(rule))
    values = _COMMON.values(found) | _INCIDENT.values(found)
    if not (values["kind"] and values["severity"] and values["state"]):
        found.complain("kind, severity or state is missing")
        return None
    times = [ns for ns in (values["first_ns"], values["last_ns"]) if ns != ""]
    if not times:
        found.complain("first and last are missing")
    if (gpu := gpu_of(found.get("gpu", str) or "", values["uuid"], values["serial"])) is None:
        values |= {"uuid": "", "serial": ""}
    else:
        values |= {"uuid": gpu.uuid, "serial": gpu.serial}
    with suppress(ValueError):  # a newer version's need stays as it is
        values["needs"] = Needs(values["needs"]).value
    incident = Incident(
        key=IncidentKey(rule, found.get("gpu", str)),
        last=_position(found, "at", boot_id),
        unknown=found.unknown(_INCIDENT_FIELDS),
        **values
        | {
            "count": max(values["count"] or 1, 1),
            "first_ns": times[0] if times else 0,
            "last_ns": times[-1] if times else 0,
        },
    )
    # A person closed it with an earlier version's `ack`; there, only a taint stayed.
    is_closed = "ack" in found and not incident.taints and incident.state is not IncidentState.RELEASED
    if not is_closed:
        return incident
    seen_ns = found.inner("ack").get("at", Ns) or incident.last_ns
    return replace(incident, state=IncidentState.RELEASED, released_ns=seen_ns)


def _release(found: Fields, boot_id: str | None) -> Release | None:
    values = _RELEASE.values(found)
    if not values["at"]:
        found.complain("at is missing")
        return None
    read_to = _position(found, "read", boot_id)
    return Release(read=read_to, read_ns=_until(found), unknown=found.unknown(_RELEASE_FIELDS), **values)


def _until(found: Fields) -> dict[Source, int]:
    until = found.inner("until")
    return {source: ns for source in Source if (ns := until.get(source.value, Ns)) is not None}


def _validation(found: Fields, boot_id: str | None) -> Validation | None:
    values = _VALIDATION.values(found)
    if "" in (values["stage"], values["level"], values["asked_at"]):
        found.complain("stage, level or asked is missing")
        return None
    named = (gpu_of(*parts) for text in found.texts("gpus") if 2 <= len(parts := text.split()) <= 3)
    gpus = tuple(gpu for gpu in named if gpu is not None)
    return Validation(read=_position(found, "read", boot_id), read_ns=_until(found), gpus=gpus, **values)


def _position(found: Fields, name: str, boot_id: str | None) -> KernelPosition:
    if name not in found:
        return KernelPosition()
    parts = found.inner(name)
    own_boot = parts.get("boot", str) if "boot" in parts else boot_id
    return KernelPosition(own_boot, **_place(parts))


def _place(parts: Fields) -> dict[str, int | None]:
    """Read the numbers of a position, see :func:`_place_json`. An earlier build wrote no ``named``."""
    sequence, us, named_us = (parts.get(name, int) for name in ("seq", "us", "named"))
    if named_us is None:
        return {"sequence": sequence, "stamp_us": us}
    return {"sequence": sequence, "stamp_us": named_us or None, "plain_us": us}


def _place_json(position: KernelPosition) -> dict[str, int]:
    """Return the numbers of a position. ``us`` is the highest stamp: an earlier build knows no other.

    ``named`` is the highest one of lines that name their boot, if it is another; 0 if there are none.
    """
    named_us = None if position.stamp_us == position.newest_us else position.stamp_us or 0
    numbers = {"seq": position.sequence, "us": position.newest_us, "named": named_us}
    return {name: number for name, number in numbers.items() if number is not None}


def _part_cover(found: Fields, boot_id: str | None) -> Incident | None:
    """Return the released incident that an earlier build's cover of a release in part stands for.

    Only in the present boot, and with a place in the kernel log or for a fault without a line: a cover of
    neither hides no line of this boot.
    """
    rule, at_ns = found.get("rule", str) or "", found.get("at", Ns)
    place = KernelPosition(boot_id, **_place(found))
    kind = next((each for each in FaultKind if each == rule.partition(".")[0]), FaultKind.CUSTOM)
    covers_nothing = found.get("boot", str) != boot_id or (kind.has_line and not place.known)
    if not rule or at_ns is None or covers_nothing:
        return None
    return Incident(
        key=IncidentKey(rule, found.get("gpu", str)),
        kind=kind,
        severity=Severity.FATAL,
        state=IncidentState.RELEASED,
        count=2,  # nothing tells its first line, so the incident has all lines up to the last one
        first_ns=at_ns,
        last_ns=at_ns,
        last=place,
        title="Released by an earlier version",
        released_ns=at_ns,
    )


def encode(record: NodeRecord) -> str:
    """Return the annotation's text, at most ``RECORD_BYTES`` bytes of UTF-8.

    If the record is too long, unknown fields are left out first, then the ends of evidence lines, then the
    UUIDs and serial numbers of incidents, then the ends of other texts. Then whole incidents and releases are
    left out; ``by_need`` gives the order.
    """
    text = text_of_record(record)
    if len(text) <= RECORD_BYTES:
        return text
    record = replace(
        record,
        incidents=tuple(replace(each, unknown=()) for each in record.incidents),
        releases=tuple(replace(each, unknown=()) for each in record.releases),
        unknown=(),
    )
    text = text_of_record(record, "unknown fields left out")
    for limit in _EVIDENCE_CHARS:
        if len(text) <= RECORD_BYTES:
            return text
        text = text_of_record(record, "lines shortened", {"line": limit})
    if len(text) <= RECORD_BYTES:
        return text
    incidents = tuple(replace(each, uuid="", serial="") for each in record.incidents)
    record = replace(record, incidents=incidents)
    text = text_of_record(record, "lines shortened, UUIDs left out", {"line": _EVIDENCE_CHARS[-1]})
    return text if len(text) <= RECORD_BYTES else _fewer(record)


def text_of_record(
    record: NodeRecord, truncated: str = "", most_chars: Mapping[str, int] | None = None
) -> str:
    """Return the text of a record with all that it has; ``most_chars`` cuts the texts of these fields.

    ``truncated`` says what was left out.
    """
    return written_alike(_json(record, truncated, most_chars))


def written_alike(found: Mapping[str, Any]) -> str:
    """Return JSON as the API server writes it: it compares texts in their written form (see ``patch``)."""
    text = json.dumps(found, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _json(record: NodeRecord, truncated: str, most_chars: Mapping[str, int] | None) -> dict[str, Any]:
    boot_id = record.machine.boot_id if record.machine else None
    first: dict[str, Incident] = {}
    for each in record.incidents:
        first.setdefault(each.key.rule, each)
    parts: dict[str, Any] = {
        "v": VERSION,
        "machine": MACHINE.parts(record.machine) if record.machine else None,
        "rules": {rule: _COMMON.parts(each) for rule, each in first.items()},
        "incidents": [_incident_json(each, first[each.key.rule], boot_id) for each in record.incidents],
        "releases": [_release_json(each, boot_id) for each in record.releases],
        "boots": list(record.past_boots),
        "quarantines": [_QUARANTINE.parts(each) for each in record.life.quarantines],
        "validation": _validation_json(record.validation, boot_id) if record.validation else None,
        "act": _ACT.parts(record.act) if record.act else None,
        "truncated": truncated,
    }
    parts = {name: part for name, part in parts.items() if part} | _RECORD.parts(record)
    parts |= _position_json("read", record.read, boot_id) | _unknown(record)
    return _cut(parts, most_chars) if most_chars else parts


def _incident_json(incident: Incident, common: Incident, boot_id: str | None) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if not _COMMON.alike(incident, common):
        # A null means that the rule's other incidents have this field and this incident does not.
        mine, ours = _COMMON.parts(incident), _COMMON.parts(common)
        own = {name: mine.get(name) for name in _COMMON.attributes if mine.get(name) != ours.get(name)}
    return {
        "rule": incident.key.rule,
        **own,
        **({} if incident.key.gpu is None else {"gpu": incident.key.gpu}),
        **_INCIDENT.parts(incident),
        **_position_json("at", incident.last, boot_id),
        **_unknown(incident),
    }


def _release_json(release: Release, boot_id: str | None) -> dict[str, Any]:
    return {**_RELEASE.parts(release), **_read_json(release, boot_id), **_unknown(release)}


def _validation_json(validation: Validation, boot_id: str | None) -> dict[str, Any]:
    gpus = [" ".join(filter(None, (each.bus, each.uuid, each.serial))) for each in validation.gpus]
    parts = {**_VALIDATION.parts(validation), **_read_json(validation, boot_id)}
    return {**parts, "gpus": gpus} if gpus else parts


def _read_json(value: Release | Validation, boot_id: str | None) -> dict[str, Any]:
    """Return up to where evidence had been read, by position and by source."""
    read_ns = {source: text_of_ns(value.read_ns[source]) for source in Source if source in value.read_ns}
    return {**_position_json("read", value.read, boot_id), **({"until": read_ns} if read_ns else {})}


def _position_json(name: str, position: KernelPosition, boot_id: str | None) -> dict[str, Any]:
    if position == KernelPosition():
        return {}
    own_boot = {} if position.boot_id == boot_id else {"boot": position.boot_id}
    return {name: {**own_boot, **_place_json(position)}}


def _unknown(value: NodeRecord | Incident | Release) -> dict[str, Any]:
    """Return the unknown fields as JSON."""
    return {name: json.loads(text) for name, text in value.unknown}


def _cut(found: Any, most_chars: Mapping[str, int], key: str = "") -> Any:
    """Return the same JSON with the texts of these fields cut to ``most_chars``; names like others."""
    others = most_chars.get(_OTHERS)
    if isinstance(found, dict):
        named = {name if others is None else clipped(name, others): value for name, value in found.items()}
        return {name: _cut(value, most_chars, name) for name, value in named.items()}
    if isinstance(found, list):
        return [_cut(each, most_chars, key) for each in found]
    most = most_chars.get(key, others)
    return found if most is None or not isinstance(found, str) else clipped(found, most)


def _fewer(record: NodeRecord) -> str:
    """Return the text with as many incidents and releases as fit, the most needed first."""
    past = record.life.quarantines
    # The latest is always among them, and those before a relapse go before others.
    needed = sorted(range(len(past)), key=lambda n: (n > 0 and not past[n].relapse, n))[:_QUARANTINES]
    quarantines = tuple(past[n] for n in sorted(needed))
    life = replace(record.life, quarantines=quarantines)
    validation = replace(record.validation, gpus=()) if record.validation else None
    record = replace(record, past_boots=record.past_boots[:_BOOTS], life=life, validation=validation)
    order = by_need(record)

    def keeping(count: int) -> str:
        kept = set(order[:count])
        left_out = len(order) - len(kept)
        shorter = replace(
            record,
            incidents=tuple(i for n, i in enumerate(record.incidents) if ("incident", n) in kept),
            releases=tuple(r for n, r in enumerate(record.releases) if ("release", n) in kept),
        )
        also = f", {left_out} entries left out" if left_out else ""
        return text_of_record(shorter, f"texts shortened{also}", _WORDS_CHARS)

    if len(keeping(0)) > RECORD_BYTES:  # of texts that no part of this program writes
        life = replace(life, quarantines=())
        record = replace(record, past_boots=(), life=life, validation=None)
    # The text grows with each entry, so the counts that fit come first; bisect_left returns their number.
    counts = range(1, len(order) + 1)
    return keeping(bisect_left(counts, True, key=lambda count: len(keeping(count)) > RECORD_BYTES))


def by_need(record: NodeRecord) -> list[tuple[str, int]]:
    """Return all incidents and releases as ("incident" or "release", index), by need.

    The order is: the latest release; incidents that keep the taint; older releases; incidents that keep
    replayed lines from tainting; other incidents. Within each of these the newest come first.
    """
    newest = max((each.at for each in record.releases), default=None)
    ranked = [(_rank(each), -each.last_ns, "incident", n) for n, each in enumerate(record.incidents)]
    ranked += [
        (0 if each.at == newest else 2, -unix_ns(each.at), "release", n)
        for n, each in enumerate(record.releases)
    ]
    return [(kind, n) for _, _, kind, n in sorted(ranked)]


def _rank(incident: Incident) -> int:
    """Return 1 if the taint is for this incident, 3 if it keeps replayed lines from tainting, else 4."""
    if incident.taints and incident.state is not IncidentState.RELEASED:
        return 1
    return 3 if incident.taints or incident.before_install else 4
