"""Machines and their boots: boots that are over, names used by two machines, and machines without a Node.

The controller uses these functions for heartbeats and for its memory of deleted Nodes. Boot ids have no
order, but heartbeats show one: the boot whose heartbeats still arrive is the present one, and other boots'
lines are history. If heartbeats of two boots keep arriving, two machines use one name (rule 3).

A Node has left a boot when that boot is known to be over, so that its evidence no longer concerns the Node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import combinations

from konductor_like.model import (
    Fault,
    Incident,
    IncidentState,
    KernelPosition,
    Machine,
    Needs,
    NodeRecord,
    NodeState,
    Snapshot,
    Source,
)
from konductor_like.model.time import SECOND_NS, unix_ns
from konductor_like.policy.node.alerts import still_counts
from konductor_like.policy.node.covers import uptime_at

RESTART_OVERLAP_NS = 150 * SECOND_NS
"""Nanoseconds for which heartbeats of two boots may overlap when a machine restarts and its clock is
corrected."""
UNAMBIGUOUS_AFTER_NS = 900 * SECOND_NS
"""Nanoseconds of silence of one of two boots after which the name is unambiguous again."""
HEARTBEAT_LEAD_NS = 120 * SECOND_NS
"""Nanoseconds by which a heartbeat must be later than our reading of a line: a node's clock may be fast."""
UPTIME_MARGIN_US = 900_000_000
"""Microseconds by which a kernel stamp may exceed the boot's longest possible uptime: stamps drift, clocks
are set."""
NO_GPU = "the node has no GPU"
BOOT_LEFT = "the line is from an earlier boot of the node"
BOOTS_KEPT = 4
PAST_BOOTS_KEPT = 8
RELEASE_MEMORY = timedelta(days=1)
"""Age up to which the controller keeps the last release of a machine, in case its Node is created again."""
RECENT_RELEASES_MOST = 50


@dataclass(frozen=True, slots=True)
class HeardBoot:
    """One boot of a node, with the Loki timestamps of its first and last heartbeat."""

    boot_id: str
    first_ns: int
    last_ns: int
    began_ns: int
    """Start of the boot by the node's own clock: wall time less uptime, from the last heartbeat."""


Heard = tuple[HeardBoot, ...]
"""The boots of one node, the one with the latest heartbeat first."""


def with_beat(boots: Heard, boot_id: str, at_ns: int, began_ns: int) -> Heard:
    """Return the boots after one more heartbeat, in any order of arrival; only ``BOOTS_KEPT`` remain."""
    if boots and boots[0].boot_id == boot_id and at_ns >= boots[0].last_ns:
        first = boots[0]
        return (HeardBoot(boot_id, first.first_ns, at_ns, began_ns), *boots[1:])
    known = next((boot for boot in boots if boot.boot_id == boot_id), None)
    if known is None:
        heard = HeardBoot(boot_id, at_ns, at_ns, began_ns)
    else:
        heard = replace(known, first_ns=min(known.first_ns, at_ns), last_ns=max(known.last_ns, at_ns))
    others = [boot for boot in boots if boot is not known]
    return tuple(sorted((heard, *others), key=lambda boot: -boot.last_ns)[:BOOTS_KEPT])


def is_ambiguous(boots: Heard, now_ns: int) -> bool:
    """Whether heartbeats of two boots overlapped recently, for longer than a restart explains."""
    return any(
        min(one.last_ns, other.last_ns) - max(one.first_ns, other.first_ns) > RESTART_OVERLAP_NS
        and now_ns - min(one.last_ns, other.last_ns) <= UNAMBIGUOUS_AFTER_NS
        for one, other in combinations(boots, 2)
    )


def pending_boots(record: NodeRecord) -> frozenset[str]:
    """Return the boots with pending incidents: their evidence waits for the Node to reach the boot."""
    return frozenset(
        incident.last.boot_id
        for incident in record.incidents
        if incident.state is IncidentState.PENDING and incident.last.boot_id
    )


def boots_left(state: NodeState, boots: Sequence[HeardBoot], since_ns: Mapping[str, int]) -> frozenset[str]:
    """Return the pending boots that the Node has left.

    The Node has left a boot if heartbeats of its present boot are later than the reading of that boot's
    lines; ``since_ns`` gives when, by our clock, each boot was first seen to be pending. A boot that is over
    sends nothing more. The lines' own timestamps cannot decide, because a clock may have been set back.
    """
    present = next((boot for boot in boots if boot.boot_id == state.machine.boot_id), None)
    if present is None:
        return frozenset()
    last_ns = {boot.boot_id: boot.last_ns for boot in boots}
    return frozenset(
        boot_id
        for boot_id in pending_boots(state.record)
        if last_ns.get(boot_id, 0) <= since_ns[boot_id] + HEARTBEAT_LEAD_NS < present.last_ns
    )


def at_present_machine(state: NodeState, snapshot: Snapshot) -> NodeRecord:
    """Return the record adapted to the machine and the boot that the Node has now.

    The record is the identical object if nothing changes.
    """
    left, machine = snapshot.left.get(state.name, ()), state.machine
    record = _without_boots(state.record, left, machine)
    known = record.machine
    if known is not None and known.node_uid != machine.node_uid and known.system != machine.system:
        # Somebody applied a manifest with the annotation of another machine: that record is not this
        # machine's.
        return NodeRecord(machine=machine)
    if known is not None and known.boot_id != machine.boot_id and known.boot_id and machine.boot_id:
        past = (known.boot_id, *(boot for boot in record.past_boots if boot != known.boot_id))
        record = replace(
            record,
            past_boots=tuple(boot for boot in past if boot != machine.boot_id)[:PAST_BOOTS_KEPT],
            # Released incidents end with their boot, but for alerts that may still fire: a new controller
            # must know that their firings are not new.
            incidents=tuple(
                incident
                for incident in record.incidents
                if incident.last.boot_id == machine.boot_id
                or incident.state is not IncidentState.RELEASED
                or still_counts(incident, state, snapshot.alerts)
            ),
            read=KernelPosition(machine.boot_id),
            booted_after_ns=None,
        )
        if None not in (known.system, machine.system) and known.system != machine.system:
            record = replace(record, incidents=tuple(map(_of_another_machine, record.incidents)))
    booted_after_ns = record.booted_after_ns or state.booted_after_ns
    if (record.machine, record.booted_after_ns) != (machine, booted_after_ns):
        record = replace(record, machine=machine, booted_after_ns=booted_after_ns)
    if all(incident.state is not IncidentState.PENDING for incident in record.incidents):
        return record
    return replace(
        record,
        # A pending incident becomes active when the Node reaches its boot.
        incidents=tuple(
            replace(incident, state=IncidentState.ACTIVE)
            if incident.state is IncidentState.PENDING and incident.last.boot_id == machine.boot_id
            else incident
            for incident in record.incidents
        ),
    )


def _of_another_machine(incident: Incident) -> Incident:
    """Return the incident of a Node that another machine runs now: a person has to look at both machines."""
    if not incident.taints or incident.by_person:
        return incident
    advice = "Another machine has the name of this Node now. Check the machine, then release the node."
    return replace(incident, advice=advice, needs=Needs.INSPECTION.value)


def _without_boots(record: NodeRecord, boots: Collection[str], machine: Machine) -> NodeRecord:
    """Return the record after the Node left these boots: their pending incidents are removed.

    The Node's present boot is never left.
    """
    left = sorted(pending_boots(record).intersection(boots) - {machine.boot_id}) if boots else ()
    if not left:
        return record
    return replace(
        record,
        past_boots=(*left, *(boot for boot in record.past_boots if boot not in left))[:PAST_BOOTS_KEPT],
        incidents=tuple(
            incident
            for incident in record.incidents
            if not (incident.state is IncidentState.PENDING and incident.last.boot_id in left)
        ),
    )


def began_by_heartbeat(state: NodeState, snapshot: Snapshot) -> int | None:
    """Return when the Node's present boot began (``Snapshot.began``); None without its heartbeats."""
    boot_id, began_ns = snapshot.began.get(state.name, (None, None))
    return None if boot_id is None or boot_id != state.machine.boot_id else began_ns


def why_not_of_node(
    past_boots: Sequence[str], state: NodeState, fault: Fault, now: datetime, began_ns: int | None = None
) -> str | None:
    """Return why a fault is no evidence about the Node's present machine and boot, or None.

    ``began_ns`` is when that boot began by its heartbeats, if known.
    """
    boot_id = fault.finding.position.boot_id
    is_past = boot_id is not None and boot_id != state.machine.boot_id and boot_id in past_boots
    began_ns = state.booted_after_ns if began_ns is None else began_ns
    if boot_id is None and began_ns is not None:
        is_past = _precedes_boot(began_ns, fault.finding.position.stamp_us, now)
    if is_past:
        return BOOT_LEFT
    if fault.timestamp_ns < state.created_ns and (boot_id is None or boot_id != state.machine.boot_id):
        return "the line is older than this Node"
    if not state.is_gpu_node and not (fault.source is Source.KERNEL and fault.finding.kind.proves_gpu):
        return NO_GPU
    return None


def _precedes_boot(began_ns: int, stamp_us: int | None, now: datetime) -> bool:
    """Whether a stamp without a boot id is higher than the present boot can have reached by now."""
    uptime_us = uptime_at(began_ns, unix_ns(now))
    return stamp_us is not None and stamp_us > uptime_us + uptime_us // 1000 + UPTIME_MARGIN_US


def with_boot(fault: Fault, boot_id: str | None) -> Fault:
    """Return the fault with a boot id: a line without one is of the present boot."""
    position = fault.finding.position
    if position.boot_id is not None or boot_id is None:
        return fault
    return replace(fault, finding=fault.finding._replace(position=position.plain(boot_id)))


def recent_releases(
    before: Iterable[NodeRecord], states: Iterable[NodeState], now: datetime
) -> tuple[NodeRecord, ...]:
    """Return what the releases of the last day cover: a record for each machine, the newest release first.

    It is needed when a Node is deleted and created again while no controller runs. ``before`` is the earlier
    result; if a machine has a Node, the Node's record takes precedence.
    """
    states = list(states)
    found = {
        machine: _last_release_only(state.record)
        for state in states
        if _is_recent(state.record, now) and (machine := same_boot(state.machine)) is not None
        if same_boot(state.record.machine) == machine
    }
    gone = {
        machine: record
        for record in before
        if _is_recent(record, now) and (machine := same_boot(record.machine)) and machine not in found
    }
    if gone:
        there = {same_boot(state.machine) for state in states}
        found |= {machine: record for machine, record in gone.items() if machine not in there}
    newest = sorted(found.values(), key=lambda record: record.releases[0].at, reverse=True)
    return tuple(newest[:RECENT_RELEASES_MOST])


def same_boot(machine: Machine | None) -> tuple[str, str] | None:
    """Return what identifies one machine in one boot, whatever its Node; None if a part is unknown."""
    if machine is None or machine.system is None or machine.boot_id is None:
        return None
    return machine.system, machine.boot_id


def without_shared_ids(states: Mapping[str, NodeState]) -> Mapping[str, NodeState]:
    """Return the Nodes without the system ids that several of them have, as clones of one image do.

    Such an id names no machine. The mapping is the identical object if there is none.
    """
    systems = Counter(state.machine.system for state in states.values())
    shared = {system for system, nodes in systems.items() if nodes > 1 and system is not None}
    if not shared:
        return states
    return {
        name: replace(state, machine=replace(state.machine, system_id=None))
        if state.machine.system in shared
        else state
        for name, state in states.items()
    }


def _is_recent(record: NodeRecord, now: datetime) -> bool:
    return bool(record.releases) and record.releases[0].at > now - RELEASE_MEMORY


def _last_release_only(record: NodeRecord) -> NodeRecord:
    """Reduce a record to its last releases and released incidents; lines decide later taints again.

    A release by the controller covers little, so a person's last release is kept too.
    """
    released = tuple(i for i in record.incidents if i.state is IncidentState.RELEASED)
    latest, by_person = record.releases[0], record.last_by_person
    marks = (latest,) if by_person in (None, latest) else (latest, by_person)
    return NodeRecord(
        machine=record.machine,
        incidents=released,
        releases=marks,
        read=marks[-1].read,
    )
