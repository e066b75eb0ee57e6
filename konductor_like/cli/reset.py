"""``konductor-like reset``: let nodes go, for good (design rule 4)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from konductor_like.cli.columns import count
from konductor_like.cli.exits import Exit
from konductor_like.cli.failures import CommandError, begin
from konductor_like.cli.options import Context, Kubeconfig, Names, Selector, Verbose
from konductor_like.cli.streams import ask, tell

if TYPE_CHECKING:
    from konductor_like.model import NodeState

NAMES_ASKED_ABOUT = 10
"""The question names this many nodes, and counts the rest."""


class DryRun(StrEnum):
    """What ``--dry-run`` takes, as in kubectl."""

    NONE = "none"
    CLIENT = "client"
    """Nothing is sent."""
    SERVER = "server"
    """The server checks every write, and stores nothing."""


class ResetCommand(TyperCommand):
    """Lets ``--dry-run`` stand alone, as kubectl does: it then means ``--dry-run=client``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # see below
        # typer types the context as the class it vendors, and typer.Context is what it makes of it
        return super().parse_args(ctx, with_plain_dry_run(args))


def with_plain_dry_run(arguments: Sequence[str]) -> list[str]:
    """The arguments, a bare ``--dry-run`` among the options made ``--dry-run=client``."""
    options = list(arguments)
    end = options.index("--") if "--" in options else len(options)
    options[:end] = [f"--dry-run={DryRun.CLIENT}" if each == "--dry-run" else each for each in options[:end]]
    return options


def reset(
    nodes: Names = None,
    *,
    dry_run: Annotated[
        DryRun, typer.Option("--dry-run", help="Change nothing; alone it means --dry-run=client.")
    ] = DryRun.NONE,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; kept on the node.", show_default=False)
    ] = "",
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
    from konductor_like.cli.releasing import Reset, writing_client

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
