"""Taints that no fatal line explains: the least that must have been said, and what is enough for certain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from konductor_like.model import Source
from tests.chaos.machines import Occurrence, seconds

CONTAINED = 94
TIMES = 3
"""So many failures of one GPU are enough, and fewer are not."""
APART_NS = seconds(60)
"""Lines that follow each other closer than this are one failure."""


def may_be_enough(standing: Sequence[Occurrence]) -> bool:
    """Whether there is enough to doubt the node: one GPU's lines, or kernel and pod together."""
    jobs = {o.job for o in standing if o.job is not None}
    groups = _by_gpu(standing).values()
    return any(len(group) >= TIMES for group in groups) or bool(groups and jobs)


def must_be_enough(sure: Iterable[Occurrence]) -> Iterator[str]:
    """The GPUs of which a contained error was certainly read often enough, in words."""
    for (code, gpu), group in _by_gpu(sure).items():
        if code != CONTAINED or any(len(o.timestamps) > 1 for o in group):
            continue
        times, last_ns = 0, -APART_NS
        for at_ns in sorted(o.first_ns for o in group):
            times += at_ns - last_ns > APART_NS
            last_ns = at_ns
        if times >= TIMES:
            yield f"{times} times Xid {code} on {gpu}"


def _by_gpu(occurrences: Iterable[Occurrence]) -> dict[tuple[int | None, str | None], list[Occurrence]]:
    found: defaultdict[tuple[int | None, str | None], list[Occurrence]] = defaultdict(list)
    for o in occurrences:
        if o.source is Source.KERNEL:
            found[o.finding.code, o.finding.gpu].append(o)
    return found
