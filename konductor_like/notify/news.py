"""News: which Events become a notification, and the facts of one. This module is pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from konductor_like.model import (
    Change,
    EventReason,
    Incident,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    Role,
    Severity,
)
from konductor_like.model.text import clipped, printable
from konductor_like.policy.fleet.correlation import DOMAIN, parts_of
from konductor_like.policy.node.needs import fault_of
from konductor_like.policy.wording import name_of, quoted

_FAULT_CHARS = 80
_WHY_CHARS = 100
_NAMES_OF_KINDS = {"xid": "Xid", "sxid": "SXid"}


class Kind(StrEnum):
    """The kind of a notification."""

    TAINTED = "tainted"
    HELD = "held"
    RETURNED = "returned"
    FAILED = "not validated or failed again"
    LOG_LOST = "log lost"
    FLEET = "fleet"
    TEST = "test"
    """``check-config --notify`` sends it."""

    @property
    def urgent(self) -> bool:
        """Whether it outlives the others when the queue is full."""
        return self not in (Kind.RETURNED, Kind.LOG_LOST)


class Told(NamedTuple):
    """How an Event is told."""

    kind: Kind
    type: str
    """The end of the CloudEvent's type."""
    words: str = ""
    """What the first line says of the nodes."""


_BACK = Told(Kind.RETURNED, "node.returned", "back in service")
_LOST = "node.coverage-lost"
TOLD: Mapping[EventReason, Told] = {
    EventReason.TAINTED: Told(Kind.TAINTED, "node.tainted", "out of service"),
    EventReason.HELD: Told(Kind.HELD, "node.held", "faulty, taint held back"),
    EventReason.HOLDING: Told(Kind.FLEET, "node.held"),
    EventReason.RETURNED: _BACK,
    EventReason.RELEASED: _BACK,
    EventReason.CONTESTED: _BACK._replace(words="taint contested"),
    EventReason.NOT_VALIDATED: Told(Kind.FAILED, "node.not-validated", "not validated"),
    EventReason.RELAPSED: Told(Kind.FAILED, "node.relapsed", "failed on probation, out of service"),
    EventReason.WORSENED: Told(Kind.FAILED, "node.worsened", "worse"),
    EventReason.SILENT: Told(Kind.LOG_LOST, _LOST, "silent, no kernel log arrives"),
    EventReason.OVERRUN: Told(Kind.LOG_LOST, _LOST, "lost lines of the kernel log"),
    EventReason.AMBIGUOUS: Told(Kind.LOG_LOST, _LOST, "reported by two machines"),
    EventReason.MISNAMED: Told(Kind.LOG_LOST, _LOST),
    EventReason.RETURNS_STOPPED: Told(Kind.FLEET, "node.relapsed"),
}
"""The Events that become a notification. All others are records, or acts of people: they can wait."""


class Out(NamedTuple):
    """How many nodes are out of service, of the GPU nodes, as ``status`` counts them."""

    nodes: int
    gpu_nodes: int


@dataclass(frozen=True, slots=True)
class News:
    """One fact to notify of, about one node or about the fleet."""

    reason: EventReason | None
    """The reason of the Event with the same words, which names the runbook; None for a test."""
    id: str
    """The same for the same write or Event, whichever process reports it, and whenever."""
    at: datetime
    """When the controller knew it, by the controller's clock."""
    text: str
    """The Event's message, without the line of the log that it quotes."""
    node: str = ""
    """Empty for the fleet."""
    audit_id: str = ""
    rule: str | None = None
    gpu: str | None = None
    severity: str | None = None
    needs: str | None = None
    failure_group: str | None = None
    job: str | None = None
    """The job that the nodes of the failure group share, ``namespace/Kind/name``."""
    root_cause: str | None = None
    """The node on which the failure group began, as far as known when the Event was made."""
    fault: str | None = None
    """``Xid 79, GPU has fallen off the bus``."""
    marked_for_replacement: bool = False
    """Whether this write marked the node."""
    why: str = ""
    """Why the node is in service again: ``released by ann: new riser``."""
    out: Out | None = None
    """None if unknown."""

    @property
    def told(self) -> Told:
        """How its Event is told."""
        return Told(Kind.TEST, "test") if self.reason is None else TOLD[self.reason]

    @property
    def kind(self) -> Kind:
        """Its kind."""
        return self.told.kind if self.node or self.reason is None else Kind.FLEET

    @property
    def tells_taint(self) -> bool:
        """Whether the node is tainted from then on."""
        return self.reason in (EventReason.TAINTED, EventReason.RELAPSED, EventReason.WORSENED)

    @property
    def passes(self) -> bool:
        """Whether a later taint of the node makes it useless, or even wrong."""
        return self.kind in (Kind.HELD, Kind.RETURNED) and self.reason is not EventReason.CONTESTED

    @property
    def headline(self) -> str:
        """What the first line says of the node; news with the same words become one message."""
        is_back = self.kind is Kind.RETURNED and self.passes
        needs = "" if is_back or self.needs in (None, "none") else f"needs {self.needs}"
        mark = "marked for replacement" if self.marked_for_replacement else ""
        return " · ".join(filter(None, (self.told.words, self.why or self.fault, mark or needs)))


def news_of_node(
    state: NodeState,
    change: Change,
    reason: EventReason,
    message: str,
    subject: str,
    now: datetime,
    out: Out | None = None,
) -> News:
    """Return the news of one Event about a node; ``subject`` identifies an Event without an audit id.

    The reason of the Event is one of ``TOLD``.
    """
    told, record, incident = TOLD[reason], change.record or NodeRecord(), change.incident
    is_back = told.kind is Kind.RETURNED
    if incident is None and (not is_back or record.life.claimed):
        incident = fault_of(record, tainted=state.tainted)
    why = ""
    if is_back and record.life.claimed:
        why = f"taint removed by {record.life.removed_by or 'somebody unknown'}"
    elif is_back and record.releases:
        why = why_released(record.releases[0])
    news = News(
        reason,
        digest(told.type, state.name, state.machine.node_uid, change.act_id or f"{reason} {subject}"),
        now,
        _without_lines(message, record),
        state.name,
        change.act_id,
        needs=change.needs,
        why=clipped(printable(why), _WHY_CHARS),
        out=out,
        **_facts(state.name, incident),
    )
    is_marked = record.act is not None and record.life.replace_since == record.act.at
    return replace(news, marked_for_replacement=True) if news.tells_taint and is_marked else news


def _facts(node: str, incident: Incident | None) -> dict[str, Any]:
    """Return the fields of a node's news that its incident tells."""
    if incident is None:
        return {}
    shared = parts_of(incident.failure_group or "")[0]
    return {
        "rule": incident.key.rule,
        "gpu": incident.key.gpu,
        "severity": incident.severity.value,
        "failure_group": incident.failure_group,
        "job": None if not shared or shared.startswith(DOMAIN) else shared,
        "root_cause": node if incident.role is Role.ROOT_CAUSE else incident.root_cause,
        "fault": fault_words(incident),
    }


def fault_words(incident: Incident) -> str:
    """Return ``Xid 79, GPU has fallen off the bus``, or the title alone of a fault without a number."""
    if incident.by_person:
        return name_of(incident)
    kind = _NAMES_OF_KINDS.get(incident.kind.value, incident.kind.value)
    name = "" if incident.code is None else f"{kind} {incident.code}, "
    test = " (a test)" if incident.severity is Severity.TEST and "test" not in incident.title else ""
    return clipped(printable(f"{name}{incident.title}{test}"), _FAULT_CHARS)


def why_released(mark: Release) -> str:
    """Return why a node is in service again: ``after a reboot``, ``released by ann: new riser``."""
    reason = f": {mark.reason}" if mark.reason else ""
    words = {
        ReleaseHow.REBOOT: "after a reboot",
        ReleaseHow.VALIDATED: "validated",
        ReleaseHow.TEST_ENDED: "the test has ended",
        ReleaseHow.BY_HAND: f"taint removed by {mark.by}",
    }
    return words.get(mark.how, f"released by {mark.by}{reason}")


def news_of_fleet(reason: EventReason, message: str, act: str, now: datetime, out: Out | None = None) -> News:
    """Return the news of one Event about the fleet; ``act`` is the audit id of a person's act, if any."""
    return News(reason, digest(TOLD[reason].type, reason, act or message), now, message, out=out)


def news_of_trial(now: datetime) -> News:
    """Return the news of ``check-config --notify``."""
    text = "This is a test of the notifications of konductor-like. No node is concerned."
    return News(None, digest("test", now.isoformat()), now, text)


def _without_lines(message: str, record: NodeRecord) -> str:
    """Return an Event's message without the line, condition or alert that it quotes.

    A line may contain data of users, and so may the message of another program's condition.
    """
    for incident in record.incidents:
        if not incident.is_fact:
            message = message.replace(quoted(incident), "")
    for what in ("Line", "Condition", "Alert"):
        message = message.partition(f' {what}: "')[0]
    return message


def digest(*parts: str) -> str:
    """Return a short hash of these texts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:20]
