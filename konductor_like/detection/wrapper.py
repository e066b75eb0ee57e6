"""The records around a line: of a container's runtime, of a collector, of the journal.

JSON and logfmt are only opened where something in them shows that the journal or a collector made them: a
program that watches the kernel log also writes kernel lines into ``msg`` or ``message`` (rule 15).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from konductor_like.model import KernelPosition
from konductor_like.model.faults import NOWHERE

WRAPPERS_MOST = 3
"""Records around one line at most: a runtime's in a collector's, and one more."""
_CRI = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP](?::\S{1,64})? ",
    re.ASCII,
)
WRAPPED_STARTS = ("{", "msg=", "level=", "priority=", "severity=", "facility=", "ts=")
_LOGFMT = re.compile(
    r"(?:(?:level|priority|severity)=(?:emerg|alert|crit|err|notice|[0-7]) "
    r"|(?P<time>ts)=[\w:.+-]{1,40} |(?P<kernel>facility)=(?:kern|0) )*"
    r'msg=(?P<message>"(?:[^"\\]++|\\.)*+")'
    r"(?: (?:severity|flags|traceID|spanID|(?:attribute|resource|instrumentation_scope)_[\w./-]{1,128})="
    r'(?:"(?:[^"\\]++|\\.)*+"|[^\s"]*+))*+\s*',
    re.ASCII,
)
"""``msg="…"`` with OpenTelemetry's lokiexporter's fields behind it, or with a syslog level before it.
Programs' own loggers write ``time=``, ``caller=`` and ``level=warning``, which do not fit. They also write
``ts=``, so beside it the facility must be the kernel's."""
_OF_LOKIEXPORTER = frozenset(
    ["body", "traceid", "spanid", "severity", "flags", "attributes", "resources", "instrumentation_scope"]
)
_SOURCES_OF_VECTOR = ("docker_logs", "file", "kubernetes_logs")

_WRITERS = ("_TRANSPORT", "TRANSPORT", "SYSLOG_IDENTIFIER")
"""Fields that are ``kernel`` in each entry of the kernel. Any program may choose its SYSLOG_IDENTIFIER
(``logger -t kernel``), so the others count, too; Fluent Bit's ``strip_underscores`` renames the first."""
BYTES_ANCHORS = ('"MESSAGE":[', '"MESSAGE": [')
"""A journal entry whose message is a list of bytes: `journalctl -o json` writes a message so that has a byte
which is not printable, such as one in the name of a process. Collectors that write the record anew put a
blank in it. Loki is asked for these lines too."""
_MESSAGE_KEY = '"MESSAGE":'
_BYTES = re.compile(r'"MESSAGE":\s{0,8}(\[\s{0,8}\d[\d,\s]*\])', re.ASCII)
_UNREAD_BYTES = re.compile(r'"MESSAGE":\s{0,8}\[')
_OF_KERNEL = re.compile(r'"(?:_?TRANSPORT|SYSLOG_IDENTIFIER)":\s{0,8}"kernel"')


class Inner(NamedTuple):
    """The line inside a wrapper; ``position`` is set when the wrapper proves that the kernel wrote it."""

    text: str
    position: KernelPosition | None = None
    facility: int | None = None


def with_text_message(text: str) -> str:
    """Return a line in which a journal entry's message is text, also where it was a list of bytes."""
    return _BYTES.sub(_as_text, text) if _MESSAGE_KEY in text else text


def has_unread_bytes(text: str) -> bool:
    """Whether a line is a journal entry of the kernel with a list of bytes that cannot be read."""
    if _MESSAGE_KEY not in text:
        return False
    text = with_text_message(text)
    return _UNREAD_BYTES.search(text) is not None and _OF_KERNEL.search(text) is not None


def _as_text(found: re.Match[str]) -> str:
    try:
        message = bytes(json.loads(found[1])).decode("utf-8", "replace")
    except ValueError:
        return found[0]
    return f"{_MESSAGE_KEY}{json.dumps(message)}"


def open_wrapper(text: str) -> Inner | None:
    """Return the line inside a record of the journal or a collector; None for any other text."""
    if not text.startswith("{"):
        match = _LOGFMT.fullmatch(text)
        if match is None or (match["time"] and not match["kernel"]):
            return None
        message = _loaded(match["message"])
        return Inner(message) if isinstance(message, str) else None
    record = _loaded(text)
    if not isinstance(record, dict):
        return None
    line = _container_line(record)
    return _read_kernel_record(record) if line is None else Inner(line)


def unwrap_output(text: str) -> str:
    """Return the line that a container printed, without the records of its runtime and collectors."""
    for _ in range(WRAPPERS_MOST):
        match = _CRI.match(text)
        if match is not None:
            text = text[match.end() :]
            continue
        inner = open_wrapper(text) if text.startswith(WRAPPED_STARTS) else None
        if inner is None or inner.position is not None:
            break
        text = inner.text
    return text


def unwrap_pod_record(text: str) -> str:
    """Return the line that a container printed, without its runtime's record."""
    match = _CRI.match(text)
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


def _container_line(record: Mapping[str, Any]) -> str | None:
    """Return the line that a container printed or a file has, from a record of Docker or a collector."""
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


def _read_kernel_record(record: Mapping[str, Any]) -> Inner | None:
    """Return the line in a record that names the kernel as its writer; None for a program's record."""
    body, payload = record.get("body"), record.get("jsonPayload")
    if isinstance(body, dict) and record.keys() <= _OF_LOKIEXPORTER:
        record = body  # what OpenTelemetry's journald receiver read
    elif isinstance(payload, dict) and "logName" in record:
        record = payload  # Google Cloud Logging, around what its agent read in the journal
    if _said_by_kernel(record):
        message = record.get("message")
        return Inner(message, NOWHERE, 0) if isinstance(message, str) else None
    if "MESSAGE" in record:
        return _read_journal_entry(record, record["MESSAGE"])
    if "kernel" in (record.get("_TRANSPORT"), record.get("SYSLOG_IDENTIFIER")):
        return _read_journal_entry(record, record.get("message"))  # Vector's journald source
    return _read_kmsg_fields(record)


def _said_by_kernel(record: Mapping[str, Any]) -> bool:
    """Whether a collector of syslog or of the journal wrote down that the kernel is a record's writer."""
    if record.get("source_type") == "syslog":  # Vector
        return (record.get("appname"), record.get("facility")) == ("kernel", "kern")
    if "ecs" in record or "agent" in record:  # Filebeat, in the Elastic Common Schema
        systemd, log = _table(record, "systemd"), _table(_table(record, "log"), "syslog")
        by_syslog = (log.get("appname"), _table(log, "facility").get("code")) == ("kernel", 0)
        return systemd.get("transport") == "kernel" or by_syslog
    return False


def _table(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _read_journal_entry(record: Mapping[str, Any], message: object) -> Inner | None:
    """Return the line in a journal entry of the kernel; None for a program's entry."""
    if any(record.get(key, "kernel") != "kernel" for key in _WRITERS):
        return None
    if "_PID" in record or "PID" in record:  # a field that only programs have
        return None
    if not isinstance(message, str):
        return None
    return Inner(
        message,
        KernelPosition(
            boot_id=_boot_id(record.get("_BOOT_ID")),
            stamp_us=_number(record.get("_SOURCE_MONOTONIC_TIMESTAMP")),
        ),
        _number(record.get("SYSLOG_FACILITY")),
    )


def _read_kmsg_fields(record: Mapping[str, Any]) -> Inner | None:
    """Return the line in the fields of /dev/kmsg as Fluent Bit's input ``kmsg`` or Talos writes them."""
    message = record.get("msg")
    if not isinstance(message, str):
        return None
    if "talos-time" in record and isinstance(record.get("facility"), str):
        position = KernelPosition(sequence=_whole(record.get("seq")), stamp_us=_whole(record.get("clock")))
        return Inner(message, position, int(record["facility"] != "kern"))
    sequence, seconds, rest = (_whole(record.get(key)) for key in ("sequence", "sec", "usec"))
    if sequence is None or seconds is None or rest is None:
        return None
    return Inner(message, KernelPosition(sequence=sequence, stamp_us=seconds * 1_000_000 + rest))


def _boot_id(value: object) -> str | None:
    """Return journald's 32 digits as the UUID that the kernel and the Node show."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{32}", value):
        return None
    return f"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"


def _number(value: object) -> int | None:
    match = re.fullmatch(r"[0-9]{1,19}", value) if isinstance(value, str) else None
    return None if match is None else int(match[0])


def _whole(value: object) -> int | None:
    """Return the number if the kernel may have counted to it."""
    return value if type(value) is int and 0 <= value < 2**63 else None
