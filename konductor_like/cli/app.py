"""The command line as a whole: which commands there are, and what an error or an exit becomes.

Every command's module is light: what is slow (the Kubernetes client, pydantic, rich) is imported when a
command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from konductor_like import __version__
from konductor_like.cli import (
    ack,
    breaker,
    check_config,
    explain,
    pause,
    reset,
    rules,
    run,
    scan,
    status,
    taint,
)
from konductor_like.cli.backtest.command import backtest
from konductor_like.cli.dryrun import DryRunCommand
from konductor_like.cli.exits import Exit
from konductor_like.cli.failures import begin, report
from konductor_like.cli.options import Verbose
from konductor_like.cli.streams import close_quietly, harden, say

PLUGIN_PREFIX = "kubectl-"


def execute(arguments: Sequence[str], program: str) -> int:
    """Run one command line and return its exit status; ``program`` is the name it was called by."""
    harden()
    try:
        build()(args=list(arguments), prog_name=display_name(program))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Exit.OK
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:
        exit_status = report(error)
        if exit_status is None:
            raise
        return exit_status
    finally:
        close_quietly()
    return Exit.OK


def display_name(program: str) -> str:
    """How people call us: ``kubectl konductor-like`` where kubectl did."""
    name = Path(program).name
    if name.startswith(PLUGIN_PREFIX):
        return f"kubectl {name.removeprefix(PLUGIN_PREFIX).replace('_', '-')}"
    return "konductor-like"


def build() -> typer.Typer:
    """The application with its commands."""
    app = typer.Typer(
        help="Taints Kubernetes nodes whose kernel says the GPU is broken, from log lines already in Loki.",
        epilog="Exit status: 0 ok, 1 failed, 2 usage or configuration, 3 partly failed, 5 unknown.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help, as kubectl's
    )
    app.callback()(_global_options)
    app.command("run")(run.run)
    app.command("status")(status.status)
    app.command("reset", cls=DryRunCommand)(reset.reset)
    app.command("taint", cls=DryRunCommand)(taint.taint)
    app.command("ack", cls=DryRunCommand)(ack.ack)
    app.command("pause")(pause.pause)
    app.command("resume")(pause.resume)
    app.add_typer(breaker.application(), name="breaker")
    app.command("scan")(scan.scan)
    app.command("backtest")(backtest)
    app.command("explain")(explain.explain)
    app.add_typer(rules.application(), name="rules")
    app.command("check-config")(check_config.check_config)
    app.command("demo")(_demo)
    return app


def _version(value: bool) -> None:
    if value:
        say([f"konductor-like {__version__}"])
        raise typer.Exit


def _global_options(
    *,
    version: Annotated[  # noqa: ARG001  # its callback answers
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    begin(verbose=verbose)


def _demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the stand-ins running at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Watch the real controller at work on a made-up fleet."""
    from konductor_like.cli.demo import demo

    raise typer.Exit(demo(keep=keep))
