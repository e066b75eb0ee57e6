"""The rules in force: the built-in ones and, over them, the user's file, which is read again when it changes.

If a file is refused, the rules in force stay (rule 18).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from konductor_like.catalog import Entry, Mode, RulesError, UserRules, load_catalog
from konductor_like.controller import logs
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.detection import Detector
from konductor_like.detection.validate_rules import load_rules
from konductor_like.model import Finding
from konductor_like.model.text import listed
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.alerts import rule_of as alert_rule
from konductor_like.policy.node.conditions import rule_of
from konductor_like.policy.node.gpu_counts import GPUS_MISSING

_SHOWN_MOST = 20
MOUNTED = Path("/etc/konductor-like/rules/rules.yaml")
"""The path at which the manifest mounts an optional ConfigMap."""


@dataclass(frozen=True, slots=True)
class RulesInForce:
    """One set of rules. Read ``ActiveRules.in_force`` once per task: another thread may replace it."""

    user_rules: UserRules
    detector: Detector

    @property
    def digest(self) -> str:
        """Return the digest that names the rules in log lines and records."""
        return self.user_rules.digest

    def complete(self, policy: PolicyConfig) -> PolicyConfig:
        """Return the policy, completed with the escalations of these rules and the faults without a line.

        The controller's own condition is no evidence, whatever a user calls it.
        """
        catalog = self.user_rules.catalog
        conditions = {
            kind: replace(rule, finding=_finding(catalog.named_entries[rule_of(kind)]))
            for kind, rule in catalog.conditions.items()
            if kind != policy.node_condition
        }
        alerts = {
            name: replace(rule, finding=_finding(catalog.named_entries[alert_rule(name)]))
            for name, rule in catalog.alerts.items()
        }
        return replace(
            policy.with_escalations(catalog.escalations, self.digest),
            gpus_missing=_finding(catalog.named_entries[GPUS_MISSING.rule]),
            conditions=conditions,
            alerts=alerts,
        )


def _finding(entry: Entry) -> Finding | None:
    """Return what a fault without a line means, without a text; None if its rule is off."""
    if entry.mode is Mode.OFF:
        return None
    said = (entry.title, entry.advice.text, "")
    needs, is_shadow = entry.advice.needs.value, entry.mode is Mode.SHADOW
    return Finding(entry.kind, entry.rule, entry.severity, *said, needs=needs, shadow=is_shadow)


class ActiveRules:
    """Keeps the rules in force.

    Only one thread calls ``reload``. Any thread may read ``in_force``, which is replaced as a whole, and set
    ``reload_wanted``.
    """

    def __init__(
        self, path: Path | None, metrics: Metrics, reload_wanted: threading.Event | None = None
    ) -> None:
        """Read the file. Raises RulesError, because there are no older rules yet that could stay in force."""
        self._path = path
        self._metrics = metrics
        self._reload_wanted = reload_wanted or threading.Event()
        self._version = version_of(path)
        self._refused = ""
        rules = load_rules(path)
        if path is not None and self._version is None:
            log = logs.info if path == MOUNTED else logs.warning
            log(f"No rules file at {path}: only the built-in rules are in force.")
        self._enforce(rules, UserRules(load_catalog()))

    def reload(self) -> bool:
        """Read the file again if it changed or ``reload_wanted`` is set. Return whether the rules changed."""
        wanted = self._reload_wanted.is_set()
        self._reload_wanted.clear()
        version = version_of(self._path)
        if version == self._version and not wanted:
            return False
        self._version = version
        before = self.in_force.user_rules
        try:
            rules = load_rules(self._path, needed=bool(before.own or before.overrides))
        except RulesError as error:
            self._refuse(error)
            return False
        refused, self._refused = self._refused, ""
        if rules.digest == before.digest:
            self._show()
            if wanted or refused:
                logs.info(f"The rules have not changed ({rules.digest}).", rules=rules.digest)
            return False
        self._enforce(rules, before)
        return True

    def _refuse(self, error: RulesError) -> None:
        self._metrics.rules_rejected.set(1)
        if str(error) != self._refused:
            self._refused = str(error)
            for problem in error.problems[:_SHOWN_MOST]:
                logs.error(f"Rules file refused: {problem}.")
            digest = self.in_force.digest
            logs.error(f"The earlier rules stay in force ({digest}). {error.hint}", rules=digest)

    def _enforce(self, rules: UserRules, before: UserRules) -> None:
        """Put the rules in force, and log which rules are new, changed or gone."""
        self.in_force = RulesInForce(rules, Detector(rules.catalog))
        self._show()
        old, new = {**before.overrides, **before.own}, {**rules.overrides, **rules.own}
        parts = {
            "new": sorted(new.keys() - old.keys()),
            "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
            "gone": sorted(old.keys() - new.keys()),
        }
        changes = [f"{what}: {listed(names, _SHOWN_MOST)}" for what, names in parts.items() if names]
        if changes:
            logs.info(f"Rules in force ({rules.digest}): {'; '.join(changes)}.", rules=rules.digest)
        for warning in rules.warnings:
            logs.warning(warning)

    def _show(self) -> None:
        self._metrics.rules_rejected.set(0)
        self._metrics.rules_info.clear()
        self._metrics.rules_info.labels(self.in_force.digest).set(1)


def version_of(path: Path | None) -> tuple[int, ...] | None:
    """Return numbers that differ between two versions of a file. A ConfigMap is a link that is replaced."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None  # reading the file will show the error
    return found and (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
