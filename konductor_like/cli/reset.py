"""``konductor-like reset``: let nodes go, for good (design rule 4)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.columns import count
from konductor_like.cli.dryrun import DryRun, DryRunOption
from konductor_like.cli.exits import Exit
from konductor_like.cli.failures import CommandError, begin
from konductor_like.cli.options import Context, Kubeconfig, Names, Reason, Selector, Verbose
from konductor_like.cli.streams import ask, tell

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
    taint or that the brake holds; on a terminal that is asked about first. The evidence so far never taints
    again; a new fault does, at once.
    """
    from konductor_like.cli.configuration import load_settings
    from konductor_like.cli.releasing import Reset
    from konductor_like.cli.writing import writing_client

    begin(verbose=verbose)
    if nodes and selector:
        raise CommandError("give names or a selector, not both", status=Exit.USAGE)
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
        elif not nodes and not yes and dry_run is DryRun.NONE and not _confirmed(states):
            raise CommandError("nothing was changed")
        work.carry_out(states)
    raise typer.Exit(Exit.of(done=work.done, failed=work.failed))


def _confirmed(states: Sequence[NodeState]) -> bool:
    """Ask on a terminal; where nobody can answer (a pipe, a job), Konduktor's behaviour: go on."""
    if not sys.stdin.isatty():
        return True
    names = [state.name for state in states[:NAMES_ASKED_ABOUT]]
    more = len(states) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more else "")
    return ask(f"Reset {count(len(states), 'node')}: {listed}? [y/N] ")
