"""The labelled lines: how a careful engineer would classify each.

Our own are in ``tests/data``, composed from the documented formats with values of our own: ``line``,
``source_kind`` (``pod``, or dmesg, journal, syslog for kernel logs), ``expect``, ``reference`` (where its
format is documented), and ``trap`` (why a line that reports nothing is tempting).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from konductor_like.model import FaultKind, Finding, Source

DATA = Path(__file__).parents[2] / "tests" / "data"
LABELS = ("kind", "code", "pci", "pid", "process", "severity")
DETAILS = ("sub_code", "mig", "port")
"""Labels that only our own corpus has; a line may be without them."""
OUR_KINDS = frozenset(FaultKind) - {FaultKind.AMD, FaultKind.NEURON}
"""Kinds with a built-in rule: a line of another vendor's device is found by a rule of the user's own only."""


@dataclass(frozen=True)
class Case:
    """One labelled line."""

    name: str
    line: str
    source: Source
    source_kind: str
    expect: Mapping[str, Any]
    is_ours: bool
    """Whether the line is a fault that we detect; every other line must give no finding."""
    reference: str = ""
    trap: str = ""

    @property
    def taints(self) -> bool:
        """Whether the line must taint its node."""
        return self.is_ours and self.source is Source.KERNEL and self.expect["severity"] in ("fatal", "test")


def read_cases(path: Path, labels: tuple[str, ...] = LABELS) -> list[Case]:
    """Return the cases of one file, with the labels that its corpus has."""
    cases = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            record = json.loads(line)
            expect = {label: record["expect"].get(label) for label in labels}
            source = Source.POD if record["source_kind"] == "pod" else Source.KERNEL
            is_ours = expect["kind"] in OUR_KINDS
            cases.append(
                Case(
                    f"{path.name}:{number}",
                    record["line"],
                    source,
                    record["source_kind"],
                    expect,
                    is_ours,
                    record.get("reference", ""),
                    record.get("trap", ""),
                )
            )
    return cases


def own_cases() -> list[Case]:
    """Return all our own cases."""
    return [case for path in sorted(DATA.glob("*.jsonl")) for case in read_cases(path, LABELS + DETAILS)]


def labels_of(finding: Finding) -> dict[str, Any]:
    """Return the labels of a finding, as in the corpus."""
    return {
        "kind": finding.kind.value,
        "code": finding.code,
        "pci": finding.gpu,
        "pid": finding.pid,
        "process": finding.process,
        "severity": finding.severity.value,
        "sub_code": finding.sub_code,
        "mig": finding.mig,
        "port": finding.port,
    }
