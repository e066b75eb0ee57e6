"""The command line: registers every command, and turns errors into messages and exit statuses.

A command's module imports slow packages (the Kubernetes client, pydantic, rich) only when the command runs,
so that ``--help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from konductor_like.build import this_program
from konductor_like.cli import check_config, controls, rules, run, scan
from konductor_like.cli.backtest.command import backtest
from konductor_like.cli.case.command import case
from konductor_like.cli.chain_test import command as chain_test
from konductor_like.cli.demo import add_demo
from konductor_like.cli.doctor import command as doctor
from konductor_like.cli.errors import print_error, print_usage_error
from konductor_like.cli.explain import command as explain
from konductor_like.cli.help import Command, Group
from konductor_like.cli.history.command import history
from konductor_like.cli.incident import command as incident
from konductor_like.cli.nodes import commands as nodes
from konductor_like.cli.nodes.validate import validate
from konductor_like.cli.options import DryRunCommand, Verbose
from konductor_like.cli.output import close_quietly, harden, say
from konductor_like.cli.report.command import report
from konductor_like.cli.status import command as status
from konductor_like.exits import MEANINGS, Exit

PLUGIN_PREFIX = "kubectl-"


def execute(arguments: Sequence[str], program: str) -> int:
    """Run one command line and return its exit status; ``program`` is the name that the user typed."""
    harden()
    try:
        status = command()(args=list(arguments), prog_name=display_name(program), standalone_mode=False)
    except SystemExit as end:  # of the completion
        return end.code if isinstance(end.code, int) else Exit.OK
    except typer.TyperException as error:
        return print_usage_error(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:  # of the completion, whose reader has ended
        return Exit.OK
    except Exception as error:
        exit_status = print_error(error)
        if exit_status is None:
            raise
        return exit_status
    finally:
        close_quietly()
    return status or Exit.OK


def display_name(program: str) -> str:
    """Return the name for usage texts: ``kubectl konductor-like`` if kubectl started the program."""
    name = Path(program).name
    if name.startswith(PLUGIN_PREFIX):
        return f"kubectl {name.removeprefix(PLUGIN_PREFIX).replace('_', '-')}"
    return "konductor-like"


@cache
def command() -> Any:
    """Build the application once per process: it takes longer than most commands."""
    return typer.main.get_command(build())


def build() -> typer.Typer:
    """Build the application with its commands."""
    app = typer.Typer(
        cls=Group,
        help="Taints Kubernetes nodes whose kernel reports a broken GPU, from log lines already in Loki.",
        epilog=f"Exit status: {', '.join(f'{status} {meaning}' for status, meaning in MEANINGS.items())}.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help, as kubectl's
    )
    app.callback()(_global_options)
    app.command("run", cls=Command)(run.run)
    app.command("status", cls=Command)(status.status)
    app.command("doctor", cls=Command)(doctor.doctor)
    app.command("reset", cls=DryRunCommand)(nodes.reset)
    app.command("taint", cls=DryRunCommand)(nodes.taint)
    app.command("test", cls=DryRunCommand)(chain_test.chain_test)
    app.command("validate", cls=DryRunCommand)(validate)
    app.command("pause", cls=Command)(controls.pause)
    app.command("resume", cls=Command)(controls.resume)
    brake = _group(app, "brake", "Show the brake; end its cool-down by hand.")
    brake.command("status", cls=Command)(controls.brake_status)
    brake.command("reset", cls=Command)(controls.brake_reset)
    app.command("scan", cls=Command)(scan.scan)
    app.command("history", cls=Command)(history)
    app.command("case", cls=Command)(case)
    incidents = _group(app, "incident", "Save what happened to a node as a file.")
    incidents.command("save", cls=Command)(incident.save)
    app.command("report", cls=Command)(report)
    app.command("backtest", cls=Command)(backtest)
    app.command("explain", cls=Command)(explain.explain)
    catalogue = _group(app, "rules", "List the rules, show one, check a file of your own.")
    catalogue.command("list", cls=Command)(rules.list_rules)
    catalogue.command("show", cls=Command)(rules.show_rule)
    catalogue.command("test", cls=Command)(rules.check_file)
    app.command("check-config", cls=Command)(check_config.check_config)
    add_demo(app)
    return app


def _group(app: typer.Typer, name: str, summary: str) -> typer.Typer:
    group = typer.Typer(cls=Group, help=summary, rich_markup_mode=None)
    app.add_typer(group, name=name)
    return group


def _version(value: bool) -> None:
    if value:
        say([f"konductor-like {this_program()}"])
        raise typer.Exit


def _global_options(
    *,
    version: Annotated[  # its callback prints the version
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    _verbose: Verbose = False,
) -> None:
    """Options before the command; their callbacks do the work."""
