"""Options that several commands share, spelt as kubectl spells them."""

from typing import Annotated

import typer

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NODE", help="Names of nodes; none for all of them.")
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig; otherwise $KUBECONFIG, ~/.kube/config, or the pod's own account.",
    ),
]
Selector = Annotated[
    str | None,
    typer.Option("-l", "--selector", metavar="LABELS", help="Only nodes with these labels: a=b,c!=d."),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; kept on the node.", show_default=False)
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say what is done; show tracebacks.")]
