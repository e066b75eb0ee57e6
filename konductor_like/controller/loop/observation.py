"""What the controller sees of the cluster before each decision, and remembers where the Nodes show less."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from konductor_like.cluster.lease.annotations import unlisted
from konductor_like.controller.fleet.fleet_monitor import FleetMonitor
from konductor_like.controller.loop.kept_records import KeptRecords
from konductor_like.controller.loop.operator_controls import OperatorControls
from konductor_like.controller.ports import Nodes
from konductor_like.controller.reporting.report import Report
from konductor_like.controller.side.pod_jobs import PodJobs
from konductor_like.jobs import by_name
from konductor_like.model import (
    AlertsAnswer,
    Change,
    Controls,
    Fault,
    LogLine,
    NodeRecord,
    NodeState,
    ReturnedNode,
    Severity,
    Snapshot,
    Standing,
    TaintedNode,
    ValidationJobs,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.deleted_nodes import out_again, updated_tainted_nodes, within_bound
from konductor_like.policy.fleet.lost_records import is_purged, lost_claims
from konductor_like.policy.node.machines import without_shared_ids
from konductor_like.policy.recovery.returns import known_returns


class Observer:
    """Sees nodes, kernel logs, jobs and the operators' controls. For one thread."""

    def __init__(
        self,
        nodes: Nodes,
        report: Report,
        *,
        controls: OperatorControls | None = None,
        jobs: PodJobs | None = None,
        fleet: FleetMonitor | None = None,
        validations: Callable[[], ValidationJobs | None] = lambda: None,
        alerts: Callable[[], AlertsAnswer | None] = lambda: None,
        kept: KeptRecords | None = None,
        standing: Callable[[Iterable[str]], Mapping[str, Standing]] = lambda _: {},
    ) -> None:
        """``standing`` returns for how long Nodes have not changed.

        A backtest has no ``controls``, ``jobs``, ``fleet`` and ``standing``.
        """
        self.tainted: tuple[TaintedNode, ...] | None = None
        """The Nodes with our taint and the Nodes deleted with it; None before the first observation."""
        self.returned: tuple[ReturnedNode, ...] = ()
        """The last returns by reboot. Any thread may read this and ``tainted``."""
        self.kept = kept or KeptRecords()
        """The records that Nodes have no room for."""
        self._nodes = nodes
        self._report = report
        self._controls = controls
        self._jobs = jobs
        self._fleet = fleet
        self._validations = validations
        self._alerts = alerts
        self._standing = standing
        self._as_read: Mapping[str, NodeState] = {}
        self._unshared: Mapping[str, NodeState] = {}
        self._records: dict[str, tuple[str | None, NodeRecord]] = {}
        """By node, the full record, and the text of the annotation that could not contain all of it.

        The text is None for a Node without its annotation: somebody removed it, or created the Node again.
        """
        self._claims: dict[str, NodeState] = {}
        """By name, the nodes with a claim as they were seen last; their annotation may be removed."""

    def observe(self, policy: PolicyConfig, in_flight: Collection[str], now: datetime) -> Snapshot:
        """Look at everything once, report what has changed, and return it.

        A patch must test the states in it, not newer ones. ``in_flight`` are the nodes whose taint may be
        written although no answer came.
        """
        read = self._read()
        restored = self._fleet.observe(read) if self._fleet else {}
        self._records |= {name: (None, record) for name, record in restored.items()}
        self._records = {
            name: (text, record)
            for name, (text, record) in self._records.items()
            if name in read and read[name].as_read.record == text
        }
        controls = self._controls.update(now) if self._controls else Controls()
        latest = partial(self._controls.update, now, at_once=True) if self._controls else None
        read = self.kept.see(read, controls, now, latest)
        if self.tainted is None:
            self.tainted = controls.tainted  # the last controller wrote them on the Lease
        lost = lost_claims(read, self._claims, self.tainted)
        lost = {name: record for name, record in lost.items() if name not in self._records}
        if lost and latest is not None:  # the purge of a node is on the Lease before the node is written
            controls = latest()
        lost = {name: r for name, r in lost.items() if not is_purged(name, r, controls.purge)}
        self._records |= {name: (None, record) for name, record in lost.items()}
        states = self._with_records(read)
        self._claims = {name: state for name, state in states.items() if state.record.life.claimed}
        self._report.persons.see(read, controls, now, latest, self._records.keys())
        # A return that the last controller could not note on the Lease any more is in the node's record.
        self.returned = known_returns((*controls.returned, *self.returned), (), now)
        tainted = self._follow(states, policy, in_flight, now)
        if again := out_again(states, tainted, now):
            self._records |= {name: (None, record) for name, record in again.items()}
            states = {**states, **{name: replace(states[name], record=each) for name, each in again.items()}}
        controls = replace(controls, tainted=tainted, returned=self.returned, kept=())
        if policy.returns_unasked:
            self._report.returns(controls)
        jobs = self._jobs.known() if self._jobs else {}
        seen = Snapshot(
            states,
            controls=controls,
            jobs={name: found.jobs for name, found in jobs.items()},
            pods={name: found.pods for name, found in jobs.items()},
            validations=self._validations(),
            alerts_answer=self._alerts(),
            without_record=self.kept.due(now),
            # A contested node has no taint, and returns by the same guards.
            standing=self._standing([name for name, state in states.items() if state.faulty])
            if policy.returns_unasked
            else {},
        )
        if self._fleet is None:
            return seen
        return replace(
            seen,
            ambiguous=self._fleet.ambiguous,
            left=self._fleet.left,
            hearing=self._fleet.hearing,
            began=self._fleet.began,
            gaps_given_up=self._fleet.gaps_given_up,
            lost_boots=self._fleet.lost_boots,
        )

    def states(self) -> Mapping[str, NodeState]:
        """Return the nodes with their full records.

        The annotation of a node may contain less than its record: it is at most 8 KiB long, and a Node that
        was deleted and created again has none. The full record counts until another client writes the
        annotation.
        """
        return self._with_records(self.kept.over(self._read()))

    def _read(self) -> Mapping[str, NodeState]:
        """Return the Nodes as they were read, without system ids that name no single machine."""
        read = self._nodes.snapshot()
        if read is not self._as_read:
            self._as_read, self._unshared = read, without_shared_ids(read)
        return self._unshared

    def _with_records(self, read: Mapping[str, NodeState]) -> Mapping[str, NodeState]:
        full = {
            name: replace(read[name], record=record)
            for name, (text, record) in self._records.items()
            if name in read and read[name].as_read.record == text
        }
        return {**read, **full} if full else read

    def _follow(
        self,
        states: Mapping[str, NodeState],
        policy: PolicyConfig,
        in_flight: Collection[str],
        now: datetime,
    ) -> tuple[TaintedNode, ...]:
        """Note which Nodes have our taint now, and which returned; report those deleted with the taint."""
        if self.returned or policy.returns_unasked:
            self.returned = known_returns(self.returned, states.values(), now)
        before = self.tainted or ()
        found, forgotten = within_bound(updated_tainted_nodes(before, states, policy, now, in_flight))
        self.tainted = found
        if found != before:
            self._report.forgotten([each.name for each in forgotten], unlisted(found))
        deleted = [each for each in found if each.deleted_at is not None and each not in before]
        if deleted:
            self._report.deleted(deleted, now + timedelta(seconds=policy.brake_cooldown_seconds), now)
        return found

    def with_latest_controls(self, snapshot: Snapshot, now: datetime) -> Snapshot:
        """Return the snapshot with the controls as the Lease has them now; the identical object if unchanged.

        A pause takes effect from the moment it was written: the Lease is read before every taint and every
        return.
        """
        if self._controls is None:
            return snapshot
        before, latest = snapshot.controls, self._controls.update(now, at_once=True)
        latest = replace(latest, tainted=before.tainted, returned=before.returned, kept=())
        if latest == before and not self._controls.unread:
            return snapshot
        return replace(snapshot, controls=latest, lease_unread=self._controls.unread)

    def named(self, lines: Iterable[LogLine]) -> Iterable[LogLine]:
        """Return the lines, also those of the reader that came without a name with the name of their node."""
        return self._fleet.boot_names.named(lines, self._nodes.snapshot()) if self._fleet else lines

    def named_faults(self, faults: Sequence[Fault]) -> Sequence[Fault]:
        """Return the faults, with the names of the nodes that can be named now."""
        return self._fleet.boot_names.named_faults(faults, self._nodes.snapshot()) if self._fleet else faults

    def note_unnamed(self, waiting: Sequence[Fault], dropped: Sequence[Fault]) -> None:
        """Take in the faults that wait for a Node, and those that were dropped without one."""
        if self._fleet:
            self._fleet.boot_names.unnamed(waiting, dropped)

    def want_jobs(self, faults: Iterable[Fault]) -> None:
        """Ask which jobs these faults hit where their lines do not name the job."""
        if self._jobs is None:
            return
        nameless = (f for f in faults if (by_name(f.job) if f.job else f.severity is not Severity.INFO))
        if nodes := {str(fault.node) for fault in nameless}:
            self._jobs.want(sorted(nodes))

    def note_unparsed(self, lines: Collection[LogLine]) -> None:
        """Count those of the lines without a fault that detection should have understood."""
        if self._fleet and lines:
            self._fleet.unparsed.count(lines)

    def note_written(
        self,
        written: Sequence[tuple[NodeState, Change]],
        before: Snapshot,
        policy: PolicyConfig,
        in_flight: Collection[str],
        now: datetime,
        lacking: Collection[str] = (),
    ) -> None:
        """Take in the states that were written: their Nodes may be deleted before the next observation.

        ``lacking`` are the nodes that had no room for their record.
        """
        for state, change in written:
            self._claims.pop(state.name, None)
            is_whole = change.record is not None and state.name not in lacking
            if is_whole and change.record is not None and change.record.life.claimed:
                self._claims[state.name] = replace(state, record=change.record)
            self._records.pop(state.name, None)
            has_record = state.name not in lacking
            self.kept.wrote(state, change, now, has_record=has_record)
            if has_record and change.record is not None and state.record != change.record:
                self._records[state.name] = (state.as_read.record, change.record)
        states = self.kept.over({state.name: state for state, _ in written})
        self._report.persons.wrote(states)
        if self._fleet and written:
            self._fleet.note_written(states.values())
        changed = {
            state.name: states[state.name]
            for state, change in written
            if change.verb is not Verb.RECORD or change.ends_claim
        }
        if changed or in_flight:
            self._follow({**before.nodes, **changed}, policy, in_flight, now)
