"""``konductor-like scan``: detection over files or standard input, with no Loki and no cluster."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from konductor_like.cli.options import Verbose
from konductor_like.exits import Exit
from konductor_like.model import Source

STDIN = "-"


class Format(StrEnum):
    """What ``-o`` takes."""

    TABLE = "table"
    JSON = "json"


def scan(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files, gzip too; - or none for standard input."),
    ] = None,
    *,
    source: Annotated[
        Source,
        typer.Option("--source", help="Kernel logs (dmesg, journal, syslog) or the logs of pods."),
    ] = Source.KERNEL,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="A table, or one JSON object per line.")
    ] = Format.TABLE,
    _verbose: Verbose = False,
) -> None:
    """Find GPU faults in log files.

    Lines are judged exactly as the controller judges them. Finding nothing is a success.
    """
    from konductor_like.cli.scanning import Scan, json_line, table

    names = files or [STDIN]
    rows = json_line if output is Format.JSON else table(names, sys.stdout)
    scanned = Scan(source, rows)
    for name in names:
        scanned.read(name)
    scanned.summarise()
    raise typer.Exit(Exit.of(done=scanned.done, failed=scanned.failed))
