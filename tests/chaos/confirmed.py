"""A pod's word that memory failed, and its kernel's that a GPU ails: said again in our own words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from konductor_like.model import Severity, Source
from tests.chaos.common import MARGIN_NS
from tests.chaos.machines import ECC_RULE, SYMPTOMS, Occurrence, seconds

WITHIN_NS = seconds(600)


def confirmed(mine: Iterable[Occurrence], span_ns: int) -> Iterator[tuple[Occurrence, Occurrence]]:
    """What pods say of a node's memory, each with every word of its kernel that is no further away."""
    known = list(mine)
    kernel = [o for o in known if confirms(o)]
    for pod in known:
        if pod.finding.rule == ECC_RULE:
            yield from ((pod, o) for o in kernel if _apart_ns(pod, o) <= span_ns)


def confirms(o: Occurrence) -> bool:
    """Whether it says something of the GPU; what any end of a job prints does not."""
    grave = o.finding.severity in (Severity.SUSPECT, Severity.FATAL)
    return o.source is Source.KERNEL and grave and o.finding.code not in SYMPTOMS


def may_confirm(mine: Iterable[Occurrence]) -> bool:
    """Whether there is such a pair."""
    return any(True for _ in confirmed(mine, WITHIN_NS))


def must_confirm(sure: Iterable[Occurrence]) -> Iterator[str]:
    """The pairs among what certainly counts, in words."""
    for pod, kernel in confirmed(sure, WITHIN_NS - MARGIN_NS):
        yield f"{pod} together with {kernel}"


def _apart_ns(one: Occurrence, other: Occurrence) -> int:
    return min(abs(a - b) for a in one.timestamps for b in other.timestamps)
