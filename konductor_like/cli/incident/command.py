"""The commands ``konductor-like incident save`` and ``incident replay``: options and exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from konductor_like.cli.help import examples
from konductor_like.cli.options import Back, Context, Kubeconfig, Node, Verbose
from konductor_like.cli.written_file import Force, Target
from konductor_like.exits import Exit


@examples("incident save gpu-07 -o incident.json", "incident save gpu-07 --outage 0 -o missed.json")
def save(
    node: Node,
    *,
    output: Target,
    outage: Annotated[
        int,
        typer.Option(
            "--outage", metavar="N", min=0, help="1 is the latest outage; 0 is the last day without one."
        ),
    ] = 1,
    with_pods: Annotated[
        bool, typer.Option("--with-pods", help="Also save lines of pods with faults: they are your users'.")
    ] = False,
    since: Back = "30d",
    force: Force = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Save an incident as one file: lines, records, settings, rules, and the taints."""
    from konductor_like.backtest.incident import encode
    from konductor_like.cli.columns import count
    from konductor_like.cli.incident.gather import gather
    from konductor_like.cli.output import say, tell
    from konductor_like.cli.written_file import check_target, write_file

    check_target(output, force=force)
    found = gather(node, outage, since, kubeconfig, context, with_pods=with_pods)
    write_file(output, encode(found).encode(), force=force)
    lines = count(len(found.lines), "line")
    tell(f"hint: it has {lines} of {count(len(found.nodes), 'node')}; read it before you send it")
    say(f"missing: {each}" for each in found.missing)


@examples("incident replay incident.json", "incident replay incident.json --rules new-rules.yaml")
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `incident save`.")],
    *,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", metavar="FILE", help="Other rules than those that were in force."),
    ] = None,
    _verbose: Verbose = False,
) -> None:
    """Replay a saved incident, and say whether the outcome is the same.

    Exit status 3 means that it differs.
    """
    from konductor_like.cli.incident.replayed import outcome, read_file, rules_of, summary
    from konductor_like.cli.output import say_paragraphs

    incident = read_file(file)
    in_force = rules_of(incident, rules)
    result, is_same = outcome(incident, in_force)
    say_paragraphs([*summary(incident, in_force, rules), ("Result", result)])
    raise typer.Exit(Exit.OK if is_same else Exit.PARTLY)
