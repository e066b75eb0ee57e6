"""``konductor-like rules``: which rules hold, one rule in full, and whether a file of your own is good."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from konductor_like.cli.failures import begin
from konductor_like.cli.options import Verbose, not_empty
from konductor_like.model import Source

File = Annotated[
    Path | None,
    typer.Option(
        "-f",
        "--file",
        metavar="FILE",
        envvar="KONDUCTOR_RULES_FILE",
        show_envvar=True,
        help="A rules file of your own, laid over the built-in rules.",
    ),
]


class Format(StrEnum):
    """What ``-o`` takes."""

    TABLE = "table"
    JSON = "json"


def list_rules(
    *,
    file: File = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """List every rule: severity, mode, and where it comes from."""
    from konductor_like.cli import ruling

    begin(verbose=verbose)
    ruling.show_list(ruling.load(file), as_json=output is Format.JSON)


def show_rule(
    rule: Annotated[
        str,
        typer.Argument(metavar="RULE", help="Its name, such as xid.94 or nccl.socket.", callback=not_empty),
    ],
    *,
    file: File = None,
    verbose: Verbose = False,
) -> None:
    """Show one rule as YAML that can be pasted into a rules file."""
    from konductor_like.cli import ruling

    begin(verbose=verbose)
    ruling.show_one(ruling.load(file), rule)


def check_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The rules file to check.")],
    lines: Annotated[
        str | None,
        typer.Argument(metavar="[LOG]", help="A log file (- for standard input) to compare the rules on."),
    ] = None,
    *,
    source: Annotated[
        Source, typer.Option("--source", help="Whether the log is the kernel's or a pod's.")
    ] = Source.KERNEL,
    verbose: Verbose = False,
) -> None:
    """Check a rules file as the controller would.

    Every problem is told with its line. With a log, show what the file makes of it that the built-in rules do
    not. Exits with 2 when the file would be refused; a warning is no error.
    """
    from konductor_like.cli import ruling

    begin(verbose=verbose)
    rules = ruling.checked(file)
    if lines is not None:
        ruling.compare(rules, lines, source)


def application() -> typer.Typer:
    """The group of commands."""
    app = typer.Typer(
        help="List the rules, show one, check a file of your own.",
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help, as kubectl's
    )
    app.command("list")(list_rules)
    app.command("show")(show_rule)
    app.command("test")(check_file)
    return app
