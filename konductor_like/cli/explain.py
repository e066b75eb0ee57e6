"""``konductor-like explain``: what a fault is, whose it usually is, and what we do about it."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.failures import begin
from konductor_like.cli.options import Verbose
from konductor_like.cli.streams import is_terminal, say, tell
from konductor_like.model import Source

if TYPE_CHECKING:
    from konductor_like.cli.explaining import Answer
    from konductor_like.detection import Detector

STDIN = "-"


class Format(StrEnum):
    """What ``-o`` takes."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def explain(
    what: Annotated[
        list[str],
        typer.Argument(metavar="RULE|LINE", help="xid 79, nccl.socket, or a pasted line; - reads one line."),
    ],
    *,
    source: Annotated[
        Source | None,
        typer.Option("--source", help="Where a pasted line comes from; otherwise both are tried."),
    ] = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = Format.TEXT,
    verbose: Verbose = False,
) -> None:
    """Explain a fault, by its name or by a line of a log.

    What it is, whose fault it usually is, what we do, what else to look for. A line is read as the controller
    reads it, with the rules file in force; for one that is no fault it says why, and that is a success.
    """
    from konductor_like.cli.explaining import explain_text

    begin(verbose=verbose)
    text = _standard_input() if what == [STDIN] else " ".join(what)
    _show(explain_text(text.strip(), source, _detector()), output)


def _detector() -> Detector:
    """The rules that a controller with this rules file has in force; no other setting need be right."""
    from pydantic_settings import BaseSettings, SettingsConfigDict

    from konductor_like.cli.ruling import load
    from konductor_like.detection import Detector
    from konductor_like.settings import PREFIX

    class RulesFile(BaseSettings):
        model_config = SettingsConfigDict(env_prefix=PREFIX)
        rules_file: Path | None = None

    return Detector(load(RulesFile().rules_file).catalog)


def _standard_input() -> str:
    """The first line that is not blank: a line full of quotation marks is hard to give to a shell."""
    if sys.stdin.isatty():
        tell("Paste one line, and press Enter.")
    return next((line for line in sys.stdin if line.strip()), "")


def _show(answer: Answer, output: Format) -> None:
    from konductor_like.cli.explanation import document, plain, view

    if output is Format.JSON:
        say([json.dumps(document(answer), indent=2)])
    elif output is Format.YAML:
        import yaml

        say([yaml.safe_dump(document(answer), sort_keys=False, allow_unicode=True, width=4096).rstrip()])
    elif is_terminal(sys.stdout):
        from konductor_like.cli.terminal import console

        console().print(view(answer))
    else:
        say(plain(answer))
