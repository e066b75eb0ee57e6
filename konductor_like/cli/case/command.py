"""The command ``konductor-like case``: its options and its exit status."""

from __future__ import annotations

from typing import Annotated

import typer

from konductor_like.cli.help import examples
from konductor_like.cli.options import Back, Context, Kubeconfig, Node, Verbose
from konductor_like.cli.written_file import Force, Target
from konductor_like.exits import Exit


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
    from konductor_like.cli.case.markdown import NOT_HERE
    from konductor_like.cli.output import tell
    from konductor_like.cli.written_file import check_target, write_file

    check_target(output, force=force)
    found, whole = gather(node, outage, since, kubeconfig, context)
    write_file(output, archive_of(found), force=force)
    tell(f"hint: it has {', '.join(MEMBERS)}; read it before you send it: unzip -p {output} {MEMBERS[0]}")
    tell(f"hint: not in it: {NOT_HERE}")
    raise typer.Exit(Exit.OK if whole else Exit.PARTLY)
