"""Builders of notifications from plans of the real decision."""

from __future__ import annotations

from konductor_like.cluster.events import events_of
from konductor_like.model import Change, EventReason, NodeState, Verb
from konductor_like.notify.messages import Message, grouped
from konductor_like.notify.news import KINDS, News, Out, news_of_node, with_groups
from tests.policy.scenes import Cluster, at, fault, fleet


def news_of(state: NodeState, change: Change, seconds: float = 0, out: Out | None = None) -> list[News]:
    """Return the news of a change's Events, as the notifier does."""
    return [
        each
        for reason, message, subject in events_of(change)
        if reason in KINDS
        for each in news_of_node(state, change, reason, message, subject, at(seconds), out)
    ]


def news_in(cluster: Cluster) -> list[News]:
    """Return the news of all writes to a cluster, in order, when their messages are made."""
    out = Out(len(cluster.tainted), len(cluster.nodes))
    found = [
        each for change in cluster.writes for each in news_of(cluster.nodes[change.node], change, out=out)
    ]
    return with_groups(found, cluster.nodes)


def tainted_node(name: str = "gpu-7") -> Message:
    """The message of one Xid 79."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(name))
    [message] = grouped(news_in(cluster))
    return message


def event(reason: EventReason, message: str = "Something happened.", name: str = "gpu-1") -> Change:
    """A change without a write that has only an Event."""
    return Change(name, Verb.RECORD, record=None, health=None, event=reason, message=message)
