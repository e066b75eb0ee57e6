"""The command ``konductor-like report``: its options and its exit status."""

from __future__ import annotations

import importlib.util

import typer

from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import examples
from konductor_like.cli.history.command import Since, Until
from konductor_like.cli.options import Context, Kubeconfig, Verbose
from konductor_like.cli.written_file import Force, Target, check_target, write_file
from konductor_like.exits import Exit

INSTALL = "pip install 'konductor-like[report]', or pip install '.[report]' in a copy of the repository"


@examples("report -o report.html", "report --since 90d -o quarter.html --force")
def report(
    *,
    output: Target,
    since: Since = "30d",
    until: Until = None,
    force: Force = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Write one HTML page for managers: GPU hours lost, availability, repair times, what fails most.

    The command reads the controller's audit trail in Loki and the records on the Nodes, and changes nothing
    in the cluster. It needs Jinja2: pip install 'konductor-like[report]'.
    """
    from konductor_like.cli.history import text
    from konductor_like.cli.history.gather import read_cluster, read_history, span_of_options
    from konductor_like.cli.output import warn

    if importlib.util.find_spec("jinja2") is None:
        raise CommandError(f"report needs Jinja2, which is not installed: {INSTALL}", status=Exit.USAGE)
    check_target(output, force=force)
    from konductor_like.cli.report.render import rendered

    sources = read_cluster(kubeconfig, context)
    start, end = span_of_options(since, until, sources.now)
    found = read_history(sources, start, end)
    write_file(output, rendered(found, sources.now).encode(), force=force)
    for message in text.gaps(found):
        warn(message)
    raise typer.Exit(Exit.OK if found.trail.is_whole and not found.problem else Exit.PARTLY)
