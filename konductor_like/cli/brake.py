"""``konductor-like brake``: how the brake stands and why, and arming it again by hand."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from konductor_like.cli.failures import begin
from konductor_like.cli.options import Context, Kubeconfig, Verbose


class Format(StrEnum):
    """What ``-o`` takes."""

    TABLE = "table"
    JSON = "json"


def brake_status(
    *,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = Format.TABLE,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Show the brake: its bounds, what it holds back and why, when it arms itself again."""
    from konductor_like.cli.breaking import show

    begin(verbose=verbose)
    show(kubeconfig, context, as_json=output is Format.JSON)


def brake_reset(
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; kept on the Lease.", show_default=False)
    ] = "",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Arm the brake again now: its cool-down ends and its rate counts anew.

    Its bounds hold as before; what they hold back needs room, or other settings.
    """
    from konductor_like.cli.steering import rearm_brake

    begin(verbose=verbose)
    rearm_brake(kubeconfig, context, reason.strip())


def application() -> typer.Typer:
    """The group of commands."""
    app = typer.Typer(
        help="Show the brake; arm it again by hand.",
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help, as kubectl's
    )
    app.command("status")(brake_status)
    app.command("reset")(brake_reset)
    return app
