"""Records around a line: Docker's json-file, CRI, and journald's JSON export."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from konductor_like.model import KernelPosition

CRI = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """What was inside a JSON record; ``position`` is not None where the record vouches for the kernel."""

    text: str
    position: KernelPosition | None = None
    facility: int | None = None


def unwrap_json(text: str) -> Unwrapped | None:
    """The line inside a Docker or journald record; None where the text is no such record."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if isinstance(record.get("log"), str) and ("stream" in record or "time" in record):
        return Unwrapped(record["log"])
    return _journal(record) if "MESSAGE" in record else None


def unwrap_pod_record(text: str) -> str:
    """The line that a container printed, without what its runtime put around it."""
    match = CRI.match(text)
    if match is not None:
        return text[match.end() :]
    if text.startswith("{"):
        inner = unwrap_json(text)
        if inner is not None and inner.position is None:
            return inner.text
    return text


def _journal(record: dict[str, Any]) -> Unwrapped | None:
    """A journal entry that came from the kernel; None for one that a program logged."""
    if (
        record.get("_TRANSPORT", "kernel") != "kernel"
        or record.get("SYSLOG_IDENTIFIER", "kernel") != "kernel"
    ):
        return None
    if "_PID" in record:  # a field that only programs have
        return None
    message = record["MESSAGE"]
    if not isinstance(message, str):
        return None  # bytes that are no UTF-8, as a list of numbers: no anchor finds them
    return Unwrapped(
        message,
        KernelPosition(
            boot_id=_boot_id(record.get("_BOOT_ID")),
            stamp_us=_number(record.get("_SOURCE_MONOTONIC_TIMESTAMP")),
        ),
        _number(record.get("SYSLOG_FACILITY")),
    )


def _boot_id(value: object) -> str | None:
    """journald's 32 digits as the UUID that the kernel and the Node show."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{32}", value):
        return None
    return f"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"


def _number(value: object) -> int | None:
    return (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20
        else None
    )
