r"""How other systems read a line, implemented from their documented and published behaviour.

Each system gets what it would see: the messages of the kernel log, without what a collector adds. A line that
a program logged under its own tag never reaches their kernel readers and does not count against them. Not
modelled: repetition, merging with other sources, repair. If behaviour is not documented, the docstring names
the assumption, in the system's favour.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from konductor_like.catalog import load_catalog
from konductor_like.detection.kernel_record import normal_pci, open_record, strip_colours
from konductor_like.model import Source

LISTS: Mapping[str, Mapping[str, list[int]]] = tomllib.loads(
    (Path(__file__).parent / "peer_lists.toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Reading:
    """A peer's decision on a line. ``takes_out``: it calls the fault fatal, or acts on the node."""

    takes_out: bool
    code: int | None = None
    gpu: str | None = None


Peer = Callable[[str, Source], Reading | None]

_PROGRAM = re.compile(r"[\w.-]+ [\w./-]+(?:\[\d+\])?(?: \d+ - -|:) ")
"""The part of a syslog header after its time: a host, and the tag of a program."""


@cache
def kernel_message(line: str) -> str | None:
    """Return the kernel's message; None if a program logged the line."""
    record = open_record(line)
    return None if record is None or _PROGRAM.match(record[0]) else record[0]


_K_XID = re.compile(r"NVRM: Xid.*?: (\d+),")
_K_SXID = re.compile(r"SXid.*?: (\d+),")
_K_SELECTED = re.compile(r"nvidia-peermem nv_get_p2p_free_callback:\d+ERROR|NVRM: xid|SXid", re.IGNORECASE)
"""The pattern of its Loki queries. The first part lacks the blank before ERROR, and selects no line."""


def konduktor(line: str, source: Source) -> Reading | None:
    """Trainy's Konduktor (controller of January 2025): every line that its queries select taints the node.

    Its table of hardware Xids is never read, its allow-list only changes the log text. It keeps no GPU.
    """
    if source is Source.POD:
        return Reading(takes_out=True) if "invalid device ordinal" in line else None
    text = strip_colours(line)
    if kernel_message(line) is None or not _K_SELECTED.search(text):
        return None
    code = _K_SXID.search(text) or _K_XID.search(text)
    return Reading(takes_out=True, code=int(code[1]) if code else None)


_G_LINK = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-fA-F:]+)\): (\d+)(?:, pid=\d+, name=[^,]+)?, [A-Z_]+(?:/[A-Z_]+)?\s+"
    r"(?:Nonfatal|Fatal)\s+XC[01]\s+i\d+\s+Link\s+-?\d+\s+\((0x[0-9a-fA-F]+)\s+(0x[0-9a-fA-F]+)",
    re.ASCII,  # as in Go, here and below
)
_G_XID = re.compile(r"NVRM: Xid \(((?:PCI:)?[0-9a-fA-F:]+)\).*?: (\d+),", re.ASCII)
_G_LOST = re.compile(
    r"NVRM:\s+GPU ((?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\.0:\s+GPU has fallen off the bus"
    r"|NVRM:\s+The NVIDIA GPU ((?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\.0.*?"
    r"fallen off the bus and is not responding to commands\."
)
_G_SXID = re.compile(r"SXid.*?: (\d+),", re.ASCII)
_G_SXID_GPU = re.compile(r"SXid \(PCI:([0-9a-fA-F:.]+)\)", re.ASCII)
_G_PEERMEM = "ERROR detected invalid context, skipping further processing"


def gpud(line: str, source: Source) -> Reading | None:
    """Lepton's gpud: /dev/kmsg only; ``takes_out`` is its event type Fatal (it acts on nothing by itself).

    That 63 and 64 come from NVML instead, where rows can be remapped, is left out: only the line is read.
    """
    message = kernel_message(line) if source is Source.KERNEL else None
    if message is None:
        return None
    lists = LISTS["gpud"]
    link = _G_LINK.search(message)
    if link and (reset := _link_resets(int(link[2]), link[3], link[4])) is not None:
        return Reading(reset, int(link[2]), _pci(link[1]))
    if xid := _G_XID.search(message):
        code = int(xid[2])
        known = code in load_catalog().xids and code not in lists["xid_unlisted"]
        return Reading(code in lists["xid_fatal"], code, _pci(xid[1])) if known else None
    if lost := _G_LOST.search(message):
        return Reading(takes_out=True, code=79, gpu=_pci(lost[1] or lost[2]))
    if sxid := _G_SXID.search(message):
        code, address = int(sxid[1]), _G_SXID_GPU.search(message)
        known = code in lists["sxid_fatal"] or code in lists["sxid_warning"]
        gpu = _pci(address[1]) if address else None
        return Reading(code in lists["sxid_fatal"], code, gpu) if known else None
    return Reading(takes_out=False) if _G_PEERMEM in message else None


_N_LINK = re.compile(
    r"NVRM: Xid \(PCI:([^)]+)\): (\d+)(?:, pid=[^,]*)?(?:, name=[^,]*)?, "
    r"\w+\s+\w+\s+\w+\s+\w+\s+Link\s+-?\d+\s+\((0x[0-9a-fA-F]+)\s+(0x[0-9a-fA-F]+)",
    re.ASCII,
)
_N_XID = re.compile(r"NVRM: Xid \(PCI:([^)]+)\): (\d+)", re.ASCII)
_N_SXID = re.compile(
    r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (Fatal|Non-fatal), Link \d+ .+"
)
_N_LOST = re.compile(
    r"NVRM: The NVIDIA GPU ([0-9a-fA-F:.]+).*?fallen off the bus and is not responding to commands"
)


def nvsentinel(line: str, source: Source) -> Reading | None:
    """NVIDIA's NVSentinel, its journal monitor: every Xid that its map does not call harmless is fatal.

    Assumed: the general Xid pattern is the head of its NVLink pattern; both layouts of INTRINFO are tried, as
    if it knew the driver; a row that says "obey Xid 154" is no reason to act; the GPU behind a link is found.
    """
    message = kernel_message(line) if source is Source.KERNEL else None
    if message is None:
        return None
    if (link := _N_LINK.search(message)) and 144 <= int(link[2]) <= 150:
        reset = _link_resets(int(link[2]), link[3], link[4])
        return Reading(bool(reset), int(link[2]), _pci(link[1]))
    if xid := _N_XID.search(message):
        code = int(xid[2])
        harmless = code in LISTS["nvsentinel"]["xid_harmless"]
        if code == 154:
            harmless = message.rpartition("(")[2].partition(")")[0] == "None"
        return Reading(not harmless, code, _pci(xid[1]))
    if sxid := _N_SXID.search(message):
        return Reading(sxid[3] == "Fatal", int(sxid[2]), _pci(sxid[1]))
    lost = None if re.search(r"\bXid\b", message) else _N_LOST.search(message)
    return Reading(takes_out=True, gpu=_pci(lost[1])) if lost else None


PEERS: Mapping[str, Peer] = {"Konduktor": konduktor, "gpud": gpud, "NVSentinel": nvsentinel}


def _link_resets(xid: int, intrinfo: str, status: str) -> bool | None:
    """Whether the published decode table asks for a reset; None if no row fits."""
    for row in load_catalog().link_rules.get(xid, ()):
        if row.fits(int(intrinfo, 16)) and row.status == int(status, 16):
            return row.bucket == "RESET_GPU"
    return None


def _pci(address: str) -> str | None:
    """Return the address in our form; each system has its own, which does not count against it."""
    match = re.search(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}", address)
    return normal_pci(match[0]) if match else None
