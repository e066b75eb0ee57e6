"""Messages: how several news become one message, in which order messages are sent, and their formats.

This module is pure. ``controller/side/notifier.py`` queues the news, and ``webhook.py`` posts the messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from konductor_like.model.text import clipped, listed, printable
from konductor_like.model.time import stamp
from konductor_like.notify.headlines import headline, out_of, root_cause_of
from konductor_like.notify.news import Kind, News, digest, news_of_trial

TYPE_PREFIX = "ai.trainy.konduktor."
NODES_MOST = 100
"""Nodes that a CloudEvent lists at most; ``count`` tells the number of all of them."""
_NAMES = 5
_PARTS = 10
"""Messages that a summary tells at most."""
_TEXT_CHARS = 1000
"""Characters of one Event's text in a message. A whole message has fewer than 4,000: Slack may break a longer
one into several (https://api.slack.com/changelog/2018-04-truncating-really-long-messages)."""


@dataclass(frozen=True, slots=True)
class Message:
    """News that are sent as one message; the root cause first, then by name."""

    kind: Kind
    news: tuple[News, ...]

    @property
    def id(self) -> str:
        """The id of the only news, or a digest of all ids."""
        ids = sorted(each.id for each in self.news)
        return ids[0] if len(ids) == 1 else digest(self.kind, *ids)

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes, without duplicates."""
        return list(dict.fromkeys(each.node for each in self.news if each.node))

    @property
    def first(self) -> News:
        """The news whose words, command and runbook the message has."""
        about = [each for each in self.news if each.node]
        return about[0] if len(self.nodes) == 1 else self.news[0]

    @property
    def headline(self) -> str:
        """The first line, which is read on a phone."""
        return headline(self.kind, self.news)

    @property
    def at(self) -> datetime:
        """The time of the first news."""
        return min(each.at for each in self.news)


def trial_message(now: datetime) -> Message:
    """Return the message of ``check-config --notify``."""
    return Message(Kind.TEST, (news_of_trial(now),))


def current(news: Sequence[News], later: Sequence[News] = ()) -> list[News]:
    """Return the news, in order, without those that a later taint of the same node overtook."""
    tainted = {each.node for each in later if each.kind.tells_taint}
    kept: list[News] = []
    for each in reversed(news):
        if each.passes and each.node in tainted:
            continue
        if each.kind.tells_taint:
            tainted.add(each.node)
        kept.append(each)
    return kept[::-1]


def grouped(news: Iterable[News]) -> list[Message]:
    """Return one message for the news that belong together, in the order of time.

    News join an earlier message only if no message after it is about the same node. So the last message about
    a node always tells the latest of its news.
    """
    groups: list[list[News]] = []
    open_groups: dict[tuple[object, ...], int] = {}
    latest: dict[str, int] = {}
    for each in news:
        place = open_groups.get(each.together, -1)
        if place < latest.get(each.node, 0):
            place = open_groups[each.together] = len(groups)
            groups.append([])
        groups[place].append(each)
        latest[each.node] = place
    return [_message(same[0].kind, same) for same in groups]


def within(messages: Sequence[Message], most: int) -> list[Message]:
    """Return at most ``most`` messages (1 or more): the last one is a summary of those that are too many."""
    if len(messages) <= most:
        return list(messages)
    rest = [item for message in messages[most - 1 :] for item in message.news]
    return [*messages[: most - 1], Message(Kind.SUMMARY, tuple(sorted(rest, key=lambda each: each.at)))]


class Next(NamedTuple):
    """The message to send next, None if there is none, and the news to send after it."""

    message: Message | None
    rest: list[News]


def next_message(news: Sequence[News], most: int, later: Sequence[News] = ()) -> Next:
    """Return the next message of these news, which are in the order of time.

    ``most`` messages (1 or more) may be sent now. ``later`` are news that came meanwhile. They are sent after
    all of these; a taint among them overtakes the return of its node.
    """
    left = current(news, later)
    for message in within(grouped(left), most)[:1]:
        sent = {id(each) for each in message.news}
        return Next(message, [each for each in left if id(each) not in sent])
    return Next(None, [])


def text_of(message: Message, cluster: str = "", now: datetime | None = None) -> str:
    """Return the message for people: a line that is read on a phone, and below it the rest.

    The times have a date unless it is that of ``now``.
    """
    where = f"[{cluster}] " if cluster else ""
    return "\n".join((where + message.headline, *filter(None, _lines(message, now))))


def _lines(message: Message, now: datetime | None) -> Iterable[str]:
    """Yield the lines below the first."""
    if message.kind is Kind.SUMMARY:
        parts = grouped(sorted(message.news, key=lambda each: each.at))
        yield from (f"{_when(part.news, now)}: {part.headline}" for part in parts[:_PARTS])
        yield f"and {len(parts) - _PARTS} more" if len(parts) > _PARTS else ""
        return
    first, names, when = message.first, message.nodes, _when(message.news, now)
    if len(names) > 1:
        yield f"{when}: {listed(names, _NAMES)}."
        root = root_cause_of(message.news)
        yield f"Root cause: {root}." if root else ""
    if message.kind in (Kind.RETURNED, Kind.FREED) and len(names) > 1:
        yield from _reasons(message)
    else:
        about = f"{first.node}: " if len(names) > 1 and first.node else ""
        begin = f"{when}, {first.node}: " if first.node else f"{when}: "
        yield (about if len(names) > 1 else begin) + clipped(printable(first.text), _TEXT_CHARS)
    if first.reason is not None:
        yield f"Next: {_command(first)}. Runbook: konductor-like explain {first.reason}."
    if len(names) > 1:  # each node has its own
        return
    facts = {"Audit id": first.audit_id, "Rule": first.rule}  # the Event's words have GPU and needs
    yield " ".join(f"{name}: {value}." for name, value in facts.items() if value)


def _reasons(message: Message) -> Iterable[str]:
    """Yield one line for each reason why nodes are in service again, the most frequent first."""
    by_why: dict[str, list[str]] = {}
    for each in message.news:
        by_why.setdefault(each.why, []).append(each.node)
    for why, names in sorted(by_why.items(), key=lambda item: -len(item[1])):
        yield f"{why[:1].upper()}{why[1:]}: {listed(names, _NAMES)}." if len(by_why) > 1 else ""


def _when(news: Collection[News], now: datetime | None) -> str:
    """Return ``03:42 UTC``, or ``03:42 to 04:10 UTC``, with the date unless it is that of ``now``."""
    times = [min(each.at for each in news).astimezone(UTC), max(each.at for each in news).astimezone(UTC)]
    today = None if now is None else now.astimezone(UTC).date()
    texts = [f"{at:%H:%M}" if at.date() == today else f"{at:%Y-%m-%d %H:%M}" for at in times]
    return f"{' to '.join(dict.fromkeys(texts))} UTC"


def cloud_event(message: Message, cluster: str = "", now: datetime | None = None) -> dict[str, Any]:
    """Return the message as a CloudEvent 1.0 in structured mode."""
    first, nodes = message.first, [each for each in message.news if each.node]
    subject = {"subject": nodes[0].node} if nodes else {}
    out = out_of(message.news)
    return {
        "specversion": "1.0",
        "id": message.id,
        "source": "/konductor-like" + (f"/{quote(cluster, safe='')}" if cluster else ""),
        "type": TYPE_PREFIX + message.kind.value,
        **subject,
        "time": stamp(message.at),
        "datacontenttype": "application/json",
        "data": {
            "headline": message.headline,
            "text": text_of(message, cluster, now),
            "cluster": cluster or None,
            "runbook": first.reason.value if first.reason else None,
            "command": _command(first),
            "out_of_service": None if out is None else out.nodes,
            "gpu_nodes": None if out is None else out.gpu_nodes,
            "count": len(message.nodes),
            "nodes": [_as_json(each) for each in nodes[:NODES_MOST]],
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


def _message(kind: Kind, news: Iterable[News]) -> Message:
    """Return a message of these news: the fleet's first if alone, then the root cause's, then by name."""
    found = sorted(
        news, key=lambda each: (each.node != "", each.root_cause != each.node, each.node, each.kind)
    )
    return Message(kind, tuple(found))


def _command(news: News) -> str:
    return f"konductor-like explain node {news.node}" if news.node else "konductor-like status"


def _as_json(news: News) -> dict[str, str | bool | None]:
    shown = {name: value for name, value in asdict(news).items() if name not in ("at", "text", "why", "out")}
    return {"time": stamp(news.at), **shown}
