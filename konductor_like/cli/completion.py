"""Completion of the names of nodes and rules in the shell."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import typer

NODES_SECONDS = 0.5
"""Seconds after which the completion goes on without the names of nodes.

With the start of Python, an answer takes a second at most.
"""


def complete_nodes(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the nodes of the cluster that begin like this; none if they do not arrive in time."""
    found: list[str] = []

    def read() -> None:
        from konductor_like.cluster.api.client import NODES_PATH, ReadOnlyKubeClient
        from konductor_like.cluster.api.errors import KubeError

        kubeconfig, context = ctx.params.get("kubeconfig"), ctx.params.get("context")
        try:
            found.extend(ReadOnlyKubeClient.connect(kubeconfig, context, NODES_SECONDS).names(NODES_PATH))
        except KubeError:
            return  # a message would destroy the line that the person is typing

    reading = Thread(target=read, daemon=True)  # a login command may take any time
    reading.start()
    reading.join(NODES_SECONDS)
    typed = {word for words in ctx.params.values() if isinstance(words, list | tuple) for word in words}
    yield from (name for name in found if name.startswith(incomplete) and name not in typed)


def complete_rules(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the built-in rules that begin like this, with their titles."""
    from konductor_like.catalog import load_catalog
    from konductor_like.cli.columns import natural

    catalog = load_catalog()
    entries = [*catalog.xids.values(), *catalog.sxids.values(), *catalog.named_entries.values()]
    entries += [rule.entry for rule in catalog.pattern_rules if rule.entry is not None]
    titles = {entry.rule: entry.title for entry in entries if entry.rule.startswith(incomplete.lower())}
    yield from ((name, titles[name]) for name in sorted(titles, key=natural))


def complete_rules_or_nodes(ctx: typer.Context, incomplete: str) -> Iterator[str | tuple[str, str]]:
    """Yield the rules that begin like this; if there are none, or nothing is typed yet, the nodes."""
    rules = list(complete_rules(incomplete)) if incomplete else []
    yield from rules or complete_nodes(ctx, incomplete)
