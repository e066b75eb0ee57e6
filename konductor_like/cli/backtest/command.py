"""``konductor-like backtest``: replays Loki's history to show what the rules would have done to the fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from konductor_like.cli.help import examples
from konductor_like.cli.options import Context, FormatOption, Kubeconfig, Verbose
from konductor_like.cli.output import say, say_document


@examples("backtest --since 7d", "backtest --since 30d --rules new-rules.yaml -o json")
def backtest(
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="SPAN|TIME", help="Start: 30d, 36h, 2026-03-01 (UTC).")
    ] = "30d",
    until: Annotated[
        str | None, typer.Option("--until", metavar="SPAN|TIME", help="End; now by default.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", metavar="FILE", help="Rules file to try; otherwise KONDUCTOR_RULES_FILE."),
    ] = None,
    release_after: Annotated[
        str,
        typer.Option(
            "--release-after", metavar="SPAN", help="Assumed time from a taint to its release, or never."
        ),
    ] = "4h",
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes",
            metavar="cluster|lines|FILE",
            help="The fleet: the cluster's nodes, the nodes in the lines, or a file with a name per line.",
        ),
    ] = "cluster",
    output: FormatOption = "table",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Show which nodes the rules would have tainted, when, why and for how long.

    The command reads the history in Loki and changes nothing. The controller's own code finds the faults and
    decides on them.
    """
    from konductor_like.cli.backtest.carry_out import carry_out, exit_status
    from konductor_like.cli.backtest.report import document, show

    result = carry_out(
        since=since,
        until=until,
        rules=rules,
        release_after=release_after,
        nodes=nodes,
        context=context,
        kubeconfig=kubeconfig,
    )
    match output:
        case "table":
            show(result)
        case "name":
            say(dict.fromkeys(f"node/{outage.node}" for outage in result.verdicts.outages))
        case _:
            say_document(document(result), output)
    raise typer.Exit(exit_status(result))
