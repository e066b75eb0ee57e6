"""``--dry-run`` as kubectl has it, for every command that writes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer
from typer.core import TyperCommand


class DryRun(StrEnum):
    """What ``--dry-run`` takes, as in kubectl."""

    NONE = "none"
    CLIENT = "client"
    """Nothing is sent."""
    SERVER = "server"
    """The server checks every write, and stores nothing."""


DryRunOption = Annotated[
    DryRun, typer.Option("--dry-run", help="Change nothing; alone it means --dry-run=client.")
]


class DryRunCommand(TyperCommand):
    """Lets ``--dry-run`` stand alone, as kubectl does: it then means ``--dry-run=client``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # see below
        # typer types the context as the class it vendors, and typer.Context is what it makes of it
        return super().parse_args(ctx, with_plain_dry_run(args))


def with_plain_dry_run(arguments: Sequence[str]) -> list[str]:
    """The arguments, a bare ``--dry-run`` among the options made ``--dry-run=client``."""
    options = list(arguments)
    end = options.index("--") if "--" in options else len(options)
    options[:end] = [f"--dry-run={DryRun.CLIENT}" if each == "--dry-run" else each for each in options[:end]]
    return options
