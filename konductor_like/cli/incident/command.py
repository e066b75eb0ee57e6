"""The command ``konductor-like incident save``: its options."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from konductor_like.cli.help import examples
from konductor_like.cli.options import Back, Context, Kubeconfig, Node, Verbose
from konductor_like.cli.written_file import Force, Target


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
    from konductor_like.cli.columns import count
    from konductor_like.cli.incident.gather import gather
    from konductor_like.cli.output import say, tell
    from konductor_like.cli.written_file import check_target, write_file

    check_target(output, force=force)
    found = gather(node, outage, since, kubeconfig, context, with_pods=with_pods)
    write_file(output, (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode(), force=force)
    lines, nodes = count(len(found["lines"]), "line"), count(len(found["nodes"]), "node")
    tell(f"hint: it has {lines} of {nodes}; read it before you send it")
    say(f"missing: {each}" for each in found["missing"])
