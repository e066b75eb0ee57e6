"""Reading an SXid: an error of an NVSwitch, told by the driver or repeated by Fabric Manager.

One event prints up to three lines: text, ``Severity …`` and ``Data {…}``. All three make the same finding
(rule and switch), so that they are one incident. A ``Data`` line of a code for which the word Fatal decides
has no such word and is never more than suspect by itself; ``joining`` gives it the word of its first line.
"""

from __future__ import annotations

import re
from dataclasses import replace

from konductor_like.catalog import Catalog, SxidEntry
from konductor_like.detection.clean import normal_pci
from konductor_like.detection.finding import Verdict, kernel_finding
from konductor_like.detection.nvlink import read_link
from konductor_like.detection.record import KernelRecord
from konductor_like.model import FaultKind, Finding, Severity


def read_sxid(catalog: Catalog, record: KernelRecord, match: re.Match[str]) -> Finding:
    """The finding that a matched SXid line is; its address is the switch's."""
    entry = catalog.sxid(int(match["code"]))
    if "severity" not in match.re.groupindex:
        return _repeated(catalog, entry, record, match)
    fatal = match["word"] == "Fatal" or match["severity"] == "1"
    verdict = sxid_verdict(catalog, entry, fatal=fatal, port=read_link(match.string, match.end("code")))
    return kernel_finding(record, entry, verdict=verdict, gpu=normal_pci(match["gpu"]))


def sxid_verdict(catalog: Catalog, entry: SxidEntry, *, fatal: bool, port: int | None) -> Verdict:
    """What an SXid means where it is, or is not, called fatal."""
    if entry.word_decides and entry.severity.taints and not fatal:
        return Verdict(Severity.SUSPECT, entry.title, catalog.advice["switch_watch"], port=port)
    return Verdict(entry.severity, entry.title, entry.advice, port=port)


def _repeated(catalog: Catalog, entry: SxidEntry, record: KernelRecord, match: re.Match[str]) -> Finding:
    """Fabric Manager's line about an SXid: ``fm.20034``, which means what the SXid means."""
    port = None if match["port"] is None else int(match["port"])
    verdict = sxid_verdict(catalog, entry, fatal=match["word"] == "fatal", port=port)
    told = replace(entry, rule=f"fm.{entry.code}", kind=FaultKind.FM)
    return kernel_finding(record, told, verdict=verdict, gpu=normal_pci(match["gpu"]))
