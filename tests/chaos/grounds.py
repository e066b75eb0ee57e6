"""When doubt may be enough for a taint, and when it must be; said again in words of our own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from konductor_like.model import NodeState, Source
from konductor_like.model.time import unix_ns
from tests.chaos.common import MARGIN_NS, CommonNode
from tests.chaos.confirmed import may_confirm, must_confirm
from tests.chaos.machines import Occurrence, seconds
from tests.chaos.whose import JOB_FAULTS, Whose, occasions, on_time

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

CONTAINED = 94
TIMES = 3
"""So often on one GPU."""
LASTING_NS = seconds(600)
"""One that does not stop counts again as often."""


class Grounds:
    """Judges by what really happened, and by what a process was given of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._common, self._whose = CommonNode(world), Whose(world)

    def may_taint(self, process: Process, before: NodeState, state: NodeState) -> bool:
        """Whether what happened on the node may be enough although nothing there is fatal."""
        mine = list(self._standing(state))
        kernel = _by_gpu(o for o in mine if o.source is Source.KERNEL)
        jobs = len({o.job for o in mine if o.job is not None})
        return (
            any(code == CONTAINED and occasions_most(group) >= TIMES for (code, _), group in kernel.items())
            or any(
                code in JOB_FAULTS and self._whose.may_taint(process, before, group, jobs)
                for (code, _), group in kernel.items()
            )
            or may_confirm(mine)
            or self._common.may_taint(process, state.name, mine)
        )

    def must_taint(
        self, state: NodeState, since_ns: int, sure: Callable[[Occurrence], bool]
    ) -> Iterator[str]:
        """What had to be enough, of lines after ``since_ns`` that are ``sure`` to count; in words."""
        mine = list(self._standing(state))
        own = [o for o in mine if min(o.first_ns, o.happened_ns) > since_ns + MARGIN_NS and sure(o)]
        for (code, gpu), group in _by_gpu(o for o in mine if o.source is Source.KERNEL).items():
            if code in JOB_FAULTS and (jobs := self._whose.must_taint(group, own)):
                yield f"Xid {code} in {jobs} jobs on {gpu} of {state.name}"
            if code != CONTAINED or any(len(o.timestamps) > 1 for o in group):
                continue
            if (times := len(list(occasions(o for o in group if o in own)))) >= TIMES:
                yield f"{times} times Xid {code} on {gpu} of {state.name}"
        posted_ns = self._world.machines[state.name].posted_ns
        yield from must_confirm(  # a pod's word is of the boot that the Node told of
            o
            for o in own
            if o.source is Source.KERNEL or (o.happened_ns > posted_ns and self._whose.is_quiet_elsewhere(o))
        )
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
    if any(len(o.timestamps) > 1 or not on_time(o) for o in group):
        return len(group)
    lasted_ns = max(o.first_ns for o in group) - min(o.first_ns for o in group)
    return min(len(group), len(list(occasions(group))) + lasted_ns // LASTING_NS)


def _by_gpu(occurrences: Iterable[Occurrence]) -> dict[tuple[int | None, str | None], list[Occurrence]]:
    found: defaultdict[tuple[int | None, str | None], list[Occurrence]] = defaultdict(list)
    for o in occurrences:
        found[o.finding.code, o.finding.gpu].append(o)
    return found
