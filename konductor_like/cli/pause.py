"""``konductor-like pause`` and ``resume``: no taint is added meanwhile; releases and records go on."""

from __future__ import annotations

from typing import Annotated

import typer

from konductor_like.cli import clock
from konductor_like.cli.failures import CommandError, begin
from konductor_like.cli.options import Context, Kubeconfig, Verbose
from konductor_like.exits import Exit


def pause(
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; everybody is shown it.")],
    span: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="How long: 90s, 30m, 2h, 1d12h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Until when: 2026-05-06T18:00:00Z.")
    ] = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Let the controller taint nothing for a while, or until `resume`.

    What would be tainted is held, and passes afterwards if it is still true. Holds from the moment this
    returns, for every taint that is not under way.
    """
    from konductor_like.cli.spans import is_span, moment_of, span_of
    from konductor_like.cli.steering import pause_tainting

    begin(verbose=verbose)
    if span is not None and until is not None:
        raise CommandError("give --for or --until, not both", status=Exit.USAGE)
    if not reason.strip():
        raise CommandError("say why: --reason must not be empty", status=Exit.USAGE)
    lasting = None if span is None else span_of(span, "--for")
    if until is not None and is_span(until):
        raise CommandError(
            f"--until {until} is no time; for a span there is --for {until}", status=Exit.USAGE
        )
    end = None if until is None else moment_of(until, "--until", clock.now())
    pause_tainting(kubeconfig, context, reason.strip(), lasting=lasting, until=end)


def resume(*, context: Context = None, kubeconfig: Kubeconfig = None, verbose: Verbose = False) -> None:
    """End a pause: what is still true is acted upon within seconds."""
    from konductor_like.cli.steering import resume_tainting

    begin(verbose=verbose)
    resume_tainting(kubeconfig, context)
