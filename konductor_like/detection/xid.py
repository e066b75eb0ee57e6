"""Reading an Xid line: which GPU, which process, and what the text behind the code changes."""

from __future__ import annotations

import re

from konductor_like.catalog import Catalog, Detail, XidEntry
from konductor_like.detection.clean import normal_pci
from konductor_like.detection.finding import Verdict, kernel_finding
from konductor_like.detection.nvlink import read_nvlink5, read_registers
from konductor_like.detection.record import KernelRecord
from konductor_like.model import Finding, Severity

NO_RECOVERY_ACTION = 0
# The words changed between driver branches; the number is what counts. What follows it proves it complete.
_RECOVERY_TARGET = re.compile(
    r"changed from .{1,80}? to 0x([0-9A-Fa-f]{1,8}) ?\((?:([^()]{1,40})\))?", re.ASCII
)
# The last of several counts, behind the driver's own word: a process, named in front, may be called anything.
_RESET_NOW = re.compile(r".*ontained\b.*[^-\w]RST: (?:(Yes)|No)\b", re.ASCII | re.DOTALL)
_RESET_AFTER_DRAIN = re.compile(r".*ontained\b.*\bD-RST: (?:(Yes)|No)\b", re.ASCII | re.DOTALL)
_CAUSE = re.compile(r"\bcaused by previous Xid (\d{1,5})\b", re.ASCII)
_MIG = re.compile(r" GPU-I:(\d{1,8})(?: GPU-CI:(\d{1,8}))?", re.ASCII)


def read_xid(catalog: Catalog, record: KernelRecord, match: re.Match[str]) -> Finding:
    """The finding that a matched Xid line is."""
    entry = catalog.xid(int(match["code"]))
    verdict = _verdict(catalog, entry, match)
    process = match["process"]
    pid = match["pid"]
    finding = kernel_finding(
        record,
        entry,
        verdict=verdict,
        gpu=normal_pci(match["gpu"]),
        pid=None if pid is None else int(pid),
        process=None if process is None or process.startswith(("<", "'<")) else process.strip(),
        mig=_mig_instance(match) if " GPU-I:" in match.string else None,
    )
    if verdict is not None and verdict.over and not finding.severity.taints:
        return finding._replace(clears=entry.rule)
    return finding if entry.clears is None else finding._replace(clears=f"xid.{entry.clears}")


def _mig_instance(match: re.Match[str]) -> str | None:
    """``5/1``: GPU instance 5, compute instance 1, as ``nvidia-smi`` numbers them."""
    found = _MIG.search(match.string, match.end("gpu"), match.start("code"))
    return found and "/".join(str(int(part)) for part in found.groups() if part)


def _verdict(catalog: Catalog, entry: XidEntry, match: re.Match[str]) -> Verdict | None:
    detail = match["detail"]
    if match.end("code") == len(match.string) and entry.severity.taints:
        if entry.code is not None and catalog.may_continue(entry.code):
            return Verdict(Severity.SUSPECT, f"{entry.title} (or another Xid, cut)", entry.advice)
    elif entry.detail is Detail.RECOVERY_ACTION:
        return _recovery_action(catalog, detail)
    elif entry.detail is Detail.CONTAINMENT:
        return _containment(catalog, entry, detail)
    elif entry.detail is Detail.NVLINK_REGISTERS:
        return read_registers(catalog, entry, detail)
    elif entry.detail is Detail.NVLINK5:
        return read_nvlink5(catalog, entry, detail)
    elif "caused by" in detail:
        return _consequence(catalog, entry, detail)
    return None


def _recovery_action(catalog: Catalog, detail: str) -> Verdict | None:
    target = _RECOVERY_TARGET.search(detail)
    action = catalog.recovery_actions.get(int(target[1], 16)) if target else None
    if action is None or target is None:
        return None
    over = action.code == NO_RECOVERY_ACTION
    return Verdict(action.severity, action.title, action.advice, sub_code=target[2], over=over)


def _consequence(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """An Xid that names the one before it as its cause is no new fault: what the cause is, decides.

    It never taints by itself, since its cause has a line of its own.
    """
    cause = _CAUSE.search(detail)
    if cause is None or entry.severity.taints:
        return None
    severity = catalog.xid(int(cause[1])).severity
    if severity not in (Severity.APPLICATION, Severity.INFO):
        severity = Severity.SUSPECT
    title = f"{entry.title} (caused by Xid {int(cause[1])})"
    return Verdict(severity, title, catalog.advice["root_cause"])


def _containment(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """Xid 94 and 95: a reset wanted now is fatal whatever the code; one after a drain is not."""
    now, after_drain = _RESET_NOW.match(detail), _RESET_AFTER_DRAIN.match(detail)
    if now is not None and now[1]:
        return Verdict(Severity.FATAL, entry.title, catalog.advice["memory_error"])
    if not entry.severity.taints and after_drain is not None and after_drain[1]:
        return Verdict(entry.severity, entry.title, catalog.advice["contained_drain"])
    return None
