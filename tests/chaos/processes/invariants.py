"""What must be true after the dust settled, judged by the order in which writes took effect.

- Every new fatal occurrence has its node tainted, or held by the brake, unless it was released afterwards;
  every occurrence is on the node's record.
- A taint is only ever added by a controller for an occurrence that no earlier release covers: none without
  reason, none twice.
- No controller removes a taint, and nobody of ours touches what is others'.
- Writes to a node are no more than what happened to it.
- A Node is written by the holder of the Lease alone. Exceptions are told apart and counted: what a process
  that was stopped or killed had under way, and who has not yet seen that the Lease was deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from konductor_like.cluster.lease_annotations import CONTROLS_ANNOTATION
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
"""How long after it goes on, or is killed, a process's last requests may still take effect."""
UNSEEN_NS = 3 * SECOND_NS
"""How long a holder may not know that its Lease was deleted: until its next renewal."""

Covered = dict[tuple[str, str, str, str], int]
"""(machine, boot, rule, GPU) to the last kernel stamp that a release covers, in µs."""


@dataclass(frozen=True)
class Story:
    """All that was seen of one schedule."""

    entries: list[Entry]
    nodes: Mapping[str, Object]
    machines: Mapping[str, str]
    """The machine behind each name in the end."""
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
    """What happened to one node so far."""

    covered: Covered = field(default_factory=dict)
    covered_ones: set[int] = field(default_factory=set)
    """Occurrences (by ``id``) that a ``reset`` covers by their time."""
    disturbed_ns: int = 0
    """When a person, a reset or a reboot last changed what evidence means for it."""
    disturbances: int = 0
    writes: int = 0


def violations(story: Story) -> list[str]:
    """All that is wrong; empty if all is well."""
    wrong = [*unmet(story), *_writers(story)]
    pasts = {name: _Past() for name in story.machines}
    for entry in story.entries:
        if entry.resource == "nodes":
            wrong.extend(_judged(story, entry, pasts[entry.name]))
    each = 1 if story.brake_nodes is None else 2  # recorded as held first, tainted when there is room
    for name, past in pasts.items():
        bound = each * sum(one.node == name for one in story.occurrences) + 2 * past.disturbances
        if past.writes > bound:
            wrong.append(f"{name} was written {past.writes} times, which {bound} would do for")
    return wrong


def unmet(story: Story) -> list[str]:
    """What should have been done by now and was not."""
    wrong = []
    disturbed_ns = dict.fromkeys(story.machines, 0)
    for entry in story.entries:
        if entry.resource == "nodes" and _disturbs(story, entry):
            disturbed_ns[entry.name] = entry.at_ns
    tainted = sum(is_tainted(node) for node in story.nodes.values())
    braked = story.brake_nodes is not None and tainted >= story.brake_nodes
    for one in story.occurrences:
        node = story.nodes.get(one.node)
        if (
            node is None
            or one.accepted_ns is None
            or one.accepted_ns - one.said_ns > story.lateness_seconds * SECOND_NS
            or one.machine != story.machines[one.node]
            or one.said_ns <= disturbed_ns[one.node]
        ):
            continue
        recorded = [
            each for each in record_of(node).get("incidents", ()) if (each["rule"], each["gpu"]) == _key(one)
        ]
        if not recorded:
            wrong.append(f"{one.node}: {one.rule} on {one.gpu} is not on its record")
        if one.tainting and not is_tainted(node) and not (braked and health_of(node) == "held"):
            wrong.append(f"{one.node} is not tainted in spite of {one.rule} on {one.gpu}")
    return wrong


def _key(one: Occurrence) -> tuple[str, str]:
    return (one.rule, one.gpu)


def _disturbs(story: Story, entry: Entry) -> bool:
    """Whether a write changes what evidence means: a release, a reboot, another Node."""
    if entry.old is None or entry.new is None:
        return True
    return (
        is_tainted(entry.old) > is_tainted(entry.new)
        or machine_of(entry.old) != machine_of(entry.new)
        or record_of(entry.old).get("releases") != record_of(entry.new).get("releases")
        or entry.user == RESETTER
        or not (story.by_controller(entry) or is_tainted(entry.old) == is_tainted(entry.new))
    )


def _judged(story: Story, entry: Entry, past: _Past) -> Iterator[str]:
    """What is wrong with one write to a Node; brings its past up to date."""
    old, new = entry.old, entry.new
    if _disturbs(story, entry):
        past.disturbed_ns = entry.at_ns
        past.disturbances += 1
    if old is not None and new is not None:
        ours = story.by_controller(entry) or entry.user == RESETTER
        if ours and without_ours(old) != without_ours(new):
            yield f"{entry.name}: {entry.user} changed what is others'"
        if story.by_controller(entry):
            past.writes += 1
            if is_tainted(old) and not is_tainted(new):
                yield f"{entry.name}: {entry.user} removed the taint"
            if is_tainted(new) and not is_tainted(old) and not _reasons(story, entry, past):
                yield f"{entry.name}: {entry.user} tainted it for no new fault at {_clock(entry.at_ns)}"
    _cover(story, entry, past)


def _reasons(story: Story, entry: Entry, past: _Past) -> list[Occurrence]:
    """The fatal occurrences that a taint added now may be for."""
    assert entry.new is not None
    machine, _ = machine_of(entry.new)
    return [
        one
        for one in story.occurrences
        if one.node == entry.name
        and one.tainting
        and one.machine == machine
        and one.accepted_ns is not None
        and one.said_ns <= entry.at_ns
        and id(one) not in past.covered_ones
        and one.stamp_us > past.covered.get((one.machine, one.boot, one.rule, one.gpu), -1)
    ]


def _cover(story: Story, entry: Entry, past: _Past) -> None:
    """Note what a release covers, as the record that it found has it."""
    old, new = entry.old, entry.new
    if old is None or new is None:
        past.covered, past.covered_ones = {}, set()  # the memory went with the Node
        return
    if entry.user == RESETTER and not record_of(new):
        past.covered, past.covered_ones = {}, set()  # purged: nothing is remembered
        return
    by_reset = entry.user == RESETTER
    # A taint that a person put there and took away again is no release of what the brake holds.
    by_hand = is_tainted(old) and not is_tainted(new) and "tainted" in record_of(old)
    if not (by_reset or by_hand):
        return
    machine, boot = machine_of(old)
    releases = record_of(new).get("releases", [])
    until_ns = _ns(releases[0]["at"]) if by_reset and releases else 0
    for incident in record_of(old).get("incidents", ()):
        at: dict[str, Any] = incident.get("at", {})
        of_boot = at.get("boot", boot)
        key = (machine, of_boot, incident["rule"], incident["gpu"])
        past.covered[key] = max(past.covered.get(key, -1), at.get("us", -1))
        if incident["state"] == "released":
            continue  # an earlier release closed it: what came since and was not read is new
        past.covered_ones |= {
            id(one)
            for one in story.occurrences
            if (one.machine, one.boot, *_key(one)) == key
            and one.node == entry.name
            and one.accepted_ns is not None
            and one.said_ns <= until_ns
        }


def _writers(story: Story) -> Iterator[str]:
    """Who wrote without holding the Lease, and has no excuse."""
    for entry, excuse in story._late:
        if not excuse:
            yield f"{entry.user} wrote {entry.name} at {_clock(entry.at_ns)} without holding the Lease"
    counts = Counter((entry.user, excuse) for entry, excuse in story._late if excuse == "stopped")
    for (user, _), count in counts.items():
        stops = next(len(actor.stops) for actor in story.controllers if actor.user == user)
        if count > 8 * stops:
            yield f"{user} wrote {count} times after it had been stopped and replaced"


def _late_writes(story: Story) -> Iterator[tuple[Entry, str]]:
    """Writes by controllers without the Lease, each with its excuse, if it has one."""
    holder, taken_ns, deleted_ns = "", 0, 0
    for entry in story.entries:
        if entry.resource == "leases" and entry.name == "konductor-like":
            if entry.new is None:
                deleted_ns = entry.at_ns
                continue
            changed_hands = entry.old is None or _term(entry.old) != _term(entry.new)
            if changed_hands and entry.new["spec"].get("holderIdentity"):
                holder, taken_ns = entry.user, entry.at_ns
            elif entry.user != holder and not _is_note(story, entry):
                yield entry, ""
        elif entry.resource == "nodes" and story.by_controller(entry) and entry.user != holder:
            yield entry, _excuse(story, entry, taken_ns, deleted_ns)


def _is_note(story: Story, entry: Entry) -> bool:
    """Whether a person left word of a purge on the Lease, and touched nothing else of it."""
    if story.by_controller(entry) or entry.old is None or entry.new is None:
        return False
    old, new = (dict(each["metadata"].get("annotations") or {}) for each in (entry.old, entry.new))
    noted = old.pop(CONTROLS_ANNOTATION, None) != new.pop(CONTROLS_ANNOTATION, None)
    return noted and old == new and entry.old["spec"] == entry.new["spec"]


def _excuse(story: Story, entry: Entry, taken_ns: int, deleted_ns: int) -> str:
    actor = next(actor for actor in story.controllers if actor.user == entry.user)
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
