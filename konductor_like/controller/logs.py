"""How the controller's log looks: one line per fact, text for people and JSON for collectors.

Text follows Konduktor's controller, so that what people grep for today still works: ``node `NAME` has dmesg
error: LINE``, ``Node NAME tainted.``, ``Node NAME taint removed.``
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from konductor_like.cluster.errors import KubeError
from konductor_like.loki.errors import LokiError

LOGGER = logging.getLogger("konductor_like")
_WORD = re.compile(r"[\w.:/@+-]+")


class TextFormatter(logging.Formatter):
    """``2026-03-04 12:00:00 INFO message``, in local time as Konduktor prints it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """One record on one line, whatever the message holds; one of the audit trail with all its facts."""
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        told = _pairs(facts) if "audit" in facts else ""
        return (super().format(record) + told).replace("\r", "\\r").replace("\n", "\\n")


def _pairs(facts: Mapping[str, Any]) -> str:
    """`` name=value`` for each fact that there is; what is not one plain word is quoted as JSON is."""
    known = {name: str(value) for name, value in facts.items() if value is not None}
    return "".join(
        f" {name}={value if _WORD.fullmatch(value) else json.dumps(value, ensure_ascii=False)}"
        for name, value in known.items()
    )


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``ts``, ``level``, ``msg``, and the facts given as ``extra={"facts": …}``."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as JSON."""
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
    """Send our log to ``stream`` (standard error by default); ``auto`` means text on a terminal."""
    target = sys.stderr if stream is None else stream
    text = style == "text" or (style == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False


@contextmanager
def silenced() -> Iterator[None]:
    """Log nothing meanwhile: what a backtest reconciles is no news of today."""
    LOGGER.disabled = True
    try:
        yield
    finally:
        LOGGER.disabled = False


def told(error: KubeError | LokiError) -> str:
    """An error in full sentences: ``str`` says what failed and on what, ``hint`` the way out."""
    parts = (str(error).strip().rstrip("."), error.hint.strip().rstrip("."))
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts if part)


def info(message: str, **facts: object) -> None:
    """Log a fact; ``facts`` are the fields of its JSON form."""
    LOGGER.info("%s", message, extra={"facts": facts})


def warning(message: str, **facts: object) -> None:
    """Log what somebody should look at."""
    LOGGER.warning("%s", message, extra={"facts": facts})


def error(message: str, **facts: object) -> None:
    """Log what stopped us from doing our work."""
    LOGGER.error("%s", message, extra={"facts": facts})


def debug(message: str, **facts: object) -> None:
    """Log what only matters when looking closely."""
    LOGGER.debug("%s", message, extra={"facts": facts})
