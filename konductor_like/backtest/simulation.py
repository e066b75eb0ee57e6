"""One set of rules on a simulated clock: faults come, decisions happen, nodes come back as assumed."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from konductor_like.backtest.arriving import round_up
from konductor_like.backtest.fleet import Fleet
from konductor_like.backtest.journal import Journal
from konductor_like.backtest.repeats import Repeats
from konductor_like.backtest.values import Verdicts
from konductor_like.model import Fault, Growth, Plan, Refusal, Snapshot, Source, Window
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.release import may_return, release

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Assumed:
    """What no history tells: when a node comes back, and how often the controller looks."""

    release_after_ns: int | None
    """None: nobody brings a node back."""
    grid_ns: int
    """The poll interval."""


class Simulation:
    """``step`` with each tick's faults, in order; ``finish`` in the end."""

    def __init__(self, rules: PolicyConfig, assumed: Assumed, fleet: Fleet) -> None:
        self.fleet = fleet
        self.journal = Journal()
        self._rules = rules
        self._assumed = assumed
        self._window = Window()
        self._grown: dict[str, tuple[Growth, ...]] = {}
        self._returns: list[tuple[int, str]] = []
        self._look_ns: int | None = None
        self._read_upto_ns = 0
        self._repeats = Repeats(rules)

    def twin(self) -> Simulation:
        """Another one that has seen the same so far."""
        twin = Simulation(self._rules, self._assumed, self.fleet.copy())
        twin.journal, twin._window = self.journal.copy(), self._window
        twin._grown, twin._returns = dict(self._grown), list(self._returns)
        twin._look_ns, twin._read_upto_ns = self._look_ns, self._read_upto_ns
        twin._repeats = self._repeats.copy()
        return twin

    def step(self, now_ns: int, faults: Sequence[Fault]) -> None:
        """One tick, after whatever was due before it."""
        self._catch_up(now_ns - 1)
        kept = [fault for fault in faults if not self._waits(fault)]
        if kept:
            names = dict.fromkeys(fault.node for fault in kept if fault.node is not None)
            waited = [fault for name in names for fault in self._repeats.take(name)]
            self._tick(now_ns, [*waited, *kept])
        self._read_upto_ns = now_ns

    def finish(self, end_ns: int) -> None:
        """Let the time run out."""
        self._catch_up(end_ns)
        for name in self._repeats.names():
            self._tick(end_ns, self._repeats.take(name))

    def verdicts(self) -> Verdicts:
        """What came of it so far."""
        return self.journal.verdicts(self._rules.version, self.fleet.gpu_nodes)

    def _catch_up(self, upto_ns: int) -> None:
        """Everything that happens by itself up to there: nodes that come back, what waits for a time."""
        while True:
            back_ns = self._returns[0][0] if self._returns else None
            due = [ns for ns in (back_ns, self._look_ns) if ns is not None]
            if not due or min(due) > upto_ns:
                return
            now_ns = min(due)
            while self._returns and self._returns[0][0] <= now_ns:
                name = heapq.heappop(self._returns)[1]
                if waited := self._repeats.take(name):
                    self._tick(now_ns, waited)
                self._bring_back(now_ns, name)
            self._tick(now_ns, ())

    def _tick(self, now_ns: int, faults: Sequence[Fault]) -> None:
        fleet, nodes = self.fleet, self.fleet.nodes
        # What was written may change what evidence of others means.
        attention = fleet.attention.union(filter(self._is_related, fleet.written()))
        concerned = attention.union(fault.node for fault in faults if fault.node is not None)
        snapshot = Snapshot(
            nodes,
            grown={name: self._grown.pop(name) for name in concerned & self._grown.keys()},
            read_ns=self._read_ns(),
            window=self._window,
            attention=frozenset(attention),
            with_jobs=frozenset(fleet.with_jobs),
        )
        plan = decide(snapshot, faults, self._rules, moment(now_ns))
        self._window = plan.window
        self._grown.update(plan.grown)
        for change in plan.changes:
            fleet.apply(change)
        for outage in self.journal.decided(now_ns, plan):
            if self._assumed.release_after_ns is not None:
                back_ns = self._polled_ns(now_ns + self._assumed.release_after_ns)
                heapq.heappush(self._returns, (back_ns, outage.node))
        if plan.changes:
            self.journal.load(now_ns, fleet.out)
        self._read_upto_ns = now_ns
        self._look_ns = self._next_look_ns(now_ns, plan)

    def _waits(self, fault: Fault) -> bool:
        self.fleet.hear(fault)
        state = self.fleet.nodes.get(fault.node or "")
        return state is not None and self._repeats.keep(fault, state, is_related=self._is_related(state.name))

    def _read_ns(self) -> Mapping[Source, int]:
        return dict.fromkeys(Source, self._read_upto_ns)

    def _is_related(self, name: str) -> bool:
        """Whether evidence on it may mean something for other nodes."""
        domain = self.fleet.nodes[name].domain
        return name in self._window.jobs or name in self.fleet.with_jobs or domain is not None

    def _next_look_ns(self, now_ns: int, plan: Plan) -> int | None:
        """When to look again although nothing is said.

        What the brake's bound holds passes when a node comes back, and that is looked at then anyway.
        """
        reasons, brake = {item.why for item in plan.refused}, plan.brake
        changed = any(self._is_related(change.node) for change in plan.changes)
        times = [now_ns + self._assumed.grid_ns] if Refusal.SETTLING in reasons or changed else []
        if Refusal.COOLDOWN in reasons and brake.rearms_at is not None:
            times.append(ns_of(brake.rearms_at))
        if Refusal.RATE in reasons and brake.pace is not None and brake.pace.frees_at is not None:
            times.append(ns_of(brake.pace.frees_at))
        return max(now_ns + self._assumed.grid_ns, self._polled_ns(min(times))) if times else None

    def _polled_ns(self, ns: int) -> int:
        return round_up(ns, self._assumed.grid_ns)

    def _bring_back(self, now_ns: int, name: str) -> None:
        """The assumed release, unless its failures keep the node out: then later, or never."""
        state, now = self.fleet.nodes[name], moment(now_ns)
        why = may_return(state.record, now, self._rules)
        if why is not None:
            self.journal.kept_out(name, why)
            if state.record.replace_since is None and state.record.hold_until is not None:
                heapq.heappush(self._returns, (self._polled_ns(ns_of(state.record.hold_until)), name))
            return
        change = release(
            state,
            at=now,
            by="backtest",
            reason="assumed",
            how="reset",
            read_ns=self._read_ns(),
            rules=self._rules,
        )
        if change is not None:
            self.fleet.apply(change)
            self.journal.released(now_ns, name)
            self.journal.load(now_ns, self.fleet.out)


def moment(ns: int) -> datetime:
    """Loki's nanoseconds as an aware datetime, to the microsecond."""
    return _EPOCH + timedelta(microseconds=ns // 1000)


def ns_of(when: datetime) -> int:
    """An aware datetime as nanoseconds since the epoch."""
    return (when - _EPOCH) // timedelta(microseconds=1) * 1000
