"""One link of the chain, a fact that was not seen, and the words that all links share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from konductor_like.cli.columns import count
from konductor_like.model.text import listed

T = TypeVar("T")
_INSTALL = "helm upgrade --install konductor-like charts/konductor-like -n konductor-like -f mine.yaml"
APPLY = f"{_INSTALL} (or kubectl apply -k .)"
"""A bare `kubectl apply -f` would undo the image and the settings of a chart or a kustomization."""
APPLY_VALIDATION = "kubectl apply -f manifests/validation.yaml (with the chart: validation.enabled: true)"
AGAIN = "run `konductor-like doctor` again in two minutes"
NAMES_SHOWN = 5


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

    state: State
    seen: str
    do: str = ""
    """The next command or request; empty if there is nothing to do."""
    details: tuple[str, ...] = ()
    name: str = ""


class Unseen(Exception):  # noqa: N818  # it says what happened, and is often no error
    """A fact that could not be seen, and the state of a link that needs it."""

    def __init__(
        self,
        why: str,
        do: str = "",
        state: State = State.UNKNOWN,
        *,
        refused: bool = False,
        young: bool = False,
    ) -> None:
        """``refused``: Loki answered, and does not accept the caller's tenant or credentials.

        ``young``: time alone will show it.
        """
        super().__init__(why)
        self.do, self.state, self.refused, self.young = do, state, refused, young

    @property
    def link(self) -> Link:
        """The link that needs this fact."""
        could = "cannot be checked: " if self.state is State.UNKNOWN and not self.young else ""
        return Link(self.state, f"{could}{self}", self.do)


def seen(fact: T | Unseen) -> T:
    """Return the fact. Raises Unseen."""
    if isinstance(fact, Unseen):
        raise fact
    return fact


def known(fact: T | Unseen, default: T) -> T:
    """Return the fact, or the default for a fact that was not seen."""
    return default if isinstance(fact, Unseen) else fact


def after(name: str) -> Unseen:
    """Return why a link cannot be checked before another link is whole."""
    return Unseen(f"the link `{name}` must be whole first")


def not_yet(why: str, do: str = AGAIN) -> Unseen:
    """Return why a link is neither whole nor broken yet."""
    return Unseen(f"not known yet: {why}", do, young=True)


def ok(words: str, *details: str) -> Link:
    """Return a whole link."""
    return Link(State.OK, words, details=details)


def warn(words: str, do: str, *details: str) -> Link:
    """Return a link with a warning."""
    return Link(State.WARN, words, do, details)


def broken(words: str, do: str, *details: str) -> Link:
    """Return a broken link."""
    return Link(State.BROKEN, words, do, details)


def few(names: Iterable[str]) -> str:
    """Return the first names in order, and the number of the others."""
    return listed(sorted(names), NAMES_SHOWN)


def some_of(names: Sequence[str], all_of_them: int) -> str:
    """Return ``2 of 10 GPU nodes: gpu-1, gpu-2``."""
    return f"{len(names)} of {count(all_of_them, 'GPU node')}: {few(names)}"
