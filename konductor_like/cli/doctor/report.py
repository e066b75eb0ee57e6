"""The links as text and as a document. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from konductor_like.cli.columns import count, stamp
from konductor_like.cli.output import API_VERSION, Screen, fields_of
from konductor_like.doctor.checkup import exit_of
from konductor_like.doctor.link import Link, State
from konductor_like.exits import Exit
from konductor_like.model.text import clipped, printable

_NAME_CHARS, _STATE_CHARS = 18, 9
_INDENT = _NAME_CHARS + _STATE_CHARS
_STYLES: Mapping[State, str] = {
    State.OK: "32",
    State.WARN: "33",
    State.BROKEN: "31",
    State.UNKNOWN: "35",
}
_RESULTS: Mapping[Exit, str] = {Exit.OK: "whole", Exit.FOUND: "broken", Exit.UNKNOWN: "unknown"}


def report_lines(links: Sequence[Link], screen: Screen, *, verbose: bool = False) -> Iterator[str]:
    """Yield one line for each whole link, and below each other link its details and the next command."""
    for link in links:
        whole = link.state is State.OK
        seen = printable(link.seen)
        if whole and not verbose and screen.width is not None:
            seen = clipped(seen, screen.width - _INDENT)
        first, *others = screen.folded(seen, _INDENT)
        state = screen.painted(link.state.value, _STYLES[link.state])
        padding = " " * (_STATE_CHARS - len(link.state.value))
        yield f"{state}{padding}{link.name:<{_NAME_CHARS}}{first}"
        below = [*link.details, *([f"do: {link.do}"] if link.do else [])]
        if not whole or verbose:
            others += [part for text in below for part in screen.folded(printable(text), _INDENT)]
        yield from (f"{'':{_INDENT}}{part}" for part in others)
    states = Counter(link.state for link in links)
    yield f"{count(len(links), 'link')}: {', '.join(f'{states[each]} {each.value}' for each in State)}."


def report_document(links: Sequence[Link], at: datetime) -> dict[str, Any]:
    """Return the checkup as plain dicts, lists and strings (``konductor-like/v1``)."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Checkup",
        "time": stamp(at),
        "result": _RESULTS[exit_of(links)],
        "links": [
            {**fields_of(link, "name", "state", "seen"), "do": link.do or None, "details": list(link.details)}
            for link in links
        ],
    }
