"""Records around a line: those of container runtimes, of journald, and of log collectors.

A record is opened only where something in it tells that the journal or a collector made it. A program that
watches the kernel log prints JSON and logfmt as well, with a kernel line in ``msg`` or ``message``: that is a
quotation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from konductor_like.model import KernelPosition

CRI = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP](?::\S{1,64})? ",
    re.ASCII,
)
WRAPPERS_MOST = 3
"""How many records one line may stand in: a runtime's in a collector's, and one more."""
_HEADS = ("{", "msg=", "level=", "priority=", "severity=", "facility=")
_LOGFMT = re.compile(
    r"(?:(?:level|priority|severity)=(?:emerg|alert|crit|err|notice|[0-7]) |facility=(?:kern|0) )*"
    r'msg=(?P<message>"(?:[^"\\]|\\.)*+")'
    r"(?: (?:severity|flags|traceID|spanID|(?:attribute|resource|instrumentation_scope)_[\w./-]{1,128})="
    r'(?:"(?:[^"\\]|\\.)*+"|[^\s"]*+))*+\s*',
    re.ASCII,
)
"""``msg="…"`` with what OpenTelemetry's lokiexporter puts behind it, or with a syslog level in front. The
loggers of programs write ``time=``, ``caller=`` and ``level=warning``."""
_OF_LOKIEXPORTER = frozenset(
    (
        *("body", "traceid", "spanid", "severity", "flags", "attributes", "resources"),
        "instrumentation_scope",
    )
)
_SOURCES_OF_VECTOR = ("docker_logs", "file", "kubernetes_logs")
_NUMBER_MOST = 2**63
_OTHER_FACILITY = 1


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """What was inside a record; ``position`` is not None where the record vouches for the kernel."""

    text: str
    position: KernelPosition | None = None
    facility: int | None = None


def is_wrapped(text: str) -> bool:
    """Whether a text may be a record in JSON or logfmt; this only saves time."""
    return text.startswith(_HEADS)


def unwrap(text: str) -> Unwrapped | None:
    """The line inside a record of the journal or a collector; None where the text is no such record."""
    if not text.startswith("{"):
        match = _LOGFMT.fullmatch(text)
        message = None if match is None else _loaded(match["message"])
        return Unwrapped(message) if isinstance(message, str) else None
    record = _loaded(text)
    if not isinstance(record, dict):
        return None
    printed = _printed(record)
    return _kernels(record) if printed is None else Unwrapped(printed)


def unwrap_output(text: str) -> str:
    """The line that a container printed, without the records of its runtime and of collectors around it."""
    for _ in range(WRAPPERS_MOST):
        match = CRI.match(text)
        if match is not None:
            text = text[match.end() :]
            continue
        inner = unwrap(text) if is_wrapped(text) else None
        if inner is None or inner.position is not None:
            break
        text = inner.text
    return text


def unwrap_pod_record(text: str) -> str:
    """The line that a container printed, without what its runtime put around it."""
    match = CRI.match(text)
    if match is not None:
        return text[match.end() :]
    if text.startswith("{"):
        record = _loaded(text)
        if isinstance(record, dict) and _is_docker(record):
            return str(record["log"])
    return text


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_docker(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("log"), str) and ("stream" in record or "time" in record)


def _printed(record: Mapping[str, Any]) -> str | None:
    """What a container printed, or a file holds, in the record of Docker or of a collector that read it."""
    if _is_docker(record) or ("log" in record and (len(record) == 1 or "kubernetes" in record)):
        key = "log"  # Fluent Bit gives it alone, or with what it knows of the pod
    elif "_entry" in record:  # Promtail's stage ``pack``
        key = "_entry"
    elif record.get("source_type") in _SOURCES_OF_VECTOR:
        key = "message"
    elif record.keys() <= _OF_LOKIEXPORTER:
        key = "body"
    else:
        return None
    value = record.get(key)
    return value if isinstance(value, str) else None


def _kernels(record: Mapping[str, Any]) -> Unwrapped | None:
    """A record that itself says to be the kernel's; None for one that a program logged."""
    body = record.get("body")
    if isinstance(body, dict) and record.keys() <= _OF_LOKIEXPORTER:
        record = body  # what OpenTelemetry's journald receiver read
    if "MESSAGE" in record:
        return _journal(record, record["MESSAGE"])
    if "kernel" in (record.get("_TRANSPORT"), record.get("SYSLOG_IDENTIFIER")):
        return _journal(record, record.get("message"))  # Vector's journald source
    return _kmsg(record)


def _journal(record: Mapping[str, Any], message: object) -> Unwrapped | None:
    """A journal entry that came from the kernel; None for one that a program logged."""
    if (
        record.get("_TRANSPORT", "kernel") != "kernel"
        or record.get("SYSLOG_IDENTIFIER", "kernel") != "kernel"
    ):
        return None
    if "_PID" in record:  # a field that only programs have
        return None
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


def _kmsg(record: Mapping[str, Any]) -> Unwrapped | None:
    """A record of /dev/kmsg as Fluent Bit's input ``kmsg`` or Talos gives it."""
    message = record.get("msg")
    if not isinstance(message, str):
        return None
    if "talos-time" in record and isinstance(record.get("facility"), str):
        position = KernelPosition(sequence=_whole(record.get("seq")), stamp_us=_whole(record.get("clock")))
        return Unwrapped(message, position, 0 if record["facility"] == "kern" else _OTHER_FACILITY)
    sequence, seconds, rest = (_whole(record.get(key)) for key in ("sequence", "sec", "usec"))
    if sequence is None or seconds is None or rest is None:
        return None
    return Unwrapped(message, KernelPosition(sequence=sequence, stamp_us=seconds * 1_000_000 + rest))


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


def _whole(value: object) -> int | None:
    """A number that the kernel may have counted to."""
    return value if isinstance(value, int) and type(value) is int and 0 <= value < _NUMBER_MOST else None
