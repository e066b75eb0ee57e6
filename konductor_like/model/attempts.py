"""What the controller last tried, and how it went: only the controller itself can show that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from konductor_like.model.plans import Verb


class Doing(StrEnum):
    """The kinds of requests whose last attempt the Lease shows."""

    KERNEL = "kernel"
    """Reading kernel lines from Loki."""
    POD = "pod"
    """Reading pods' lines from Loki."""
    HEARTBEAT = "heartbeat"
    """Reading heartbeats from Loki."""
    NODES = "nodes"
    """Listing and watching the Nodes."""
    WRITE = "write"
    """Writing Nodes."""
    RIGHTS = "rights"
    """Asking the API server which rights the account has; a missing right is the error."""

    ALERTS = "alerts"
    """Asking Prometheus which alerts fire."""


READS = (Doing.KERNEL, Doing.HEARTBEAT, Doing.POD)
"""The queries of Loki, the most important first."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last attempts of one kind."""

    ok: datetime | None = None
    """When it last succeeded; None if never since the controller began to lead."""
    since: datetime | None = None
    """Since when it fails; None if the last attempt succeeded."""
    error: str = ""
    """The last error, short and without addresses; empty if the last attempt succeeded."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A Node that the controller has tried to write, and could not."""

    node: str
    verb: Verb
    rule: str = ""
    """The rule of the fault for which the node should be tainted; empty for another write."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """The last attempts of one controller."""

    by: str = ""
    """The controller's identity, the same as ``holderIdentity``."""
    latest: Mapping[Doing, Attempt] = field(default_factory=dict)
    unwritten: tuple[Unwritten, ...] = ()
    """The Nodes that could not be written, taints first; on the Lease only the first of them."""
    taints: int = 0
    """Number of Nodes that should be tainted and could not be, also those that are not named."""
    others: int = 0
    """Number of Nodes with another write that failed, also those that are not named."""
    heard: int = 0
    """Number of GPU nodes that this controller itself hears; the coverage remembers the last one's, too."""
    kept_out: Mapping[str, str] | None = None
    """By tainted node, the guard for which it does not return now, if only the controller knows that; None if
    the controller has not published it."""
    kept_more: int = 0
    """Number of such nodes that are not named."""

    def of(self, doing: Doing) -> Attempt:
        """Return the last attempts of this kind; without times if there was none."""
        return self.latest.get(doing, Attempt())

    @property
    def complete(self) -> bool:
        """Whether every Node that could not be written is named."""
        return len(self.unwritten) == self.taints + self.others
