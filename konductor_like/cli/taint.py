"""``konductor-like taint``: take nodes out of scheduling for a reason that no log knows."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from konductor_like.cli.dryrun import DryRun, DryRunOption
from konductor_like.cli.failures import CommandError, begin
from konductor_like.cli.options import Context, Kubeconfig, Reason, Verbose, not_empty
from konductor_like.exits import Exit


class Written(StrEnum):
    """What ``-o`` of a command that writes takes."""

    TEXT = "text"
    NAME = "name"


WrittenOption = Annotated[Written, typer.Option("-o", "--output", help="Output format.")]


def taint(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE", help="Names of nodes.", callback=not_empty)],
    *,
    reason: Reason,
    dry_run: DryRunOption = DryRun.NONE,
    output: WrittenOption = Written.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Taint nodes for a reason of your own.

    It stands in the node's record with your name, and counts as out of service; `reset` brings the node back.
    The brake is not asked, because a person decides: where it would have held the taint, that is said.
    """
    from konductor_like.cli.configuration import load_settings
    from konductor_like.cli.tainting import OperatorTaint
    from konductor_like.cli.writing import writing_client

    begin(verbose=verbose)
    if not reason.strip():
        raise CommandError("say why: --reason TEXT", status=Exit.USAGE)
    settings = load_settings()
    with writing_client(settings, kubeconfig, context, dry_run) as client:
        work = OperatorTaint(client, settings, dry_run, reason=reason, names_only=output is Written.NAME)
        work.carry_out(work.named(nodes))
    raise typer.Exit(Exit.of(done=work.done, failed=work.failed))
