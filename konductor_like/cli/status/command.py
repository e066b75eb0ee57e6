"""``konductor-like status``: shows the fleet in numbers, its faults, the controller and the nodes."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import examples
from konductor_like.cli.options import Context, Kubeconfig, Names, Verbose, not_empty, one_line
from konductor_like.cli.output import Screen, say, say_document, tell, warn
from konductor_like.exits import Exit
from konductor_like.policy.node.health import CORDONED, NOT_READY, Health

if TYPE_CHECKING:
    from konductor_like.cli.status.report import StatusReport
    from konductor_like.cli.status.text import View
Output = Literal["table", "wide", "json", "yaml", "name"]
SortBy = Literal["state", "name", "age", "fault"]
_NO_GPU_NODES = (
    "hint: `konductor-like doctor` looks for the cause; if your GPU nodes have a label of their own, set the "
    "controller's KONDUCTOR_GPU_NODE_SELECTOR"
)


@examples("status", "status gpu-07 -o yaml", "status --state faulty,held -o wide")
def status(
    nodes: Names = None,
    *,
    output: Annotated[
        Output, typer.Option("-o", "--output", help="Output format; wide has more columns.")
    ] = "table",
    selector: Annotated[
        str | None,
        typer.Option(
            "-l",
            "--selector",
            metavar="LABELS",
            help="Only nodes with these labels, such as -l topology.kubernetes.io/zone=eu-north1-a.",
            callback=one_line,
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATES",
            help="Only nodes in these states, such as --state faulty,held or --state cordoned.",
            callback=not_empty,
        ),
    ] = None,
    show_healthy: Annotated[
        bool, typer.Option("--show-healthy", help="List the healthy nodes too, not only their number.")
    ] = False,
    sort_by: Annotated[
        SortBy, typer.Option("--sort-by", help="Order of the nodes; age: the latest change first.")
    ] = "state",
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Keep watching; in a pipe print each node that changes.")
    ] = False,
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code",
            help="Exit with 4 if a node is faulty or held, with 5 if a node is unknown, if no node was found "
            "or if the controller does not run.",
        ),
    ] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Print only the nodes' rows.")] = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Show the state of the fleet, its faults, and what to do.

    Only reads the cluster. First come the numbers, then one line for each fault, then the nodes that are not
    healthy. `-o name` and `-o wide` list the same nodes; `--show-healthy` adds the healthy nodes.
    """
    if nodes and selector:
        raise CommandError("give names or a selector, not both", status=Exit.USAGE)
    if watch and (exit_code or output not in ("table", "wide")):
        raise CommandError("--watch works with -o table and -o wide, without --exit-code", status=Exit.USAGE)
    gc.set_threshold(20_000, 50, 100)  # thousands of Nodes are many small values, and few cycles
    from konductor_like.cli import session
    from konductor_like.cli.status.report import collect, status_report
    from konductor_like.cli.status.text import Order, View
    from konductor_like.cluster.api.client import ReadOnlyKubeClient

    view = View(
        wide=output == "wide",
        headers=not no_headers,
        everything=show_healthy or bool(nodes),
        states=_states(state),
        order=Order(sort_by),
    )
    with session.connected(ReadOnlyKubeClient, kubeconfig, context) as (client, settings):
        if watch:
            from konductor_like.cli.status.watch import follow, reports

            view = replace(view, rows_first=True)
            follow(reports(client, settings, nodes or (), selector), view, Screen.of(sys.stdout))
            return
        report = status_report(collect(client, settings, selector), nodes or ())
        if output in ("wide", "json", "yaml"):
            from konductor_like.cli.status.jobs_now import with_jobs

            report = with_jobs(report, client, view.states)
    _show(report, output, view)
    if not (report.nodes or report.missing or report.ordinary or selector):
        tell(_NO_GPU_NODES)
    found = Exit.of(done=len(set(nodes or ())) - len(report.missing), failed=len(report.missing))
    raise typer.Exit(_by_health(report, found) if exit_code else found)


def _states(text: str | None) -> frozenset[str]:
    """Return the states of ``faulty,held``; ``not-measured`` needs no quotes. Raises CommandError."""
    words = [word.strip().lower().replace("-", " ") for word in (text or "").split(",") if word.strip()]
    states = (*Health, CORDONED, NOT_READY)
    for word in words:
        if word not in states:
            known = ", ".join(state.replace(" ", "-") for state in states)
            raise CommandError(f"--state: {word!r} is not a state; the states are {known}", status=Exit.USAGE)
    return frozenset(words)


def _by_health(report: StatusReport, found: Exit) -> Exit:
    """Return the exit status for ``--exit-code``; ``found`` is the status without that option."""
    healths = {node.health for node in report.nodes}
    if healths & {Health.FAULTY, Health.HELD}:
        return Exit.FOUND
    unknown = not healths or Health.UNKNOWN in healths or report.why_unknown
    return Exit.UNKNOWN if unknown and found is Exit.OK else found


def _show(report: StatusReport, output: Output, view: View) -> None:
    from konductor_like.cli.status.document import status_document
    from konductor_like.cli.status.text import status_lines, warnings

    match output:
        case "json" | "yaml":
            say_document(status_document(report, view.states), output)
        case "name":
            say(f"node/{node.name}" for node in view.chosen(report))
        case "table" | "wide":
            say(status_lines(report, view, Screen.of(sys.stdout)))
    for name in report.missing:
        tell(f"node/{name} not found")
    if report.suggestion:
        tell(f"hint: {report.suggestion}")
    for name in report.ordinary:
        tell(f"node/{name} has no GPU and no record")
    if not (report.nodes or report.missing or report.ordinary):
        tell("No GPU nodes found.")
    if output == "wide" and report.jobs_problem:
        tell(report.jobs_problem)
    if output not in ("json", "yaml"):  # these contain the warnings
        for warning in warnings(report):
            warn(warning)
