"""Notifications: which Events become one, how several become one message, and the text of a message.

This module is pure. ``controller/side/notifier.py`` queues the news, and ``webhook.py`` posts the messages.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from konductor_like.model import Change, EventReason, Incident, NodeRecord, NodeState, Role
from konductor_like.model.text import clipped, listed, printable
from konductor_like.model.time import stamp
from konductor_like.policy.node.needs import fault_of

TYPE_PREFIX = "ai.trainy.konduktor."
NODES_MOST = 100
"""Nodes that a CloudEvent lists at most; ``count`` tells the number of all of them."""
_NAMES = 5
_TEXT_CHARS = 1000
"""Characters of one Event's text in a message; the whole message is at most some times as long."""


class Kind(StrEnum):
    """The kind of a notification, the most urgent first. The value is the end of the CloudEvent's type."""

    TAINTED = "node.tainted"
    RELAPSED = "node.relapsed"
    WORSENED = "node.worsened"
    """A tainted node has a new fault with which it needs more than before."""
    REPLACEMENT = "node.marked-for-replacement"
    HELD = "node.held"
    COVERAGE = "node.coverage-lost"
    RETURNED = "node.returned"
    SUMMARY = "summary"
    """Many notifications of several kinds in one message."""
    TEST = "test"
    """``check-config --notify`` sends it."""

    @property
    def urgent(self) -> bool:
        """Whether it outlives the others when the queue is full."""
        return self not in (Kind.COVERAGE, Kind.RETURNED)

    @property
    def label(self) -> str:
        """The word for people: ``Tainted``, ``Marked for replacement``."""
        return self.value.removeprefix("node.").replace("-", " ").capitalize()


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
    EventReason.RETURNED: Kind.RETURNED,
    EventReason.RELEASED: Kind.RETURNED,
    EventReason.CONTESTED: Kind.RETURNED,
}
"""The Events that become a notification. All others are records, or acts of people: they can wait."""


@dataclass(frozen=True, slots=True)
class News:
    """One fact to notify of, about one node or about the fleet."""

    kind: Kind
    reason: EventReason | None
    """The reason of the Event with the same words, which names the runbook; None for a test."""
    id: str
    """The same for the same write or Event, whichever process reports it, and whenever."""
    at: datetime
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
    root_cause: str | None = None
    """The node on which the failure group began, as far as known."""

    @property
    def together(self) -> tuple[str | None, ...]:
        """News with the same value of this become one message."""
        if self.kind is Kind.HELD:  # nodes and the Lease's Event: the brake is the reason for all of them
            return (self.kind,)
        about = self.reason if self.kind in (Kind.COVERAGE, Kind.RETURNED) else self.rule
        return (self.kind, self.failure_group or about)


@dataclass(frozen=True, slots=True)
class Message:
    """News that are sent as one message; the root cause first, then by name."""

    kind: Kind
    news: tuple[News, ...]

    @property
    def id(self) -> str:
        """The id of the only news, or a digest of all ids."""
        ids = sorted(each.id for each in self.news)
        return ids[0] if len(ids) == 1 else _digest(self.kind, *ids)

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes, without duplicates."""
        return list(dict.fromkeys(each.node for each in self.news if each.node))

    @property
    def title(self) -> str:
        """``Tainted: gpu-7`` or ``Held: 18 nodes: gpu-1, gpu-2 and 16 more``."""
        names = self.nodes
        count = f"{len(names)} nodes: " if len(names) > 1 else ""
        by_person = self.kind is Kind.RETURNED and self.news[0].reason is EventReason.RELEASED
        label = "Released" if by_person else self.kind.label
        return f"{label}: {count}{listed(names, _NAMES)}" if names else label


def news_of_node(
    state: NodeState, change: Change, reason: EventReason, message: str, subject: str, now: datetime
) -> list[News]:
    """Return the news of one Event about a node; ``subject`` identifies an Event without an audit id.

    The reason of the Event is one of ``KINDS``.
    A taint with a new mark for replacement is two news.
    """
    kind = KINDS[reason]
    record = change.record or NodeRecord()
    incident = change.incident
    if incident is None and kind is not Kind.RETURNED:
        incident = fault_of(record, tainted=state.tainted)
    at = now if record.act is None else record.act.at
    kinds = [kind]
    if kind in (Kind.TAINTED, Kind.WORSENED, Kind.RELAPSED) and record.life.replace_since == at:
        kinds.append(Kind.REPLACEMENT)
    return [
        News(
            each,
            reason,
            _digest(each, state.name, state.machine.node_uid, change.act_id or f"{reason} {subject}"),
            at,
            _without_lines(message, record),
            state.name,
            change.act_id,
            needs=change.needs,
            **_facts(state.name, incident),
        )
        for each in kinds
    ]


def _facts(node: str, incident: Incident | None) -> dict[str, str | None]:
    """Return the fields of a node's news that its incident tells."""
    if incident is None:
        return {}
    return {
        "rule": incident.key.rule,
        "gpu": incident.key.gpu,
        "severity": incident.severity.value,
        "failure_group": incident.failure_group,
        "root_cause": node if incident.role is Role.ROOT_CAUSE else incident.root_cause,
    }


def news_of_fleet(reason: EventReason, message: str, act: str, now: datetime) -> list[News]:
    """Return the news of one Event about the fleet; ``act`` is the audit id of a person's act, if any."""
    kind = KINDS[reason]
    return [News(kind, reason, _digest(kind, reason, act or message), now, message)]


def trial_message(now: datetime) -> Message:
    """Return the message of ``check-config --notify``."""
    text = "This is a test of the notifications of konductor-like. No node is concerned."
    return Message(Kind.TEST, (News(Kind.TEST, None, _digest(Kind.TEST, stamp(now)), now, text),))


def grouped(news: Iterable[News]) -> list[Message]:
    """Return one message for each failure group, the most urgent kind first."""
    groups: defaultdict[tuple[str | None, ...], list[News]] = defaultdict(list)
    for item in news:
        groups[item.together].append(item)
    messages = [_message(same[0].kind, same) for same in groups.values()]
    return sorted(messages, key=lambda message: list(Kind).index(message.kind))


def within(messages: Sequence[Message], most: int) -> list[Message]:
    """Return at most ``most`` messages (1 or more): the last one is a summary of those that are too many."""
    if len(messages) <= most:
        return list(messages)
    rest = [item for message in messages[most - 1 :] for item in message.news]
    return [*messages[: most - 1], _message(Kind.SUMMARY, rest)]


def text_of(message: Message, cluster: str = "") -> str:
    """Return the message for people, in a few lines."""
    where = f"[{cluster}] " if cluster else ""
    if message.kind is Kind.SUMMARY:
        parts = [f"{each.title}." for each in grouped(message.news)[:10]]
        return "\n".join(
            [f"{where}{len(message.news)} notifications in one, to send fewer messages:", *parts]
        )
    first, names = message.news[0], message.nodes
    lines = [f"{where}{message.title}."]
    root = next((each.root_cause for each in message.news if each.root_cause), None)
    if len(names) > 1 and root:
        lines.append(f"Root cause: {root}.")
    about = f"{first.node}: " if len(names) > 1 and first.node else ""
    lines.append(about + clipped(printable(first.text), _TEXT_CHARS))
    facts = {"Rule": first.rule, "Audit id": first.audit_id}  # the Event's words have GPU and needs
    lines.append(" ".join(f"{name}: {value}." for name, value in facts.items() if value))
    if first.reason is not None:
        lines.append(f"Next: {_command(first)}. Runbook: konductor-like explain {first.reason}.")
    return "\n".join(filter(None, lines))


def cloud_event(message: Message, cluster: str = "") -> dict[str, Any]:
    """Return the message as a CloudEvent 1.0 in structured mode."""
    first, nodes = message.news[0], [each for each in message.news if each.node]
    subject = {"subject": nodes[0].node} if nodes else {}
    return {
        "specversion": "1.0",
        "id": message.id,
        "source": "/konductor-like" + (f"/{quote(cluster, safe='')}" if cluster else ""),
        "type": TYPE_PREFIX + message.kind.value,
        **subject,
        "time": stamp(min(each.at for each in message.news)),
        "datacontenttype": "application/json",
        "data": {
            "text": text_of(message, cluster),
            "cluster": cluster or None,
            "runbook": first.reason.value if first.reason else None,
            "command": _command(first),
            "count": len(message.nodes),
            "nodes": [_as_json(each) for each in nodes[:NODES_MOST]],
        },
    }


def slack_message(message: Message, cluster: str = "") -> dict[str, Any]:
    """Return the message for Slack's incoming webhooks: plain text that notifies nobody by name."""
    text = text_of(message, cluster).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"@(?=channel|here|everyone)", "@\u200b", text)  # a person's reason may contain these
    return {"text": text, "mrkdwn": False, "unfurl_links": False}


def _message(kind: Kind, news: Iterable[News]) -> Message:
    """Return a message of these news: the fleet's first, then the root cause's, then by name."""
    found = sorted(
        news, key=lambda each: (each.node != "", each.root_cause != each.node, each.node, each.kind)
    )
    return Message(kind, tuple(found))


def _command(news: News) -> str:
    return f"konductor-like explain node {news.node}" if news.node else "konductor-like status"


def _as_json(news: News) -> dict[str, str | None]:
    shown = {name: value for name, value in asdict(news).items() if name not in ("at", "text")}
    return {"time": stamp(news.at), **shown}


def _without_lines(message: str, record: NodeRecord) -> str:
    """Return an Event's message without the line that it quotes: a line may contain data of users."""
    for incident in record.incidents:
        message = message.replace(f' Line: "{incident.evidence}"', "")
    return message.partition(' Line: "')[0]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:20]
