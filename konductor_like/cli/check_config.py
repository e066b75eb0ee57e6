"""``konductor-like check-config``: prints the settings in effect and every problem with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from konductor_like.cli.help import examples
from konductor_like.cli.options import FormatOption, Verbose
from konductor_like.cli.output import say, say_document, say_table, tell, warn
from konductor_like.cli.rules import RULES_VARIABLE
from konductor_like.exits import Exit

if TYPE_CHECKING:
    from konductor_like.settings import Settings
    from konductor_like.settings_report import Effective


LokiOption = Annotated[
    bool, typer.Option("--loki", help="Ask Loki how many bytes of pod logs each watched namespace sends.")
]
VOLUME_SECONDS = 600
"""Seconds whose pod logs are measured."""
TIMES_READ = 5
"""Number of times that Loki processes a byte of a pod's log for the controller: polls and sweeps overlap, and
Loki reads whole blocks. Measured with default settings (docs/performance.md), and rounded up."""
_SHOWN = 20
"""Namespaces that are listed, at most."""


NotifyOption = Annotated[
    bool, typer.Option("--notify", help="Also send a test message to each receiver of notifications.")
]


@examples("check-config", "check-config -o json", "check-config --loki", "check-config --notify")
def check_config(
    *,
    loki: LokiOption = False,
    notify: NotifyOption = False,
    output: FormatOption = "table",
    _verbose: Verbose = False,
) -> None:
    """Check the settings and the rules; show what is in effect.

    Secrets are hidden. The whole configuration is environment variables; a misspelt variable is an error
    here. Exits with 2 if there is any error, and with --notify also if no test message was sent. The command
    connects to Loki only with --loki, and to receivers only with --notify.
    """
    found = inspect(os.environ)
    if loki and found.settings and not found.problems:
        found.measure(found.settings)
    if notify and not found.problems:
        _notify(found)
    if output == "name":
        say(name for name, _, _ in found.in_effect)
    elif output != "table":
        say_document(found.document(), output)
    elif found.in_effect:
        _say_tables(found)
    for warning in (*found.notes, *found.warnings):
        warn(warning)
    for problem in found.problems:
        tell(f"error: {problem}")
    if found.hint:
        tell(f"hint: {found.hint}")
    if found.problems:
        raise typer.Exit(Exit.USAGE)
    if found.pod_logs and found.pod_logs.bytes_a_minute:
        percent = found.pod_logs.budget_used * 100
        tell(f"To read these pod logs takes about {percent:.0f} % of the controller's budget for Loki.")
    tell(f"The configuration is good, and so are the rules: {found.rules}.")


def _say_tables(found: Inspection) -> None:
    # The value comes last: one that is long, such as a list of tokens, breaks its own row only.
    say_table(("NAME", "FROM", "VALUE"), [(name, of, value) for name, value, of in found.in_effect])
    if found.pod_logs and found.pod_logs.bytes_a_minute:
        say([""])
        say_table(("NAMESPACE", "MIB/MINUTE"), found.pod_logs.rows())


@dataclass(slots=True)
class Inspection:
    """The settings in effect (empty if they cannot be loaded), and all problems and warnings."""

    in_effect: list[Effective] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Further warnings, of facts that only the cluster shows; the other links of `doctor` look at them."""
    hint: str = ""
    """The checks that were left out because of the problems."""
    rules: str = ""
    """The number of rules: ``176 Xids, 400 SXids, 53 patterns``."""
    settings: Settings | None = None
    """The settings if they can be loaded."""
    pod_logs: PodLogs | None = None
    """The cost of the watched namespaces; None if Loki was not asked."""

    def document(self) -> dict[str, Any]:
        """Return the document for ``-o json``."""
        return {
            "settings": [dict(zip(("name", "value", "from"), each, strict=True)) for each in self.in_effect],
            "switches": [],  # of an earlier version
            "problems": self.problems,
            "warnings": [*self.notes, *self.warnings],
            "podLogs": self.pod_logs and self.pod_logs.document(),
        }

    def measure(self, settings: Settings) -> None:
        """Ask Loki for the cost of the watched namespaces. Raises a LokiError."""
        from konductor_like.loki.query.window_query import PODS_UPTO

        self.pod_logs = logs = pod_logs(settings)
        if not logs.bytes_a_minute:
            self.warnings.append(
                f"Loki has no pod log of the watched namespaces from the last {VOLUME_SECONDS // 60} "
                "minutes. Check WATCHED_NAMESPACES, and that the collector sends these namespaces."
            )
        elif logs.budget_used > PODS_UPTO:
            self.warnings.append(
                f"Above {PODS_UPTO * 100:.0f} % of KONDUCTOR_LOKI_BUDGET_MIB_PER_MINUTE the controller polls "
                "pod logs less often. Exclude namespaces (!NAME in WATCHED_NAMESPACES), or raise the budget."
            )


@dataclass(frozen=True, slots=True)
class PodLogs:
    """The cost for Loki of reading the pod logs of the watched namespaces."""

    bytes_a_minute: Mapping[str, int]
    """Bytes that Loki receives in a minute, by namespace, the most first."""
    budget_used: float
    """Share of the budget for Loki's work that reading them takes: 1.0 is all of it."""

    def rows(self) -> list[tuple[str, str]]:
        """Return the largest namespaces, and the sums."""
        each = [*self.bytes_a_minute.items()]
        rows, others = each[:_SHOWN], each[_SHOWN:]
        if others:
            rows.append((f"({len(others)} others)", sum(size for _, size in others)))
        rows.append((f"(all {len(each)})", sum(self.bytes_a_minute.values())))
        return [(name, f"{size / 2**20:.1f}") for name, size in rows]

    def document(self) -> dict[str, Any]:
        """Return the document for ``-o json``."""
        return {"bytesPerMinute": dict(self.bytes_a_minute), "budgetUsed": round(self.budget_used, 4)}


def pod_logs(settings: Settings) -> PodLogs:
    """Ask Loki how many bytes the watched namespaces send. Raises a LokiError."""
    from konductor_like.loki.query.client import LokiClient
    from konductor_like.loki.query.logql import pod_matchers, selector
    from konductor_like.model.time import SECOND_NS

    found: dict[str, int] = {}
    if matchers := pod_matchers(settings):
        with closing(LokiClient(settings)) as client:
            end_ns = client.now_ns()
            start_ns = end_ns - VOLUME_SECONDS * SECOND_NS
            found = client.volume(selector(matchers), settings.namespace_label, start_ns, end_ns)
    bytes_a_minute = {name: size * 60 // VOLUME_SECONDS for name, size in found.items()}
    budget = settings.loki_budget_mib_per_minute * 2**20
    return PodLogs(bytes_a_minute, sum(bytes_a_minute.values()) * TIMES_READ / budget)


def inspect(environ: Mapping[str, str]) -> Inspection:
    """Check the environment, the settings and the rules."""
    from pydantic import ValidationError

    from konductor_like.loki.query.client import LokiClient
    from konductor_like.loki.query.errors import LokiMisconfigured
    from konductor_like.settings import Settings
    from konductor_like.settings_report import effective, explain_settings_error, removed, without_effect

    found = Inspection(problems=without_effect(environ), warnings=removed(environ))
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
        found.settings = settings
        found.in_effect = effective(settings, environ)
        try:
            with closing(LokiClient(settings)) as client:
                client.check()
        except LokiMisconfigured as error:
            found.problems.append(str(error))
        found.notes += _needs(settings)
        if settings.alerts_endpoint:
            _check_alerts(found, settings)
        found.warnings += validation_warnings(settings)
        file = settings.rules_file
    _check_rules(found, file)
    return found


def validation_warnings(settings: Settings) -> Iterator[str]:
    """Yield what a person should know about the settings of returns and validations."""
    from konductor_like.policy.recovery.guards import BY_FILE

    image = settings.validation_image
    if settings.has_recovery_file():
        yield f"KONDUCTOR_RECOVERY_FILE={settings.recovery_file}: {BY_FILE}"
    if image and "@sha256:" not in image:
        yield (
            f"KONDUCTOR_VALIDATION_IMAGE={image} names no digest (@sha256:…): anybody who may push this "
            "tag can replace the program that tests your nodes."
        )


def _needs(settings: Settings) -> Iterator[str]:
    """Yield what no check of the settings can tell about parts that are off by default."""
    for name, manifest in {
        "node_condition": "node_condition.yaml",
        "job_events": "job_events.yaml",
        "validation_image": "validation.yaml",
        "alerts_endpoint": "gpu_alerts.yaml",
    }.items():
        if getattr(settings, name):
            yield (
                f"KONDUCTOR_{name.upper()} needs what is in manifests/{manifest}; `konductor-like doctor` "
                "says what of it the controller lacks."
            )
    if settings.validation_image:
        yield (
            "Validations have never run on a GPU: their readers were tested with outputs made by hand. "
            "Begin with `konductor-like validate NODE`, or with KONDUCTOR_RECOVERY=rehearse on one pool "
            "(docs/use/validate.md)."
        )


def _check_alerts(found: Inspection, settings: Settings) -> None:
    from konductor_like.prometheus.client import AlertsError, PrometheusClient

    try:
        with closing(PrometheusClient(settings)) as client:
            client.check()
    except AlertsError as error:
        found.problems.append(str(error))


def _notify(found: Inspection) -> None:
    """Send a test message to each receiver; add what failed to the problems."""
    from konductor_like.notify.messages import trial_message
    from konductor_like.notify.webhook import WebhookError, WebhookOffError, webhooks
    from konductor_like.settings import Settings

    receivers, without_file = webhooks(Settings()), []
    if not receivers:
        found.problems.append("neither KONDUCTOR_NOTIFY_SLACK_FILE nor KONDUCTOR_NOTIFY_WEBHOOK_FILE is set")
    for receiver in receivers:
        try:
            receiver.send(trial_message(datetime.now(UTC)))
        except WebhookOffError as error:
            without_file.append(f"{error}. No test message was sent there.")
        except WebhookError as error:
            found.problems.append(f"No test message was sent to {receiver.name}: {error}")
        else:
            tell(f"A test message was sent to {receiver.name}.")
    # One receiver of two is usual: the manifest names both files, and each Secret is optional.
    (found.problems if len(without_file) == len(receivers) else found.warnings).extend(without_file)


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
