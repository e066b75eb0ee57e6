"""Judges mutated lines: none may raise, take long or make an unsound finding.

``python -m tests.fuzz.run [LINES [SEED]]`` runs two processes. Every batch has a seed of its own, counted up
from SEED. What is wrong is printed with its seed, made as short as it stays wrong, ready for ``found.jsonl``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from konductor_like.detection import packaged, parse_heartbeat
from konductor_like.model import EVIDENCE_CHARS, FaultKind, Finding, Source
from tests.fuzz.mutate import HUGE_CHARS, lines

BATCH = 10_000
PROCESSES = 2
SHORT_CHARS = 4096
SHORT_SECONDS = 0.001
"""CPU time allowed for a line of at most ``SHORT_CHARS``."""
HUGE_SECONDS = 0.025
"""The same for one of ``HUGE_CHARS``; in proportion for those between."""
_AGAIN = 5
_WORTH_A_SECOND_LOOK = 0.2
_WRONG_MOST = 3


@dataclass
class Outcome:
    """What a batch came to: how long the slowest line took, for its length, and what was wrong."""

    seed: int
    lines: int = 0
    findings: int = 0
    slowest: float = 0.0
    """The largest share of its allowed time that a line took."""
    wrong: list[tuple[str, Source, str]] = field(default_factory=list)
    """Line, source, and what is wrong with it."""


def batch(seed: int, count: int = BATCH) -> Outcome:
    """Judge the lines of one seed."""
    outcome = Outcome(seed)
    for line, source in lines(seed, count):
        outcome.lines += 1
        share, finding, wrong = judged(line, source)
        outcome.findings += finding is not None
        outcome.slowest = max(outcome.slowest, share)
        if wrong and len(outcome.wrong) < _WRONG_MOST:
            outcome.wrong.append((shortest(line, source), source, wrong))
    return outcome


def judged(line: str, source: Source) -> tuple[float, Finding | None, str]:
    """The share of its allowed time that the line took, what was found, and what is wrong, if anything."""
    try:
        taken, finding = _timed(line, source)
        parse_heartbeat(line)
    except Exception as error:  # noqa: BLE001  # that it raises anything at all is what is looked for
        return 0.0, None, f"raises {error!r}"
    allowed = max(SHORT_SECONDS, HUGE_SECONDS * len(line) / HUGE_CHARS)
    if taken > allowed * _WORTH_A_SECOND_LOOK:  # the machine may have been busy
        taken = min(_timed(line, source)[0] for _ in range(_AGAIN))
    if taken > allowed:
        return taken / allowed, finding, f"takes {taken * 1000:.1f} ms, more than {allowed * 1000:.1f}"
    return taken / allowed, finding, "" if finding is None else unsound(finding, line, source)


def unsound(finding: Finding, line: str, source: Source) -> str:
    """What cannot be of a finding."""
    if len(finding.text) > EVIDENCE_CHARS:
        return "its evidence is too long"
    if not any(anchor in line for anchor in packaged().catalog.scan_anchors(source)):
        return "the line has no anchor"
    if source is Source.POD and finding.severity.taints:
        return "a pod's line taints"
    if source is Source.KERNEL and finding.kind is FaultKind.CUDA:
        return "a kernel line is an error of CUDA"
    if finding.text.encode("utf-8", "replace").decode() != finding.text or "\n" in finding.text:
        return "its evidence cannot be printed"
    return ""


def shortest(line: str, source: Source) -> str:
    """The line without everything that can be left out while it stays wrong."""
    step = len(line) // 2
    while step:
        at = 0
        while at < len(line):
            shorter = line[:at] + line[at + step :]
            if judged(shorter, source)[2]:
                line = shorter
            else:
                at += step
        step //= 2
    return line


def campaign(total: int, seed: int) -> Iterator[Outcome]:
    """Batches until there were so many lines, in two processes."""
    seeds: Iterable[int] = range(seed, seed + -(-total // BATCH))
    with ProcessPoolExecutor(PROCESSES) as pool:
        yield from pool.map(batch, seeds)


def _timed(line: str, source: Source) -> tuple[float, Finding | None]:
    begun = time.thread_time()
    finding = packaged().find(line, source)
    return time.thread_time() - begun, finding


def _main(total: int = 10_000_000, seed: int = 1) -> int:
    begun = time.monotonic()
    outcomes = []
    for outcome in campaign(total, seed):
        outcomes.append(outcome)
        for line, source, wrong in outcome.wrong:
            record = json.dumps({"line": line, "source": source.value, "seed": outcome.seed, "wrong": wrong})
            sys.stdout.write(f"{record}\n")
    sys.stdout.write(
        f"seeds {seed} to {outcomes[-1].seed}, {sum(o.lines for o in outcomes):,} lines, "
        f"{sum(o.findings for o in outcomes):,} findings, {time.monotonic() - begun:.0f} s; "
        f"wrong: {sum(len(o.wrong) for o in outcomes)}; "
        f"the slowest line took {max(o.slowest for o in outcomes):.0%} of its allowed time\n"
    )
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(_main(*(int(argument) for argument in islice(sys.argv, 1, 3))))
