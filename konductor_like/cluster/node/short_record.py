"""A record in short, for a Node whose annotations have no room for more, and for the Lease (rule 21).

It is a record as any other, with less in it: a build before this one reads it too. For example 290 bytes say
that the node is out of service for Xid 79 since when, in which boot, and that it needs a reboot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from konductor_like.cluster.node import record as records
from konductor_like.model import Incident, IncidentState, KernelPosition, Life, NodeRecord, Release, Source
from konductor_like.model.text import clipped
from konductor_like.policy.node.needs import fault_of

SHORT_BYTES = 300
"""Bytes of the record of one fault, or of one release, on a Node without room for more."""
_TITLE_CHARS, _NAME_CHARS = 60, 24
_BOOTS, _QUARANTINES = 2, 2
_DROPPED = ("title", "advice", "count", "first", "user_written", "before_install")
"""Fields of an incident that a record of one fault does without."""


def short(record: NodeRecord, most_bytes: int) -> str | None:
    """Return the record in at most ``most_bytes`` bytes; None if nothing of it has so much room.

    Of a claimed node the gravest fault is kept first, of any other the last release of the whole node: what
    they cover must stay covered.
    """
    incidents, releases = _in_order(record)
    for text in _texts(record, incidents, releases):
        if len(text) <= most_bytes:
            return text
    return None


def _in_order(record: NodeRecord) -> tuple[list[Incident], list[Release]]:
    """Return the incidents and the releases, the most needed first."""
    gravest = fault_of(record, tainted=record.life.claimed)
    order = [record.incidents[n] for kind, n in records.by_need(record) if kind == "incident"]
    person = record.last_by_person
    return (
        sorted(order, key=lambda each: each is not gravest),
        sorted(record.releases, key=lambda each: each is not person),
    )


def _texts(record: NodeRecord, incidents: list[Incident], releases: list[Release]) -> Iterator[str]:
    """Yield the texts of the record, each with less than the one before."""
    # A node whose incidents are all released needs none of them: the release covers what was read.
    is_open = any(each.state is not IncidentState.RELEASED for each in incidents)
    counts = (8, 4, 2, 1) if is_open or record.life.claimed or not releases else (8, 4, 2, 1, 0)
    kept = [_with(record, incidents[:most], releases[: min(most, 2) or 1]) for most in counts]
    for each in kept:
        yield records.text_of_record(each, records.IN_SHORT)
    for each in kept:
        life = replace(each.life, quarantines=(), model="", driver="")
        bare = replace(each, life=life, past_boots=(), validation=None)
        yield records.text_of_record(bare, records.IN_SHORT)
    yield from _of_one(record, incidents[:1], releases[:1])


def _with(record: NodeRecord, incidents: list[Incident], releases: list[Release]) -> NodeRecord:
    """Return the record with these incidents and releases alone, and without its long parts."""
    return replace(
        record,
        incidents=tuple(map(_thin, incidents)),
        releases=tuple(map(_plain, releases)),
        past_boots=record.past_boots[:_BOOTS],
        life=replace(record.life, quarantines=record.life.quarantines[:_QUARANTINES]),
        validation=replace(record.validation, gpus=()) if record.validation else None,
        unknown=(),
    )


def _of_one(record: NodeRecord, incidents: list[Incident], releases: list[Release]) -> Iterator[str]:
    """Yield records of one fault, or of one release if the node is not out of service."""
    is_out = record.life.claimed or not releases
    life = Life(tainted_at=record.life.tainted_at, probation_until=record.life.probation_until)
    base = NodeRecord(machine=record.machine, life=life, act=record.act)
    base = replace(base, incidents=tuple(map(_thin, incidents))) if is_out else base
    base = base if is_out else replace(base, releases=tuple(map(_plain, releases)))
    if record.machine is not None:
        # The machine's own id is on the Node, too; its boot tells a reboot.
        yield _bare(replace(base, machine=replace(record.machine, system_id=None)))
    yield _bare(base := replace(base, machine=None, act=None))
    for shorter in (_without_words, _without_pods, _without_place, _without_boot):
        base = shorter(base)
        yield _bare(base)


def _bare(record: NodeRecord) -> str:
    """Return the text of a record of one entry, without what is nice to know."""
    found: dict[str, Any] = json.loads(records.text_of_record(record, records.IN_SHORT))
    rules = found.pop("rules", {})
    for each in found.get("incidents", ()):
        each.update({**rules.get(each["rule"], {}), **each})
        for name in _DROPPED:
            each.pop(name, None)
    return records.written_alike(found)


def _without_words(record: NodeRecord) -> NodeRecord:
    """Return the record without what its release tells people."""
    return _changed(record, lambda mark: replace(mark, reason="", needs="", boot_id=None, unknown=()))


def _without_pods(record: NodeRecord) -> NodeRecord:
    return _changed(record, lambda mark: replace(mark, read_ns=_of_kernel(mark)))


def _of_kernel(mark: Release) -> dict[Source, int]:
    return {source: ns for source, ns in mark.read_ns.items() if source is Source.KERNEL}


def _without_place(record: NodeRecord) -> NodeRecord:
    """Return the record without the place of its incident in the kernel log."""
    found = (replace(each, last=KernelPosition(each.last.boot_id)) for each in record.incidents)
    return replace(record, incidents=tuple(found))


def _without_boot(record: NodeRecord) -> NodeRecord:
    found = (replace(each, last=KernelPosition()) for each in record.incidents)
    return replace(record, incidents=tuple(found))


def _changed(record: NodeRecord, change: Callable[[Release], Release]) -> NodeRecord:
    return replace(record, releases=tuple(map(change, record.releases)))


def _thin(incident: Incident) -> Incident:
    """Return the incident without its line, and without texts that only people read."""
    return replace(
        incident,
        evidence="",
        title=clipped(incident.title, _TITLE_CHARS),
        advice="",
        job=None,
        failure_group=None,
        root_cause=None,
        escalated_because=clipped(incident.escalated_because, _NAME_CHARS),
        uuid="",
        serial="",
        unknown=(),
    )


def _plain(mark: Release) -> Release:
    """Return the release with what it covers; the texts for people are cut."""
    return replace(
        mark, by=clipped(mark.by, _NAME_CHARS), reason=clipped(mark.reason, _NAME_CHARS), warning=None
    )
