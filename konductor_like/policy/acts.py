"""The name of a write: one word that finds it in the log, in its Event and in the record on the node."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

from konductor_like.model import Act, NodeState, Verb

ID_CHARS = 12


def act_of(state: NodeState, verb: Verb, at: datetime, rules_version: str = "") -> Act:
    """What a write of this kind to the node as it was read is called.

    The same decision on the same state has the same name, so that a write tried twice is one act.
    """
    seen = state.as_read
    parts = (state.name, seen.uid, seen.resource_version, seen.record or "", verb.value)
    return Act(_named(parts), at, rules_version)


def steering_act(verb: str, at: datetime, by: str, reason: str = "") -> str:
    """What a person's word on the Lease is called."""
    return _named((verb, at.isoformat(), by, reason))


def _named(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:ID_CHARS]
