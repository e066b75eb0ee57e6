"""The invariants at the end of a schedule, checked in the order in which writes took effect.

- Every new fatal occurrence has tainted its node, or the brake holds it, unless it was released afterwards;
  every occurrence is on the node's record.
- A controller adds a taint only for an occurrence that no earlier release covers.
- No controller removes a taint, and no program of ours changes fields of others.
- A node is not written more often than its occurrences and disturbances require.
- Only the holder of the Lease writes a Node. Two exceptions are counted: requests of a stopped or killed
  process that were under way, and a holder that has not yet seen that its Lease was deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from konductor_like.cluster.lease.annotations import CONTROLS_ANNOTATION
from tests.chaos.evidence import without_ours
from tests.chaos.processes.actors import Actor
from tests.chaos.processes.journal import (
    Entry,
    Object,
    health_of,
    is_tainted,
    machine_of,
    record_of,
)
from tests.chaos.processes.machines import Occurrence
from tests.chaos.processes.world import RESETTER

SECOND_NS = 1_000_000_000
UNDER_WAY_NS = 3 * SECOND_NS
"""Nanoseconds after a process goes on, or is killed, within which its last requests may take effect."""
UNSEEN_NS = 3 * SECOND_NS
"""Nanoseconds for which a holder may not know that its Lease was deleted: until its next renewal."""

Covered = dict[tuple[str, str, str, str], int]
"""The last kernel stamp (µs) that a release covers, by machine, boot, rule and GPU."""


@dataclass(frozen=True)
class RunRecord:
    """A record of one run of a schedule: all writes, and the state at its end."""

    entries: list[Entry]
    nodes: Mapping[str, Object]
    machines: Mapping[str, str]
    """The id of each node's last machine."""
    occurrences: list[Occurrence]
    controllers: list[Actor]
    brake_nodes: int | None = None
    lateness_seconds: float = 60.0

    def by_controller(self, entry: Entry) -> bool:
        return any(actor.user == entry.user for actor in self.controllers)

    def controller_writes(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.resource == "nodes" and self.by_controller(entry)]

    def late_writes(self) -> list[Entry]:
        """Writes to Nodes by a controller that did not hold the Lease any more."""
        return [entry for entry, _ in self._late]

    @cached_property
    def _late(self) -> list[tuple[Entry, str]]:
        return list(_late_writes(self))


@dataclass
class _Past:
    """The history of one node up to a write."""

    covered: Covered = field(default_factory=dict)
    covered_ones: set[int] = field(default_factory=set)
    """Occurrences (by ``id``) that a ``reset`` covers by their time."""
    disturbed_ns: int = 0
    """When a person, a reset or a reboot last changed which faults count."""
    disturbances: int = 0
    writes: int = 0


def violations(run: RunRecord) -> list[str]:
    """Describe all broken invariants."""
    wrong = [*unmet(run), *_writers(run)]
    pasts = {name: _Past() for name in run.machines}
    for entry in run.entries:
        if entry.resource == "nodes":
            wrong.extend(_write_violations(run, entry, pasts[entry.name]))
    each = (
        1 if run.brake_nodes is None else 2
    )  # first recorded as held, then tainted when the brake allows it
    for name, past in pasts.items():
        bound = each * sum(one.node == name for one in run.occurrences) + 2 * past.disturbances
        if past.writes > bound:
            wrong.append(f"{name} was written {past.writes} times, {bound} are allowed")
    return wrong


def unmet(run: RunRecord) -> list[str]:
    """Describe each fault that is not on its node's record, or has not tainted its node."""
    wrong = []
    disturbed_ns = dict.fromkeys(run.machines, 0)
    for entry in run.entries:
        if entry.resource == "nodes" and _disturbs(run, entry):
            disturbed_ns[entry.name] = entry.at_ns
    tainted = sum(is_tainted(node) for node in run.nodes.values())
    braked = run.brake_nodes is not None and tainted >= run.brake_nodes
    for one in run.occurrences:
        node = run.nodes.get(one.node)
        if (
            node is None
            or one.accepted_ns is None
            or one.accepted_ns - one.printed_ns > run.lateness_seconds * SECOND_NS
            or one.machine != run.machines[one.node]
            or one.printed_ns <= disturbed_ns[one.node]
        ):
            continue
        recorded = [
            each
            for each in record_of(node).get("incidents", ())
            if (each["rule"], each.get("gpu")) == _key(one)
        ]
        if not recorded:
            wrong.append(f"{one.node}: {one.rule} on {one.gpu} is not on its record")
        if one.tainting and not is_tainted(node) and not (braked and health_of(node) == "held"):
            wrong.append(f"{one.node} is not tainted in spite of {one.rule} on {one.gpu}")
    return wrong


def _key(one: Occurrence) -> tuple[str, str]:
    return (one.rule, one.gpu)


def _disturbs(run: RunRecord, entry: Entry) -> bool:
    """Whether a write changes which faults count: a release, a reboot, another Node."""
    if entry.old is None or entry.new is None:
        return True
    return (
        is_tainted(entry.old) > is_tainted(entry.new)
        or machine_of(entry.old) != machine_of(entry.new)
        or record_of(entry.old).get("releases") != record_of(entry.new).get("releases")
        or entry.user == RESETTER
        or not (run.by_controller(entry) or is_tainted(entry.old) == is_tainted(entry.new))
    )


def _write_violations(run: RunRecord, entry: Entry, past: _Past) -> Iterator[str]:
    """Describe what one write to a Node breaks, and update the node's past."""
    old, new = entry.old, entry.new
    if _disturbs(run, entry):
        past.disturbed_ns = entry.at_ns
        past.disturbances += 1
    if old is not None and new is not None:
        ours = run.by_controller(entry) or entry.user == RESETTER
        if ours and without_ours(old) != without_ours(new):
            yield f"{entry.name}: {entry.user} changed fields of others"
        if run.by_controller(entry):
            past.writes += 1
            if is_tainted(old) and not is_tainted(new):
                yield f"{entry.name}: {entry.user} removed the taint"
            # A claim without a release: nobody saw who removed the taint, so it is put back.
            is_put_back = "tainted" in record_of(old)
            if is_tainted(new) > is_tainted(old) and not is_put_back and not _reasons(run, entry, past):
                yield f"{entry.name}: {entry.user} tainted it for no new fault at {_clock(entry.at_ns)}"
    _cover(run, entry, past)


def _reasons(run: RunRecord, entry: Entry, past: _Past) -> list[Occurrence]:
    """Return the fatal occurrences that justify a taint now."""
    assert entry.new is not None
    machine, _ = machine_of(entry.new)
    return [
        one
        for one in run.occurrences
        if one.node == entry.name
        and one.tainting
        and one.machine == machine
        and one.accepted_ns is not None
        and one.printed_ns <= entry.at_ns
        and id(one) not in past.covered_ones
        and one.stamp_us > past.covered.get((one.machine, one.boot, one.rule, one.gpu), -1)
    ]


def _cover(run: RunRecord, entry: Entry, past: _Past) -> None:
    """Note the occurrences that a release covers, from the record before it."""
    old, new = entry.old, entry.new
    if old is None or new is None:
        past.covered, past.covered_ones = {}, set()  # the record was deleted with the Node
        return
    if entry.user == RESETTER and not record_of(new):
        past.covered, past.covered_ones = {}, set()  # a purge deletes the record
        return
    by_reset = entry.user == RESETTER
    # If a person added the taint and removed it again, that releases no fault that the brake holds.
    by_hand = is_tainted(old) and not is_tainted(new) and "tainted" in record_of(old)
    if not (by_reset or by_hand):
        return
    machine, boot = machine_of(old)
    releases = record_of(new).get("releases", [])
    until_ns = _ns(releases[0]["at"]) if by_reset and releases else 0
    for incident in record_of(old).get("incidents", ()):
        at: dict[str, Any] = incident.get("at", {})
        of_boot = at.get("boot", boot)
        key = (machine, of_boot, incident["rule"], incident.get("gpu"))
        past.covered[key] = max(past.covered.get(key, -1), at.get("us", -1))
        if incident["state"] == "released":
            continue  # an earlier release closed it: unread lines since then are new
        past.covered_ones |= {
            id(one)
            for one in run.occurrences
            if (one.machine, one.boot, *_key(one)) == key
            and one.node == entry.name
            and one.accepted_ns is not None
            and one.printed_ns <= until_ns
        }


def _writers(run: RunRecord) -> Iterator[str]:
    """Describe each write of a user without the Lease and without an excuse."""
    for entry, excuse in run._late:
        if not excuse:
            yield f"{entry.user} wrote {entry.name} at {_clock(entry.at_ns)} without holding the Lease"
    counts = Counter((entry.user, excuse) for entry, excuse in run._late if excuse == "stopped")
    for (user, _), count in counts.items():
        stops = next(len(actor.stops) for actor in run.controllers if actor.user == user)
        if count > 8 * stops:
            yield f"{user} wrote {count} times after it had been stopped and replaced"


def _late_writes(run: RunRecord) -> Iterator[tuple[Entry, str]]:
    """Yield each write by a controller without the Lease, with its excuse or ""."""
    holder, taken_ns, deleted_ns = "", 0, 0
    for entry in run.entries:
        if entry.resource == "leases" and entry.name == "konductor-like":
            if entry.new is None:
                deleted_ns = entry.at_ns
                continue
            changed_hands = entry.old is None or _term(entry.old) != _term(entry.new)
            if changed_hands and entry.new["spec"].get("holderIdentity"):
                holder, taken_ns = entry.user, entry.at_ns
            elif entry.user != holder and not _is_note(run, entry):
                yield entry, ""
        elif entry.resource == "nodes" and run.by_controller(entry) and entry.user != holder:
            yield entry, _excuse(run, entry, taken_ns, deleted_ns)


def _is_note(run: RunRecord, entry: Entry) -> bool:
    """Whether a person noted a purge on the Lease, and changed nothing else of it."""
    if run.by_controller(entry) or entry.old is None or entry.new is None:
        return False
    old, new = (dict(each["metadata"].get("annotations") or {}) for each in (entry.old, entry.new))
    noted = old.pop(CONTROLS_ANNOTATION, None) != new.pop(CONTROLS_ANNOTATION, None)
    return noted and old == new and entry.old["spec"] == entry.new["spec"]


def _excuse(run: RunRecord, entry: Entry, taken_ns: int, deleted_ns: int) -> str:
    actor = next(actor for actor in run.controllers if actor.user == entry.user)
    for stopped_ns, continued_ns in actor.stops:
        if stopped_ns <= taken_ns and continued_ns <= entry.at_ns <= continued_ns + UNDER_WAY_NS:
            return "stopped"
        if stopped_ns <= entry.at_ns <= continued_ns:
            return "under way when it was stopped"
    if actor.ended_ns is not None and actor.ended_ns <= entry.at_ns <= actor.ended_ns + UNDER_WAY_NS:
        return "under way when it was killed"
    if deleted_ns and deleted_ns <= taken_ns and entry.at_ns <= taken_ns + UNSEEN_NS:
        return "the Lease was deleted"
    return ""


def _term(lease: Object) -> tuple[str, str]:
    spec = lease["spec"]
    return spec.get("holderIdentity", ""), spec.get("acquireTime", "")


def _ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * SECOND_NS)


def _clock(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns / SECOND_NS).astimezone():%H:%M:%S.%f}"
