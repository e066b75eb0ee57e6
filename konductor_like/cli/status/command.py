"""``konductor-like status``: shows the brake, the controller and the state of every node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from konductor_like.cli.errors import CommandError
from konductor_like.cli.options import Context, Kubeconfig, Names, Selector, Verbose
from konductor_like.cli.output import console, is_terminal, say, say_document, tell, warn
from konductor_like.exits import Exit

if TYPE_CHECKING:
    from konductor_like.cli.status.report import StatusReport

Output = Literal["table", "wide", "json", "yaml", "name"]


def status(
    nodes: Names = None,
    *,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = "table",
    selector: Selector = None,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Exit with 1 when a node is faulty, with 5 when one is unknown."),
    ] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Print the rows alone.")] = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Show each node's state, the reason, and what to do.

    Only reads the cluster. Above the nodes are the brake, and the controller with the age of the lines that
    it has read last.
    """
    from konductor_like.cli import session
    from konductor_like.cli.status.report import collect, status_report
    from konductor_like.cluster.client import ReadOnlyKubeClient

    if nodes and selector:
        raise CommandError("give names or a selector, not both", status=Exit.USAGE)
    with session.connected(ReadOnlyKubeClient, kubeconfig, context) as (client, settings):
        report = status_report(collect(client, settings, session.now(), selector), nodes or ())
    _show(report, output, headers=not no_headers)
    found = Exit.of(done=len(set(nodes or ())) - len(report.missing), failed=len(report.missing))
    raise typer.Exit(_by_health(report, found) if exit_code else found)


def _by_health(report: StatusReport, found: Exit) -> Exit:
    """Return the exit status for ``--exit-code``; ``found`` is the status without that option."""
    from konductor_like.cli.status.report import Health

    healths = {node.health for node in report.nodes}
    if Health.FAULTY in healths:
        return Exit.FAILED
    unknown = Health.UNKNOWN in healths or (report.why_unknown and healths)
    return Exit.UNKNOWN if unknown and found is Exit.OK else found


def _show(report: StatusReport, output: Output, *, headers: bool) -> None:
    from konductor_like.cli.status.document import status_document
    from konductor_like.cli.status.text import status_view, tables

    match output:
        case "json" | "yaml":
            say_document(status_document(report), output)
        case "name":
            say(f"node/{node.name}" for node in report.nodes)
        case "table" | "wide" if is_terminal(sys.stdout):
            console().print(status_view(report, wide=output == "wide", headers=headers))
        case "table" | "wide":
            say(tables(report, wide=output == "wide", headers=headers))
    for name in report.missing:
        tell(f"node/{name} not found")
    for name in report.ordinary:
        tell(f"node/{name} has no GPU and no record")
    if not (report.nodes or report.missing or report.ordinary):
        tell("No GPU nodes found.")
    if output not in ("json", "yaml"):  # these contain the warnings
        _warn(report)


def _warn(report: StatusReport) -> None:
    for node in report.nodes:
        for warning in node.warnings:
            warn(f"node/{node.name}: {warning}")
    if report.nodes and report.why_unknown:
        warn(report.why_unknown)
