"""Counts decisions, exact labels, and the mistakes of each system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from konductor_like.detection import find
from konductor_like.model import Finding, Source
from tools.quality.corpus import Case, labels_of, own_cases
from tools.quality.peers import Peer, Reading

NOT_COMPARED = frozenset({"aer", "ib", "nvlink", "fm"})
"""Families that are not compared, because the peers do not document their rating."""


@dataclass(frozen=True)
class Result:
    """A labelled line and our finding."""

    case: Case
    finding: Finding | None

    @property
    def taints(self) -> bool:
        """Whether the controller taints for the line; only a kernel line does (rule 17)."""
        return self.finding is not None and self.finding.severity.taints and self.case.source is Source.KERNEL

    def is_exact(self, label: str) -> bool:
        """Whether our finding has one label right."""
        return self.finding is not None and labels_of(self.finding)[label] == self.case.expect[label]


@cache
def results() -> tuple[Result, ...]:
    """Return the results for every line of our corpus."""
    return tuple(Result(case, find(case.line, case.source)) for case in own_cases())


def decisions(verdicts: Iterable[tuple[Case, bool]]) -> Counter[tuple[str, bool]]:
    """Count the lines of each group that were acted upon, and those that were not."""
    return Counter((group(case), acted) for case, acted in verdicts)


def group(case: Case) -> str:
    """Return ``must act``, or the severity that does not require it, or ``nothing``."""
    if case.taints:
        return "must act"
    if not case.is_ours:
        return "nothing"
    return "pod" if case.source is Source.POD else str(case.expect["severity"])


def compared() -> list[Case]:
    """Return the lines that the peers are measured on, without Xid 14, which is a test only by convention."""
    cases = [result.case for result in results()]
    return [
        case
        for case in cases
        if case.expect["kind"] not in NOT_COMPARED and case.expect["severity"] != "test"
    ]


@dataclass(frozen=True)
class Mistakes:
    """Decisions of a system that differ from the labels, by reason."""

    unread: Counter[str]
    """Lines that require action and were not recognised, by kind."""
    underrated: Counter[str]
    """Lines that require action and were recognised but not called fatal, by kind."""
    overrated: Counter[str]
    """Lines that do not require action and were called fatal, by severity (``pod``, ``nothing``)."""
    recovery_actions: int
    """Number of the underrated lines that are Xid 154."""

    @property
    def missed(self) -> int:
        """Return the number of lines for which a broken node stays in service."""
        return self.unread.total() + self.underrated.total()


def mistakes(peer: Peer) -> Mistakes:
    """Return the mistakes of a system on the compared lines."""
    unread: Counter[str] = Counter()
    underrated: Counter[str] = Counter()
    overrated: Counter[str] = Counter()
    recovery_actions = 0
    for case in compared():
        reading = peer(case.line, case.source)
        if not case.taints:
            overrated[group(case)] += reading is not None and reading.takes_out
        elif reading is None:
            unread[str(case.expect["kind"])] += 1
        elif not reading.takes_out:
            underrated[str(case.expect["kind"])] += 1
            recovery_actions += case.expect["code"] == 154
    return Mistakes(unread, underrated, overrated, recovery_actions)


def _ours(line: str, source: Source) -> Reading | None:
    finding = find(line, source)
    if finding is None:
        return None
    return Reading(finding.severity.taints and source is Source.KERNEL, finding.code, finding.gpu)


OURS: Peer = _ours
"""Our own detection, with the interface of a peer."""


def share(part: int, whole: int) -> str:
    """Format a share as ``99.87 %``, never rounded up to 100."""
    return "-" if not whole else "100 %" if part == whole else f"{int(10_000 * part / whole) / 100:.2f} %"


def exact(chosen: Iterable[Result], label: str) -> tuple[int, int]:
    """Return the number of findings with one label right, and of all findings."""
    ours = [result for result in chosen if result.case.is_ours]
    return sum(result.is_exact(label) for result in ours), len(ours)
