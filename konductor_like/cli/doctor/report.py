"""The links as text and as a document. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Check:
    """One link: its name, and the function that checks it, which raises Unseen for a missing fact."""

    name: str
    link_of: Callable[[Facts], Link]
    from_here: bool = False
    """Whether this machine's own queries show the link. They prove nothing while the controller does not
    read."""


CHECKS = (
    Check("API server", cluster_links.cluster),
    Check("rights", cluster_links.rights),
    Check("settings", controller_links.configuration),
    Check("controller", controller_links.controller),
    Check("account", controller_links.account),
    Check("reading", controller_links.reading),
    Check("admission policy", policy),
    Check("GPU nodes", cluster_links.nodes),
    Check("readers", cluster_links.readers),
    Check("Loki", log_links.loki, from_here=True),
    Check("tenant and login", log_links.login, from_here=True),
    Check("limits", log_links.limits, from_here=True),
    Check("kernel stream", log_links.stream, from_here=True),
    Check("node label", log_links.label, from_here=True),
    Check("node names", log_links.names, from_here=True),
    Check("heartbeats", log_links.beats, from_here=True),
    Check("namespaces", log_links.watched, from_here=True),
    Check("clocks", log_links.clocks),
    Check("retention", log_links.retention, from_here=True),
)
"""Every link of the chain, in the order from the caller to the taint."""
_NAME_CHARS, _STATE_CHARS = 18, 9
_INDENT = _NAME_CHARS + _STATE_CHARS
_STYLES = {State.OK: "32", State.WARN: "33", State.BROKEN: "31", State.UNKNOWN: "35"}
_RESULTS = {Exit.OK: "whole", Exit.FOUND: "broken", Exit.UNKNOWN: "unknown"}


def checkup(facts: Facts) -> tuple[Link, ...]:
    """Return every link."""
    is_reading = controller_links.is_reading(facts)
    return tuple(_link(check, facts, is_reading=is_reading) for check in CHECKS)


def _link(check: Check, facts: Facts, *, is_reading: bool) -> Link:
    try:
        link = check.link_of(facts)
    except Unseen as why:
        link = why.link
    if link.state is State.OK and check.from_here and not is_reading:
        link = replace(link, state=State.UNKNOWN, seen=f"seen from here only: {link.seen}")
    return replace(link, name=check.name)


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
