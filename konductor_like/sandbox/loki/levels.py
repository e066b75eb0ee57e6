"""The ``detected_level`` that Loki adds to every line (source: pkg/distributor/field_detection.go).

Kernel lines are guessed; nothing should filter on it. It is here because it is in every answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

DETECTED_LEVEL = "detected_level"

_LEVEL_FIELDS = (
    *("level", "LEVEL", "Level", "log.level", "severity", "SEVERITY", "Severity", "SeverityText"),
    *("lvl", "LVL", "Lvl", "severity_text", "Severity_Text", "SEVERITY_TEXT"),
)
_NAMES = {
    "trace": "trace",
    "trc": "trace",
    "debug": "debug",
    "dbg": "debug",
    "information": "info",
    "info": "info",
    "inf": "info",
    "warning": "warn",
    "warn": "warn",
    "wrn": "warn",
    "error": "error",
    "err": "error",
    "critical": "critical",
    "fatal": "fatal",
}
_BY_SEVERITY_NUMBER = ((0, "unknown"), (4, "trace"), (8, "debug"), (12, "info"), (16, "warn"), (20, "error"))
_IN_TEXT = re.compile(
    r"""(?:^|(?<=[ \t\n\[({"'=|]))
    (trace|debug|fatal|critical|error|err|warning|warn|info)
    (?=[ \t\n\[\](){}:,!"'=|]|$)""",
    re.VERBOSE,
)
_FIELD = re.compile(r'(?:^|[\s{,])"?(?:level|severity|lvl)"?\s*[=:]\s*"?([a-z]+)', re.IGNORECASE)


def detected_level(line: str, metadata: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """The level that Loki would detect, ``unknown`` for want of anything better."""
    for names in (labels, metadata):
        for field in _LEVEL_FIELDS:
            if field in names:
                return _NAMES.get(names[field].lower(), names[field])
    if number := metadata.get("severity_number"):
        return next((name for highest, name in _BY_SEVERITY_NUMBER if int(number) <= highest), "fatal")
    if ("=" in line or "{" in line) and (field_match := _FIELD.search(line)):
        named = _NAMES.get(field_match[1].lower())
        if named:
            return named
    match = _IN_TEXT.search(line.lower())
    return _NAMES[match[1]] if match else "unknown"
