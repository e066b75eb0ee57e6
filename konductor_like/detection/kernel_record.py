r"""Opening a line of a log: removing what a runtime, a collector, the journal or syslog put around it.

Many programs handle a line. Some put it into a record (JSON, logfmt, the fields of a container runtime);
others put something in front: the kernel's stamp, dmesg's or the journal's time, a syslog header. All of it
is removed, outermost first. The outermost stamp is the record's own; a second stamp behind it is text, as in
a line that was echoed into /dev/kmsg.

A kernel line is a fault only when the rest begins with the driver's own words: in a quotation, words that are
no prefix come before them (rule 15).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from konductor_like.detection.wrapper import WRAPPED_STARTS, WRAPPERS_MOST, Inner, open_wrapper, unwrap_output
from konductor_like.model import EVIDENCE_CHARS, KernelPosition
from konductor_like.model.faults import NOWHERE
from konductor_like.model.text import clipped, printable

_MESSAGE_CHARS = 4096
"""Characters of a message that are read; a kernel record has about 1 KiB."""
_HEAD_CHARS = 16_384
"""Characters of a line that are read where it has no JSON."""
_PREFIXES_MOST = 8
_INDENTED = 2
"""Blanks from which on a line is indented. dmesg and journalctl put as many before the second line of a
record as their prefix is long; one blank alone is what some collectors leave."""
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

BEGINS_RECORD = re.compile(
    r"\[ *\d{1,12}\.\d{1,9}\]|kmsg/1 |[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S{1,255} kernel: ?\S", re.ASCII
)
"""The beginnings of most lines; :func:`begin_of` knows all, and takes longer."""
_OF_RECORD = ('"MESSAGE"', '"_TRANSPORT"', '"msg"')
"""Keys of records in JSON that the journal or /dev/kmsg made; reading these lines again would take long."""

_CRASH = re.compile(
    r"(?:(?P<name>.{0,15}?)\[\d{1,10}\]:? )?(?:segfault|general protection|trap |bad frame|unhandled "
    r"|bus error|illegal instruction|floating point exception|attempts to use)"
)
"""The kernel's message about a process that crashed: name, number, cause, and the file where it happened.
Linux keeps 15 bytes of the name. Causes are those of x86, arm64 and POWER."""
_PLAIN_NAME = re.compile(r"[\w.-]*")

_NUMBERED = re.compile(r"\{\d{1,10}\}", re.ASCII)
"""A record of firmware begins so, as in ``{1}[Hardware Error]: event severity: fatal``; it is no JSON."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ESCAPE = re.compile(r"(?:\\x[0-9a-f]{2})+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


Around = Sequence[re.Match[str] | Inner]
"""The prefixes and wrappers around a record, the outermost first."""
KernelRecord = tuple[str, Around]
"""One record of a kernel log: the message, on one line without prefixes, and what was around it."""


def open_record(text: str) -> KernelRecord | None:
    """Open a kernel line; return None for JSON that is not a record of the kernel."""
    around: list[re.Match[str] | Inner] = []
    for _ in range(WRAPPERS_MOST):
        text = text.lstrip()
        if not text.startswith("{"):
            # Only a JSON wrapper must be complete to be read.
            if len(text) > _HEAD_CHARS and "{" not in text[:256]:
                text = text[:_HEAD_CHARS]
            if "\x1b" in text or "\x00" in text:
                text = strip_colours(text)
            text = _strip_prefixes(text, around)
            if not text.startswith(WRAPPED_STARTS):
                break
        if _NUMBERED.match(text):
            break
        inner = open_wrapper(text)
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


def _strip_prefixes(text: str, around: list[re.Match[str] | Inner]) -> str:
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


class Begin(NamedTuple):
    """The beginning of a line: whether it is that of a record, and the number of blanks before it."""

    of_record: bool
    blanks: int

    @property
    def indented(self) -> bool:
        return self.blanks >= _INDENTED


def begin_of(text: str) -> Begin:
    """Return how a line of a kernel log begins, behind what a container's runtime put before it.

    A record begins with what the kernel, dmesg, the journal or syslog print before its text.
    """
    if BEGINS_RECORD.match(text):
        return Begin(of_record=True, blanks=0)
    if not text.startswith("{") or not any(key in text for key in _OF_RECORD):
        text = unwrap_output(strip_colours(text))
    if text.startswith("{"):
        return Begin(of_record=True, blanks=0)
    start = 0
    prefix = _ANY if "kernel" in text else _NOT_OF_SYSLOG
    for _ in range(_PREFIXES_MOST):
        match = prefix.match(text, start)
        if match is None:
            match = _CONTAINER.match(text, start)
            if match is None:
                break
        elif match.lastgroup != "kubectl" and (match.lastgroup != "iso" or match["comma"]):
            return Begin(of_record=True, blanks=_blanks(match[0]))
        start = match.end()
    return Begin(of_record=False, blanks=_blanks(text[start:]))


def _blanks(text: str) -> int:
    return len(text) - len(text.lstrip())


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
        if isinstance(each, Inner):
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
    return any(isinstance(each, Inner) and each.position is not None for each in around)


def is_stamped(around: Around) -> bool:
    """Whether the line has the stamp that the kernel puts before its records."""
    return any(isinstance(each, re.Match) and each.lastgroup in _STAMPS for each in around)


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
