"""The rules in force: the package's own with the user's file over them, read again when the file changes.

A file that is refused changes nothing: the rules that run go on (rule 18).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from konductor_like.catalog import RulesError, UserRules, load_catalog
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.detection import Detector
from konductor_like.detection.validate_rules import load_rules
from konductor_like.model import Escalation
from konductor_like.policy.config import PolicyConfig

_SHOWN_MOST = 20
MOUNTED = Path("/etc/konductor-like/rules/rules.yaml")
"""Where the manifest mounts a ConfigMap that need not be there."""


class _Version(NamedTuple):
    """One version of a file; a mounted ConfigMap is a link that is swapped."""

    device: int
    inode: int
    changed_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class RulesInForce:
    """One set of rules. Take it once and ask it for everything: the next moment another may be in force."""

    user_rules: UserRules
    detector: Detector

    @classmethod
    def of(cls, user_rules: UserRules) -> Self:
        """The rules with their detector."""
        return cls(user_rules, Detector(user_rules.catalog))

    @property
    def digest(self) -> str:
        """The name of the rules in log lines and records."""
        return self.user_rules.digest

    @property
    def escalations(self) -> Mapping[str, Escalation]:
        """Thresholds and corroboration, by rule."""
        return self.user_rules.catalog.escalations

    def under(self, rules: PolicyConfig) -> PolicyConfig:
        """The limits of the policy, with these escalations."""
        return rules.under(self.escalations, self.digest)


class ActiveRules:
    """Holds the rules in force.

    One thread reloads; any thread may read ``in_force``, which is swapped as a whole, and set
    ``reload_wanted``.
    """

    def __init__(
        self, path: Path | None, metrics: Metrics, reload_wanted: threading.Event | None = None
    ) -> None:
        """Read the file. Raises RulesError; nothing runs yet that could go on without it."""
        self._path = path
        self._metrics = metrics
        self._reload_wanted = reload_wanted or threading.Event()
        self._version = _version(path)
        self._refused = ""
        self.in_force = RulesInForce.of(load_rules(path))
        self._show()
        if path is not None and self._version is None:
            say = logs.info if path == MOUNTED else logs.warning
            say(f"No rules file at {path}: only the built-in rules hold.")
        self._say_what_changed(UserRules(load_catalog()))

    def reload(self) -> bool:
        """Read the file again if it changed, or if that was wanted; True where other rules hold now."""
        wanted = self._reload_wanted.is_set()
        self._reload_wanted.clear()
        version = _version(self._path)
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
                logs.info(f"The rules are as they were ({rules.digest}).", rules=rules.digest)
            return False
        self.in_force = RulesInForce.of(rules)
        self._show()
        self._say_what_changed(before)
        return True

    def _refuse(self, error: RulesError) -> None:
        self._metrics.rules_rejected.set(1)
        if str(error) != self._refused:
            self._refused = str(error)
            for problem in error.problems[:_SHOWN_MOST]:
                logs.error(f"Rules file refused: {problem}.")
            digest = self.in_force.digest
            logs.error(f"The rules stay as they were ({digest}). {error.hint}", rules=digest)

    def _show(self) -> None:
        self._metrics.rules_rejected.set(0)
        self._metrics.rules_info.clear()
        self._metrics.rules_info.labels(self.in_force.digest).set(1)

    def _say_what_changed(self, before: UserRules) -> None:
        rules = self.in_force.user_rules
        changes = differences(before, rules)
        if changes:
            logs.info(f"Rules in force ({rules.digest}): {'; '.join(changes)}.", rules=rules.digest)
        for warning in rules.warnings:
            logs.warning(warning)


def differences(before: UserRules, now: UserRules) -> list[str]:
    """The differences between two files, in a few words each."""
    old, new = {**before.overrides, **before.own}, {**now.overrides, **now.own}
    parts = {
        "new": sorted(new.keys() - old.keys()),
        "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
        "gone": sorted(old.keys() - new.keys()),
    }
    return [f"{what}: {', '.join(_some(names))}" for what, names in parts.items() if names]


def _some(names: list[str]) -> list[str]:
    return names if len(names) <= _SHOWN_MOST else [*names[:_SHOWN_MOST], f"{len(names) - _SHOWN_MOST} more"]


def _version(path: Path | None) -> _Version | None:
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None  # reading it says why
    return found and _Version(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
