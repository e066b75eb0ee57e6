r"""What stands in front of a kernel message, and what it tells.

A line passes through many hands, and each puts something in front: the kernel's stamp, dmesg's or the
journal's time, a syslog header, a container runtime's fields. They are taken off one by one, outermost first.
The outermost stamp is the record's own; a second one behind it is text, as in a line echoed into /dev/kmsg.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from konductor_like.detection.clean import stamp_us
from konductor_like.model import KernelPosition

_PREFIXES_MOST = 8
_DRIVERS = ("NVRM: ", "Xid (", "nvidia-nvswitch", "nvidia-peermem", "nv_mem ")
"""How most messages start; no prefix starts like this, so this only saves time."""
_STAMPS = ("own", "raw", "stamp")
_BEHIND_STAMP = ("stamp", "raw", "caller", "priority", "level", "wall", "tag")
"""What may stand behind the record's own stamp; any other header there is quoted. ``tag``: journalctl's
short-monotonic puts host and ``kernel:`` there."""
_KERN = "kern"
_OTHER_FACILITY = 1
_NOWHERE = KernelPosition()

_DATE = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d:\d\d"
_TIME = _CLOCK + r"(?:[.,]\d{1,9})?"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)"
_MONTH = r"(?:[^\W\d_]{2,12}\.?|\d{1,2}月)"
_HOST = r"[\w.:-]{0,254}\w"


def _stamp(name: str) -> str:
    return rf"\[ *(?P<{name}seconds>\d{{1,12}})\.(?P<{name}fraction>\d{{1,9}})(?: *<[^<>\]]{{1,32}}>)?\] ?"


_SHAPES = {
    # Our own reader's record, /dev/kmsg itself, printk's stamp.
    "own": r"kmsg/1 boot=(?P<boot>[0-9a-fA-F-]{32,36}) seq=(?P<own_seq>\d{1,19})"
    r" facility=(?P<own_facility>\d{1,4}) priority=\d{1,2} " + _stamp("own_"),
    "raw": r"(?P<raw_priority>\d{1,5}),(?P<raw_seq>\d{1,19}),(?P<raw_us>\d{1,19}),[^;\s]{1,64};",
    "stamp": _stamp(""),
    # dmesg: the caller, the priority as <4> or "kern  :warn  :".
    "caller": r"\[ *[CT]\d{1,10}\] ?",
    "priority": r"<(?P<number>\d{1,4})>(?:1 )?",
    "level": r"(?P<facility>[a-z]{3,8}|local\d) *:(?:emerg|alert|crit|err|warn|notice|info|debug) *: ?",
    # dmesg: wall time, time since the line before, time in minutes; and what documents put in its place.
    "wall": r"\[(?:"
    + "|".join(
        (
            rf"\S{{1,12}} \S{{1,12}} +\d{{1,2}} {_TIME} \d{{4}}",
            rf"{_DATE}[T ]{_TIME}{_ZONE}?",
            r"[^\W\d_]{3,12}\.? ?\d{1,2} +\d\d:\d\d",
            r" *[+<] *\d{1,12}\.\d{1,9}>?",
            r"\d{1,19}",
            r"\.\.\.",
        )
    )
    + r")\]:? ?",
    "iso": rf"{_DATE}T{_CLOCK}(?:\.\d{{1,9}}|(?P<comma>,\d{{1,9}}))?{_ZONE} "
    r"(?:(?:stdout|stderr) [FP](?::\S{1,64})? )?",
    # syslog and the journal: times in many forms, then the host and "kernel".
    "date": rf"(?:{_MONTH} +\d{{1,2}}|\d{{1,2}}\.? +{_MONTH})(?: \d{{4}})? +{_TIME} ",
    "full": rf"[^\W\d_]{{2,4}}\.? {_DATE} {_TIME} [A-Z0-9+-]{{1,6}} ",
    "clock": rf"(?:{_DATE} )?{_TIME} |\d{{9,10}}\.\d{{3,9}} ",
    "tag": rf"(?:{_HOST} )?(?:[a-z0-9]{{3,8}}\.[a-z]{{3,7}} )?kernel: ?",
    "rfc5424": rf"{_HOST} kernel \S{{1,128}} \S{{1,32}} (?:-|\[[^\]]{{0,512}}\]) \ufeff?",
    # kubectl logs --prefix, Talos, and the tracepoint nvidia_dev_xid.
    "kubectl": r"\[pod/[\w./-]{1,320}\] ",
    # Talos pads its levels ("%7s"); kubectl puts no node in front.
    "talos": rf"(?:{_HOST}: )?(?P<talos_facility>[a-z]{{3,8}}): {{1,7}}[a-z]{{3,9}}: (?=\[)",
    "trace": r"\S.{0,15}-\d{1,10} +(?:\([ \d-]{1,10}\) )?\[\d{3,4}\] +\S{1,8} +"
    r"\d{1,12}\.\d{1,9}: nvidia_dev_xid: ",
}
_OF_SYSLOG = ("tag", "rfc5424")
"""The shapes that hold the word ``kernel`` behind a host's name, which takes long to look for in vain."""


def _compiled(kinds: Iterable[str]) -> re.Pattern[str]:
    return re.compile(r"\s*+(?:" + "|".join(f"(?P<{kind}>{_SHAPES[kind]})" for kind in kinds) + ")")


_ANY = _compiled(_SHAPES)
_NOT_OF_SYSLOG = _compiled(kind for kind in _SHAPES if kind not in _OF_SYSLOG)


@dataclass(slots=True)
class Origin:
    """Where a record stood and who wrote it, as far as its prefixes told so far.

    ``placed``: the outermost stamp was met. ``facility``: syslog's number; 0 is the kernel, None is unknown.
    """

    position: KernelPosition = _NOWHERE
    facility: int | None = None
    placed: bool = False

    def place(self, position: KernelPosition) -> None:
        """Take a position, unless one from further outside is known."""
        if not self.placed:
            self.position = position
            self.placed = True

    def own(self, facility: int | None) -> None:
        """Take a facility, unless one from further outside is known."""
        if self.facility is None:
            self.facility = facility


def strip_prefixes(text: str, origin: Origin) -> str:
    """The text behind all prefixes; what they tell goes into ``origin``."""
    start, stamped = 0, False
    prefix = _ANY if "kernel" in text else _NOT_OF_SYSLOG
    for _ in range(_PREFIXES_MOST):
        if text.startswith(_DRIVERS, start):
            break
        match = prefix.match(text, start)
        if match is None or (stamped and match.lastgroup not in _BEHIND_STAMP):
            break
        stamped = stamped or match.lastgroup in _STAMPS
        _read(match, origin)
        start = match.end()
    return text[start:].lstrip()


def _read(match: re.Match[str], origin: Origin) -> None:
    kind = match.lastgroup
    if kind == "stamp":
        origin.place(KernelPosition(stamp_us=stamp_us(match["seconds"], match["fraction"])))
    elif kind == "own":
        stamp = stamp_us(match["own_seconds"], match["own_fraction"])
        origin.place(KernelPosition(match["boot"].lower(), int(match["own_seq"]), stamp))
        origin.own(int(match["own_facility"]))
    elif kind == "raw":
        origin.place(KernelPosition(sequence=int(match["raw_seq"]), stamp_us=int(match["raw_us"])))
        origin.own(int(match["raw_priority"]) >> 3)
    elif kind == "priority":
        origin.own(int(match["number"]) >> 3)
    elif kind in ("level", "talos"):
        name = match["facility"] or match["talos_facility"]
        origin.own(0 if name == _KERN else _OTHER_FACILITY)
    elif kind == "wall" or match["comma"]:
        # dmesg printed a time in place of the record's own stamp: a stamp behind it is text.
        origin.placed = True
