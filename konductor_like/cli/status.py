"""``konductor-like status``: how the nodes stand, the brake first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli import clock
from konductor_like.cli.failures import CommandError, begin
from konductor_like.cli.options import Context, Kubeconfig, Names, Selector, Verbose
from konductor_like.cli.render import Output, render
from konductor_like.cli.report import Health
from konductor_like.cli.streams import is_terminal, say, tell, warn
from konductor_like.exits import Exit

if TYPE_CHECKING:
    from konductor_like.cli.observation import Observation


def status(
    nodes: Names = None,
    *,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.TABLE,
    selector: Selector = None,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Exit with 1 when a node is faulty, with 5 when one is unknown."),
    ] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Print the rows alone.")] = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Show how the nodes stand, why, and what to do.

    Reads the cluster only. Above the nodes: the brake, and the controller with how far it has read.
    """
    from konductor_like.cli.configuration import load_settings
    from konductor_like.cli.observation import observe, reading_client

    begin(verbose=verbose)
    if nodes and selector:
        raise CommandError("give names or a selector, not both", status=Exit.USAGE)
    settings = load_settings()
    with reading_client(settings, kubeconfig, context) as client:
        seen = observe(client, settings, clock.now(), names=nodes or (), selector=selector)
    _show(seen, output, headers=not no_headers)
    found = Exit.of(done=len(set(nodes or ())) - len(seen.missing), failed=len(seen.missing))
    raise typer.Exit(_judged(seen, found) if exit_code else found)


def _judged(seen: Observation, found: Exit) -> Exit:
    """What ``--exit-code`` makes of the nodes; ``found`` says whether all that were asked for are there."""
    healths = {node.health for node in seen.report.nodes}
    if Health.FAULTY in healths:
        return Exit.FAILED
    unknown = Health.UNKNOWN in healths or (seen.unread and healths)
    return Exit.UNKNOWN if unknown and found is Exit.OK else found


def _show(seen: Observation, output: Output, *, headers: bool) -> None:
    report = seen.report
    if output in (Output.TABLE, Output.WIDE) and is_terminal(sys.stdout):
        from konductor_like.cli.terminal import console, status_view

        console().print(status_view(report, wide=output is Output.WIDE, headers=headers))
    else:
        say(render(report, output, headers=headers))
    for name in seen.missing:
        tell(f"node/{name} not found")
    for name in seen.ordinary:
        tell(f"node/{name} has no GPU, and nothing is recorded on it")
    if not report.nodes and not seen.missing and not seen.ordinary:
        tell("No GPU nodes found.")
    if output in (Output.JSON, Output.YAML):
        return  # they hold all of what follows
    for node in report.nodes:
        for warning in node.warnings:
            warn(f"node/{node.name}: {warning}")
    if report.nodes and seen.unread:
        warn(seen.unread)
