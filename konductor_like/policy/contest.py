"""Contested taints: somebody else keeps taking ours off (design rule 23).

It is a release all the same: two controllers that fight over a node help nobody. It is said, so that a person
can settle it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

from konductor_like.model import NodeRecord, Release

BY_HAND = "taint removed"
"""How a release came about when our taint was taken off by other means than ``reset``."""
TIMES = 3
WITHIN = timedelta(hours=1)
_PEOPLE = re.compile(r"(kubectl|k9s|(open)?lens|mozilla|node-fetch|headlamp|curl)\b|oc$", re.IGNORECASE)
"""Field managers of the tools through which people edit Nodes."""


def with_contest(record: NodeRecord, remover: str | None) -> NodeRecord:
    """The record after a release by removal, marked where that release is contested.

    ``remover`` is the field manager that changed the Node; None where nobody can say. The release stands in
    front of ``record.releases``.
    """
    if not is_controller(remover) and len(_lately(record)) < TIMES:
        return record
    return replace(record, contested_at=record.releases[0].at)


def words(record: NodeRecord) -> str:
    """A sentence about the contest that the latest release is part of; empty where it is part of none."""
    if not record.releases or record.contested_at != record.releases[0].at:
        return ""
    by, times = record.releases[0].by, len(_lately(record))
    often = f" {times} times in an hour, the last time by {by}" if times >= TIMES else f" by {by}"
    return (
        f"Contested: our taint was removed{often}. Find out what does it; its evidence does not taint again."
    )


def is_controller(manager: str | None) -> bool:
    """Whether a field manager is neither unknown nor a tool that people use."""
    return manager is not None and not _PEOPLE.match(manager)


def _lately(record: NodeRecord) -> list[Release]:
    latest = record.releases[0].at
    return [mark for mark in record.releases if mark.how == BY_HAND and latest - mark.at < WITHIN]
