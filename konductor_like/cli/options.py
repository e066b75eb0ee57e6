"""Options that several commands share, spelt as kubectl spells them."""

from typing import Annotated, Any

import typer


def not_empty(value: Any) -> Any:
    """Refuse an empty word: `reset "$NODE"` with NODE unset must not mean every node. Raises BadParameter."""
    words = [value] if isinstance(value, str) else value or ()
    if not all(word.strip() for word in words):
        raise typer.BadParameter("an empty word; is a shell variable not set?")
    return value


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NODE", help="Names of nodes; none for all of them.", callback=not_empty),
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
    typer.Option(
        "-l",
        "--selector",
        metavar="LABELS",
        help="Only nodes with these labels: a=b,c!=d.",
        callback=not_empty,
    ),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; kept on the node.", show_default=False)
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say what is done; show tracebacks.")]
