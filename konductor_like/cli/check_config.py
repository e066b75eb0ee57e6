"""``konductor-like check-config``: prints the settings in effect and every problem with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from konductor_like.cli.help import examples
from konductor_like.cli.options import FormatOption, Verbose
from konductor_like.cli.output import say, say_document, say_table, tell, warn
from konductor_like.cli.rules import RULES_VARIABLE
from konductor_like.exits import Exit

if TYPE_CHECKING:
    from konductor_like.settings import Settings
    from konductor_like.settings_report import Effective


@examples("check-config", "check-config -o json")
def check_config(*, output: FormatOption = "table", _verbose: Verbose = False) -> None:
    """Check the settings and the rules; show what is in effect.

    Secrets are hidden. The whole configuration is environment variables; a misspelt variable is an error
    here. Exits with 2 if there is any error.
    """
    found = inspect(os.environ)
    if output == "name":
        say(name for name, _, _ in found.in_effect)
    elif output != "table":
        settings = [dict(zip(("name", "value", "from"), each, strict=True)) for each in found.in_effect]
        say_document({"settings": settings, "problems": found.problems, "warnings": found.warnings}, output)
    elif found.in_effect:
        say_table(("NAME", "VALUE", "FROM"), found.in_effect)
    for warning in found.warnings:
        warn(warning)
    for problem in found.problems:
        tell(f"error: {problem}")
    if found.hint:
        tell(f"hint: {found.hint}")
    if found.problems:
        raise typer.Exit(Exit.USAGE)
    tell(f"The configuration is good, and so are the rules: {found.rules}.")


@dataclass(slots=True)
class Inspection:
    """The settings in effect (empty if they cannot be loaded), and all problems and warnings."""

    in_effect: list[Effective] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hint: str = ""
    """What was not checked because of the problems."""
    rules: str = ""
    """The number of rules: ``176 Xids, 400 SXids, 53 patterns``."""


def inspect(environ: Mapping[str, str]) -> Inspection:
    """Check the environment, the settings and the rules."""
    from pydantic import ValidationError

    from konductor_like.settings import Settings
    from konductor_like.settings_report import effective, explain_settings_error, misspelt_variables

    found = Inspection(problems=misspelt_variables(environ))
    file = None
    try:
        settings = Settings()
    except ValidationError as error:
        found.problems += explain_settings_error(error, environ)
        found.hint = (
            "some combinations are checked only after these errors are corrected; then run this again"
        )
        file = Path(rules) if (rules := environ.get(RULES_VARIABLE)) else None
    else:
        found.in_effect = effective(settings, environ)
        found.problems += _unusable(settings)
        if kind := settings.node_condition:
            found.warnings.append(
                f"KONDUCTOR_NODE_CONDITION={kind}: the controller may write the condition only after kubectl "
                f"apply -f manifests/node_condition.yaml, with {kind} in the list `ours` of its policy."
            )
        if settings.job_events:
            found.warnings.append(
                "KONDUCTOR_JOB_EVENTS=true: the controller may send these Events only after kubectl apply -f "
                "manifests/job_events.yaml."
            )
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
        found.warnings.append(f"KONDUCTOR_RULES_FILE={file}: no such file; only the built-in rules apply.")


def _unusable(settings: Settings) -> list[str]:
    """Return the problems that appear only when a setting is used; the controller makes the same checks."""
    from konductor_like.cluster.node_decoder import parse_selector
    from konductor_like.loki.client import LokiClient
    from konductor_like.loki.errors import LokiMisconfigured
    from konductor_like.settings import parse_listen

    problems = []
    try:
        with closing(LokiClient(settings)) as client:
            client.check()
    except LokiMisconfigured as error:
        problems.append(str(error))
    checks: tuple[tuple[str, str, Callable[[str], object]], ...] = (
        ("KONDUCTOR_GPU_NODE_SELECTOR", settings.gpu_node_selector, parse_selector),
        ("KONDUCTOR_NODE_SELECTOR", settings.node_selector, parse_selector),
        ("KONDUCTOR_LISTEN", settings.listen, lambda listen: listen == "off" or parse_listen(listen)),
    )
    for name, value, check in checks:
        try:
            check(value)
        except ValueError as error:
            problems.append(f"{name}={value!r}: {error}")
    return problems
