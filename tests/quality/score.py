"""What is counted: decisions, exactness, and where each system goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from konductor_like.detection import find
from konductor_like.model import Finding, Source
from tests.detection.corpus import Case, labels_of, own_cases
from tests.quality.peers import Judge, Judgement

NOT_COMPARED = frozenset({"aer", "ib", "nvlink", "fm", "amd", "neuron"})
"""Families whose rating the peers do not document: left out of the comparison."""


@dataclass(frozen=True)
class Result:
    """A labelled line and what we find in it."""

    case: Case
    finding: Finding | None

    @property
    def taints(self) -> bool:
        """What the controller does about it: only a kernel log's line taints (rule 17)."""
        return self.finding is not None and self.finding.severity.taints and self.case.source is Source.KERNEL

    def is_exact(self, label: str) -> bool:
        """Whether one label comes out as a careful engineer gave it."""
        return self.finding is not None and labels_of(self.finding)[label] == self.case.expect[label]


@cache
def results() -> tuple[Result, ...]:
    """Every line of our corpus."""
    return tuple(Result(case, find(case.line, case.source)) for case in own_cases())


def decisions(verdicts: Iterable[tuple[Case, bool]]) -> Counter[tuple[str, bool]]:
    """How often each group of lines was acted upon, or not."""
    return Counter((group(case), acted) for case, acted in verdicts)


def group(case: Case) -> str:
    """``must act``; else the severity that is no reason to, or ``nothing``."""
    if case.taints:
        return "must act"
    if not case.is_ours:
        return "nothing"
    return "pod" if case.source is Source.POD else str(case.expect["severity"])


def compared() -> list[Case]:
    """The lines that the peers are measured on; that an Xid 14 is taken for a test is a habit, not a fact."""
    cases = [result.case for result in results()]
    return [
        case
        for case in cases
        if case.expect["kind"] not in NOT_COMPARED and case.expect["severity"] != "test"
    ]


@dataclass(frozen=True)
class Mistakes:
    """Where a system and the labels disagree about taking the node out, by reason."""

    unread: Counter[str]
    """Must act, and the line was not recognised; by kind."""
    underrated: Counter[str]
    """Must act, recognised, and not called fatal; by kind."""
    overrated: Counter[str]
    """Need not act, and called fatal; by severity (``pod``, ``nothing``)."""
    recovery_actions: int
    """How many of the underrated are Xid 154."""

    @property
    def missed(self) -> int:
        """How often it leaves a node in service that is broken."""
        return self.unread.total() + self.underrated.total()


def mistakes(judge: Judge) -> Mistakes:
    """A system's, over the lines that are compared."""
    unread: Counter[str] = Counter()
    underrated: Counter[str] = Counter()
    overrated: Counter[str] = Counter()
    recovery_actions = 0
    for case in compared():
        judgement = judge(case.line, case.source)
        if not case.taints:
            overrated[group(case)] += judgement is not None and judgement.takes_out
        elif judgement is None:
            unread[str(case.expect["kind"])] += 1
        elif not judgement.takes_out:
            underrated[str(case.expect["kind"])] += 1
            recovery_actions += case.expect["code"] == 154
    return Mistakes(unread, underrated, overrated, recovery_actions)


def _ours(line: str, source: Source) -> Judgement | None:
    finding = find(line, source)
    if finding is None:
        return None
    return Judgement(finding.severity.taints and source is Source.KERNEL, finding.code, finding.gpu)


OURS: Judge = _ours
"""Ourselves, in the shape of a peer."""


def share(part: int, whole: int) -> str:
    """``99.87 %``, never rounded up to 100."""
    return "-" if not whole else "100 %" if part == whole else f"{int(10_000 * part / whole) / 100:.2f} %"


def exact(chosen: Iterable[Result], label: str) -> tuple[int, int]:
    """How many findings have one label right, and how many there should be."""
    ours = [result for result in chosen if result.case.is_ours]
    return sum(result.is_exact(label) for result in ours), len(ours)
