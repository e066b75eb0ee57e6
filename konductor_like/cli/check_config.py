"""``konductor-like check-config``: what is in effect, or what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from konductor_like.cli.options import TableOrJson, Verbose
from konductor_like.cli.output import say_json, say_table, tell, warn
from konductor_like.exits import Exit

if TYPE_CHECKING:
    from konductor_like.settings import Settings
    from konductor_like.settings_report import Effective


def check_config(*, output: TableOrJson = "table", _verbose: Verbose = False) -> None:
    """Check the settings and the rules; show what is in effect.

    Secrets are hidden. All configuration is environment variables; a misspelt one is an error here. Exits
    with 2 when anything is wrong.
    """
    found = inspect(os.environ)
    if output == "json":
        settings = [{"name": each.name, "value": each.value, "from": each.origin} for each in found.in_effect]
        say_json({"settings": settings, "problems": found.problems, "warnings": found.warnings})
    elif found.in_effect:
        say_table(
            ("NAME", "VALUE", "FROM"), [(each.name, each.value, each.origin) for each in found.in_effect]
        )
    for warning in found.warnings:
        warn(warning)
    for problem in found.problems:
        tell(f"error: {problem}")
    if found.problems:
        raise typer.Exit(Exit.USAGE)
    tell(f"The configuration is good, and so are the rules: {found.rules}.")


@dataclass(slots=True)
class Inspection:
    """What is in effect (nothing where the settings cannot be loaded), and everything that was found."""

    in_effect: list[Effective] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    rules: str = ""
    """How many rules there are, in short."""


def inspect(environ: Mapping[str, str]) -> Inspection:
    """Ask every part for what it thinks of the environment."""
    from pydantic import ValidationError

    from konductor_like.settings import Settings
    from konductor_like.settings_report import effective, explain_settings_error, misspelt_variables

    found = Inspection(problems=misspelt_variables(environ))
    file = None
    try:
        settings = Settings()
    except ValidationError as error:
        found.problems += explain_settings_error(error, environ)
    else:
        found.in_effect = effective(settings, environ)
        found.problems += _unusable(settings, environ)
        file = settings.rules_file
    _check_rules(found, file)
    return found


def _check_rules(found: Inspection, file: Path | None) -> None:
    from konductor_like.catalog import CatalogError, RulesError, load_catalog
    from konductor_like.cli.rules import in_short
    from konductor_like.detection.validate_rules import load_rules

    try:
        catalog, rules = load_catalog(), load_rules(file)
    except CatalogError as error:
        found.problems.append(str(error))
    except RulesError as error:
        found.problems += map(str, error.problems)
    else:
        found.warnings += rules.warnings
        patterns = len(catalog.kernel_rules) + len(catalog.pod_rules)
        found.rules = f"{len(catalog.xids)} Xids, {len(catalog.sxids)} SXids, {patterns} patterns"
        if file and (rules.overrides or rules.own):
            found.rules += f"; {file.name}: {in_short(rules)}"
    if file is not None and not file.exists():
        found.warnings.append(f"KONDUCTOR_RULES_FILE={file}: no such file; only the built-in rules hold.")


def _unusable(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """What only shows when a setting is put to use; each part is asked the way the controller asks it."""
    from konductor_like.cluster.node_decoder import parse_selector
    from konductor_like.loki.client import LokiClient
    from konductor_like.loki.errors import LokiMisconfigured
    from konductor_like.settings import parse_listen
    from konductor_like.settings_report import file_problems

    problems = file_problems(settings, environ)
    if not problems:
        try:
            with closing(LokiClient(settings)) as client:
                client.check()
        except LokiMisconfigured as error:
            problems.append(str(error))
    for name in ("gpu_node_selector", "node_selector"):
        try:
            parse_selector(getattr(settings, name))
        except ValueError as error:
            problems.append(f"KONDUCTOR_{name.upper()}={getattr(settings, name)!r}: {error}")
    try:
        if settings.listen != "off":
            parse_listen(settings.listen)
    except ValueError as error:
        problems.append(f"KONDUCTOR_LISTEN={settings.listen!r}: {error}")
    return problems
