"""From a matched rule to a finding: what its details, its mode and a user's word make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from konductor_like.catalog import Advice, Catalog, Entry, Mode, PatternRule
from konductor_like.detection.kernel_record import KernelRecord
from konductor_like.model import EVIDENCE_CHARS, Finding, Severity
from konductor_like.model.text import clipped, printable


class Verdict(NamedTuple):
    """The meaning of a line once its details are read."""

    severity: Severity
    title: str
    advice: Advice
    sub_code: str | None = None
    port: int | None = None
    remote: bool = False
    """It blames another device."""
    over: bool = False
    """It says that what lines of its own rule told of has ended."""


def kernel_finding(
    record: KernelRecord,
    entry: Entry,
    *,
    verdict: Verdict | None = None,
    gpu: str | None = None,
    pid: int | None = None,
    process: str | None = None,
    mig: str | None = None,
) -> Finding:
    """The finding that a kernel record is; ``verdict`` where its details say more than its entry.

    What a user's file set is final, whatever the details say.
    """
    meaning: Verdict | Entry = verdict or entry
    fixed = entry.fixed
    advice = entry.advice if "advice" in fixed else meaning.advice
    position, user_written = record.origin()
    return Finding(
        entry.kind,
        entry.rule,
        entry.severity if "severity" in fixed else meaning.severity,
        entry.title if "title" in fixed else meaning.title,
        advice.text,
        evidence(record.message),
        entry.code,
        gpu,
        pid,
        process,
        position,
        user_written,
        None if verdict is None else verdict.sub_code,
        mig,
        None if verdict is None else verdict.port,
        advice.needs.value,
        remote=verdict is not None and verdict.remote,
    )


def mode_applier(catalog: Catalog) -> Callable[[Finding, PatternRule], Finding | None]:
    """Gives a function that marks a finding by its rule's mode, or drops it where the rule is off."""
    entries = (
        *catalog.xids.values(),
        *catalog.sxids.values(),
        *catalog.cuda_errors.values(),
        *(rule.entry for rule in catalog.pattern_rules if rule.entry is not None),
    )
    # Those that are not simply enforced as the package has them: few, and mostly none.
    changed = {entry.rule: entry for entry in entries if entry.mode is not Mode.ENFORCE or entry.fixed}

    def apply_mode(finding: Finding, rule: PatternRule) -> Finding | None:
        entry = changed.get(finding.rule)
        if entry is None:
            return finding._replace(shadow=True) if rule.mode is Mode.SHADOW else finding
        if entry.mode is Mode.OFF:
            return None
        shadow = Mode.SHADOW in (entry.mode, rule.mode)
        return finding._replace(shadow=shadow, severity_by_user="severity" in entry.fixed)

    return apply_mode


def evidence(message: str) -> str:
    """The part of a one-line message that a finding keeps, printable for Events and logs."""
    if len(message) <= EVIDENCE_CHARS and message.isprintable():
        return message
    shown = printable(message[: EVIDENCE_CHARS + 1])
    return clipped(shown, EVIDENCE_CHARS)


def normal_pci(address: str | None) -> str | None:
    """``dddd:bb:dd`` in lower case, without function; the domain has four digits, or all that it needs.

    ``00000018:01:00`` is ``0018:01:00``, ``3d:00`` is ``0000:3d:00``, and ``10000:01:00`` (Intel VMD) itself.
    """
    if address is None:
        return None
    address = address.lower()
    if len(address) == 10:
        return address
    head, _, device = address.rpartition(":")
    domain, _, bus = head.rpartition(":")
    return f"{domain.lstrip('0'):0>4}:{bus}:{device}"
