"""What the kernel-log readers say about themselves, in one place: coverage, boots, Nodes that return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from konductor_like.catalog import Catalog
from konductor_like.controller.boots import Boots
from konductor_like.controller.coverage import CoverageTracker
from konductor_like.controller.coverage_report import CoverageReport
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.reregistered import ReregisteredNodes
from konductor_like.controller.unparsed import UnparsedLines
from konductor_like.detection import Overrun, parse_heartbeat, parse_overrun
from konductor_like.loki.heartbeat_reader import Reread
from konductor_like.model import Coverage, LogLine, NodeRecord, NodeState
from konductor_like.model.time import SECOND_NS

Spans = tuple[tuple[int, int], ...]
_DAY_NS = 86_400 * SECOND_NS


class FleetMonitor:
    """One leadership's memory of the fleet. ``before`` is what the last controller left on the Lease."""

    def __init__(
        self,
        metrics: Metrics,
        report: CoverageReport,
        *,
        before: Coverage | None,
        released: Iterable[NodeRecord] = (),
        stale_seconds: float,
        gap_max_age_seconds: float,
        now_ns: Callable[[], int],
        catalog: Callable[[], Catalog],
        look_again: Callable[[Iterable[Reread]], None],
        read_node: Callable[[str, int], None],
        revisit: Callable[[Spans], None],
    ) -> None:
        """``released`` is what releases cover of machines whose Node may be made anew, as the Lease has it.

        ``now_ns`` is the time that heartbeats are reckoned from, ``catalog`` gives the rules in force.

        ``look_again`` rereads heartbeats, ``read_node`` a node's kernel lines from a time on.

        ``revisit`` tells the readers of faults which spans are gaps, to be read again now and then.
        """
        self._metrics = metrics
        self._report = report
        self._look_again = look_again
        self._read_node = read_node
        self._revisit = revisit
        self._now_ns = now_ns
        started_ns = now_ns()
        self._tracker = CoverageTracker(
            stale_seconds, before=before, now_ns=started_ns, gap_max_age_seconds=gap_max_age_seconds
        )
        self._boots = Boots(before.ambiguous if before else (), started_ns)
        self._unparsed = UnparsedLines(metrics, before.unparsed if before else {}, catalog)
        self._max_age_ns = round(gap_max_age_seconds * SECOND_NS)
        unwatched_since_ns = round(before.at.timestamp()) * SECOND_NS if before else None
        self._reregistered = ReregisteredNodes(unwatched_since_ns, released)
        self._overruns: list[tuple[str, Overrun]] = []

    @property
    def ambiguous(self) -> frozenset[str]:
        """Names under which two machines report at once."""
        return self._boots.ambiguous

    @property
    def left(self) -> Mapping[str, frozenset[str]]:
        """By node, the boots that are over although faults wait for them."""
        return self._boots.left

    def began_ns(self, node: str, boot_id: str | None) -> int | None:
        """When a boot of the node began by the node's own clock, if it was heard."""
        return self._boots.began_ns(node, boot_id)

    def count_unparsed(self, lines: Iterable[LogLine]) -> None:
        """Count those of the lines without a fault that name an Xid all the same."""
        self._unparsed.count(lines)

    def hear(self, lines: Iterable[LogLine], upto_ns: int) -> None:
        """Lines out of one poll, which read everything before ``upto_ns``."""
        for line in lines:
            if line.node is None:
                continue
            heartbeat = parse_heartbeat(line.text)
            if heartbeat is not None:
                self._tracker.heard(line.node, line.timestamp_ns)
                self._boots.beat(line.node, heartbeat.boot_id, line.timestamp_ns, heartbeat.boot_ns)
                continue
            overrun = parse_overrun(line.text)
            if overrun is not None and self._tracker.overrun(
                line.node, overrun.boot_id, overrun.first, overrun.lost, line.timestamp_ns
            ):
                self._overruns.append((line.node, overrun))
        self._tracker.read_up_to(upto_ns, self._now_ns())

    def update(self, nodes: Mapping[str, NodeState], unread_since_ns: int | None = None) -> Coverage:
        """Work out the coverage, report what changed, and ask for what is to be read again.

        ``unread_since_ns``: the kernel logs were read up to here and no further, for longer than the stale
        span; None where they are read.
        """
        now_ns = self._now_ns()
        gpu_nodes = {name: state for name, state in nodes.items() if state.is_gpu_node}
        coverage = self._tracker.coverage(
            {name: state.created_ns for name, state in gpu_nodes.items()}, now_ns
        )
        self._boots.update(nodes, now_ns)
        unparsed = self._unparsed.lately(nodes.keys(), now_ns - self._max_age_ns)
        coverage = replace(coverage, ambiguous=self._boots.ambiguous, unparsed=unparsed)
        for name, overrun in self._overruns:
            self._report.overran(name, overrun, nodes.get(name))
        self._overruns.clear()
        self._report.tell(self._tracker.take_changes(), coverage, gpu_nodes, now_ns, unread_since_ns)
        self._report.left(self._boots.left)
        self._metrics.pending.set(self._boots.overdue)
        self._revisit(self._tracker.revisit_spans)
        self._look_again(self._tracker.looks(now_ns))
        return coverage

    def returned(self, nodes: Mapping[str, NodeState]) -> Mapping[str, NodeRecord]:
        """The Nodes made anew since the last call for a known machine, with what was on the Node before.

        Their kernel lines since boot are asked for as well.
        """
        now_ns = self._now_ns()
        found = self._reregistered.update(nodes, now_ns)
        for returned in found:
            machine = returned.state.machine
            began_ns = self.began_ns(returned.state.name, machine.boot_id)
            self._read_node(returned.state.name, now_ns - _DAY_NS if began_ns is None else began_ns)
        return {returned.state.name: returned.record for returned in found if not returned.record.empty}
