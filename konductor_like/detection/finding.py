"""From a matched rule to a finding."""

from __future__ import annotations

from dataclasses import dataclass

from konductor_like.catalog import Advice, Entry
from konductor_like.detection.clean import evidence
from konductor_like.detection.record import KernelRecord
from konductor_like.model import Finding, Severity


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a line means once its details are read."""

    severity: Severity
    title: str
    advice: Advice


def verdict_of(entry: Entry) -> Verdict:
    """What the catalogue says about a line that tells nothing more."""
    return Verdict(entry.severity, entry.title, entry.advice)


def kernel_finding(
    record: KernelRecord,
    entry: Entry,
    *,
    verdict: Verdict | None = None,
    gpu: str | None = None,
    pid: int | None = None,
    process: str | None = None,
) -> Finding:
    """The finding that a kernel record is; ``verdict`` where its details say more than its entry."""
    meaning = verdict or verdict_of(entry)
    return Finding(
        entry.kind,
        entry.rule,
        meaning.severity,
        meaning.title,
        meaning.advice.text,
        evidence(record.message),
        entry.code,
        gpu,
        pid,
        process,
        record.position,
        record.user_written,
    )
