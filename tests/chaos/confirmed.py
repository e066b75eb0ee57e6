"""A pod's word that memory failed, and its kernel's: said again in our own words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from konductor_like.model import Source
from tests.chaos.common import MARGIN_NS
from tests.chaos.machines import ECC_RULE, Occurrence, seconds

WITHIN_NS = seconds(600)
MEMORY = (48, 63, 64, 92, 94, 95, 140, 160, 168, 171, 172)
"""Xids about memory; what a program can cause, and what any end of a job prints, is not among them."""


def confirmed(mine: Iterable[Occurrence], span_ns: int) -> Iterator[tuple[Occurrence, Occurrence]]:
    """What pods say of a node's memory, each with every word of its kernel that is no further away."""
    known = list(mine)
    kernel = [o for o in known if confirms(o)]
    for pod in known:
        if pod.finding.rule == ECC_RULE:
            yield from ((pod, o) for o in kernel if _apart_ns(pod, o) <= span_ns)


def confirms(o: Occurrence) -> bool:
    """Whether the kernel speaks of memory, too."""
    return o.source is Source.KERNEL and o.finding.code in MEMORY


def may_confirm(mine: Iterable[Occurrence]) -> bool:
    """Whether there is such a pair."""
    return any(True for _ in confirmed(mine, WITHIN_NS))


def must_confirm(sure: Iterable[Occurrence]) -> Iterator[str]:
    """The pairs among what certainly counts, in words."""
    for pod, kernel in confirmed(sure, WITHIN_NS - MARGIN_NS):
        yield f"{pod} together with {kernel}"


def _apart_ns(one: Occurrence, other: Occurrence) -> int:
    return min(abs(a - b) for a in one.timestamps for b in other.timestamps)
