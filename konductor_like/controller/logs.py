"""The format of the controller's log: one line per fact, text for people and JSON for collectors.

The text follows the log of Konduktor, the controller that this one replaces. Scripts that search that log
for ``node `NAME` has dmesg error: LINE``, ``Node NAME tainted.`` or ``Node NAME taint removed.`` still work.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from konductor_like.model.edge_errors import EdgeError

LOGGER = logging.getLogger("konductor_like")
_WORD = re.compile(r"[\w.:/@+-]+")


class TextFormatter(logging.Formatter):
    """``2026-03-04T12:00:00Z INFO message``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, whatever its message contains; an audit line with all its facts."""
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        pairs = _pairs(facts) if "audit" in facts else ""
        return (super().format(record) + pairs).replace("\r", "\\r").replace("\n", "\\n")


def _pairs(facts: Mapping[str, Any]) -> str:
    """Return `` name=value`` for each fact that is not None. A value that is not one plain word is quoted."""
    known = {name: str(value) for name, value in facts.items() if value is not None}
    return "".join(
        f" {name}={value if _WORD.fullmatch(value) else json.dumps(value, ensure_ascii=False)}"
        for name, value in known.items()
    )


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``ts``, ``level``, ``msg``, and the facts given as ``extra={"facts": …}``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        entry: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            **facts,
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def set_up(style: Literal["auto", "text", "json"], level: str, *, stream: TextIO | None = None) -> None:
    """Send the log to ``stream`` (standard error by default). ``auto`` is text on a terminal, else JSON."""
    target = sys.stderr if stream is None else stream
    text = style == "text" or (style == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False


@contextmanager
def silenced() -> Iterator[None]:
    """Log nothing meanwhile: a backtest reconciles the past."""
    LOGGER.disabled = True
    try:
        yield
    finally:
        LOGGER.disabled = False


def error_text(error: EdgeError) -> str:
    """Return an error in full sentences: what failed (``str``), then what to do about it (``hint``)."""
    parts = (str(error).strip().rstrip("."), error.hint.strip().rstrip("."))
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts if part)


def info(message: str, **facts: object) -> None:
    """Log a fact; ``facts`` are the fields of its JSON form."""
    LOGGER.info("%s", message, extra={"facts": facts})


def warning(message: str, **facts: object) -> None:
    """Log a fact that somebody should look at."""
    LOGGER.warning("%s", message, extra={"facts": facts})


def error(message: str, **facts: object) -> None:
    """Log a fact that keeps the controller from its work."""
    LOGGER.error("%s", message, extra={"facts": facts})


def debug(message: str, **facts: object) -> None:
    """Log a detail."""
    LOGGER.debug("%s", message, extra={"facts": facts})
