"""When doubt may be enough for a taint, and when it must be; said again in words of our own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from konductor_like.model import NodeState, Source
from konductor_like.policy.release import unix_ns
from tests.chaos.common import MARGIN_NS, CommonNode
from tests.chaos.machines import Occurrence, seconds

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

CONTAINED, PAGE_FAULT = 94, 31
"""So often on one GPU, the first from any job, the other from so many different ones."""
TIMES = 3
APART_NS = seconds(60)
"""Lines that follow each other closer than this are one failure."""
LASTING_NS = seconds(600)
"""One that does not stop counts again as often."""


class Grounds:
    """Judges by what really happened, and by what a process was given of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._common = CommonNode(world)

    def may_taint(self, process: Process, state: NodeState) -> bool:
        """Whether what happened on the node may be enough although nothing there is fatal."""
        mine = list(self._standing(state))
        kernel = _by_gpu(o for o in mine if o.source is Source.KERNEL)
        jobs = {o.job for o in mine if o.job is not None}
        return (
            any(code == CONTAINED and occasions_most(group) >= TIMES for (code, _), group in kernel.items())
            or any(
                code == PAGE_FAULT and len(group) >= TIMES <= len(jobs) for (code, _), group in kernel.items()
            )
            or self._common.may_taint(process, state.name, mine)
        )

    def must_taint(
        self, state: NodeState, since_ns: int, sure: Callable[[Occurrence], bool]
    ) -> Iterator[str]:
        """What had to be enough, of lines after ``since_ns`` that are ``sure`` to count; in words."""
        kernel = _by_gpu(o for o in self._standing(state) if o.source is Source.KERNEL)
        for (code, gpu), group in kernel.items():
            if code != CONTAINED or any(len(o.timestamps) > 1 for o in group):
                continue
            counted = [o for o in group if o.first_ns > since_ns + MARGIN_NS and sure(o)]
            if (times := occasions(counted)) >= TIMES:
                yield f"{times} times Xid {code} on {gpu} of {state.name}"
        own = [o for o in self._standing(state) if o.first_ns > since_ns + MARGIN_NS and sure(o)]
        if jobs := self._common.must_taint(state, own, sure):
            yield f"{jobs} jobs failed that have {state.name} alone in common"

    def _standing(self, state: NodeState) -> Iterator[Occurrence]:
        """What Loki has of the node's machine in this boot that its last release does not cover."""
        machine, record = self._world.machines[state.name], state.record
        since_ns = unix_ns(record.releases[0].at) - MARGIN_NS if record.releases else 0
        for o in self._world.occurrences:
            if o.node != state.name or o.machine is not machine or not o.in_loki:
                continue
            of_boot = o.source is Source.POD or machine.plain or o.boot_id == state.machine.boot_id
            if of_boot and max(o.timestamps) > since_ns:
                yield o


def occasions_most(group: Sequence[Occurrence]) -> int:
    """How often it happened for somebody who reads the lines in another order than they were said in."""
    if any(len(o.timestamps) > 1 or not _on_time(o) for o in group):
        return len(group)
    lasted_ns = max(o.first_ns for o in group) - min(o.first_ns for o in group)
    return min(len(group), occasions(group) + lasted_ns // LASTING_NS)


def occasions(group: Sequence[Occurrence]) -> int:
    """How often it happened, where lines that follow each other closely are one failure."""
    times = sorted(o.first_ns for o in group)
    return len(times) and 1 + sum(later - sooner > APART_NS for sooner, later in pairwise(times))


def _on_time(o: Occurrence) -> bool:
    return all(s.visible_ns - s.timestamp_ns <= MARGIN_NS for s in o.shipments)


def _by_gpu(occurrences: Iterable[Occurrence]) -> dict[tuple[int | None, str | None], list[Occurrence]]:
    found: defaultdict[tuple[int | None, str | None], list[Occurrence]] = defaultdict(list)
    for o in occurrences:
        found[o.finding.code, o.finding.gpu].append(o)
    return found
