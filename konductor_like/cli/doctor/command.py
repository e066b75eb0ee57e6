"""``konductor-like doctor``: checks every link from the kernel log to the taint."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Annotated, Literal

import typer

from konductor_like.cli.help import examples
from konductor_like.cli.options import Context, Kubeconfig
from konductor_like.cli.output import Screen, say, say_document

SECONDS = 7.0
"""Seconds for all requests together, so that the command ends within ten unless this machine is busy."""


@examples("doctor", "doctor -v", "doctor -o json")
def doctor(
    *,
    output: Annotated[
        Literal["table", "json", "yaml"], typer.Option("-o", "--output", help="Output format.")
    ] = "table",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=300, metavar="SECONDS", help="Longest wait in all.")
    ] = SECONDS,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show the details of whole links, too.")
    ] = False,
) -> None:
    """Check the whole chain, from the kernel log to the taint, link by link.

    Changes nothing. For Loki set LOG_ENDPOINT, and further settings as the controller has them. Exits with 4
    if a link is broken, with 5 if none is broken but a link could not be checked.
    """
    from konductor_like.cli.doctor.gather import gather
    from konductor_like.cli.doctor.report import checkup, exit_of, report_document, report_lines
    from konductor_like.cli.session import load_settings

    end = time.monotonic() + timeout  # after the imports: on a busy machine they take seconds
    facts = gather(load_settings(), kubeconfig, context, timeout, lambda: max(0.0, end - time.monotonic()))
    links = checkup(facts)
    with suppress(BrokenPipeError):  # `doctor | head -1`: the exit status tells the result all the same
        if output == "table":
            say(report_lines(links, Screen.of(sys.stdout), verbose=verbose))
        else:
            say_document(report_document(links, facts.now), output)
    raise typer.Exit(exit_of(links))
