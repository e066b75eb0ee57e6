"""The labelled lines: what a careful engineer would make of each.

Our own are in ``tests/data``, composed from the formats with values of our own: ``line``, ``source_kind``
(``pod``, or dmesg, journal, syslog for kernel logs), ``expect``, ``reference`` (where the format comes from),
and ``trap`` (why a line that reports nothing is tempting).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from konductor_like.model import FaultKind, Finding, Source

DATA = Path(__file__).parent.parent / "data"
LABELS = ("kind", "code", "pci", "pid", "process", "severity")
OUR_KINDS = frozenset(FaultKind)


@dataclass(frozen=True)
class Case:
    """One labelled line."""

    name: str
    line: str
    source: Source
    expect: Mapping[str, Any]
    is_ours: bool
    """A fault of a kind that we detect; everything else must come to nothing."""

    @property
    def taints(self) -> bool:
        """Whether the line must taint its node."""
        return self.is_ours and self.source is Source.KERNEL and self.expect["severity"] in ("fatal", "test")


def read_cases(path: Path) -> list[Case]:
    """The cases of one file."""
    cases = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            record = json.loads(line)
            expect = {label: record["expect"].get(label) for label in LABELS}
            source = Source.POD if record["source_kind"] == "pod" else Source.KERNEL
            is_ours = expect["kind"] in OUR_KINDS
            cases.append(Case(f"{path.name}:{number}", record["line"], source, expect, is_ours))
    return cases


def own_cases() -> list[Case]:
    """All our own cases."""
    return [case for path in sorted(DATA.glob("*.jsonl")) for case in read_cases(path)]


def labels_of(finding: Finding) -> dict[str, Any]:
    """A finding as the corpus labels it."""
    return {
        "kind": finding.kind.value,
        "code": finding.code,
        "pci": finding.gpu,
        "pid": finding.pid,
        "process": finding.process,
        "severity": finding.severity.value,
    }
