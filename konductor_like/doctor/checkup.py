"""The checkup: every link of the chain, in the order from the caller to the taint. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from konductor_like.doctor import cluster_links, log_links
from konductor_like.doctor.facts import Facts
from konductor_like.doctor.link import Link, State
from konductor_like.exits import Exit

LINKS: tuple[Callable[[Facts], Link], ...] = (
    cluster_links.cluster,
    cluster_links.rights,
    cluster_links.controller,
    cluster_links.reading,
    cluster_links.policy,
    cluster_links.nodes,
    cluster_links.readers,
    cluster_links.collector,
    log_links.loki,
    log_links.login,
    log_links.limits,
    log_links.stream,
    log_links.label,
    log_links.names,
    log_links.beats,
    log_links.watched,
    log_links.clocks,
    log_links.retention,
    cluster_links.tools,
)


def checkup(facts: Facts) -> tuple[Link, ...]:
    """Return every link."""
    return tuple(link(facts) for link in LINKS)


def exit_of(links: Iterable[Link]) -> Exit:
    """Return the exit status: a broken link counts more than one that could not be checked."""
    states = {link.state for link in links}
    if State.BROKEN in states:
        return Exit.FOUND
    return Exit.UNKNOWN if State.UNKNOWN in states else Exit.OK
