"""``konductor-like demo``: a package of its own, ``konductor-like-sandbox``, has it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import typer

from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import Command, CommandGroup

_PACKAGE = "konductor_like_sandbox"


def add_demo(app: typer.Typer) -> None:
    """Add the command to the application, without an import of the package that any checker sees."""
    if find_spec(_PACKAGE) is None:
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command("demo", cls=Command, context_settings=anything)(missing)
        return
    demo = import_module(f"{_PACKAGE}.demo.command")
    stage = typer.Typer(
        cls=CommandGroup,
        invoke_without_command=True,
        subcommand_metavar="[xid NODE CODE | reboot NODE]",
        rich_markup_mode=None,
    )
    stage.callback()(demo.demo)
    stage.command("xid", cls=Command)(demo.xid)
    stage.command("reboot", cls=Command)(demo.reboot)
    app.add_typer(stage, name="demo")


def missing(_ctx: typer.Context) -> None:
    """Watch the real controller at work on a made-up fleet; `make demo` in a checkout installs it."""
    raise CommandError("the demo is a package of its own: run `make demo` in a checkout of the repository")
