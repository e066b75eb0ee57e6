"""Judging one node: fold evidence into its record, count what is new, pass over what was seen or covered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from konductor_like.model import (
    Fault,
    Growth,
    Ignored,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    NodeRecord,
    NodeState,
    Severity,
    Source,
)
from konductor_like.policy.book import Book, Entry, with_boot
from konductor_like.policy.contest import BY_HAND, with_contest
from konductor_like.policy.release import covers, had_been_read, released_record, unix_ns

PAST_BOOTS_KEPT = 8
UPTIME_MARGIN_US = 900_000_000
"""So much higher than it should be a stamp may be, by drift and by clocks that are set, and still count."""
OPTED_OUT = "the node is opted out"
NO_GPU = "the node has no GPU"
SEEN_BEFORE = "seen before"
COVERED = "covered by the last release"
COVERED_LATE = "it stands before the last release in the kernel log, although it was read later"
"""A replay of what is on no record any more, or a line that others overtook: nothing tells the two apart."""


@dataclass(slots=True)
class Judgement:
    """What one node's evidence comes to. ``urgent`` says that the record must be written now."""

    record: NodeRecord
    urgent: bool = False
    counted: list[Fault] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    grown: tuple[Growth, ...] = ()
    """What the record counts and the node does not tell of yet."""
    news: list[Fault] = field(default_factory=list)
    """The faults that opened or reopened an incident in this judgement."""
    notable: Incident | None = None
    """What to tell of although nothing opened: the driver says that it has ended, or it made a suspect."""


def judge(
    state: NodeState,
    faults: Sequence[Fault],
    grown: Iterable[Growth],
    now: datetime,
    *,
    removed_by_hand: bool,
    read_ns: Mapping[Source, int],
) -> Judgement:
    """Fold ``grown`` (counted earlier, not on the node yet) and then ``faults`` into the node's record.

    ``removed_by_hand`` says that the record claims a taint which is gone: a release (design rule 23). What
    was counted until now is covered by it; the new faults are not.
    """
    judgement = Judgement(state.record)
    _meet_machine(judgement, state)
    book = Book(judgement.record)
    leftover = _fold_growth(judgement, book, grown, state.machine.boot_id)
    if removed_by_hand:
        book = Book(_released_by_hand(book.record(), state, now, read_ns))
        judgement.urgent = True
    known: set[IncidentKey] = set()
    for fault in sorted((*leftover, *faults), key=_order):
        if fault.times > 1 and fault.key in known:
            fault = replace(fault, times=1)  # of the others that it stands for some may be known as well
        reason = _judge_fault(judgement, book, state, fault, now)
        if reason is not None:
            known.add(fault.key)
            judgement.ignored.append(Ignored(fault, reason))
    judgement.urgent = judgement.urgent or book.goes_on
    judgement.record = book.record()
    judgement.grown = book.growths()
    return judgement


def _meet_machine(judgement: Judgement, state: NodeState) -> None:
    """Bring the record up to the machine that stands behind the name now."""
    record, machine = judgement.record, state.machine
    known = record.machine
    if known is not None and known.node_uid != machine.node_uid and known.system_id != machine.system_id:
        # A manifest was applied to another machine, annotation and all: its memory is not this one's.
        judgement.record, judgement.urgent = NodeRecord(machine=machine), not record.empty
        return
    if known is not None and known.boot_id != machine.boot_id and known.boot_id and machine.boot_id:
        past = (known.boot_id, *(boot for boot in record.past_boots if boot != known.boot_id))
        record = replace(
            record,
            past_boots=tuple(boot for boot in past if boot != machine.boot_id)[:PAST_BOOTS_KEPT],
            incidents=tuple(_after_boot(record.incidents, machine.boot_id)),
            read=KernelPosition(machine.boot_id),
            booted_after_ns=None,
        )
    record = replace(
        record,
        machine=machine,
        booted_after_ns=record.booted_after_ns or state.booted_after_ns,
        incidents=tuple(_met_boot(incident, machine.boot_id) for incident in record.incidents),
    )
    judgement.urgent = not judgement.record.empty and record != judgement.record
    judgement.record = record


def _after_boot(incidents: Iterable[Incident], boot_id: str) -> Iterable[Incident]:
    """What is left after a reboot: what was held expires, and so does what was released."""
    for incident in incidents:
        if incident.last.boot_id == boot_id or incident.state in (
            IncidentState.ACTIVE,
            IncidentState.PENDING,
        ):
            yield incident


def _met_boot(incident: Incident, boot_id: str | None) -> Incident:
    """Evidence that was ahead of its boot counts once the node is there."""
    if incident.state is not IncidentState.PENDING or incident.last.boot_id != boot_id:
        return incident
    return replace(incident, state=_opening_state(incident.severity))


def _fold_growth(
    judgement: Judgement, book: Book, grown: Iterable[Growth], own_boot: str | None
) -> list[Fault]:
    """Add counts kept in memory to the record; gives back what a release since then does not cover."""
    uncovered: list[Fault] = []
    for growth in grown:
        fault = growth.latest
        boot_id = fault.finding.position.boot_id
        entry = book.find((fault.finding.rule, fault.finding.gpu, fault.severity.taints, boot_id))
        if entry is None or entry.seen(fault):
            continue  # purged since, or written although the answer was lost
        if entry.state is not IncidentState.RELEASED:
            entry.catch_up(growth)
            if boot_id == own_boot:
                book.read_to(fault.finding.position, boot_id)
        elif entry.before_release(fault):
            entry.extend(fault, 0)
            judgement.urgent = True
        else:
            uncovered.append(replace(fault, times=1))
    return uncovered


def _released_by_hand(
    record: NodeRecord, state: NodeState, now: datetime, read_ns: Mapping[Source, int]
) -> NodeRecord:
    released = released_record(
        replace(state, record=record),
        at=now,
        by=state.last_writer or "somebody",
        reason="",
        how=BY_HAND,
        read_ns=read_ns,
        # We may see it long after it happened: only what was counted is covered, not the time in between.
        until_ns=None,
    )
    return with_contest(released, state.last_writer)


def _judge_fault(
    judgement: Judgement, book: Book, state: NodeState, fault: Fault, now: datetime
) -> str | None:
    """Count one fault, or say why it leads to nothing."""
    reason = _not_ours(book.past_boots, state, fault, now)
    if reason is not None:
        return reason
    finding, taints, own_boot = fault.finding, fault.severity.taints, state.machine.boot_id
    boot_id = finding.position.boot_id
    if boot_id is None:
        if _read_again(book, fault, taints=taints):
            return SEEN_BEFORE
        boot_id = own_boot
    is_own_end = finding.clears == finding.rule
    if is_own_end and (standing := book.standing(finding.rule, finding.gpu, boot_id)):
        return _end(judgement, book, standing, with_boot(fault, boot_id), own_boot)
    entry = book.find((finding.rule, finding.gpu, taints, boot_id))
    reason = _known(judgement, book, entry, fault, boot_id)
    if reason is not None:
        return reason
    if taints and book.remembered and _predates_install(book, fault, boot_id):
        return "a replay from before the first start"
    if boot_id == own_boot:
        book.read_to(finding.position, boot_id)
    judgement.counted.append(fault)
    if finding.clears is not None:
        _take_back(judgement, book, fault, boot_id)
    if entry is not None and entry.state is not IncidentState.RELEASED:
        entry.grow(fault)
        return None
    opening = with_boot(fault, boot_id)
    incident = _opened(opening, pending=boot_id != own_boot)
    if is_own_end:  # nothing of it stands: remembered, and closed
        incident = replace(incident, state=IncidentState.RELEASED, released_ns=fault.timestamp_ns)
    book.open(incident)
    judgement.news.append(opening)
    judgement.urgent = True
    return None


def _known(
    judgement: Judgement, book: Book, entry: Entry | None, fault: Fault, boot_id: str | None
) -> str | None:
    """Why a fault adds nothing to what the record says, if it does not; ``boot_id`` is the boot it is of."""
    if entry is not None and entry.seen(fault):
        return SEEN_BEFORE
    if entry is None or (entry.state is IncidentState.RELEASED and not entry.before_release(fault)):
        # An incident that an earlier release closed is no part of the last one, as one that never was.
        names_boot, booted = fault.finding.position.boot_id is not None, with_boot(fault, boot_id)
        marks = [mark for mark in book.releases if covers(mark, booted, names_boot=names_boot)]
        if not marks:
            return None
        read = any(had_been_read(mark, fault) for mark in marks)
        return COVERED if read or not fault.severity.taints else COVERED_LATE
    if not entry.before_release(fault):
        return None
    if entry.state is IncidentState.RELEASED:
        # Read only now, but older than the release: remember it, so that a replay of it is covered too.
        entry.extend(fault, 0)
        judgement.urgent = True
    return SEEN_BEFORE


def _end(
    judgement: Judgement, book: Book, standing: Iterable[Entry], fault: Fault, own_boot: str | None
) -> str | None:
    """Note on what stands that the driver says that it is over; a taint waits for its reset all the same."""
    before = [entry for entry in standing if not entry.seen(fault)]
    if not before:
        return SEEN_BEFORE
    for entry in before:
        entry.end(fault)
    position = fault.finding.position
    if position.boot_id == own_boot:
        book.read_to(position, own_boot)
    judgement.counted.append(fault)
    judgement.notable, judgement.urgent = _opened(fault, pending=False), True
    return None


def _take_back(judgement: Judgement, book: Book, fault: Fault, boot_id: str | None) -> None:
    """Close what this line says has ended. It never brings a node back: a taint waits for its reset."""
    for entry in book.taken_back(fault, boot_id):
        entry.release(fault.timestamp_ns)
        judgement.urgent = True


def is_of_this_node(state: NodeState, fault: Fault, now: datetime) -> bool:
    """Whether a fault says something about the machine that stands behind the Node's name now."""
    return _not_ours(state.record.past_boots, state, fault, now) is None


def _not_ours(past_boots: Sequence[str], state: NodeState, fault: Fault, now: datetime) -> str | None:
    """Why a fault says nothing about this node's machine, if it does not."""
    boot_id = fault.finding.position.boot_id
    if state.opted_out:
        return OPTED_OUT
    named = boot_id is not None and boot_id != state.machine.boot_id and boot_id in past_boots
    if named or (boot_id is None and _precedes_boot(state, fault.finding.position.stamp_us, now)):
        return "it happened in a boot that the node has left"
    if fault.timestamp_ns < state.created_ns and (boot_id is None or boot_id != state.machine.boot_id):
        return "it is older than this Node"
    if not state.is_gpu_node and not (fault.source is Source.KERNEL and fault.finding.kind.proves_gpu):
        return NO_GPU
    return None


def _precedes_boot(state: NodeState, stamp_us: int | None, now: datetime) -> bool:
    """Whether a stamp without a boot is higher than the present boot can have come to by now."""
    if stamp_us is None or state.booted_after_ns is None:
        return False
    uptime_us = max(0, unix_ns(now) - state.booted_after_ns) // 1000
    return stamp_us > uptime_us + uptime_us // 1000 + UPTIME_MARGIN_US


def _read_again(book: Book, fault: Fault, *, taints: bool) -> bool:
    """Whether a line that names no boot is known evidence of an earlier boot, read a second time.

    Read again it has the Loki timestamp that it had; a replay of that boot's log would have a new one, but a
    kernel log holds nothing of an earlier boot.
    """
    finding = fault.finding
    return any(
        entry.key[:3] == (finding.rule, finding.gpu, taints)
        and fault.timestamp_ns <= entry.last_ns
        and bool(finding.position.at_or_before(entry.last))
        for entry in book.of_past_boots
    )


def _predates_install(book: Book, fault: Fault, boot_id: str | None) -> bool:
    """Whether it repeats kernel evidence that was only remembered: it is older than the first start."""
    finding = fault.finding
    return any(
        entry.key[:2] == (finding.rule, finding.gpu)
        and entry.boot_id == boot_id
        and bool(finding.position.at_or_before(entry.last))
        for entry in book.remembered
    )


def _opened(fault: Fault, *, pending: bool) -> Incident:
    finding, severity = fault.finding, fault.severity
    return Incident(
        key=fault.key,
        kind=finding.kind,
        severity=severity,
        state=IncidentState.PENDING if pending else _opening_state(severity),
        count=fault.times,
        first_ns=fault.timestamp_ns,
        last_ns=fault.timestamp_ns,
        last=finding.position,
        code=finding.code,
        evidence=finding.text,
        title=finding.title,
        advice=finding.advice,
        needs=finding.needs,
        source=fault.source,
        before_install=fault.before_install,
        user_written=finding.user_written,
        job=fault.job,
    )


def _opening_state(severity: Severity) -> IncidentState:
    """What would taint starts as held; the brake lets it pass, in the same decision when it can."""
    return IncidentState.HELD if severity.taints else IncidentState.ACTIVE


def _order(fault: Fault) -> tuple[int, int, int]:
    position = fault.finding.position
    return (fault.timestamp_ns, position.sequence or 0, position.stamp_us or 0)
