r"""Opening a line of a log: removing what a runtime, a collector, the journal or syslog put around it.

Many programs handle a line. Some put it into a record (JSON, logfmt, the fields of a container runtime);
others put something in front: the kernel's stamp, dmesg's or the journal's time, a syslog header. All of it
is removed, outermost first. The outermost stamp is the record's own; a second stamp behind it is text, as in
a line that was echoed into /dev/kmsg.

A kernel line is a fault only when the rest begins with the driver's own words: in a quotation, words that are
no prefix come before them (rule 15). For the same reason JSON and logfmt are only opened where something in
them shows that the journal or a collector made them: a program that watches the kernel log also writes kernel
lines into ``msg`` or ``message``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from konductor_like.model import EVIDENCE_CHARS, KernelPosition
from konductor_like.model.faults import NOWHERE
from konductor_like.model.text import clipped, printable

_MESSAGE_CHARS = 4096
"""Characters of a message that are read; a kernel record has about 1 KiB."""
_HEAD_CHARS = 16_384
"""Characters of a line that are read where it has no JSON."""
_WRAPPERS_MOST = 3
"""Records around one line at most: a runtime's in a collector's, and one more."""
_PREFIXES_MOST = 8
_DRIVERS = ("NVRM: ", "Xid (", "nvidia-nvswitch", "nvidia-peermem", "nv_mem ")
"""The starts of most messages; no prefix starts like these, so they only save time."""
_STAMPS = ("own", "raw", "stamp")
_BEHIND_STAMP = ("stamp", "raw", "caller", "priority", "level", "wall", "tag")
"""Prefixes that may follow the record's own stamp; behind it any other prefix is part of a quotation. ``tag``
is among them because journalctl's short-monotonic puts host and ``kernel:`` behind the stamp."""

_DATE = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d:\d\d"
_TIME = _CLOCK + r"(?:[.,]\d{1,9})?"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)"
_MONTH = r"(?:[^\W\d_](?:[^\W\d_]|[.\u0300-\u1fff]){1,14}+|\d{1,2}(?:月|월)|Thg \d{1,2})"
"""The short name of a month in nearly every locale of glibc: letters with marks and dots, as in Thai; a
number with a letter behind it, as in Korean; Vietnamese."""
_HOST = r"[\w.:-]{0,254}\w"
RECORD_START = rf"(?=\[|<\d|\d|kmsg/1 |[a-z]{{3,8}} *:[a-z]{{3,6}} *:|{_MONTH} +\d{{1,2}} {_CLOCK})"
"""A record of the kernel log begins here. A container's name before the driver's own words is a quotation."""
_LABELS = r"\{(?:\w{1,64}=\"[^\"\\]{0,256}\"(?:, )?){0,32}\} +" + RECORD_START
"""The labels of a stream, as ``logcli query`` prints them behind the time."""
_NAME = r"[a-z0-9-]{1,63}+"
_POD = (
    r"[a-z0-9.-]{7,253}+(?<=-[a-z0-9]{5})(?<![0-9]{5})"
    r"(?<=[0-9].{4}|.[0-9].{3}|..[0-9]..|.{3}[0-9].|.{4}[0-9]|[b-df-hj-np-tv-z]{5})"
)
"""A pod that a controller has named: behind the last hyphen are five characters that make no word."""


def _stamp(name: str) -> str:
    return rf"\[ *(?P<{name}seconds>\d{{1,12}})\.(?P<{name}fraction>\d{{1,9}}) *+(?:<[^<>\]]{{1,32}}>)?\] ?"


_SHAPES = {
    # The record of our own reader, /dev/kmsg itself, printk's stamp.
    "own": r"kmsg/1 boot=(?P<boot>[0-9a-fA-F-]{32,36}) seq=(?P<own_seq>\d{1,19})"
    r" facility=(?P<own_facility>\d{1,4}) priority=\d{1,2} " + _stamp("own_"),
    "raw": r"(?P<raw_priority>\d{1,5}),(?P<raw_seq>\d{1,19}),(?P<raw_us>\d{1,19}),[^;\s]{1,64};",
    "stamp": _stamp(""),
    # dmesg: the caller, the priority as <4> or "kern  :warn  :".
    "caller": r"\[ *[CT]\d{1,10}\] ?",
    "priority": r"<(?P<number>\d{1,4})>(?:1 )?",
    "level": r"(?P<facility>[a-z]{3,8}+|local\d) *:(?:emerg|alert|crit|err|warn|notice|info|debug) *: ?",
    # dmesg: wall time, time since the line before, time in minutes; and what documents write instead.
    "wall": rf"\[(?:\S{{1,12}} {{1,2}}(?:Thg )?\S{{1,12}} +\d{{1,2}} {_TIME} \d{{4}}(?: <[ \d.]{{1,32}}>)?"
    rf"|{_DATE}[T ]{_TIME}{_ZONE}?"
    r"|[^\W\d_]{3,12}\.? ?\d{1,2} +\d\d:\d\d| *[+<] *\d{1,12}\.\d{1,9}>?|\d{1,19}|\.\.\.)\]:? ?",
    "iso": rf"{_DATE}T{_CLOCK}(?:\.\d{{1,9}}|(?P<comma>,\d{{1,9}}))?{_ZONE} "
    r"(?:(?P<runtime>(?:stdout|stderr) [FP](?::\S{1,64})? )|" + _LABELS + ")?",
    # syslog and the journal: times in many forms, then the host and "kernel".
    "date": rf"(?:{_MONTH} +\d{{1,2}}|\d{{1,2}}\.? +{_MONTH})(?: \d{{4}})? +{_TIME} ",
    "full": rf"[^\W\d_]{{1,4}}+\.? {_DATE} {_TIME} [A-Z0-9+-]{{1,6}} ",
    "clock": rf"(?:{_DATE} )?{_TIME}[ \t]|\d{{9,10}}\.\d{{3,9}} ",
    "tag": rf"(?:{_HOST} )?(?:[a-z0-9]{{3,8}}\.[a-z]{{3,7}} )?kernel: ?",
    "rfc5424": rf"{_HOST} kernel \S{{1,128}} \S{{1,32}} (?:-|\[[^\]]{{0,512}}\]) \ufeff?",
    # kubectl logs --prefix, Talos, and the tracepoint nvidia_dev_xid.
    "kubectl": r"\[pod/[\w./-]{1,320}\] ",
    # Talos pads its levels ("%7s"); kubectl puts no node in front.
    "talos": r"(?:[\w.:-]{1,255}+(?<=\w:) )?(?P<talos_facility>[a-z]{3,8}): {1,7}[a-z]{3,9}: (?=\[)",
    "trace": r"\S.{0,15}-\d{1,10} +(?:\([ \d-]{1,10}\) )?\[\d{3,4}\] +\S{1,8} +"
    r"\d{1,12}\.\d{1,9}: nvidia_dev_xid: ",
}
_IN_BRACKETS = ("stamp", "caller", "wall", "kubectl")
_WITH_A_DIGIT_FIRST = ("raw", "iso", "clock")
_OF_SYSLOG = ("tag", "rfc5424")
"""Shapes with a host's name before the word ``kernel``; looking for these where that word is missing is
slow."""


def _compiled(*left_out: str) -> re.Pattern[str]:
    def either(kinds: Iterable[str]) -> str:
        return "(?:" + "|".join(f"(?P<{kind}>{_SHAPES[kind]})" for kind in kinds) + ")"

    # The first character rules out most shapes at once.
    others = (kind for kind in _SHAPES if kind not in (*_IN_BRACKETS, *_WITH_A_DIGIT_FIRST, *left_out))
    return re.compile(
        rf"\s*+(?:(?=\[){either(_IN_BRACKETS)}|(?=\d){either(_WITH_A_DIGIT_FIRST)}|{either(others)})"
    )


_CONTAINER = re.compile(
    # docker compose and docker service pad the name; stern prints pod and container; kail; kubetail.
    rf"(?:[\w@.-]{{1,128}}+ {{2,64}}+\| |(?:{_NAME} )?{_POD} {_NAME} "
    rf"|{_NAME}/{_POD}\[{_NAME}\]: |\[{_POD}(?: {_NAME})?\] )" + RECORD_START
)
"""The name of a container."""
_ANY = _compiled()
_NOT_OF_SYSLOG = _compiled(*_OF_SYSLOG)

_CRI = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP](?::\S{1,64})? ",
    re.ASCII,
)
_WRAPPED_STARTS = ("{", "msg=", "level=", "priority=", "severity=", "facility=", "ts=")
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

_CRASH = re.compile(
    r"(?:(?P<name>.{0,15}?)\[\d{1,10}\]:? )?(?:segfault|general protection|trap |bad frame|unhandled "
    r"|bus error|illegal instruction|floating point exception|attempts to use)"
)
"""The kernel's message about a process that crashed: name, number, cause, and the file where it happened.
Linux keeps 15 bytes of the name. Causes are those of x86, arm64 and POWER."""
_WRITERS = ("_TRANSPORT", "TRANSPORT", "SYSLOG_IDENTIFIER")
"""Fields that are ``kernel`` in each entry of the kernel. Any program may choose its SYSLOG_IDENTIFIER
(``logger -t kernel``), so the others count, too; Fluent Bit's ``strip_underscores`` renames the first."""
BYTES_ANCHOR = '"MESSAGE":['
"""A journal entry whose message is a list of bytes: `journalctl -o json` writes a message so that has a byte
which is not printable, such as one in the name of a process. Loki is asked for these lines too."""
_BYTES = re.compile(r'"MESSAGE":(\[\d[\d, ]*\])')
_PLAIN_NAME = re.compile(r"[\w.-]*")

_NUMBERED = re.compile(r"\{\d{1,10}\}", re.ASCII)
"""A record of firmware begins so, as in ``{1}[Hardware Error]: event severity: fatal``; it is no JSON."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ESCAPE = re.compile(r"(?:\\x[0-9a-f]{2})+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class _Inner(NamedTuple):
    """The line inside a wrapper; ``position`` is set when the wrapper proves that the kernel wrote it."""

    text: str
    position: KernelPosition | None = None
    facility: int | None = None


Around = Sequence[re.Match[str] | _Inner]
"""The prefixes and wrappers around a record, the outermost first."""
KernelRecord = tuple[str, Around]
"""One record of a kernel log: the message, on one line without prefixes, and what was around it."""


def open_record(text: str) -> KernelRecord | None:
    """Open a kernel line; return None for JSON that is not a record of the kernel."""
    around: list[re.Match[str] | _Inner] = []
    for _ in range(_WRAPPERS_MOST):
        text = text.lstrip()
        if not text.startswith("{"):
            # Only a JSON wrapper must be complete to be read.
            if len(text) > _HEAD_CHARS and "{" not in text[:256]:
                text = text[:_HEAD_CHARS]
            if "\x1b" in text or "\x00" in text:
                text = strip_colours(text)
            text = _strip_prefixes(text, around)
            if not text.startswith(_WRAPPED_STARTS):
                break
        if _NUMBERED.match(text):
            break
        inner = _open_wrapper(text)
        if inner is None and text.startswith("{"):
            return None
        if inner is None:
            break  # a program's logfmt is a message like any other
        text = inner.text
        around.append(inner)
    message = text[:_MESSAGE_CHARS]
    if "\\x" in message:
        message = _ESCAPE.sub(_decoded, message)
    if not (message.isascii() and message.isprintable()):
        message = one_line(strip_colours(message))
    return message.strip(), around


def with_text_message(text: str) -> str:
    """Return a line in which a journal entry's message is text, also where it was a list of bytes."""
    return _BYTES.sub(_as_text, text) if BYTES_ANCHOR in text else text


def _as_text(found: re.Match[str]) -> str:
    try:
        message = bytes(json.loads(found[1])).decode("utf-8", "replace")
    except ValueError:
        return found[0]
    return f'"MESSAGE":{json.dumps(message)}'


def without_process_name(message: str) -> str:
    """Return a message with ``_`` for each character of the crashed process's name, if it begins with one.

    Any process may crash in a file of its choice, under a name of its choice: ``NVRM: a[4711]: segfault at 0
    … in FILE``. A name of one plain word stays, because no message of a driver begins like that.
    """
    crash = _CRASH.match(message)
    if crash is None or crash["name"] is None or _PLAIN_NAME.fullmatch(crash["name"]):
        return message
    return "_" * crash.end("name") + message[crash.end("name") :]


def is_crash(message: str) -> bool:
    """Whether a message reports that a process crashed; name and file in it are what the process chose."""
    return _CRASH.match(message.removeprefix("traps: ")) is not None


def _strip_prefixes(text: str, around: list[re.Match[str] | _Inner]) -> str:
    """Return the text behind all prefixes, and add the prefixes to ``around``."""
    start, stamped = 0, False
    before: re.Match[str] | None = None
    prefix = _ANY if "kernel" in text else _NOT_OF_SYSLOG
    for _ in range(_PREFIXES_MOST):
        if text.startswith(_DRIVERS, start):
            break
        match = prefix.match(text, start)
        if match is None:
            container = _CONTAINER.match(text, start) if before is None or before["runtime"] else None
            if container is None:
                break
            start = container.end()
            continue
        if stamped and match.lastgroup not in _BEHIND_STAMP and not match["comma"]:
            break
        stamped = stamped or match.lastgroup in _STAMPS
        around.append(match)
        before, start = match, match.end()
    return text[start:].lstrip()


def origin(around: Around) -> tuple[KernelPosition, bool]:
    """Return a record's position in the kernel's log, and whether a program wrote it into /dev/kmsg.

    The outermost prefix or wrapper with a position counts, and the outermost one with a facility. The writer
    is a program where the facility is not the kernel's. This takes as long as opening the record, so it is
    called for faults only.
    """
    position: KernelPosition | None = None
    facility: int | None = None
    for each in around:
        at: KernelPosition | None = None
        by: int | None = None
        if isinstance(each, _Inner):
            at, by = each.position, each.facility
        elif each.lastgroup == "stamp":
            at = KernelPosition(stamp_us=stamp_us(each["seconds"], each["fraction"]))
        elif each.lastgroup == "own":
            stamp = stamp_us(each["own_seconds"], each["own_fraction"])
            at = KernelPosition(each["boot"].lower(), int(each["own_seq"]), stamp)
            by = int(each["own_facility"])
        elif each.lastgroup == "raw":
            at = KernelPosition(sequence=int(each["raw_seq"]), stamp_us=int(each["raw_us"]))
            by = int(each["raw_priority"]) >> 3
        elif each.lastgroup == "priority":
            by = int(each["number"]) >> 3
        elif each.lastgroup in ("level", "talos"):
            by = int((each["facility"] or each["talos_facility"]) != "kern")  # 1: any program
        elif each.lastgroup == "wall" or each["comma"]:
            at = NOWHERE  # dmesg printed a time instead of the record's stamp: a stamp behind it is text
        position = position or at
        facility = by if facility is None else facility
    return position or NOWHERE, bool(facility)


def is_of_kernel(around: Around) -> bool:
    """Whether a record around the line says that the kernel wrote it: of the journal, /dev/kmsg or Talos."""
    return any(isinstance(each, _Inner) and each.position is not None for each in around)


def is_stamped(around: Around) -> bool:
    """Whether the line has the stamp that the kernel puts before its records."""
    return any(isinstance(each, re.Match) and each.lastgroup in _STAMPS for each in around)


def _open_wrapper(text: str) -> _Inner | None:
    """Return the line inside a record of the journal or a collector; None for any other text."""
    if not text.startswith("{"):
        match = _LOGFMT.fullmatch(text)
        if match is None or (match["time"] and not match["kernel"]):
            return None
        message = _loaded(match["message"])
        return _Inner(message) if isinstance(message, str) else None
    record = _loaded(text)
    if not isinstance(record, dict):
        return None
    line = _container_line(record)
    return _read_kernel_record(record) if line is None else _Inner(line)


def unwrap_output(text: str) -> str:
    """Return the line that a container printed, without the records of its runtime and collectors."""
    for _ in range(_WRAPPERS_MOST):
        match = _CRI.match(text)
        if match is not None:
            text = text[match.end() :]
            continue
        inner = _open_wrapper(text) if text.startswith(_WRAPPED_STARTS) else None
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


def _read_kernel_record(record: Mapping[str, Any]) -> _Inner | None:
    """Return the line in a record that names the kernel as its writer; None for a program's record."""
    body, payload = record.get("body"), record.get("jsonPayload")
    if isinstance(body, dict) and record.keys() <= _OF_LOKIEXPORTER:
        record = body  # what OpenTelemetry's journald receiver read
    elif isinstance(payload, dict) and "logName" in record:
        record = payload  # Google Cloud Logging, around what its agent read in the journal
    if _said_by_kernel(record):
        message = record.get("message")
        return _Inner(message, NOWHERE, 0) if isinstance(message, str) else None
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


def _read_journal_entry(record: Mapping[str, Any], message: object) -> _Inner | None:
    """Return the line in a journal entry of the kernel; None for a program's entry."""
    if any(record.get(key, "kernel") != "kernel" for key in _WRITERS):
        return None
    if "_PID" in record or "PID" in record:  # a field that only programs have
        return None
    if not isinstance(message, str):
        return None
    return _Inner(
        message,
        KernelPosition(
            boot_id=_boot_id(record.get("_BOOT_ID")),
            stamp_us=_number(record.get("_SOURCE_MONOTONIC_TIMESTAMP")),
        ),
        _number(record.get("SYSLOG_FACILITY")),
    )


def _read_kmsg_fields(record: Mapping[str, Any]) -> _Inner | None:
    """Return the line in the fields of /dev/kmsg as Fluent Bit's input ``kmsg`` or Talos writes them."""
    message = record.get("msg")
    if not isinstance(message, str):
        return None
    if "talos-time" in record and isinstance(record.get("facility"), str):
        position = KernelPosition(sequence=_whole(record.get("seq")), stamp_us=_whole(record.get("clock")))
        return _Inner(message, position, int(record["facility"] != "kern"))
    sequence, seconds, rest = (_whole(record.get(key)) for key in ("sequence", "sec", "usec"))
    if sequence is None or seconds is None or rest is None:
        return None
    return _Inner(message, KernelPosition(sequence=sequence, stamp_us=seconds * 1_000_000 + rest))


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


def strip_colours(text: str) -> str:
    """Remove terminal colours and NULs."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    return text.replace("\x00", "") if "\x00" in text else text


def _decoded(escapes: re.Match[str]) -> str:
    """Decode the bytes that /dev/kmsg writes as ``\\x0a``."""
    return bytes.fromhex(escapes[0].replace("\\x", "")).decode("utf-8", "replace")


def one_line(text: str) -> str:
    """Make one printable line: a run of control characters becomes a blank, lone surrogates are replaced."""
    if text.isascii() and text.isprintable():
        return text.strip()
    return _CONTROL.sub(" ", text).encode("utf-8", "replace").decode("utf-8").strip()


def stamp_us(seconds: str, fraction: str) -> int:
    """Return the microseconds of ``seconds.fraction``; the fraction may have any number of digits."""
    return int(seconds + fraction[:6].ljust(6, "0"))


def evidence(message: str) -> str:
    """Return the part of a one-line message that a finding keeps, printable for Events and logs."""
    # One line of ASCII is printable: its control characters were replaced.
    if len(message) <= EVIDENCE_CHARS and (message.isascii() or message.isprintable()):
        return message
    return clipped(printable(message[: EVIDENCE_CHARS + 1]), EVIDENCE_CHARS)


def normal_pci(address: str | None) -> str | None:
    """Return ``dddd:bb:dd`` in lower case, without function; the domain has four digits, or more if needed.

    ``00000018:01:00`` becomes ``0018:01:00``; ``10000:01:00`` (Intel VMD) stays. ``3d:00``, as old drivers
    print it, stays too: its domain is unknown.
    """
    if address is None:
        return None
    address = address.lower()
    if len(address) in (5, 10):
        return address
    head, _, device = address.rpartition(":")
    domain, _, bus = head.rpartition(":")
    return f"{domain.lstrip('0'):0>4}:{bus}:{device}"
