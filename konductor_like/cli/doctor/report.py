"""The links as text and as a document. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from konductor_like.cli.columns import count, stamp
from konductor_like.cli.doctor import cluster_links, controller_links, log_links
from konductor_like.cli.doctor.facts import Facts
from konductor_like.cli.doctor.link import Link, State, Unseen
from konductor_like.cli.doctor.policy_link import policy
from konductor_like.cli.output import API_VERSION, Screen, fields_of
from konductor_like.exits import Exit
from konductor_like.model.text import clipped, printable

LINKS: Mapping[str, Callable[[Facts], Link]] = {
    "API server": cluster_links.cluster,
    "rights": cluster_links.rights,
    "controller": controller_links.controller,
    "account": controller_links.account,
    "reading": controller_links.reading,
    "admission policy": policy,
    "GPU nodes": cluster_links.nodes,
    "readers": cluster_links.readers,
    "collector": cluster_links.collector,
    "Loki": log_links.loki,
    "tenant and login": log_links.login,
    "limits": log_links.limits,
    "kernel stream": log_links.stream,
    "node label": log_links.label,
    "node names": log_links.names,
    "heartbeats": log_links.beats,
    "namespaces": log_links.watched,
    "clocks": log_links.clocks,
    "retention": log_links.retention,
    "other tools": cluster_links.tools,
}
"""Every link of the chain, in the order from the caller to the taint."""
_FROM_HERE = (
    *("Loki", "tenant and login", "limits", "kernel stream", "node label", "node names", "heartbeats"),
    *("namespaces", "retention"),
)
"""Links that this machine's own queries show. They prove nothing while the controller does not read."""
_NAME_CHARS, _STATE_CHARS = 18, 9
_INDENT = _NAME_CHARS + _STATE_CHARS
_STYLES = {State.OK: "32", State.WARN: "33", State.BROKEN: "31", State.UNKNOWN: "35"}
_RESULTS = {Exit.OK: "whole", Exit.FOUND: "broken", Exit.UNKNOWN: "unknown"}


def checkup(facts: Facts) -> tuple[Link, ...]:
    """Return every link."""
    links = [replace(_link(check, facts), name=name) for name, check in LINKS.items()]
    if controller_links.is_reading(facts):
        return tuple(links)
    return tuple(
        replace(link, state=State.UNKNOWN, seen=f"seen from here only: {link.seen}")
        if link.state is State.OK and link.name in _FROM_HERE
        else link
        for link in links
    )


def _link(check: Callable[[Facts], Link], facts: Facts) -> Link:
    try:
        return check(facts)
    except Unseen as why:
        return why.link


def exit_of(links: Iterable[Link]) -> Exit:
    """Return the exit status: a broken link counts more than one that could not be checked."""
    states = {link.state for link in links}
    if State.BROKEN in states:
        return Exit.FOUND
    return Exit.UNKNOWN if State.UNKNOWN in states else Exit.OK


def report_lines(links: Sequence[Link], screen: Screen, *, verbose: bool = False) -> Iterator[str]:
    """Yield one line for each whole link, and below each other link its details and the next command."""
    for link in links:
        short, text = link.state is State.OK and not verbose, printable(link.seen)
        if short and screen.width is not None:
            text = clipped(text, screen.width - _INDENT)
        below = [] if short else [*link.details, *([f"do: {link.do}"] if link.do else [])]
        first, *others = (part for each in (text, *below) for part in screen.folded(printable(each), _INDENT))
        state = screen.painted(link.state.value, _STYLES[link.state])
        yield f"{state}{' ' * (_STATE_CHARS - len(link.state))}{link.name:<{_NAME_CHARS}}{first}"
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
