"""The machines behind Nodes: which boot is over, which name two of them bear, and which lost their Node.

The controller's heartbeats and its memory of deleted Nodes are read by these functions. Boot ids have no
order; a heartbeat gives them one: the boot that is still heard is the present one, and another boot's lines
are history. Where both are still heard, two machines bear one name (rule 3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import combinations

from konductor_like.model import IncidentState, Machine, NodeRecord, NodeState
from konductor_like.model.time import SECOND_NS

RESTART_OVERLAP_NS = 150 * SECOND_NS
"""How long two boots may seem to run at once when a machine restarts and its clock is put right."""
UNAMBIGUOUS_AFTER_NS = 900 * SECOND_NS
"""A name is unambiguous again once one of its boots has been silent for so long."""
HEARTBEAT_LEAD_NS = 120 * SECOND_NS
"""How much later than our reading of a line a heartbeat must be, so that no node's fast clock decides."""
BOOTS_KEPT = 4
PAST_BOOTS_KEPT = 8
RELEASE_MEMORY = timedelta(days=1)
"""As far back as the kernel lines of a Node that was made anew are read again."""
RECENT_RELEASES_MOST = 50


@dataclass(frozen=True, slots=True)
class HeardBoot:
    """One boot of a node, with the Loki timestamps of its first and last heartbeat that were heard."""

    boot_id: str
    first_ns: int
    last_ns: int
    began_ns: int
    """When it began by the node's own clock: wall time less uptime, from the last heartbeat."""


Heard = tuple[HeardBoot, ...]
"""The boots of one node, the one that was heard last in front."""


def with_beat(boots: Heard, boot_id: str, at_ns: int, began_ns: int) -> Heard:
    """The boots after one more heartbeat, however late it was read; the longest silent one is forgotten."""
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
    """Whether two boots were heard side by side for longer than a restart explains, and lately."""
    return any(
        min(one.last_ns, other.last_ns) - max(one.first_ns, other.first_ns) > RESTART_OVERLAP_NS
        and now_ns - min(one.last_ns, other.last_ns) <= UNAMBIGUOUS_AFTER_NS
        for one, other in combinations(boots, 2)
    )


def pending_boots(record: NodeRecord) -> frozenset[str]:
    """The boots whose evidence waits for the Node to reach them."""
    return frozenset(
        incident.last.boot_id
        for incident in record.incidents
        if incident.state is IncidentState.PENDING and incident.last.boot_id
    )


def boots_left(state: NodeState, boots: Sequence[HeardBoot], since_ns: Mapping[str, int]) -> frozenset[str]:
    """The pending boots that the Node has left: its present boot was heard after their lines were read.

    ``since_ns`` says when, by our own clock, each of them was first seen to be pending. A boot that is over
    says nothing any more, so a heartbeat of the present one that is younger than that decides; the lines'
    own timestamps would not, where a clock was put back.
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
    """The node's record once these boots are known to be over: what was pending of them is history.

    The very same record where that changes nothing; the Node's present boot is never over.
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
    """What the releases of the last day cover, a record for each machine, the newest first.

    For machines whose Node is deleted and registers again while no controller runs. ``before`` is what was
    recent_releases until now; where a machine has a Node, the record there is what counts.
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
    """What two Nodes share that are one machine in one boot; None where that is not known."""
    if machine is None or machine.system_id is None or machine.boot_id is None:
        return None
    return machine.system_id, machine.boot_id


def _is_recent(record: NodeRecord, now: datetime) -> bool:
    return bool(record.releases) and record.releases[0].at > now - RELEASE_MEMORY


def _last_release_only(record: NodeRecord) -> NodeRecord:
    """The last release and what is released; a taint of later is decided anew, from its lines."""
    released = tuple(i for i in record.incidents if i.state is IncidentState.RELEASED)
    mark = record.releases[0]
    return NodeRecord(machine=record.machine, incidents=released, releases=(mark,), read=mark.read)
