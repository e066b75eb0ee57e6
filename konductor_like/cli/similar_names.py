"""Which node a person may have meant: "did you mean" for the names of nodes.

A suggestion is only printed. No command acts on one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

from konductor_like.cli.columns import natural
from konductor_like.cli.errors import FIND_NODE
from konductor_like.cluster.api.client import NODES_PATH, ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError
from konductor_like.model.text import clipped

SUGGESTED = 3
_SLIP_CHARS = 2
"""Characters that may be wrong, missing or too many, in one place: two letters may be exchanged."""
_SHORTEST = 4
"""Letters of a shorter name are too few for a slip: every name of that length would be similar."""


def similar(typed: str, known: Iterable[str]) -> list[str]:
    """Return the known names that ``typed`` may mean, at most :data:`SUGGESTED`.

    A name in another case or without its domain comes first. Then come names with a slip of the keys. A name
    with other numbers is another node: ``gpu-18`` is no suggestion for a ``gpu-19`` that does not exist. Two
    exchanged digits are a slip: ``gpu-40`` may mean ``gpu-04``.
    """
    name = typed.strip().lower().removeprefix("node/").rstrip(".")
    names = sorted(known, key=natural)
    same = [each for each in names if _is_same(name, each.lower())]
    return (same or [each for each in names if _is_slip(name, each.lower())])[:SUGGESTED]


def did_you_mean(typed: Iterable[str], known: Iterable[str]) -> str:
    """Return ``did you mean A or B?`` for the names that were typed; empty without a suggestion."""
    names = [*known]
    found = list(dict.fromkeys(name for each in typed for name in similar(each, names)))[:SUGGESTED]
    return f"did you mean {' or '.join(clipped(each, 253) for each in found)}?" if found else ""


def missing_node_hints(client: ReadOnlyKubeClient, typed: Iterable[str]) -> Iterator[str]:
    """Yield what to do about names that no node has; without the right to list nodes, no suggestion."""
    try:
        suggestion = did_you_mean(typed, client.names(NODES_PATH))
    except KubeError:
        suggestion = ""
    yield suggestion or FIND_NODE


def _is_same(typed: str, name: str) -> bool:
    return typed == name or name.startswith(f"{typed}.") or typed.startswith(f"{name}.")


def _is_slip(typed: str, name: str) -> bool:
    """Whether both differ in one place only, by a few characters; numbers only by the order of digits."""
    if abs(len(typed) - len(name)) > _SLIP_CHARS or min(len(typed), len(name)) < _SHORTEST:
        return False
    is_exchanged = sorted(filter(str.isdigit, typed)) == sorted(filter(str.isdigit, name))
    if not is_exchanged and _numbers(typed) != _numbers(name):
        return False
    head = _alike(typed, name)
    rest, other = typed[head:], name[head:]
    tail = _alike(rest[::-1], other[::-1])
    return max(len(rest), len(other)) - tail <= _SLIP_CHARS


def _alike(one: str, other: str) -> int:
    """Return how many characters at the beginning are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", name)]
