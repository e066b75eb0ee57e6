"""News: which Events become a notification, and the facts of one. This module is pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from konductor_like.model import (
    Change,
    EventReason,
    Incident,
    IncidentKey,
    MetBy,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    Role,
    Severity,
)
from konductor_like.model.text import clipped, printable
from konductor_like.policy.fleet.correlation import DOMAIN, parts_of
from konductor_like.policy.node.needs import fault_of, tainted_by
from konductor_like.policy.wording import name_of, quoted

_FAULT_CHARS = 80
_WHY_CHARS = 100
_NAMES_OF_KINDS = {"xid": "Xid", "sxid": "SXid"}


class Kind(StrEnum):
    """The kind of a notification. The value is the end of the CloudEvent's type."""

    TAINTED = "node.tainted"
    RELAPSED = "node.relapsed"
    WORSENED = "node.worsened"
    """A tainted node has a new fault with which it needs more than before."""
    REPLACEMENT = "node.marked-for-replacement"
    """The other fact of a taint that marks its node. A message for people tells both facts at once."""
    HELD = "node.held"
    FREED = "node.no-longer-held"
    """The brake no longer holds a taint of the node back, because the node has no reason for one any more."""
    COVERAGE = "node.coverage-lost"
    RESTORED = "node.coverage-restored"
    RETURNED = "node.returned"
    VALIDATED = "node.validated"
    NOT_VALIDATED = "node.not-validated"
    """A validation failed, or its result is unknown."""
    SUMMARY = "summary"
    """Many notifications of several kinds in one message."""
    TEST = "test"
    """``check-config --notify`` sends it."""

    @property
    def urgent(self) -> bool:
        """Whether it outlives the others when the queue is full."""
        return self not in (Kind.COVERAGE, Kind.RESTORED, Kind.FREED, Kind.RETURNED, Kind.VALIDATED)

    @property
    def tells_taint(self) -> bool:
        """Whether the node is tainted from then on."""
        return self in (Kind.TAINTED, Kind.RELAPSED, Kind.WORSENED, Kind.REPLACEMENT)


KINDS: Mapping[EventReason, Kind] = {
    EventReason.TAINTED: Kind.TAINTED,
    EventReason.RELAPSED: Kind.RELAPSED,
    EventReason.RETURNS_STOPPED: Kind.RELAPSED,
    EventReason.WORSENED: Kind.WORSENED,
    EventReason.HELD: Kind.HELD,
    EventReason.HOLDING: Kind.HELD,
    EventReason.SILENT: Kind.COVERAGE,
    EventReason.OVERRUN: Kind.COVERAGE,
    EventReason.AMBIGUOUS: Kind.COVERAGE,
    EventReason.MISNAMED: Kind.COVERAGE,
    EventReason.RESTORED: Kind.RESTORED,
    EventReason.RETURNED: Kind.RETURNED,
    EventReason.RELEASED: Kind.RETURNED,
    EventReason.CONTESTED: Kind.RETURNED,
    EventReason.VALIDATED: Kind.VALIDATED,
    EventReason.NOT_VALIDATED: Kind.NOT_VALIDATED,
}
"""The Events that become a notification. All others are records, or acts of people: they can wait."""


class Out(NamedTuple):
    """How many nodes are out of service, of the GPU nodes, as ``status`` counts them."""

    nodes: int
    gpu_nodes: int

    def __str__(self) -> str:
        return f"{self.nodes} of {self.gpu_nodes} out"


@dataclass(frozen=True, slots=True)
class News:
    """One fact to notify of, about one node or about the fleet."""

    kind: Kind
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
    """The node on which the failure group began, as far as known: of several root causes the first."""
    fault: str | None = None
    """``Xid 79, GPU has fallen off the bus``."""
    marked_for_replacement: bool = False
    """Whether this write marked the node."""
    why: str = ""
    """Why the node is in service again: ``released by ann: new riser``."""
    out: Out | None = None
    """None if unknown."""

    @property
    def together(self) -> tuple[object, ...]:
        """News with the same value of this become one message, if the order in time allows it."""
        if self.kind is Kind.HELD:  # nodes and the Lease's Event: the brake is the reason for all of them
            return (self.kind,)
        about: str | None = self.failure_group or self.rule
        if self.kind in (Kind.COVERAGE, Kind.RESTORED):
            about = self.reason
        elif self.kind in (Kind.RETURNED, Kind.FREED):  # one message gives the number for each reason
            about = self.reason if self.reason is EventReason.CONTESTED else None
        return (self.kind, about, self.node == "")

    @property
    def passes(self) -> bool:
        """Whether a later taint of the node makes it useless, or even wrong."""
        is_free = self.kind in (Kind.RETURNED, Kind.FREED) and self.reason is not EventReason.CONTESTED
        return bool(self.node) and (is_free or self.kind is Kind.HELD)


def news_of_node(
    state: NodeState,
    change: Change,
    reason: EventReason,
    message: str,
    subject: str,
    now: datetime,
    out: Out | None = None,
) -> list[News]:
    """Return the news of one Event about a node; ``subject`` identifies an Event without an audit id.

    The reason of the Event is one of ``KINDS``. A taint that marks its node for replacement is two news, and
    the first of them tells both facts.
    """
    kind = KINDS[reason]
    record = change.record or NodeRecord()
    incident = change.incident
    if incident is None and (kind is not Kind.RETURNED or record.life.claimed):
        incident = fault_of(record, tainted=state.tainted)
    is_marked = kind.tells_taint and record.act is not None and record.life.replace_since == record.act.at
    why = ""
    if kind is Kind.RETURNED and record.life.claimed:
        why = f"taint removed by {record.life.removed_by or 'somebody unknown'}"
    elif kind is Kind.RETURNED and record.releases:
        why = why_released(record.releases[0])
    return [
        News(
            each,
            reason,
            digest(each, state.name, state.machine.node_uid, change.act_id or f"{reason} {subject}"),
            now,
            _without_lines(message, record),
            state.name,
            change.act_id,
            needs=change.needs,
            marked_for_replacement=is_marked,
            why=clipped(printable(why), _WHY_CHARS),
            out=out,
            **_facts(state.name, incident),
        )
        for each in ([kind, Kind.REPLACEMENT] if is_marked else [kind])
    ]


def _facts(node: str, incident: Incident | None) -> dict[str, Any]:
    """Return the fields of a node's news that its incident tells."""
    if incident is None:
        return {}
    return {
        "rule": incident.key.rule,
        "gpu": incident.key.gpu,
        "severity": incident.severity.value,
        **_group_facts(incident, node if incident.role is Role.ROOT_CAUSE else incident.root_cause),
        "fault": fault_words(incident),
    }


def _group_facts(incident: Incident, root_cause: str | None) -> dict[str, Any]:
    """Return the fields of a node's news that the failure group of its incident tells."""
    shared = parts_of(incident.failure_group or "")[0]
    job = None if not shared or shared.startswith(DOMAIN) else shared
    return {"failure_group": incident.failure_group, "job": job, "root_cause": root_cause}


def with_groups(news: Sequence[News], nodes: Mapping[str, NodeState]) -> list[News]:
    """Return the news with the failure groups of their faults as the Nodes have them now.

    The node on which a failure begins is often tainted before the lines of the other nodes show that there is
    a group. Of several root causes of a group, all its news name the one that failed first.
    """
    incidents = [_incident_of(each, nodes) for each in news]
    groups = {each.failure_group for each in incidents if each is not None} - {None}
    began: dict[str | None, tuple[int, str | None]] = {}
    for name, state in nodes.items() if groups else ():
        for each in state.record.incidents:
            if each.role is Role.ROOT_CAUSE and each.failure_group in groups:
                mine = (each.first_ns, name)
                began[each.failure_group] = min(began.get(each.failure_group, mine), mine)
    return [
        one
        if each is None or each.failure_group is None
        else replace(one, **_group_facts(each, began.get(each.failure_group, (0, each.root_cause))[1]))
        for one, each in zip(news, incidents, strict=True)
    ]


def _incident_of(news: News, nodes: Mapping[str, NodeState]) -> Incident | None:
    """Return the latest incident of the fault on the Node; None without one."""
    if news.rule is None or news.node not in nodes:
        return None
    key = IncidentKey(news.rule, news.gpu)
    same = (each for each in nodes[news.node].record.incidents if each.key == key)
    return max(same, key=lambda each: each.last_ns, default=None)


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
    if mark.how is ReleaseHow.REBOOT:
        return "after a reboot"
    if mark.how is ReleaseHow.VALIDATED:
        return "validated"
    if mark.how is ReleaseHow.TEST_ENDED:
        return "the test has ended"
    if mark.how is ReleaseHow.BY_HAND:
        return clipped(printable(f"taint removed by {mark.by}"), _WHY_CHARS)
    reason = f": {mark.reason}" if mark.reason else ""
    return clipped(printable(f"released by {mark.by}{reason}"), _WHY_CHARS)


def news_of_freed(state: NodeState, held: Incident, now: datetime, out: Out | None = None) -> list[News]:
    """Return the news that the brake holds a taint of the node back no longer; ``held`` was the reason.

    No Event of the controller says so: the Event is about the release, the reboot or the person's taint.
    """
    record = state.record
    ended, taint = record.incident(held.key), tainted_by(record)
    if taint is not None:
        reason, why = EventReason.TAINTED, f"{taint.title[:1].lower()}{taint.title[1:]}"
    elif ended is not None and ended.met_by is not None:
        is_boot = ended.met_by is MetBy.REBOOT
        reason = EventReason.REBOOTED if is_boot else EventReason.ENDED
        why = f"{name_of(held)} has ended" + (" by a reboot" if is_boot else "")
    elif ended is not None and record.releases:
        reason, why = EventReason.RELEASED, why_released(record.releases[0])
    else:
        reason, why = EventReason.ENDED, "the node has no reason for a taint any more"
    act = "" if record.act is None else record.act.id
    identity = digest(Kind.FREED, state.name, state.machine.node_uid, act)
    text = f"The brake no longer holds a taint of this node back: {why}."
    return [
        News(
            Kind.FREED,
            reason,
            identity,
            now,
            text,
            state.name,
            act,
            why=clipped(printable(why), _WHY_CHARS),
            out=out,
            **_facts(state.name, held),
        )
    ]


def news_of_fleet(
    reason: EventReason, message: str, act: str, now: datetime, out: Out | None = None
) -> list[News]:
    """Return the news of one Event about the fleet; ``act`` is the audit id of a person's act, if any."""
    kind = KINDS[reason]
    return [News(kind, reason, digest(kind, reason, act or message), now, message, out=out)]


def news_of_trial(now: datetime) -> News:
    """Return the news of ``check-config --notify``."""
    text = "This is a test of the notifications of konductor-like. No node is concerned."
    return News(Kind.TEST, None, digest(Kind.TEST, now.isoformat()), now, text)


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
