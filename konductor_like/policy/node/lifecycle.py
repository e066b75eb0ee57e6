"""What becomes of a node: one table from its stage and what happened.

:data:`TABLE` has, for a stage of a node's life and a thing that happened to the node, what the life becomes,
the kind of the write, and the Event. A pair that it does not have changes nothing. Two examples: a node on
probation that fails has a relapse, so it is tainted, its hold is doubled, and a relapse is recorded with its
last time out; a reset of a node that is in service writes the record and an Event, and takes off no taint.

A node that keeps failing gets a longer hold each time, and in the end is marked for replacement. Until a
person releases it, a node with either mark does not return by itself. The quarantines (past times out of
service) stay in the record, so the next fault sets the marks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import NamedTuple

from konductor_like.model import (
    UNLABELLED,
    Covers,
    EventReason,
    Hardware,
    Incident,
    IncidentKey,
    IncidentState,
    Life,
    Needs,
    NodeRecord,
    Quarantine,
    Release,
    ReleaseHow,
    Role,
    Severity,
    Stage,
    Verb,
)
from konductor_like.model.time import stamp, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.health import tainting
from konductor_like.policy.node.needs import REPLACE_ADVICE, fault_of

QUARANTINES_KEPT = 10
DEFAULTS = PolicyConfig()


class Happening(Enum):
    """What can happen to a node in its life."""

    TAINTED = auto()
    """There is a reason for our taint: the brake admits the node, or the node has the taint already."""
    FAILED_AGAIN = auto()
    """The same, and a time out for a failure begins on a node that failed before."""
    RELAPSED = auto()
    """The same, and a failure happened on probation, even if it is read, or admitted by the brake, later."""
    TAINTED_BY_PERSON = auto()
    """A person taints the node with our command."""
    RESET = auto()
    """A person releases the whole node."""
    RELEASED_BY_HAND = auto()
    """A person removed our taint by other means."""
    REMOVED = auto()
    """Somebody else, or nobody knows who, removed our taint (rule 23)."""
    BACK = auto()
    """After such a removal somebody else has put the taint on the node again."""
    PUT_BACK = auto()
    """The controller puts the taint back after such a removal."""
    FAILED_UNTAINTED = auto()
    """A new failure happens while the taint is off, and the brake does not admit the node at once."""
    CONTESTED = auto()
    """The taint was removed so often, or from so many nodes, that the controller puts it back no more."""
    REBOOTED = auto()
    """A reboot met all needs, and nothing speaks against a return (rule 36)."""
    VALIDATED = auto()
    """A validation passed after all needs were met, and nothing speaks against a return (rule 36)."""
    TEST_ENDED = auto()
    """The tests ended that were the only reasons for the taint (rule 35)."""
    PROBATION_OVER = auto()
    """The time of the probation is over."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a change of the life depends on, besides the life itself."""

    at: datetime
    policy: PolicyConfig = DEFAULTS
    how: ReleaseHow = ReleaseHow.UNKNOWN
    """How the node was released, if it was."""
    failed: IncidentKey | None = None
    """This time out's gravest failure; None if it was a test's or a person's own taint alone."""
    is_first: bool = False
    """Whether the failure is the first of its time out."""
    hardware: Hardware = UNLABELLED
    """What the Node's labels say; a claim notes it."""
    by: str = ""
    """The field manager that removed the taint; empty if nobody knows."""


class Became(NamedTuple):
    """What became of a life, and how that is written and told."""

    life: Life
    verb: Verb = Verb.RECORD
    event: EventReason | None = None


def become(life: Life, stage: Stage, happening: Happening, facts: Facts) -> Became:
    """Return what becomes of the life; the identical life if this changes nothing at this stage."""
    row = TABLE.get((stage, happening))
    return Became(life) if row is None else Became(row.step(life, facts), row.verb, row.event)


# The steps


def _claimed(life: Life, facts: Facts) -> Life:
    """The claim goes on, or begins. A contest ends: the taint is on the node, and for a new fault."""
    if not life.claimed:
        life = replace(life, tainted_at=facts.at, model=facts.hardware.model, driver=facts.hardware.driver)
    if life.removed_at is None and life.contested_at is None:
        return life
    return replace(life, removed_at=None, removed_by="", put_backs=0, contested_at=None)


def _held(life: Life, facts: Facts) -> Life:
    """The hold, or the mark for replacement, for a new time out.

    The first time out within ``repeat_days`` sets no hold, the second ``hold_base_seconds``, and each further
    one twice the last: 30, 60, 120 minutes.
    """
    policy, hold_until = facts.policy, None
    earlier = times_out(life, policy, facts.at)
    if earlier:  # the life keeps only QUARANTINES_KEPT, which limits the exponent
        seconds = min(policy.hold_max_seconds, policy.hold_base_seconds * 2 ** (earlier - 1))
        hold_until = facts.at + timedelta(seconds=seconds)
    replace_since = facts.at if 0 < policy.repeat_count <= earlier + 1 else None
    return replace(_claimed(life, facts), hold_until=hold_until, replace_since=replace_since)


def _relapsed(life: Life, facts: Facts) -> Life:
    """The probation ends, with twice the hold; its return is recorded as one that failed."""
    life = _held(life, facts) if facts.is_first else _claimed(life, facts)
    ordinary = timedelta(seconds=facts.policy.hold_base_seconds)
    doubled = 2 * max(ordinary, (life.hold_until or facts.at) - facts.at)
    return replace(
        life,
        probation_until=None,
        hold_until=facts.at + min(doubled, timedelta(seconds=facts.policy.hold_max_seconds)),
        # Probation began with the latest quarantine, and ends before another.
        quarantines=(*(replace(q, relapse=True) for q in life.quarantines[:1]), *life.quarantines[1:]),
    )


def _claimed_by_person(life: Life, facts: Facts) -> Life:
    return replace(_claimed(life, facts), probation_until=None)


def _in_service(life: Life, facts: Facts) -> Life:
    """No claim, no marks, and one more quarantine if the time out was for a failure."""
    quarantines = life.quarantines
    failed = facts.failed
    if life.tainted_at is not None and failed is not None:
        latest = Quarantine(
            *(life.tainted_at, facts.at, failed.rule, facts.how),
            gpu=failed.gpu,
            model=life.model,
            driver=life.driver,
            in_service_at=None if life.removed_at is None else life.first_removed_at,
        )
        quarantines = (latest, *quarantines)[:QUARANTINES_KEPT]
    interrupts = failed is not None or facts.how.covers is Covers.READ  # a test interrupts no probation
    return Life(
        probation_until=None if interrupts else life.probation_until,
        quarantines=quarantines,
    )


def _removed(life: Life, facts: Facts) -> Life:
    """The taint is off, and the claim stays."""
    first = life.first_removed_at or facts.at
    return replace(life, removed_at=facts.at, removed_by=facts.by, first_removed_at=first)


def _back(life: Life, _: Facts) -> Life:
    """Somebody else put the taint back; two programs that take turns end in a contest, too."""
    times = life.put_backs + (life.removed_at is not None and life.contested_at is None)
    return replace(life, removed_at=None, contested_at=None, put_backs=times)


def _put_back(life: Life, facts: Facts) -> Life:
    return replace(life, removed_at=None, put_backs=life.put_backs + 1, put_back_at=facts.at)


def _off(life: Life, facts: Facts) -> Life:
    """The taint is off for a fault of its own: a contest ends, and put-backs are counted anew."""
    life = life if life.removed_at is not None else _removed(life, facts)
    return replace(life, put_backs=0, contested_at=None)


def _contested(life: Life, facts: Facts) -> Life:
    """The taint stays off, and the claim stays."""
    life = life if life.removed_at is not None else _removed(life, facts)
    return replace(life, contested_at=facts.at)


def _on_probation(life: Life, facts: Facts) -> Life:
    until = facts.at + timedelta(seconds=facts.policy.probation_seconds)
    return replace(_in_service(life, facts), probation_until=until)


def _without_probation(life: Life, _: Facts) -> Life:
    return replace(life, probation_until=None)


# The table


class Row(NamedTuple):
    """What follows at one stage from one thing that happened."""

    step: Callable[[Life, Facts], Life]
    verb: Verb
    event: EventReason | None = None
    """The Event about it; None if what was found tells it, or if it is worth none."""


_UNTAINTED = (Stage.IN_SERVICE, Stage.PROBATION, Stage.REMOVED)
_TAINTED = (Stage.OUT, Stage.UNCLAIMED)
_ROWS: tuple[tuple[tuple[Stage, ...], Happening, Row], ...] = (
    (_UNTAINTED, Happening.TAINTED, Row(_claimed, Verb.TAINT, EventReason.TAINTED)),
    (_UNTAINTED, Happening.FAILED_AGAIN, Row(_held, Verb.TAINT, EventReason.TAINTED)),
    (_UNTAINTED, Happening.RELAPSED, Row(_relapsed, Verb.TAINT, EventReason.RELAPSED)),
    (_UNTAINTED, Happening.TAINTED_BY_PERSON, Row(_claimed_by_person, Verb.TAINT, EventReason.TAINTED)),
    ((Stage.UNCLAIMED,), Happening.TAINTED, Row(_claimed, Verb.RECORD)),
    (_TAINTED, Happening.FAILED_AGAIN, Row(_held, Verb.RECORD)),
    (_TAINTED, Happening.RELAPSED, Row(_relapsed, Verb.RECORD, EventReason.RELAPSED)),
    (_TAINTED, Happening.TAINTED_BY_PERSON, Row(_claimed_by_person, Verb.RECORD, EventReason.TAINTED)),
    (_UNTAINTED, Happening.RESET, Row(_in_service, Verb.RECORD, EventReason.RELEASED)),
    (_TAINTED, Happening.RESET, Row(_in_service, Verb.UNTAINT, EventReason.RELEASED)),
    ((Stage.REMOVED,), Happening.RELEASED_BY_HAND, Row(_in_service, Verb.RECORD, EventReason.RELEASED)),
    ((Stage.REMOVED,), Happening.REMOVED, Row(_removed, Verb.RECORD, EventReason.REMOVED)),
    ((Stage.OUT,), Happening.BACK, Row(_back, Verb.RECORD)),
    ((Stage.REMOVED,), Happening.PUT_BACK, Row(_put_back, Verb.TAINT, EventReason.PUT_BACK)),
    ((Stage.REMOVED,), Happening.FAILED_UNTAINTED, Row(_off, Verb.RECORD)),
    ((Stage.REMOVED,), Happening.CONTESTED, Row(_contested, Verb.RECORD, EventReason.CONTESTED)),
    ((Stage.OUT,), Happening.REBOOTED, Row(_on_probation, Verb.UNTAINT, EventReason.RETURNED)),
    ((Stage.OUT,), Happening.VALIDATED, Row(_on_probation, Verb.UNTAINT, EventReason.RETURNED)),
    ((Stage.OUT,), Happening.TEST_ENDED, Row(_in_service, Verb.UNTAINT, EventReason.RETURNED)),
    ((Stage.REMOVED,), Happening.REBOOTED, Row(_on_probation, Verb.RECORD, EventReason.RETURNED)),
    ((Stage.REMOVED,), Happening.VALIDATED, Row(_on_probation, Verb.RECORD, EventReason.RETURNED)),
    ((Stage.REMOVED,), Happening.TEST_ENDED, Row(_in_service, Verb.RECORD, EventReason.RETURNED)),
    (
        (Stage.PROBATION, *_TAINTED, Stage.REMOVED),  # a probation goes on while the node is out for a test
        Happening.PROBATION_OVER,
        Row(_without_probation, Verb.RECORD),
    ),
)
TABLE: Mapping[tuple[Stage, Happening], Row] = {
    (stage, happening): row for stages, happening, row in _ROWS for stage in stages
}
"""What becomes of a node: by stage and what happened. No entry means that nothing changes."""


# What happened


def what_failed(record: NodeRecord, facts: Facts) -> Happening:
    """Return what happens to a node whose record has a reason for a taint."""
    life, failures = record.life, open_failures(record)
    # A node's first failure has no further consequence, unless one failure is enough for a replacement.
    if not failures or not (life.quarantines or facts.policy.repeat_count == 1):
        return Happening.TAINTED
    until = life.probation_until
    if until is not None and any(each.first_ns < unix_ns(until) for each in failures):
        return Happening.RELAPSED
    return Happening.FAILED_AGAIN if facts.is_first else Happening.TAINTED


def is_probation_over(record: NodeRecord, now: datetime) -> bool:
    """Whether a probation ends now. While the brake holds a fault of the probation back, it goes on."""
    until = record.life.probation_until
    return until is not None and now >= until and not tainting(record)


def is_first_failure(before: NodeRecord, record: NodeRecord) -> bool:
    """Whether a failure of ``record`` is the first of its time out; ``before`` is the record as it was read.

    If the claim is gone, somebody has removed the taint: this is a new time out.
    """
    goes_on = before.life.claimed and record.life.claimed
    return not (goes_on and any(each.state is IncidentState.ACTIVE for each in open_failures(before)))


def times_out(life: Life, policy: PolicyConfig, now: datetime) -> int:
    """Return how many quarantines ended within the last ``repeat_days``; those further ahead do not count."""
    span = timedelta(days=policy.repeat_days)
    return sum(abs(now - quarantine.released_at) < span for quarantine in life.quarantines)


def failure_of(record: NodeRecord) -> IncidentKey | None:
    """Return the gravest failure of this time out; None without a failure."""
    gravest = min(open_failures(record), key=lambda incident: incident.urgency, default=None)
    return gravest.key if gravest else None


def time_out_ended(before: NodeRecord, after: NodeRecord | None, at: datetime) -> Quarantine | None:
    """Return the time out of service that ended between two records of a node; None if none did.

    The record keeps a time out for a failure. One for a test or a person's taint is made here. ``after`` is
    None if the whole record was removed, which was at about the time ``at``.
    """
    life = before.life
    if life.tainted_at is None or (after is not None and after.life.tainted_at == life.tainted_at):
        return None
    past = after.life.quarantines if after is not None else ()
    if (known := next((each for each in past if each.tainted_at == life.tainted_at), None)) is not None:
        return known
    mark = _ending(after.releases, life.tainted_at) if after is not None else None
    fault = fault_of(before, tainted=True)
    key = failure_of(before) or (fault.key if fault else IncidentKey("", None))
    return Quarantine(
        *(life.tainted_at, mark.at if mark else at, key.rule, mark.how if mark else ReleaseHow.PURGED),
        gpu=key.gpu,
        model=life.model,
        driver=life.driver,
    )


def _ending(releases: Sequence[Release], since: datetime) -> Release | None:
    """Return the release that ended a time out: the first one, but for those of some faults only."""
    later = [each for each in releases if each.at >= since and each.how is not ReleaseHow.PART]
    return next(iter(later[-1:] or releases), None)


def open_failures(record: NodeRecord) -> list[Incident]:
    """Return the incidents that are failures of the machine and not released."""
    return [i for i in record.incidents if is_failure(i) and i.state is not IncidentState.RELEASED]


def is_failure(incident: Incident) -> bool:
    """Whether the incident is a failure of the machine: no test, and no person's own taint."""
    return (
        incident.taints
        and incident.severity is not Severity.TEST
        and incident.role is not Role.COLLATERAL
        and not incident.by_person
        and incident.state is not IncidentState.PENDING
    )


def marked(record: NodeRecord, before: Life, policy: PolicyConfig, now: datetime) -> NodeRecord:
    """Return the record with one advice for all failures of a tainted node that is marked for replacement.

    ``before`` is the life as it was read. Faults that come after the mark get this advice too: a reboot or a
    reset of the GPU is not enough.
    """
    if not record.life.marked:
        return record
    times = "too often"
    if record.life.replace_since != before.replace_since:
        times = f"{times_out(record.life, policy, now) + 1} times in {policy.repeat_days:g} days"
    advice, needs = f"The node failed {times}. {REPLACE_ADVICE}", Needs.REPLACEMENT.value
    others = [i for i in open_failures(record) if i.state is IncidentState.ACTIVE and i.needs != needs]
    incidents = (replace(i, advice=advice, needs=needs) if i in others else i for i in record.incidents)
    return replace(record, incidents=tuple(incidents)) if others else record


def may_return(record: NodeRecord, now: datetime, policy: PolicyConfig | None = DEFAULTS) -> str | None:
    """Return why a node must not return by itself, in words; None if it may.

    Without ``policy``, because they are not known, the words have no numbers.
    """
    failed = failed_words(record.life, now, policy)
    if record.life.marked:
        return f"marked for replacement: {failed}"
    if record.life.hold_until is not None and now < record.life.hold_until:
        return f"meant to stay out of service until {stamp(record.life.hold_until)}: {failed}"
    return None


def failed_words(life: Life, now: datetime, policy: PolicyConfig | None) -> str:
    """Return ``it failed 3 times in 7 days``; without ``policy``, ``it failed before``."""
    if policy is None:
        return "it failed before"
    return f"it failed {times_out(life, policy, now) + life.claimed} times in {policy.repeat_days:g} days"
