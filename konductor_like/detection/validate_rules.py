"""Reading a user's rules file, laying it over the packaged rules, and trying it in detection (rule 18).

A pattern that fits its examples is not enough: detection takes some lines for quotations, and an earlier rule
may decide on a line.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from konductor_like.catalog import CatalogError, Mode, RulesError, UserRules, load_catalog, read_user_rules
from konductor_like.catalog.rules_file import WHOLE_FILE, quoted
from konductor_like.detection.detector import Detector
from konductor_like.detection.why_not import why_no_fault

_NO_RULES = "for no rules of your own write `rules: []`"
_BYTES_READ_MOST = 2 * 1024 * 1024


def load_rules(path: Path | None, *, needed: bool = False) -> UserRules:
    """Return the packaged rules with the file at ``path`` over them; without a file, only the packaged rules.

    With ``needed`` a file that is gone or empty is refused too: a mistake is more likely than the wish to
    have no rules of one's own. Raises RulesError where the file is broken, cannot be read, or has a rule that
    finds nothing.
    """
    text = None if path is None else _read(path)
    if needed and path is not None and not (text and text.strip()):
        how = "is gone" if text is None else "is empty"
        raise _unreadable(path, f"{how}; {_NO_RULES}")
    if path is None or text is None:
        return UserRules(load_catalog())
    rules = validated(read_user_rules(text, path.name, load_catalog()))
    if text.strip():
        return rules
    return replace(rules, warnings=(f"{path.name} is empty: a running controller refuses it; {_NO_RULES}.",))


def validated(rules: UserRules) -> UserRules:
    """Return the same rules, with a warning for each example on which another rule decides.

    Raises RulesError with every rule that does not find its examples. Rules that are off are not tried.
    """
    detector = Detector(rules.catalog)
    problems: list[CatalogError] = []
    warnings: list[str] = []
    for rule in rules.catalog.pattern_rules:
        if rule.id not in rules.own or rule.mode is Mode.OFF:
            continue
        record = rules.records[rule.id]
        for number, example in enumerate(rule.examples):
            finding = detector.find(example, rule.source)
            if finding is None:
                why = why_no_fault(rules.catalog, example, rule.source)
                reason = f"the rule does not find {quoted(example)}"
                problems.append(record.error("match", f"{reason}: {why}" if why else reason, number))
            elif finding.rule != rule.id:
                reason = f"{finding.rule} comes first and matches {quoted(example)}."
                warnings.append(str(record.error("match", reason, number)))
    if problems:
        raise RulesError(problems)
    return replace(rules, warnings=(*rules.warnings, *warnings))


def _read(path: Path) -> str | None:
    """Return the file's text; None where there is no file."""
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise _unreadable(
                path, f"is {'a directory' if path.is_dir() else 'a device or a pipe'}, not a file"
            )
        with path.open("rb") as file:
            return file.read(_BYTES_READ_MOST).decode("utf-8")
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"is not UTF-8 at byte {error.start}") from error


def _unreadable(path: Path, reason: str) -> RulesError:
    return RulesError([CatalogError(str(path), WHOLE_FILE, "content", reason)])
