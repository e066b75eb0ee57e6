"""Reading an SXid line: an error of an NVSwitch.

One event prints up to three lines: text, ``Severity …`` and ``Data {…}``. All three make the same finding
(rule and switch), so that they are one incident; a ``Data`` line of a code for which the word Fatal decides
has no such word and is never more than suspect.
"""

from __future__ import annotations

import re

from konductor_like.catalog import Catalog, SxidEntry
from konductor_like.detection.clean import normal_pci
from konductor_like.detection.finding import Verdict, kernel_finding
from konductor_like.detection.record import KernelRecord
from konductor_like.model import Finding, Severity


def read_sxid(catalog: Catalog, record: KernelRecord, match: re.Match[str]) -> Finding:
    """The finding that a matched SXid line is; its address is the switch's."""
    entry = catalog.sxid(int(match["code"]))
    verdict = _contained(catalog, entry) if entry.word_decides and not _says_fatal(match) else None
    return kernel_finding(record, entry, verdict=verdict, gpu=normal_pci(match["gpu"]))


def _says_fatal(match: re.Match[str]) -> bool:
    return match["word"] == "Fatal" or match["severity"] == "1"


def _contained(catalog: Catalog, entry: SxidEntry) -> Verdict | None:
    if not entry.severity.taints:
        return None
    return Verdict(Severity.SUSPECT, entry.title, catalog.advice["switch_watch"])
