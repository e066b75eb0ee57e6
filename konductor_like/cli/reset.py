"""``konductor-like reset``: let nodes go, for good (design rule 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.columns import count
from konductor_like.cli.dryrun import DryRun, DryRunOption
from konductor_like.cli.failures import CommandError, begin
from konductor_like.cli.options import Context, Kubeconfig, Names, Reason, Selector, Verbose
from konductor_like.cli.streams import ask, can_answer, tell
from konductor_like.exits import Exit

if TYPE_CHECKING:
    from konductor_like.model import NodeState

NAMES_ASKED_ABOUT = 10
"""The question names this many nodes, and counts the rest."""


def reset(
    nodes: Names = None,
    *,
    dry_run: DryRunOption = DryRun.NONE,
    reason: Reason = "",
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove labels and records too: every trace of us.")
    ] = False,
    selector: Selector = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Untaint nodes, so that they stay untainted.

    With names: those nodes, with all that is recorded against them. Without: every node that carries the
    taint or that the brake holds; a terminal is asked first, and without one --yes is needed. The evidence so
    far never taints again; a new fault does, at once.
    """
    from konductor_like.cli.configuration import load_settings
    from konductor_like.cli.releasing import Reset
    from konductor_like.cli.writing import writing_client

    begin(verbose=verbose)
    if nodes and selector:
        raise CommandError("give names or a selector, not both", status=Exit.USAGE)
    fleet_wide = not nodes and dry_run is DryRun.NONE
    if fleet_wide and not yes and not can_answer():
        raise CommandError(
            "a reset without names may free the whole fleet, and there is no terminal to ask on",
            hint="name the nodes (is a shell variable empty?), or say --yes; --dry-run shows which they are",
            status=Exit.USAGE,
        )
    settings = load_settings()
    with writing_client(settings, kubeconfig, context, dry_run) as client:
        work = Reset(client, settings, dry_run, reason=reason, purge=purge)
        states = work.named(nodes) if nodes else work.affected(selector)
        if not states and not nodes:
            tell(
                "Nothing to purge."
                if purge
                else "Nothing to reset: no taint of ours, nothing held by the brake."
            )
        elif fleet_wide and not yes and not _confirmed(states, purge=purge):
            raise CommandError("nothing was changed")
        work.carry_out(states)
    raise typer.Exit(Exit.of(done=work.done, failed=work.failed))


def _confirmed(states: Sequence[NodeState], *, purge: bool) -> bool:
    """Ask on the terminal; the question says what a purge loses."""
    names = [state.name for state in states[:NAMES_ASKED_ABOUT]]
    more = len(states) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more else "")
    nodes = f"{count(len(states), 'node')}: {listed}"
    if not purge:
        return ask(f"Reset {nodes}? [y/N] ")
    return ask(
        f"Purge {nodes}? What is recorded on them is lost, and a kernel log that is read again may taint "
        "them again. [y/N] "
    )
