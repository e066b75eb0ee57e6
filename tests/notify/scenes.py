"""Builders of notifications from plans of the real decision."""

from __future__ import annotations

from collections.abc import Iterable

from konductor_like.cluster.events import events_of
from konductor_like.model import Change, EventReason, NodeState, Verb
from konductor_like.notify.messages import Message, next_message
from konductor_like.notify.news import TOLD, News, Out, news_of_node
from tests.policy.scenes import Cluster, at, fault, fleet


def news_of(state: NodeState, change: Change, seconds: float = 0, out: Out | None = None) -> list[News]:
    """Return the news of a change's Events, as the notifier does."""
    return [
        news_of_node(state, change, reason, message, subject, at(seconds), out)
        for reason, message, subject in events_of(change)
        if reason in TOLD
    ]


def messages_of(news: Iterable[News]) -> list[Message]:
    """Return the messages that these news become, in order."""
    rest, found = list(news), list[Message]()
    while rest:
        message, rest = next_message(rest)
        found.append(message)
    return found


def news_in(cluster: Cluster) -> list[News]:
    """Return the news of all writes to a cluster, in order."""
    out = Out(len(cluster.tainted), len(cluster.nodes))
    return [
        each for change in cluster.writes for each in news_of(cluster.nodes[change.node], change, out=out)
    ]


def tainted_node(name: str = "gpu-7") -> Message:
    """The message of one Xid 79."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(name))
    [message] = messages_of(news_in(cluster))
    return message


def event(reason: EventReason, message: str = "Something happened.", name: str = "gpu-1") -> Change:
    """A change without a write that has only an Event."""
    return Change(name, Verb.RECORD, record=None, health=None, event=reason, message=message)
