"""Derives facts about the fleet from its kernel logs.

The facts: whose kernel log arrives, which boots are live, and which Nodes were deleted and created again. The
monitor also counts lines that may report a fault and that detection does not understand. After a change of
the driver or the collector every line may look like that; without the count the fleet would look healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from konductor_like.catalog import Catalog
from konductor_like.controller import logs
from konductor_like.controller.fleet.boot_names import BootNames
from konductor_like.controller.fleet.coverage import CoverageTracker
from konductor_like.controller.fleet.coverage_report import CoverageReport
from konductor_like.controller.fleet.log_starts import LogStarts
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.detection import Detector, Heartbeat, Overrun, parse_heartbeat, parse_overrun
from konductor_like.detection.kernel_record import evidence, one_line
from konductor_like.detection.why_not import goes_on, is_unparsed, why_no_fault
from konductor_like.loki.readers.heartbeat import Reread
from konductor_like.model import (
    Coverage,
    CoverageState,
    Hearing,
    IncidentState,
    LogLine,
    MetBy,
    NodeRecord,
    NodeState,
    Source,
    Unparsed,
)
from konductor_like.model.time import SECOND_NS, unix_ns
from konductor_like.policy.node.machines import (
    UNAMBIGUOUS_AFTER_NS,
    Heard,
    HeardBoot,
    boots_left,
    is_ambiguous,
    pending_boots,
    same_boot,
    with_beat,
)

OVERDUE_NS = 600 * SECOND_NS
"""Nanoseconds after which a fault that waits for its boot is counted as overdue. It is not dropped then."""
DECIDED_NS = 60 * SECOND_NS
"""Nanoseconds by which a line that a controller has certainly heard is older than its last coverage."""
ARRIVED_NS = 120 * SECOND_NS
"""Nanoseconds before its reading in which a heartbeat arrived: the clock of its node may be far behind.

Of two clocks the one that is ahead counts. A boot that seems too young covers too little, and one that seems
too old would cover faults to come.
"""
UNPARSED_MOST = 10_000
"""Nodes whose unparsed lines are counted. One more replaces the oldest, which may be logged again."""
DELETED_MOST = 2000
"""Deleted Nodes that are remembered, each for a day."""
_DAY_NS = 86_400 * SECOND_NS


class FleetMonitor:
    """One leadership's memory of the fleet."""

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
        catalog: Catalog,
        reread: Callable[[Iterable[Reread]], None],
        rereading: Callable[[], Collection[str]],
        read_node: Callable[[str, int], bool],
        backfilling: Callable[[], Collection[str]],
        revisit: Callable[[tuple[tuple[int, int], ...]], None],
    ) -> None:
        """Prepare to hear heartbeats.

        ``before`` and ``released`` come from the Lease: the last controller's coverage, and the releases of
        machines whose Node may be created again. ``now_ns`` returns the time by which heartbeats age,
        ``catalog`` has the rules in force.

        ``reread`` reads heartbeats again; ``rereading`` returns the nodes of which some are still to be read.
        ``read_node`` reads a node's kernel lines from a time on, and returns False if too many nodes wait;
        ``backfilling`` returns the nodes that wait. ``revisit`` gives the fault readers the gaps, which they
        read again now and then.
        """
        self.ambiguous = before.ambiguous if before else frozenset()
        """Names under which two machines report at once.

        The last controller's names count until this one has listened long enough to decide itself.
        """
        self.silent_alone: frozenset[str] = frozenset()
        """The nodes that fell silent, but not together with much of the fleet."""
        self.left: Mapping[str, frozenset[str]] = {}
        """By node, the boots that the Node has left although faults wait for them."""
        self.hearing: Mapping[str, Hearing] = {}
        """The GPU nodes whose kernel log is heard now, as of the last :meth:`update`."""
        self.began: dict[str, tuple[str, int]] = {}
        """See :attr:`Snapshot.began`."""
        self.gaps_given_up: Mapping[str, int] = {}
        """By node, the end of the latest span whose lines may be lost for good (a Loki timestamp)."""
        self.lost_boots: Mapping[str, str] = {}
        """See :attr:`Coverage.lost_boots`."""
        self.unparsed = UnparsedLines(metrics, before.unparsed if before else {}, catalog)
        self._metrics = metrics
        self._report = report
        self._reread = reread
        self._rereading = rereading
        self._read_node = read_node
        self._backfilling = backfilling
        self._revisit = revisit
        self._now_ns = now_ns
        self._stale_ns = round(stale_seconds * SECOND_NS)
        started_ns = now_ns()
        self.boot_names = BootNames(now_ns, lambda: self._heard)
        self._tracker = CoverageTracker(
            stale_seconds, before=before, now_ns=started_ns, max_age_seconds=gap_max_age_seconds
        )
        self._presumed = self.ambiguous
        self._presumed_until_ns = started_ns + UNAMBIGUOUS_AFTER_NS
        self._heard: dict[str, Heard] = {}
        self._pending_ns: dict[tuple[str, str], int] = {}
        """By node and boot, since when faults wait for the boot."""
        self._before = before
        self._starts = LogStarts()
        self._overruns: list[tuple[str, Overrun]] = []
        self._began_late: list[tuple[str, Overrun]] = []
        self._looked_back: dict[str, tuple[str, int]] = {}
        """By node, the boot whose beginning was read again, and up to when (a Loki timestamp)."""
        self._earlier_ns: dict[str, list[int]] = {}
        """By node, the heartbeats of that beginning (Loki timestamps)."""
        self._max_age_ns = round(gap_max_age_seconds * SECOND_NS)
        self._nodes: Mapping[str, NodeState] | None = None
        self._reregistered = ReregisteredNodes(_watched_until_ns(before), released)

    def began_ns(self, node: str, boot_id: str | None) -> int | None:
        """Return when the boot began, by the node's own clock, if a heartbeat of the boot was heard."""
        boots = self._heard.get(node, ())
        return next((boot.began_ns for boot in boots if boot.boot_id == boot_id), None)

    def hear(self, lines: Iterable[LogLine], upto_ns: int) -> None:
        """Take in the heartbeats and overruns of one poll, which read everything before ``upto_ns``."""
        for line in sorted(lines, key=lambda line: line.timestamp_ns):
            if line.node is None:
                continue
            heartbeat = parse_heartbeat(line.text)
            if heartbeat is not None:
                self._hear_heartbeat(line.node, heartbeat, line.timestamp_ns)
                continue
            overrun = parse_overrun(line.text)
            if overrun is not None:
                self._hear_overrun(line.node, overrun, line.timestamp_ns)
        self._tracker.read_up_to(upto_ns, self._now_ns())

    def _hear_heartbeat(self, node: str, heartbeat: Heartbeat, at_ns: int) -> None:
        self._tracker.note_heartbeat(node, at_ns)
        self._starts.note_heartbeat(node, heartbeat, at_ns)
        for number in self.boot_names.printed(node, heartbeat.boot_id, heartbeat.sequence):
            if self._tracker.overrun(node, heartbeat.boot_id, number, 1, at_ns):
                self._report.unnamed(node, heartbeat.boot_id, number)
        boot, until_ns = self._looked_back.get(node, ("", 0))
        if boot == heartbeat.boot_id and at_ns < until_ns:
            self._earlier_ns[node].append(at_ns)
            return
        boots = self._heard.get(node, ())
        self._heard[node] = boots = with_beat(boots, heartbeat.boot_id, at_ns, heartbeat.boot_ns)
        if boots[0].last_ns == at_ns:
            arrived_ns = max(at_ns, self._now_ns() - ARRIVED_NS)
            self.began[node] = heartbeat.boot_id, arrived_ns - heartbeat.uptime_us * 1000

    def _hear_overrun(self, node: str, overrun: Overrun, at_ns: int) -> None:
        found: Overrun | None = overrun
        if overrun.first == 0:
            found = None if self._was_decided(node, at_ns) else self._starts.lost(node, overrun, at_ns)
        is_known = self._tracker.knows(node)
        if found and self._tracker.overrun(node, found.boot_id, found.first, found.lost, at_ns):
            (self._overruns if is_known else self._began_late).append((node, found))

    def _was_decided(self, node: str, at_ns: int) -> bool:
        """Whether the last controller certainly heard this line, so that its losses are on the Lease."""
        before = self._before
        return (
            before is not None
            and at_ns < unix_ns(before.at) - DECIDED_NS
            and before.of(node) is CoverageState.MEASURED
            and not any(gap.concerns(node) for gap in before.gaps)
        )

    def update(self, nodes: Mapping[str, NodeState], unread_since_ns: int | None = None) -> Coverage:
        """Return the coverage, report its changes, and have the gaps read again.

        ``unread_since_ns`` is None while the kernel logs are read. Otherwise they were read up to this time
        only, and for longer than ``stale_seconds`` no further.
        """
        now_ns = self._now_ns()
        gpu_nodes = {name: state for name, state in nodes.items() if state.is_gpu_node}
        tainted = {name for name, state in gpu_nodes.items() if state.tainted}
        coverage = self._tracker.coverage(
            {name: state.created_ns for name, state in gpu_nodes.items()}, now_ns, tainted
        )
        self.silent_alone = self._tracker.silent_alone(len(gpu_nodes))
        self._update_boots(nodes, now_ns)
        self._look_back({name: gpu_nodes[name] for name in sorted(tainted)}, now_ns)
        self.hearing = {} if unread_since_ns is not None else self._heard_now(gpu_nodes, now_ns)
        self.gaps_given_up = dict(self._tracker.given_up)
        unparsed = self.unparsed.since(now_ns - self._max_age_ns, nodes.keys())
        self.lost_boots = coverage.lost_boots
        coverage = replace(
            coverage, ambiguous=self.ambiguous, unparsed=unparsed, backfill_ns=self._backfill_ns(nodes)
        )
        for name, overrun in self._overruns:
            self._report.overran(name, overrun, nodes.get(name))
        self._report.began_late(self._began_late)
        self._overruns.clear()
        self._began_late.clear()
        self._report.tell(self._tracker.take_changes(), coverage, gpu_nodes, now_ns, unread_since_ns)
        self._report.left(self.left)
        self._revisit(self._tracker.revisit_spans)
        self._reread(self._tracker.rereads(now_ns))
        return coverage

    def _look_back(self, tainted: Mapping[str, NodeState], now_ns: int) -> None:
        """Have the beginning of a boot read again, once, if a node may return in it.

        What the kernel-log reader printed first may have reached Loki too late for us, or while no controller
        ran.
        """
        for name, state in tainted.items():
            boots, boot_id = self._heard.get(name), state.machine.boot_id
            if not boots or boots[0].boot_id != boot_id or self._looked_back.get(name, ("",))[0] == boot_id:
                continue
            if any(each.last.boot_id not in (None, boot_id) for each in state.record.incidents):
                latest = boots[0]
                self._looked_back[name] = latest.boot_id, latest.first_ns
                self._earlier_ns[name] = []
                start_ns = max(latest.began_ns - self._stale_ns, now_ns - self._max_age_ns)
                if start_ns < latest.first_ns:
                    self._reread([Reread(start_ns, latest.first_ns, frozenset({name}))])

    def _backfill_ns(self, nodes: Mapping[str, NodeState]) -> int | None:
        """Return when the oldest of the Nodes was made whose earlier kernel lines are still to be read."""
        waiting = {*self._backfilling(), *self._reregistered.waiting(nodes)}
        return min((nodes[name].created_ns for name in waiting if name in nodes), default=None)

    def _heard_now(self, gpu_nodes: Mapping[str, NodeState], now_ns: int) -> dict[str, Hearing]:
        """Return what this controller heard itself; what an earlier one heard does not count."""
        found = {}
        rereading = self._rereading()
        for name, boots in self._heard.items():
            latest = boots[0]
            if name not in gpu_nodes or name in self.ambiguous or now_ns - latest.last_ns > self._stale_ns:
                continue
            gap_ns, first_ns = self._tracker.gap_end_ns(name), latest.first_ns
            reboots = (i.met_ns or 0 for i in gpu_nodes[name].record.incidents if i.met_by is MetBy.REBOOT)
            # A controller that started after the gap knows the boot's beginning from the record alone.
            before = max(reboots, default=gap_ns) + self._stale_ns < gap_ns < first_ns
            has_gap = before or gap_ns > first_ns or name in rereading or self._was_silent(name, latest)
            has_gap = has_gap or self.boot_names.lacks_a_line(name)
            found[name] = Hearing(latest.boot_id, first_ns, latest.last_ns, has_gap, gap_ns > 0)
        return found

    def _was_silent(self, node: str, latest: HeardBoot) -> bool:
        """Whether the boot was silent between heartbeats of before this controller's first one, or up to it.

        The last controller may have ended before it noticed that silence.
        """
        boot_id, _ = self._looked_back.get(node, ("", 0))
        if boot_id != latest.boot_id:
            return False
        earlier_ns = sorted((*self._earlier_ns[node], latest.first_ns))
        return any(later - earlier > self._stale_ns for earlier, later in pairwise(earlier_ns))

    def _update_boots(self, nodes: Mapping[str, NodeState], now_ns: int) -> None:
        """Decide which names are ambiguous and which boots are over. Forget nodes that are gone."""
        self._heard = {name: boots for name, boots in self._heard.items() if name in nodes}
        self.began = {name: began for name, began in self.began.items() if name in nodes}
        self._looked_back = {name: seen for name, seen in self._looked_back.items() if name in nodes}
        self._starts.forget_others(nodes.keys())
        presumed = self._presumed if now_ns < self._presumed_until_ns else frozenset()
        self.ambiguous = presumed.intersection(nodes) | {
            name for name, boots in self._heard.items() if len(boots) > 1 and is_ambiguous(boots, now_ns)
        }
        pending = {
            name: boots
            for name, state in nodes.items()
            if state.record.incidents and (boots := pending_boots(state.record))
        }
        self._pending_ns = {
            (name, boot): self._pending_ns.get((name, boot), now_ns)
            for name, boots in pending.items()
            for boot in boots
        }
        overdue = sum(now_ns - since_ns > OVERDUE_NS for since_ns in self._pending_ns.values())
        self._metrics.pending.set(overdue)
        over: dict[str, frozenset[str]] = {}
        for name in pending.keys() - self.ambiguous:
            since_ns = {boot: self._pending_ns[name, boot] for boot in pending[name]}
            if left := boots_left(nodes[name], self._heard.get(name, ()), since_ns):
                over[name] = left
        self.left = over

    def observe(self, nodes: Mapping[str, NodeState]) -> Mapping[str, NodeRecord]:
        """Take in the Nodes as they are now, before each decision: report boots that nobody ordered.

        Have the kernel lines since boot read of the Nodes that were created again for a known machine, and
        return their old records, each once.
        """
        before, self._nodes = self._nodes, nodes
        if nodes is before:
            return {}
        now_ns = self._now_ns()
        self._report.booted(before or {}, nodes, now_ns)
        found = self._reregistered.update(before or {}, nodes, now_ns)
        dropped = []
        for name in found:
            began_ns = self.began_ns(name, nodes[name].machine.boot_id)
            if not self._read_node(name, now_ns - _DAY_NS if began_ns is None else began_ns):
                dropped.append(name)
        self._report.registered_again(found.keys() - dropped, dropped)
        return {name: record for name, record in found.items() if not record.empty}

    def note_written(self, states: Iterable[NodeState]) -> None:
        """Take in Nodes that were written since the last observation."""
        self._nodes = {**(self._nodes or {}), **{state.name: state for state in states}}


class ReregisteredNodes:
    """Finds Nodes that were deleted and created again for the same machine; restores their records (rule 3).

    A Node is deleted with its annotation. While this controller runs, it remembers the annotation, also over
    a reboot of the machine. For Nodes that were created again while no controller ran, the Lease has only the
    releases, and the reasons of taints (``policy/fleet/deleted_nodes.py``); everything else is read again.
    """

    def __init__(self, unwatched_since_ns: int | None, released: Iterable[NodeRecord] = ()) -> None:
        """Prepare to watch.

        ``unwatched_since_ns`` is None on the first start. It is the last time at which a controller ran, or
        an earlier time if the last controller had yet to read kernel lines of Nodes made since. ``released``
        are the releases of machines that may have a younger Node.
        """
        self._unwatched_since_ns = unwatched_since_ns
        self._released: dict[tuple[str, str] | None, NodeRecord] = {
            machine: record for record in released if (machine := same_boot(record.machine)) is not None
        }
        self._unwatched: frozenset[str] = frozenset()
        self._gone: dict[str, tuple[NodeState, int]] = {}

    def update(
        self, before: Mapping[str, NodeState], nodes: Mapping[str, NodeState], now_ns: int
    ) -> Mapping[str, NodeRecord]:
        """Return the records of the nodes that came back, by name, each once, as soon as its boot is known.

        ``before`` are the nodes at the last call. A record is empty if nothing is known of the machine.
        """
        if self._unwatched_since_ns is not None:
            since_ns, self._unwatched_since_ns = self._unwatched_since_ns, None
            made = (state for state in nodes.values() if state.created_ns > since_ns)
            # A record may be of what the last controller had read before it ended, and not of everything.
            self._unwatched = frozenset(state.name for state in made)
        for name, state in before.items():
            if name not in nodes or nodes[name].machine.node_uid != state.machine.node_uid:
                self._gone[name] = (state, now_ns)
        if self._gone:
            kept = [(name, gone) for name, gone in self._gone.items() if now_ns - gone[1] < _DAY_NS]
            self._gone = dict(kept[-DELETED_MOST:])
        return dict([*self._made_unwatched(nodes), *self._returned(nodes)])

    def waiting(self, nodes: Mapping[str, NodeState]) -> Collection[str]:
        """Return the GPU nodes made while no controller ran whose kubelet has not reported the boot yet."""
        return [name for name in self._unwatched if name in nodes and nodes[name].is_gpu_node]

    def _made_unwatched(self, nodes: Mapping[str, NodeState]) -> Iterable[tuple[str, NodeRecord]]:
        for name in sorted(self._unwatched):
            state = nodes.get(name)
            known = None if state is None else self._released.get(same_boot(state.machine))
            if state is not None and (
                state.machine.boot_id is None or not (known is not None or state.is_gpu_node)
            ):
                continue  # its kubelet has not reported the boot id yet, or its device plugin the GPUs
            self._unwatched -= {name}
            if state is not None:
                yield name, known if known is not None and state.record.empty else NodeRecord()

    def _returned(self, nodes: Mapping[str, NodeState]) -> Iterable[tuple[str, NodeRecord]]:
        for name in [name for name in self._gone if name in nodes]:
            state, (old, _) = nodes[name], self._gone[name]
            if state.machine.boot_id is None and state.machine.system in (None, old.machine.system):
                continue  # its kubelet has not reported the boot id yet
            del self._gone[name]
            if state.machine.same_boot(old.machine):
                yield name, _kept(old.record) if state.record.empty else NodeRecord()
            elif state.machine.same_machine(old.machine):
                # The decision sees the reboot. It would end faults that are held, and these had the taint.
                yield name, _unclaimed(old.record) if state.record.empty else NodeRecord()


def _watched_until_ns(before: Coverage | None) -> int | None:
    """Return the time after which Nodes were made whose earlier lines the last controller did not read."""
    if before is None:
        return None
    at_ns = unix_ns(before.at)
    return at_ns if before.backfill_ns is None else min(at_ns, before.backfill_ns - 1)


def _kept(record: NodeRecord) -> NodeRecord:
    """Return the old record with its taint still to be written: the taint was deleted with the Node."""
    return replace(
        _unclaimed(record),
        incidents=tuple(
            replace(incident, state=IncidentState.HELD)
            if incident.state is IncidentState.ACTIVE and incident.taints
            else incident
            for incident in record.incidents
        ),
    )


def _unclaimed(record: NodeRecord) -> NodeRecord:
    """Return the record without its claim."""
    return replace(record, life=replace(record.life, tainted_at=None))


class UnparsedLines:
    """Counts kernel lines that may report a fault and that detection does not understand.

    The first line of each node is logged.
    """

    def __init__(self, metrics: Metrics, before: Mapping[str, Unparsed], catalog: Catalog) -> None:
        """``before`` are the last controller's counts, ``catalog`` has the rules in force."""
        self._metrics = metrics
        self._detector = Detector(catalog)
        self._known: dict[str, Unparsed] = dict(before)

    def count(self, lines: Iterable[LogLine]) -> None:
        """Count the lines that may report a fault. ``lines`` are lines without one."""
        catalog, find = self._detector.catalog, self._detector.find_in_kernel_log
        for line in lines:
            if line.source is not Source.KERNEL:
                continue
            if not (is_unparsed(catalog, line.text) or goes_on(find, line.text)):
                continue
            self._metrics.unparsed.inc()
            name = line.node or ""
            before = self._known.get(name)
            if before is None:
                _log_unparsed(line, catalog)
                if len(self._known) >= UNPARSED_MOST:
                    del self._known[next(iter(self._known))]
                self._known[name] = Unparsed(1, line.timestamp_ns)
            elif line.timestamp_ns > before.at_ns:  # a line that is read again does not count again
                self._known[name] = Unparsed(before.lines + 1, line.timestamp_ns)

    def since(self, oldest_ns: int, nodes: Collection[str]) -> Mapping[str, Unparsed]:
        """Return the counts of existing Nodes that have grown since ``oldest_ns``. Forget older counts."""
        self._known = {name: seen for name, seen in self._known.items() if seen.at_ns > oldest_ns}
        return {name: seen for name, seen in self._known.items() if name in nodes}


def _log_unparsed(line: LogLine, catalog: Catalog) -> None:
    why = why_no_fault(catalog, line.text, line.source) or ""
    logs.warning(
        f"node {line.node or '(no node)'}: a kernel line names an Xid, or may report a fault, and is not "
        f"understood, so the controller ignores the line. {why} The controller only counts further lines "
        "like this from the node. "
        f'Line: "{evidence(one_line(line.text))}"',
        node=line.node,
    )
