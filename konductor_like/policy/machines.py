"""Machines and their boots: boots that are over, names used by two machines, and machines without a Node.

The controller uses these functions for heartbeats and for its memory of deleted Nodes. Boot ids have no
order, but heartbeats show one: the boot whose heartbeats still arrive is the present one, and other boots'
lines are history. If heartbeats of two boots keep arriving, two machines use one name (rule 3).

A Node has left a boot when that boot is known to be over, so that its evidence no longer concerns the Node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import combinations

from konductor_like.model import IncidentState, Machine, NodeRecord, NodeState
from konductor_like.model.time import SECOND_NS

RESTART_OVERLAP_NS = 150 * SECOND_NS
"""Nanoseconds for which heartbeats of two boots may overlap when a machine restarts and its clock is
corrected."""
UNAMBIGUOUS_AFTER_NS = 900 * SECOND_NS
"""Nanoseconds of silence of one of two boots after which the name is unambiguous again."""
HEARTBEAT_LEAD_NS = 120 * SECOND_NS
"""Nanoseconds by which a heartbeat must be later than our reading of a line: a node's clock may be fast."""
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


def leave_boots(state: NodeState, boots: Collection[str]) -> NodeRecord:
    """Return the record after the Node left these boots: their pending incidents are removed.

    The record is the identical object if nothing changes. The Node's present boot is never left.
    """
    record = state.record
    left = sorted(pending_boots(record).intersection(boots) - {state.machine.boot_id})
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
    if machine is None or machine.system_id is None or machine.boot_id is None:
        return None
    return machine.system_id, machine.boot_id


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
        part_covers=record.part_covers,
    )
