"""``konductor-like backtest``: what the rules would have done to the fleet, from the lines that Loki kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from konductor_like.cli.options import Context, Kubeconfig, TableOrJson, Verbose


def backtest(
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="SPAN|TIME", help="Where to begin: 30d, 36h, 2026-03-01.")
    ] = "30d",
    until: Annotated[
        str | None, typer.Option("--until", metavar="SPAN|TIME", help="Where to end; otherwise now.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", metavar="FILE", help="Rules to try; otherwise KONDUCTOR_RULES_FILE."),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", metavar="FILE", help="Say what these rules would have done otherwise."),
    ] = None,
    release_after: Annotated[
        str,
        typer.Option(
            "--release-after", metavar="SPAN", help="Assume that a node comes back so long after; or never."
        ),
    ] = "4h",
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes",
            metavar="cluster|lines|FILE",
            help="Whose fleet: the cluster's, whom the lines name, or of a file: a name per line, or "
            "what kubectl get nodes -o json printed.",
        ),
    ] = "cluster",
    output: TableOrJson = "table",
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache", metavar="DIR", help="Keep what was read here; otherwise in the user's cache directory."
        ),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Keep nothing, and read all of it from Loki.")
    ] = False,
    mib_per_minute: Annotated[
        int | None,
        typer.Option(
            "--max-mib-per-minute",
            metavar="MIB",
            min=1,
            help="What Loki may process for it a minute; otherwise KONDUCTOR_LOKI_BUDGET_MIB_PER_MINUTE.",
        ),
    ] = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Show which nodes the rules would have taken out, when, why and for how long.

    Reads Loki's history and changes nothing. Lines are judged and decided upon as the controller does it.
    """
    from konductor_like.cli.backtest.carry_out import Asked, carry_out

    asked = Asked(
        since,
        until,
        rules,
        compare,
        release_after,
        nodes,
        cache,
        not no_cache,
        mib_per_minute,
        context,
        kubeconfig,
    )
    raise typer.Exit(carry_out(asked, as_json=output == "json"))
