"""``konductor-like ack``: say that a person has seen what stands against a node."""

from __future__ import annotations

from typing import Annotated

import typer

from konductor_like.cli.dryrun import DryRun, DryRunOption
from konductor_like.cli.failures import CommandError, begin
from konductor_like.cli.options import Context, Kubeconfig, Reason, Verbose, not_empty
from konductor_like.cli.taint import Written, WrittenOption
from konductor_like.exits import Exit


def ack(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.", callback=not_empty)],
    rule: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RULE]",
            help="xid 63, nccl.socket; none for all that is recorded.",
            callback=not_empty,
        ),
    ] = None,
    *,
    reason: Reason,
    dry_run: DryRunOption = DryRun.NONE,
    output: WrittenOption = Written.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Acknowledge what stands against a node.

    What does not taint makes the node suspect no more, and its evidence so far counts towards no threshold;
    when it is seen again, the node is suspect again. A taint stays: `reset` takes it off.
    """
    from konductor_like.cli.configuration import load_settings
    from konductor_like.cli.tainting import Acknowledgement
    from konductor_like.cli.writing import writing_client

    begin(verbose=verbose)
    if not reason.strip():
        raise CommandError("say why: --reason TEXT", status=Exit.USAGE)
    settings = load_settings()
    with writing_client(settings, kubeconfig, context, dry_run) as client:
        work = Acknowledgement(
            client,
            settings,
            dry_run,
            rule=rule_of(rule or ()),
            reason=reason,
            names_only=output is Written.NAME,
        )
        work.carry_out(work.named([node]))
    raise typer.Exit(Exit.of(done=work.done, failed=work.failed))


def rule_of(words: list[str] | tuple[str, ...]) -> str | None:
    """The rule that people's words name: ``xid 63``, ``XID.63``, ``nvrm fallen off bus``; None for none."""
    family, _, name = " ".join(words).strip().lower().replace(".", " ", 1).partition(" ")
    return f"{family}.{name.strip().replace(' ', '_')}" if name else family or None
