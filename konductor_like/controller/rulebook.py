"""The rules in force: the package's own with the user's file over them, read again when the file changes.

A file that is refused changes nothing: the rules that run go on (design rule 18).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from konductor_like.catalog import CatalogError, RulesError, UserRules, load_catalog, read_user_rules
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.detection import Detector
from konductor_like.detection.proving import proved
from konductor_like.model import Escalation

_BYTES_READ_MOST = 2 * 1024 * 1024
_SHOWN_MOST = 20
MOUNTED = Path("/etc/konductor-like/rules/rules.yaml")
"""Where the manifest mounts a ConfigMap that need not be there."""


class _Look(NamedTuple):
    """What tells one version of a file from the next; a mounted ConfigMap is a link that is swapped."""

    device: int
    inode: int
    changed_ns: int
    size: int


def load_rules(path: Path | None, clock: Callable[[], float] = time.thread_time) -> UserRules:
    """The packaged rules, and the file at ``path`` over them; no file there means none of one's own.

    ``clock``, in seconds, times the file's rules. Raises RulesError where the file is broken, cannot be read,
    or holds a rule that finds nothing or takes too long.
    """
    text = None if path is None else _read(path)
    if path is None or text is None:
        return UserRules.none(load_catalog())
    return proved(read_user_rules(text, path.name, load_catalog()), clock)


class Rulebook:
    """Holds the detector in force. ``look`` belongs to one thread; ``asked`` may be set by any."""

    def __init__(self, path: Path | None, metrics: Metrics, asked: threading.Event | None = None) -> None:
        """Read the file. Raises RulesError; nothing runs yet that could go on without it."""
        self._path = path
        self._metrics = metrics
        self._asked = asked or threading.Event()
        self._looked = _look(path)
        self._rules = load_rules(path)
        self._refused = ""
        self.detector = Detector(self._rules.catalog)
        self._show()
        if path is not None and self._looked is None:
            say = logs.info if path == MOUNTED else logs.warning
            say(f"No rules file at {path}: only the built-in rules hold.")
        self._say(UserRules.none(load_catalog()))

    @property
    def digest(self) -> str:
        """What names the rules in force, in log lines and records."""
        return self._rules.digest

    @property
    def escalations(self) -> Mapping[str, Escalation]:
        """What makes more of a rule than one line says, by rule."""
        return self._rules.catalog.escalations

    def look(self) -> bool:
        """Read the file again if it changed, or if that was asked for; True where other rules hold now."""
        asked = self._asked.is_set()
        self._asked.clear()
        seen = _look(self._path)
        if seen == self._looked and not asked:
            return False
        self._looked = seen
        try:
            if self._path is not None and (self._rules.own or self._rules.overrides):
                _must_be_there(self._path)
            rules = load_rules(self._path)
        except RulesError as error:
            self._refuse(error)
            return False
        refused, self._refused = self._refused, ""
        before, self._rules = self._rules, rules
        self._show()
        if rules.digest == before.digest:
            if asked or refused:
                logs.info(f"The rules are as they were ({rules.digest}).", rules=rules.digest)
            return False
        self.detector = Detector(rules.catalog)
        self._say(before)
        return True

    def _refuse(self, error: RulesError) -> None:
        self._metrics.rules_rejected.set(1)
        if str(error) != self._refused:
            self._refused = str(error)
            for problem in error.problems[:_SHOWN_MOST]:
                logs.error(f"Rules file refused: {problem}.")
            logs.error(
                f"The rules stay as they were ({self._rules.digest}). {error.hint}", rules=self._rules.digest
            )

    def _show(self) -> None:
        self._metrics.rules_rejected.set(0)
        self._metrics.rules_info.clear()
        self._metrics.rules_info.labels(self._rules.digest).set(1)

    def _say(self, before: UserRules) -> None:
        changes = differences(before, self._rules)
        if changes:
            logs.info(
                f"Rules in force ({self._rules.digest}): {'; '.join(changes)}.", rules=self._rules.digest
            )
        for warning in self._rules.warnings:
            logs.warning(warning)


def differences(before: UserRules, now: UserRules) -> list[str]:
    """What one file says and the other does not, in a few words each."""
    old, new = {**before.overrides, **before.own}, {**now.overrides, **now.own}
    parts = {
        "new": sorted(new.keys() - old.keys()),
        "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
        "gone": sorted(old.keys() - new.keys()),
    }
    return [f"{what}: {', '.join(_some(names))}" for what, names in parts.items() if names]


def _some(names: list[str]) -> list[str]:
    return names if len(names) <= _SHOWN_MOST else [*names[:_SHOWN_MOST], f"{len(names) - _SHOWN_MOST} more"]


def _look(path: Path | None) -> _Look | None:
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None  # reading it says why
    return found and _Look(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


def _read(path: Path) -> str | None:
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise _unreadable(path, "is not a file")
        with path.open("rb") as file:
            return file.read(_BYTES_READ_MOST).decode("utf-8")
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"is not UTF-8 at byte {error.start}") from error


def _must_be_there(path: Path) -> None:
    """Refuse that a file which was in force is gone: more likely a slip than a wish to have no such rules."""
    text = _read(path)
    if text is None or not text.strip():
        how = "is gone" if text is None else "is empty"
        raise _unreadable(path, f"{how}; to go without rules of your own, let it say `rules: []`")


def _unreadable(path: Path, reason: str) -> RulesError:
    return RulesError([CatalogError(path.name, "the file", "content", reason)])
