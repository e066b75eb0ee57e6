"""One link of the chain, and the words that all links share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from konductor_like.doctor.facts import Cause, Unseen
from konductor_like.model.text import listed

NAMES_SHOWN = 5
VIEWER = "ask for the ClusterRole konductor-like-viewer (manifests/people_rbac.yaml)"


class State(StrEnum):
    """The states of a link."""

    OK = "ok"
    WARN = "warn"
    """The chain works, but a person should know this."""
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """The link could not be checked."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link: what was seen, and what to do about it."""

    name: str
    state: State
    seen: str
    do: str = ""
    """The next command or request; empty if there is nothing to do."""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a link, which makes its results."""

    name: str

    def ok(self, seen: str, details: Iterable[str] = ()) -> Link:
        """Return the whole link."""
        return Link(self.name, State.OK, seen, details=tuple(details))

    def warn(self, seen: str, do: str, details: Iterable[str] = ()) -> Link:
        """Return the link with a warning."""
        return Link(self.name, State.WARN, seen, do, tuple(details))

    def broken(self, seen: str, do: str, details: Iterable[str] = ()) -> Link:
        """Return the broken link."""
        return Link(self.name, State.BROKEN, seen, do, tuple(details))

    def unknown(self, why: str, do: str = "") -> Link:
        """Return the link that could not be checked."""
        return Link(self.name, State.UNKNOWN, f"cannot be checked: {why}", do)

    def unseen(self, fact: Unseen) -> Link:
        """Return the link whose fact is missing: broken if the request itself failed."""
        if fact.cause in (Cause.FAILED, Cause.LOGIN):
            return self.broken(fact.why, fact.do)
        return self.unknown(fact.why, fact.do)

    def after(self, other: Named) -> Link:
        """Return the link that cannot be checked before another link is whole."""
        return self.unknown(f"the link `{other.name}` must be whole first")


def few(names: Iterable[str]) -> str:
    """Return the first names in order, and the number of the others."""
    return listed(sorted(names), NAMES_SHOWN)


def number(count: int, noun: str) -> str:
    """Return ``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def some_of(names: Sequence[str], all_of_them: int, noun: str) -> str:
    """Return ``2 of 10 GPU nodes: gpu-1, gpu-2``."""
    return f"{len(names)} of {number(all_of_them, noun)}: {few(names)}"


def span(seconds: float) -> str:
    """Return a span in words: ``40 s``, ``5 min``, ``3 h``, ``2 days``."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def ago(then: datetime, now: datetime) -> str:
    """Return ``40 s ago``."""
    return f"{span((now - then).total_seconds())} ago"
