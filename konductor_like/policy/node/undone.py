"""What a person's release leaves undone: needs that nothing has met, and what else to know of it.

:func:`undone` answers for the question before a release, for its warnings, a dry run, the Event and the mark
in the record, so all of them say the same. A node in service then reads ``released with need: inspection``
until it has booted or passed a validation. Silence is no proof that such a fault is gone: a dead GPU logs
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from konductor_like.model import (
    FaultKind,
    IncidentState,
    Needs,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    ValidationVerdict,
)
from konductor_like.model.text import listed
from konductor_like.model.time import stamp
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.gpu_counts import with_accepted
from konductor_like.policy.node.lifecycle import failed_words, may_return
from konductor_like.policy.node.needs import RANK, NodeNeed, need_of_incident, unrepaired
from konductor_like.policy.wording import name_of

NEEDS_NAMED = 10
"""Number of needs that a sentence names; it counts the others."""
_NOT_REBOOTED = "The node has not rebooted since"
"""The warning of a release by an earlier build contains these words if a fault needed a reboot."""


class Undone(NamedTuple):
    """What a release leaves undone."""

    needs: tuple[NodeNeed, ...] = ()
    """The unmet needs, the gravest first."""
    further: tuple[str, ...] = ()
    """Sentences about anything else."""

    @property
    def words(self) -> str:
        """``inspection (xid 79 on GPU 0000:4e:00), reboot (xid 95)``; empty without a need."""
        return listed([f"{each.needs} ({name_of(each.by) if each.by else each.why})" for each in self.needs],
                      NEEDS_NAMED)  # fmt: skip

    @property
    def sentences(self) -> tuple[str, ...]:
        """All of it as sentences, the needs first."""
        return (f"Unmet need: {self.words}.", *self.further) if self.needs else self.further


def undone(state: NodeState, *, at: datetime, reason: str, policy: PolicyConfig | None) -> Undone:
    """Return what a release of the node leaves undone.

    Without ``policy``, because the settings are not known, the sentences have no numbers. ``at`` is an aware
    datetime, ``reason`` the person's reason.
    """
    life = state.record.life
    needs = [NodeNeed(need_of_incident(each), each) for each in unrepaired(state)]
    if life.marked:
        needs = [NodeNeed(Needs.REPLACEMENT, None, failed_words(life, at, policy))]
    return Undone(tuple(needs), tuple(_further(state, at, reason, policy)))


def _further(state: NodeState, at: datetime, reason: str, policy: PolicyConfig | None) -> Iterator[str]:
    record = state.record
    if not record.life.marked and (overridden := may_return(record, at, policy)):
        yield f"The node was {overridden}."
    since = record.life.tainted_at
    if not reason and since and any(each.relapse for each in record.life.quarantines[:1]):
        yield (
            f"The node failed again on probation at {stamp(since)}, and nobody recorded a repair (--reason)."
        )
    if with_accepted(record, state).gpus != record.gpus:
        yield f"{state.gpus.allocatable} of {record.gpus} GPUs are allocatable, and the loss is accepted."
    alerts = [
        name_of(each)
        for each in record.incidents
        if each.kind is FaultKind.ALERT and each.state is not IncidentState.RELEASED
    ]
    if alerts:
        yield f"While it fires on, nothing more is said of {listed(alerts, 3)}: look at Prometheus."


def with_undone(mark: Release, state: NodeState, left: Undone) -> Release:
    """Return a person's release with what it leaves undone; needs of earlier ones that still hold stay."""
    needs = ranked({*(each.needs for each in left.needs), *released_with(state)})
    boot_id = state.machine.boot_id if needs else None
    warning = " ".join(left.sentences) or None
    return replace(mark, needs=" ".join(needs), boot_id=boot_id, warning=warning)


def released_with(state: NodeState) -> tuple[Needs, ...]:
    """Return the needs with which people released the node, the gravest first, that nothing has met since.

    A boot meets them, and so does a passed validation that began after the release.
    """
    return ranked({need for mark in _in_force(state) for need in _needs_of(mark)})


def reminders(state: NodeState) -> list[str]:
    """Return the warnings of releases that still hold; none if the node is tainted again.

    Only the latest release's warning counts, but a warning of a need that nothing has met since holds on.
    """
    if state.tainted:
        return []
    found: dict[str, None] = {}
    is_latest = True
    for mark in _in_force(state):
        if mark.warning and (is_latest or _needs_of(mark)):
            found[mark.warning] = None
        is_latest = is_latest and mark.how is ReleaseHow.PART
    # A record without room for a sentence, or for the release that has it, keeps the needs.
    needs = [each for each in released_with(state) if each not in "".join(found)]
    return [*found, *([f"Unmet need: {', '.join(needs)}."] if needs else [])]


def ranked(needs: set[Needs]) -> tuple[Needs, ...]:
    """Return the needs, the gravest first."""
    return tuple(sorted(needs, key=RANK.__getitem__, reverse=True))


def _needs_of(mark: Release) -> set[Needs]:
    if not mark.needs and _NOT_REBOOTED in (mark.warning or ""):
        return {Needs.REBOOT}
    return {need for word in mark.needs.split() if (need := _need(word)) is not None}


def _need(word: str) -> Needs | None:
    """Return the need; None for one of a newer version, or one that was cut off."""
    return next((each for each in Needs if each.value == word), None)


def _in_force(state: NodeState) -> Iterator[Release]:
    """Yield the releases by people, the latest first, since which the node has neither booted nor passed."""
    present, record = state.machine.boot_id, state.record
    for mark in record.releases:
        boot_id = mark.boot_id or mark.read.boot_id
        is_over = None not in (boot_id, present) and boot_id != present
        if mark.how is ReleaseHow.VALIDATED or is_over or _passed_since(record, mark.at):
            return
        if not mark.how.by_controller:
            yield mark


def _passed_since(record: NodeRecord, at: datetime) -> bool:
    tested = record.validation
    is_pass = tested is not None and tested.verdict is ValidationVerdict.PASS
    return is_pass and tested is not None and tested.began_at is not None and tested.began_at > at
