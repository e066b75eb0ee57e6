"""Messages: which news become one message, in which order messages are sent, and their formats.

This module is pure. ``controller/side/notifier.py`` queues the news, and ``webhook.py`` posts the messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from konductor_like.model.text import clipped, listed, printable
from konductor_like.model.time import stamp
from konductor_like.notify.news import Kind, News, Out, digest, news_of_trial

TYPE_PREFIX = "ai.trainy.konduktor."
NODES_MOST = 100
"""Nodes that a CloudEvent lists at most; ``count`` tells the number of all of them."""
_HOST_CHARS = 24
"""Characters of a node's name above which the first line leaves out its domain."""
_FLEET_CHARS = 100
_NAMES = 5
_TEXT_CHARS = 1000
"""Characters of one Event's text in a message. A whole message has fewer than 4,000: Slack may break a longer
one into several (https://api.slack.com/changelog/2018-04-truncating-really-long-messages)."""


@dataclass(frozen=True, slots=True)
class Message:
    """News with the same first line that are sent as one message: the root cause first, then by name."""

    news: tuple[News, ...]

    @property
    def id(self) -> str:
        """The id of the only news, or a digest of all ids."""
        ids = sorted(each.id for each in self.news)
        return ids[0] if len(ids) == 1 else digest(self.first.told.type, *ids)

    @property
    def about(self) -> dict[str, News]:
        """The news about nodes, by node."""
        return {each.node: each for each in self.news if each.node}

    @property
    def first(self) -> News:
        """The news whose words, command and runbook the message has."""
        return self.news[0]

    @property
    def at(self) -> datetime:
        """The time of the first news."""
        return min(each.at for each in self.news)

    @property
    def headline(self) -> str:
        """The first line, which is read on a phone.

        An example: ``gpu-4 out of service · Xid 79, GPU lost · needs reboot · 1 of 10 out``.
        """
        if self.first.kind is Kind.TEST:
            return "Test message of konductor-like · no node is concerned"
        if self.about:
            who = _short_name(self.first.node) if len(self.about) == 1 else f"{len(self.about)} nodes"
            line = f"{who} {self.first.headline}"
        else:  # the Event's first words: its names and its reasons follow
            line = clipped(re.split(r"[:.] ", printable(self.first.text))[0].rstrip("."), _FLEET_CHARS)
        return f"{line} · {self.out.nodes} of {self.out.gpu_nodes} out" if self.out else line

    @property
    def out(self) -> Out | None:
        """How many nodes were out of service at the latest of the news; None if unknown."""
        return max(self.news, key=lambda each: each.at).out


def trial_message(now: datetime) -> Message:
    """Return the message of ``check-config --notify``."""
    return Message((news_of_trial(now),))


def current(news: Sequence[News], later: Sequence[News] = ()) -> list[News]:
    """Return the news, in order, without those that a later taint of the same node overtook."""
    tainted = {each.node for each in later if each.tells_taint}
    kept: list[News] = []
    for each in reversed(news):
        if each.passes and each.node in tainted:
            continue
        if each.tells_taint:
            tainted.add(each.node)
        kept.append(each)
    return kept[::-1]


def next_message(news: Sequence[News]) -> tuple[Message, list[News]]:
    """Return the message to send next, and the news to send after it. There is one news at least.

    The message has the first news, and those that belong to it. None of them overtakes other news of its
    node, so the last message about a node always tells the latest of its news.
    """
    joined, rest, nodes = list[News](), list[News](), set[str]()
    what = (news[0].reason, news[0].node == "", news[0].headline)
    for each in news:
        if (each.reason, each.node == "", each.headline) == what and each.node not in nodes:
            joined.append(each)
        else:
            rest.append(each)
            nodes.add(each.node)
    joined.sort(key=lambda each: (each.root_cause != each.node, each.node))
    return Message(tuple(joined)), rest


def text_of(message: Message, cluster: str = "", now: datetime | None = None) -> str:
    """Return the message for people: a line that is read on a phone, and below it the rest.

    The time has a date unless it is that of ``now``.
    """
    where = f"[{cluster}] " if cluster else ""
    return "\n".join((where + message.headline, *_lines(message, now)))


def _lines(message: Message, now: datetime | None) -> Iterable[str]:
    """Yield the lines below the first."""
    first, about, at = message.first, message.about, message.at.astimezone(UTC)
    is_today = now is not None and at.date() == now.astimezone(UTC).date()
    when = f"{at:%H:%M} UTC" if is_today else f"{at:%Y-%m-%d %H:%M} UTC"
    text = clipped(printable(first.text), _TEXT_CHARS)
    if len(about) > 1:
        yield f"{when}: {listed(list(about), _NAMES)}."
        yield f"{first.node}: {text}"
    else:
        yield f"{when}, {first.node}: {text}" if first.node else f"{when}: {text}"
    if first.reason is not None:
        yield f"Next: {_command(first)}. Runbook: konductor-like explain {first.reason}."
    if len(about) == 1:  # several nodes have one each; the Event's words have GPU and needs
        facts = {"Audit id": first.audit_id, "Rule": first.rule}
        if shown := " ".join(f"{name}: {value}." for name, value in facts.items() if value):
            yield shown


def cloud_event(message: Message, cluster: str = "", now: datetime | None = None) -> dict[str, Any]:
    """Return the message as a CloudEvent 1.0 in structured mode."""
    first, about = message.first, list(message.about.values())
    return {
        "specversion": "1.0",
        "id": message.id,
        "source": "/konductor-like" + (f"/{quote(cluster, safe='')}" if cluster else ""),
        "type": TYPE_PREFIX + first.told.type,
        **({"subject": about[0].node} if about else {}),
        "time": stamp(message.at),
        "datacontenttype": "application/json",
        "data": {
            "headline": message.headline,
            "text": text_of(message, cluster, now),
            "cluster": cluster or None,
            "runbook": first.reason.value if first.reason else None,
            "command": _command(first),
            "out_of_service": message.out and message.out.nodes,
            "gpu_nodes": message.out and message.out.gpu_nodes,
            "count": len(about),
            "nodes": [_as_json(each) for each in about[:NODES_MOST]],
        },
    }


def slack_message(message: Message, cluster: str = "", now: datetime | None = None) -> dict[str, Any]:
    """Return the message for Slack's incoming webhooks: plain text that notifies nobody by name.

    Slack asks for ``&``, ``<`` and ``>`` as HTML entities, and for nothing else
    (https://api.slack.com/reference/surfaces/formatting#escaping).
    """
    text = text_of(message, cluster, now).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"@(?=channel|here|everyone)", "@\u200b", text)  # a person's reason may contain these
    return {"text": text, "mrkdwn": False, "unfurl_links": False}


def _command(news: News) -> str:
    return f"konductor-like explain node {news.node}" if news.node else "konductor-like status"


def _as_json(news: News) -> dict[str, str | bool | None]:
    shown = {name: value for name, value in asdict(news).items() if name not in ("at", "text", "why", "out")}
    return {"time": stamp(news.at), "kind": news.told.type, **shown}


def _short_name(node: str) -> str:
    """Return a node's name, without its domain if it is long: ``ip-10-31-0-23``."""
    host = node.partition(".")[0]
    return node if len(node) <= _HOST_CHARS or host.isdigit() else host
