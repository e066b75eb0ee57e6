"""From a matched rule to a finding."""

from __future__ import annotations

from typing import NamedTuple

from konductor_like.catalog import Advice, Entry
from konductor_like.detection.clean import evidence
from konductor_like.detection.record import KernelRecord
from konductor_like.model import Finding, Severity


class Verdict(NamedTuple):
    """What a line means once its details are read."""

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
        record.position,
        record.user_written,
        None if verdict is None else verdict.sub_code,
        mig,
        None if verdict is None else verdict.port,
        advice.needs.value,
        remote=verdict is not None and verdict.remote,
    )
