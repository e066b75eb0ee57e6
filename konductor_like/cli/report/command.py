"""The command ``konductor-like report``: its options and its exit status."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import examples
from konductor_like.cli.history.command import Since, Until
from konductor_like.cli.options import Context, Kubeconfig, Verbose
from konductor_like.exits import Exit

INSTALL = "pip install 'konductor-like[report]', or pip install '.[report]' in a copy of the repository"


@examples("report -o report.html", "report --since 90d -o quarter.html --force")
def report(
    *,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="The page's file, such as report.html."),
    ],
    since: Since = "30d",
    until: Until = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
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
    from konductor_like.cli.output import say, warn

    if importlib.util.find_spec("jinja2") is None:
        raise CommandError(f"report needs Jinja2, which is not installed: {INSTALL}", status=Exit.USAGE)
    _check(output, force=force)
    from konductor_like.cli.report.render import rendered

    sources = read_cluster(kubeconfig, context)
    start, end = span_of_options(since, until, sources.now)
    found = read_history(sources, start, end)
    page = rendered(found, sources.now)
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(page)
    except FileExistsError:
        raise _exists(output) from None
    for message in text.gaps(found):
        warn(message)
    say([f"wrote {output}"])
    raise typer.Exit(Exit.OK if found.trail.is_whole and not found.problem else Exit.PARTLY)


def _check(output: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written, before Loki is read for a minute. Raises CommandError."""
    if output.is_dir() or not output.parent.is_dir():
        what = "is a directory" if output.is_dir() else "its folder does not exist"
        raise CommandError(f"{output}: {what}", status=Exit.USAGE)
    if output.exists() and not force:
        raise _exists(output)


def _exists(output: Path) -> CommandError:
    return CommandError(f"{output} exists", hint="choose another name, or --force", status=Exit.USAGE)
