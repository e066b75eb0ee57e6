"""``konductor-like check-config``: what is in effect, or what is wrong with it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.columns import columns
from konductor_like.cli.exits import Exit
from konductor_like.cli.failures import begin
from konductor_like.cli.options import Verbose
from konductor_like.cli.streams import is_terminal, say, tell

if TYPE_CHECKING:
    from konductor_like.settings import Settings
    from konductor_like.settings_report import Effective


class Format(StrEnum):
    """What ``-o`` takes."""

    TABLE = "table"
    JSON = "json"


def check_config(
    *,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Check the settings and the rules; show what is in effect.

    Secrets are hidden. All configuration is environment variables; a misspelt one is an error here. Exits
    with 2 when anything is wrong.
    """
    begin(verbose=verbose)
    in_effect, problems = inspect(os.environ)
    _show(in_effect, problems, output)
    for problem in problems:
        tell(f"error: {problem}")
    if problems:
        raise typer.Exit(Exit.USAGE)
    tell(f"The configuration is good, and so are the rules: {_rules_in_short()}.")


def inspect(environ: Mapping[str, str]) -> tuple[list[Effective], list[str]]:
    """What is in effect (nothing where the settings cannot be loaded), and every problem found."""
    from pydantic import ValidationError

    from konductor_like.catalog import CatalogError, load_catalog
    from konductor_like.settings import Settings
    from konductor_like.settings_report import effective, explain_settings_error, misspelt_variables

    problems = misspelt_variables(environ)
    in_effect: list[Effective] = []
    try:
        settings = Settings()
    except ValidationError as error:
        problems += explain_settings_error(error, environ)
    else:
        in_effect = effective(settings, environ)
        problems += _unusable(settings, environ)
    try:
        load_catalog()
    except CatalogError as error:
        problems.append(str(error))
    return in_effect, problems


def _unusable(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """What only shows when a setting is put to use; each part is asked the way the controller asks it."""
    from konductor_like.cluster.gpu import parse_selector
    from konductor_like.controller.probes import parse_listen
    from konductor_like.loki.client import LokiClient
    from konductor_like.loki.errors import LokiMisconfigured
    from konductor_like.settings_report import file_problems

    problems = file_problems(settings, environ)
    if not problems:
        try:
            LokiClient(settings).close()
        except LokiMisconfigured as error:
            problems.append(str(error))
    try:
        parse_selector(settings.gpu_node_selector)
    except ValueError as error:
        problems.append(f"KONDUCTOR_GPU_NODE_SELECTOR={settings.gpu_node_selector!r}: {error}")
    try:
        if settings.listen != "off":
            parse_listen(settings.listen)
    except ValueError as error:
        problems.append(f"KONDUCTOR_LISTEN={settings.listen!r}: {error}")
    return problems


def _show(in_effect: Sequence[Effective], problems: Sequence[str], output: Format) -> None:
    if output is Format.JSON:
        settings = [{"name": each.name, "value": each.value, "from": each.origin} for each in in_effect]
        say([json.dumps({"settings": settings, "problems": list(problems)}, indent=2)])
        return
    if not in_effect:
        return
    headers = ("NAME", "VALUE", "FROM")
    rows = [(each.name, each.value, each.origin) for each in in_effect]
    if is_terminal(sys.stdout):
        from konductor_like.cli.terminal import console, table_view

        console().print(table_view(headers, rows))
    else:
        say(columns(headers, rows))


def _rules_in_short() -> str:
    from konductor_like.catalog import load_catalog

    catalog = load_catalog()
    patterns = len(catalog.kernel_rules) + len(catalog.pod_rules)
    return f"{len(catalog.xids)} Xids, {len(catalog.sxids)} SXids, {patterns} patterns"
