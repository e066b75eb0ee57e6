"""The command ``konductor-like case``: its options and its exit status."""

from __future__ import annotations

from typing import Annotated

import typer

from konductor_like.cli.completion import complete_nodes
from konductor_like.cli.help import examples
from konductor_like.cli.options import Context, Kubeconfig, Verbose, node_names
from konductor_like.cli.written_file import Force, Target
from konductor_like.exits import Exit

Node = Annotated[
    str,
    typer.Argument(metavar="NODE", help="The node.", callback=node_names, autocompletion=complete_nodes),
]
Back = Annotated[
    str,
    typer.Option("--since", metavar="SPAN|TIME", help="Look for outages since: 30d, 2026-03-01."),
]


@examples("case gpu-07 -o case.zip", "case gpu-07 --outage 2 -o case.zip")
def case(
    node: Node,
    *,
    output: Target,
    outage: Annotated[
        int, typer.Option("--outage", metavar="N", min=1, help="1 is the latest outage, 2 the one before.")
    ] = 1,
    since: Back = "30d",
    force: Force = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Write what a vendor asks for when a GPU is sent in: machine, GPU, kernel log, outages.

    The archive has nothing of tenants' pods. The kernel log names processes: look at it before you send it.
    """
    from konductor_like.cli.case.archive import MEMBERS, archive_of
    from konductor_like.cli.case.gather import gather
    from konductor_like.cli.output import say, tell
    from konductor_like.cli.written_file import check_target, write_file

    check_target(output, force=force)
    found, whole = gather(node, outage, since, kubeconfig, context)
    write_file(output, archive_of(found), force=force)
    tell(f"hint: it has {', '.join(MEMBERS)}; read it before you send it: unzip -p {output} {MEMBERS[0]}")
    say(f"missing: {each}" for each in found.missing)
    raise typer.Exit(Exit.OK if whole else Exit.PARTLY)
