"""The incidents of one node: faults are folded into its record.

To fold a fault means to add it to its incident: a new incident, or one more occurrence of a known one. A
fault that is in the record already, or that a release covers, adds nothing.

``decide`` folds the new faults of each node separately, before it assesses the fleet and asks the brake. Once
the brake has decided, :func:`with_states` sets the open incidents to active or held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from konductor_like.model import (
    Doubt,
    DroppedFault,
    Fault,
    FaultKind,
    Growth,
    IncidentKey,
    IncidentState,
    NodeState,
    Severity,
    Snapshot,
    Stage,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.config import PERSONS
from konductor_like.policy.node.covers import (
    COVERED,
    COVERED_BY_TIME,
    DOUBTS,
    covered_to,
    why_covered,
)
from konductor_like.policy.node.machines import (
    BOOT_LEFT,
    at_present_machine,
    began_by_heartbeat,
    why_not_of_node,
    with_boot,
)
from konductor_like.policy.node.record_builder import IncidentBuilder, RecordBuilder, new_incident
from konductor_like.policy.node.release import released_by_hand
from konductor_like.policy.node.removal import is_person
from konductor_like.policy.node.update import NodeUpdate

SEEN_BEFORE = "seen before"
BEFORE_INSTALL = "a replay from before the first start"
RECORD_FULL = "the node's record has as many incidents as it may have"
QUIET_REASONS = frozenset({SEEN_BEFORE, COVERED, BEFORE_INSTALL, BOOT_LEFT})
"""Reasons that are part of normal operation: the dropped line is counted, but not logged."""


def fold_faults(
    state: NodeState,
    faults: Sequence[Fault],
    snapshot: Snapshot,
    now: datetime,
    persons: Sequence[str] = PERSONS,
) -> NodeUpdate:
    """Fold the node's growth (counted earlier, not yet written) and then ``faults`` into its record.

    If one of the ``persons`` removed the taint by hand, the record gets a release (rule 23). The release
    covers what was counted until now, and none of the new faults.
    """
    record = at_present_machine(state, snapshot)
    grown = snapshot.grown.get(state.name, ())
    # One patch writes the taint and the claim. So a claim without a taint means that somebody removed the
    # taint, even while a write of ours has no answer yet.
    is_removed = state.stage is Stage.REMOVED and is_person(state.removed_by, persons)
    if record is state.record and not (is_removed or grown or faults):
        return NodeUpdate(state, record, ambiguous=state.name in snapshot.ambiguous)
    is_changed = record != state.record and not state.record.empty
    builder = RecordBuilder(record, urgent=is_changed, began_ns=began_by_heartbeat(state, snapshot))
    uncovered = [fault for growth in grown for fault in _fold_growth(builder, growth, state)]
    if is_removed:
        folded = builder.finish()
        builder.load(released_by_hand(folded, state=state, now=now, read_ns=snapshot.read_ns))
        builder.urgent = True
    known: set[IncidentKey] = set()
    for fault in sorted((*uncovered, *faults), key=Fault.order):
        if fault.times > 1 and fault.key in known:
            fault = replace(fault, times=1)  # some of the other occurrences in ``times`` may be known as well
        reason = _fold_fault(builder, state, fault, now)
        if reason is not None:
            known.add(fault.key)
            builder.ignored.append(DroppedFault(fault, reason))
    entries = builder.entries.values()
    return NodeUpdate(
        state,
        builder.finish(),
        urgent=builder.urgent or any(entry.goes_on for entry in entries),
        counted=tuple(builder.counted),
        ignored=tuple(builder.ignored),
        grown=tuple(entry.growth(entry.latest) for entry in entries if entry.latest is not None),
        news=tuple(builder.news),
        to_announce=builder.ended,
        released_by_hand=is_removed,
        ambiguous=state.name in snapshot.ambiguous,
    )


def _fold_growth(builder: RecordBuilder, growth: Growth, state: NodeState) -> list[Fault]:
    """Add one growth to the record; return the faults that become new because of a release in between."""
    fault = growth.latest
    boot_id = fault.finding.position.boot_id
    entry = builder.entry((fault.finding.rule, fault.finding.gpu, fault.severity.taints, boot_id))
    if entry is None or entry.seen(fault):
        return []  # purged since, or written although no answer came
    if entry.incident.state is not IncidentState.RELEASED:
        entry.catch_up(growth)
        builder.read_to(fault.finding.position, state.machine.boot_id)
        return []
    if growth.counted_ns > (entry.incident.released_ns or 0):
        return [replace(fault, times=1)]  # counted after the release, before the controller saw it
    entry.extend(fault, 0)
    builder.record = covered_to(builder.record, fault, entry.incident.released_ns)
    builder.urgent = True
    return []


def _fold_fault(builder: RecordBuilder, state: NodeState, fault: Fault, now: datetime) -> str | None:
    """Fold one fault; return why it adds nothing, or None if it was counted."""
    reason = why_not_of_node(builder.record.past_boots, state, fault, now, builder.began_ns)
    if reason is not None:
        return reason
    finding, taints, own_boot = fault.finding, fault.severity.taints, state.machine.boot_id
    booted, names_boot = fault, finding.position.boot_id is not None and finding.position.plain_us is None
    if not names_boot:
        booted = with_boot(fault, own_boot)
        if builder.record.past_boots and _read_again(builder, booted):
            return SEEN_BEFORE
    boot_id = booted.finding.position.boot_id
    is_own_end = finding.clears == finding.rule
    if is_own_end and (standing := _open_of(builder, booted)):
        return _note_end(builder, standing, booted, own_boot)
    booted, key = builder.placed(booted)
    entry = builder.entry(key)
    if entry is not None or builder.record.releases:
        reason = _why_known(builder, entry, booted, names_boot=names_boot)
        if reason is not None:
            return reason
    remembered = builder.entry((finding.rule, finding.gpu, False, boot_id)) if taints else None
    if remembered is not None and remembered.repeats_before_install(booted):
        return BEFORE_INSTALL
    builder.read_to(booted.finding.position, own_boot)
    if entry is None and not builder.make_room(booted):
        return RECORD_FULL
    builder.counted.append(fault)
    if finding.clears is not None:
        _close_ended(builder, booted)
    if entry is not None and entry.incident.state is not IncidentState.RELEASED:
        entry.grow(booted, unix_ns(now))
        return None
    incident = new_incident(booted, IncidentState.ACTIVE if boot_id == own_boot else IncidentState.PENDING)
    if is_own_end:  # no open incident has this end: record it as closed
        incident = replace(incident, state=IncidentState.RELEASED, released_ns=fault.timestamp_ns)
    builder.open(key, incident)
    builder.news.append(booted)
    builder.urgent = True
    return None


def _why_known(
    builder: RecordBuilder, entry: IncidentBuilder | None, fault: Fault, *, names_boot: bool
) -> str | None:
    """Return why a fault adds nothing to the record, or None."""
    if entry is not None and entry.seen(fault):
        return SEEN_BEFORE
    is_released = entry is not None and entry.incident.state is IncidentState.RELEASED
    if entry is None or (is_released and not entry.before_release(fault)):
        # The last release does not cover an incident that an earlier release closed, nor one that never was
        # recorded.
        reason = why_covered(builder.record, fault, names_boot=names_boot, began_ns=builder.began_ns)
        if reason in DOUBTS and fault.severity is Severity.FATAL:
            builder.doubt(fault, DOUBTS[reason])
        return reason
    if not entry.before_release(fault):
        return None
    if is_released:
        # The line is older than the release and was read after it: record its position, so that a replay is
        # covered too.
        entry.extend(fault, 0)
        builder.urgent = True
        if fault.severity is Severity.FATAL:
            builder.doubt(fault, Doubt.BEFORE_RELEASE)
    return COVERED_BY_TIME if fault.severity.taints else SEEN_BEFORE


def _open_of(builder: RecordBuilder, fault: Fault) -> list[IncidentBuilder]:
    """Return the open incidents of a fault's rule, GPU and boot, whether they taint or not."""
    finding, boots = fault.finding, {fault.finding.position.boot_id}
    if finding.kind is FaultKind.NODE:  # the Node shows what is so now, whatever its boot was then
        boots = {each.last.boot_id for each in builder.record.incidents if each.key == fault.key}
    keys = ((finding.rule, finding.gpu, taints, boot) for boot in boots for taints in (True, False))
    found = map(builder.entry, keys)
    return [each for each in found if each and each.incident.state is not IncidentState.RELEASED]


def _note_end(
    builder: RecordBuilder, standing: Iterable[IncidentBuilder], fault: Fault, own_boot: str | None
) -> str | None:
    """Note the end that the driver reports for these incidents; return why the line adds nothing, or None."""
    before = [entry for entry in standing if not entry.seen(fault)]
    if not before:
        return SEEN_BEFORE
    for entry in before:
        entry.end(fault)
    builder.read_to(fault.finding.position, own_boot)
    builder.counted.append(fault)
    builder.ended, builder.urgent = new_incident(fault, IncidentState.ACTIVE), True
    return None


def _close_ended(builder: RecordBuilder, fault: Fault) -> None:
    """Close the incident whose end this line reports. A tainted node stays tainted until a release."""
    finding = fault.finding
    key = (str(finding.clears), finding.gpu, False, finding.position.boot_id)
    entry = builder.entry(key)
    if (
        entry is not None
        and entry.incident.state is IncidentState.ACTIVE
        and not entry.incident.taints
        and entry.last.at_or_before(finding.position)
    ):
        entry.close(fault.timestamp_ns)
        builder.urgent = True


def _read_again(builder: RecordBuilder, fault: Fault) -> bool:
    """Whether a line without a boot id is evidence of an earlier boot that was read before.

    A line read a second time has the same Loki timestamp. A replay has a later one, but not later than the
    start of the present boot: a kernel log contains only its own boot.
    """
    finding, booted_ns = fault.finding, builder.record.booted_after_ns or 0
    keys = ((finding.rule, finding.gpu, fault.severity.taints, boot) for boot in builder.record.past_boots)
    return any(
        fault.timestamp_ns <= max(entry.last_ns, booted_ns) and finding.position.at_or_before(entry.last)
        for entry in map(builder.entry, keys)
        if entry is not None
    )
