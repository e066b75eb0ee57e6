"""The rules in force: the built-in ones and, over them, the user's file.

They stay as they are as long as the process runs. If the file changes and is valid, the process starts again
in its place. If the file is refused, the rules in force stay (rule 18).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from konductor_like.catalog import Entry, Mode, RulesError, UserRules
from konductor_like.controller import logs
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.work import SideThread
from konductor_like.detection import Detector
from konductor_like.detection.validate_rules import load_rules
from konductor_like.model import Finding
from konductor_like.model.text import listed
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.alerts import rule_of as alert_rule
from konductor_like.policy.node.conditions import rule_of
from konductor_like.policy.node.gpu_counts import GPUS_MISSING

_SHOWN_MOST = 20
LOOK_SECONDS = 5.0
"""Seconds between two looks at the rules file."""
AGAIN_SECONDS = 30.0
"""Seconds that a process runs at least before it starts again: a file that changes all the time must not keep
the controller from its work."""
MOUNTED = Path("/etc/konductor-like/rules/rules.yaml")
"""The path at which the manifest mounts an optional ConfigMap."""


@dataclass(frozen=True, slots=True)
class RulesInForce:
    """The rules of this process."""

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
    """Has the rules in force, and says when the process should start again. One thread calls ``changed``."""

    def __init__(
        self, path: Path | None, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the file. Raises RulesError, because there are no older rules yet that could stay in force."""
        self._path = path
        self._metrics = metrics
        self._clock, self._began = clock, clock()
        self._version = version_of(path)
        self._refused = ""
        rules = load_rules(path)
        if path is not None and self._version is None:
            log = logs.info if path == MOUNTED else logs.warning
            log(f"No rules file at {path}: only the built-in rules are in force.")
        self.in_force = RulesInForce(rules, Detector(rules.catalog))
        metrics.rules_rejected.set(0)
        metrics.rules_info.labels(rules.digest).set(1)
        if names := sorted({**rules.overrides, **rules.own}):
            logs.info(f"Rules in force ({rules.digest}): {listed(names, _SHOWN_MOST)}.", rules=rules.digest)
        for warning in rules.warnings:
            logs.warning(warning)

    def changed(self, *, asked: bool = False) -> bool:
        """Look whether the file has other rules, and whether they are valid.

        With ``asked`` the file is read even if it looks the same. A change in the first ``AGAIN_SECONDS`` is
        found by a later call.
        """
        version = version_of(self._path)
        if version == self._version and not asked:
            return False
        self._version = version
        before = self.in_force.user_rules
        try:
            rules = load_rules(self._path, needed=bool(before.own or before.overrides))
        except RulesError as error:
            self._refuse(error)
            return False
        refused, self._refused = self._refused, ""
        self._metrics.rules_rejected.set(0)
        if rules.digest == before.digest or version is None:
            if asked or refused:
                logs.info(f"The rules have not changed ({before.digest}).", rules=before.digest)
            return False
        if self._clock() - self._began < AGAIN_SECONDS:
            self._version = ()  # no file's: the next call reads the file again
            return False
        change = f"{before.digest} to {rules.digest}"
        logs.info(f"The rules have changed ({change}). The controller starts again.", rules=rules.digest)
        return True

    def _refuse(self, error: RulesError) -> None:
        self._metrics.rules_rejected.set(1)
        if str(error) != self._refused:
            self._refused = str(error)
            for problem in error.problems[:_SHOWN_MOST]:
                logs.error(f"Rules file refused: {problem}.")
            digest = self.in_force.digest
            logs.error(f"The earlier rules stay in force ({digest}). {error.hint}", rules=digest)


@dataclass(eq=False, kw_only=True)
class RulesWatch(SideThread):
    """Looks at the rules file, now and then and when it is asked to."""

    name: str = "rules"
    what: str = "the rules file"
    close_seconds: float = 1.0
    rules: ActiveRules
    asked: threading.Event
    """Set by another thread to look at once."""
    again: Callable[[], object]
    """Called once, when the process should start again."""

    def step(self) -> None:
        """Wait, and look."""
        self.asked.wait(LOOK_SECONDS)
        asked = self.asked.is_set()
        self.asked.clear()
        is_other = not self.closing.is_set() and self.rules.changed(asked=asked)
        if is_other and not self.closing.is_set():  # to read a file takes a while
            self.close()
            self.again()

    def close(self) -> None:
        """Tell the thread to end. It does not wait for it."""
        super().close()
        self.asked.set()


def version_of(path: Path | None) -> tuple[int, ...] | None:
    """Return numbers that differ between two versions of a file. A ConfigMap is a link that is replaced."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None  # reading the file will show the error
    return found and (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
