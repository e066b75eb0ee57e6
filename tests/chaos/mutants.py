"""Can the suite fail? Each mutant breaks one promise of the program on purpose, and must be caught.

``python -m tests.chaos.mutants [SCHEDULES [SEED]]`` tries each on so many schedules and prints by which seed
and sentence it was caught. A mutant that is never caught is guarded twice, as its note says, or a hole in
the suite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any
from unittest.mock import patch as patched

from konductor_like.cluster import node_patch
from konductor_like.cluster.client import node_path
from konductor_like.cluster.lease import LeaderLease
from konductor_like.cluster.node_store import NodeStore
from konductor_like.cluster.node_writer import NodeWriter, Outcome, WriteResult
from konductor_like.controller.tick import Tick
from konductor_like.loki import client, poll, window_query
from konductor_like.loki.backlog import ReaderConfig
from konductor_like.loki.dedup import DeliveredLines
from konductor_like.model import BrakeState, Checkpoint, KernelPosition, Role, Source
from konductor_like.policy.brake import Admission, Budget, FleetCount
from konductor_like.policy.incident_builder import IncidentBuilder
from tests.chaos import wire
from tests.chaos.schedule import play, schedule_of

# Mutants reach into what these modules import.
decide: Any = import_module("konductor_like.policy.decide")
brake: Any = import_module("konductor_like.policy.brake")
change: Any = import_module("konductor_like.policy.change")
correlation: Any = import_module("konductor_like.policy.correlation")
escalation: Any = import_module("konductor_like.policy.escalation")
evidence: Any = import_module("konductor_like.policy.evidence")
evidence_window: Any = import_module("konductor_like.policy.evidence_window")
incidents: Any = import_module("konductor_like.policy.incidents")
release: Any = import_module("konductor_like.policy.release")

Mutant = Callable[[], AbstractContextManager[Any]]


def _swap(target: object, name: str, value: object) -> Mutant:
    return lambda: patched.object(target, name, value)


def _cursor_runs_ahead(self: Tick) -> Checkpoint:
    return Checkpoint(dict(self._read_ns), self._act_from_ns)


@contextmanager
def _cursor_moves_before_the_plan() -> Iterator[None]:
    def run(self: Tick, lines: Any, read_ns: Mapping[Any, int], *rest: Any, **more: Any) -> Any:
        self._checkpoint = Checkpoint({**self._read_ns, **read_ns}, self._act_from_ns)
        return real(self, lines, read_ns, *rest, **more)

    real = Tick.run
    with patched.object(Tick, "run", run):
        yield


@contextmanager
def _spans_without(name: str) -> Iterator[None]:
    def of(cls: type[ReaderConfig], settings: Any, source: Any) -> Any:
        spans = real(cls, settings, source)
        object.__setattr__(spans, name, 0 if name != "sweep_every_ns" else 10**18)
        return spans

    real: Any = ReaderConfig.of.__func__  # type: ignore[attr-defined]  # a classmethod's function
    with patched.object(ReaderConfig, "of", classmethod(of)):
        yield


@contextmanager
def _others_taints_replaced() -> Iterator[None]:
    def on_taints(seen: Any, wanted: Any) -> list[dict[str, Any]]:
        if node_patch.OUR_TAINT in (wanted or ()) and node_patch.OUR_TAINT not in (seen or ()):
            return [{"op": "add", "path": "/spec/taints", "value": [dict(node_patch.OUR_TAINT)]}]
        return real(seen, wanted)

    real = node_patch._on_taints
    with patched.object(node_patch, "_on_taints", on_taints):
        yield


@contextmanager
def _every_answer_complete() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (poll, window_query):
            stack.enter_context(patched.object(module, "is_complete", lambda _result: True))
        yield


def _without_no_cache(settings: Any) -> dict[str, str]:
    return {name: value for name, value in client.fixed_headers(settings).items() if name != "Cache-Control"}


@contextmanager
def _unwritten_faults_dropped() -> Iterator[None]:
    def settle(self: Tick, plan: Any, faults: Any, again: Any, _unwritten: Any, now: Any) -> None:
        real(self, plan, faults, again, set(), now)

    real = Tick._settle
    with patched.object(Tick, "_settle", settle):
        yield


def _applied_on_any_refusal(self: Any, _state: Any, change: Any, _refusal: Any, _unknown: Any) -> Any:
    fresh = self._decode(self._client.get(node_path(change.node)))
    return WriteResult(change, Outcome.APPLIED, fresh)


@contextmanager
def _no_line_names_its_boot() -> Iterator[None]:
    def fold_fault(folded: Any, builder: Any, state: Any, fault: Any, now: Any) -> Any:
        position = fault.finding.position
        bare = KernelPosition(None, position.sequence, position.stamp_us)
        finding = fault.finding._replace(position=bare)
        return real(folded, builder, state, decide.replace(fault, finding=finding), now)

    real = incidents._fold_fault
    with patched.object(incidents, "_fold_fault", fold_fault):
        yield


@contextmanager
def _hands_unnoticed() -> Iterator[None]:
    def folded(*args: Any, **more: Any) -> Any:
        return real(*args, **{**more, "removal": None})

    real = decide.fold_faults
    with patched.object(decide, "fold_faults", folded):
        yield


@contextmanager
def _acks_forgotten() -> Iterator[None]:
    def incident(self: IncidentBuilder) -> Any:
        return decide.replace(real(self), ack=None)

    real = IncidentBuilder.incident
    with patched.object(IncidentBuilder, "incident", incident):
        yield


@contextmanager
def _collateral_taints() -> Iterator[None]:
    def in_event(incident: Any, *rest: Any) -> Any:
        found = real(incident, *rest)
        return decide.replace(found, role=None) if found.role is Role.COLLATERAL else found

    real = correlation._in_event
    with patched.object(correlation, "_in_event", in_event):
        yield


def _all_settle(record: Any, _state: Any, _mine: Any, rules: Any, now_ns: int) -> dict[Any, int]:
    keys = (i.key for i in record.incidents if rules.escalation(i.key.rule).settle_seconds)
    return dict.fromkeys(keys, now_ns + 10**9)


@contextmanager
def _every_fatal_line_may_be_collateral() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (correlation, escalation):
            stack.enter_context(patched.object(module, "is_deferrable", lambda each, _rules: each.taints))
        yield


@contextmanager
def _threshold_off_by(number: int) -> Iterator[None]:
    def reached(threshold: Any, incident: Any, mine: Any) -> str:
        return str(real(decide.replace(threshold, count=threshold.count + number), incident, mine))

    real = escalation._threshold
    with patched.object(escalation, "_threshold", reached):
        yield


@contextmanager
def _softer_taint_lingers() -> Iterator[None]:
    def bears(state: Any, *rest: Any, **more: Any) -> bool:
        return bool(state.suspect_tainted or real(state, *rest, **more))

    real = change.bears_suspect_taint
    with patched.object(change, "bears_suspect_taint", bears):
        yield


@contextmanager
def _no_event_keeps_its_name() -> Iterator[None]:
    def named(event: Any, *rest: Any) -> Any:
        return decide.replace(real(event, *rest), known_as=f"{event.shared}@{next(numbers)}")

    real, numbers = escalation.named, count()
    with patched.object(escalation, "named", named):
        yield


def _any_kernel_line(_rule: str, other: Any) -> bool:
    return bool(other.source is Source.KERNEL)


@contextmanager
def _confirmed_at_any_time() -> Iterator[None]:
    def together(together: Any, *rest: Any) -> str:
        return str(real(decide.replace(together, within_seconds=86_400), *rest))

    real = escalation._together
    with patched.object(escalation, "_together", together):
        yield


@contextmanager
def _only_a_pods_line_is_news() -> Iterator[None]:
    def together(together: Any, incident: Any, own: Any, mine: Any, now_ns: int) -> str:
        return str(real(together, incident, own, mine, now_ns)) if escalation.is_news(own, now_ns) else ""

    real = escalation._together
    with patched.object(escalation, "_together", together):
        yield


def _every_job_named(own: Any) -> int:
    return len({job for each in own for job in each.jobs})


def _every_line_of_a_job(own: Any) -> int:
    return sum(bool(each.jobs) for each in own)


def _all_that_is_not_recorded(found: Any, *_rest: Any) -> list[Any]:
    return [each for each in found if not each.recorded]


def _admit_all(candidates: Any, *_rest: Any) -> Admission:
    return Admission(frozenset(candidates), {}, BrakeState(len(candidates), 0, len(candidates)))


def _admit_nobody(candidates: Any, *_rest: Any) -> Admission:
    return Admission(frozenset(), {}, BrakeState(len(candidates), 0, 1))


MUTANTS: dict[str, Mutant] = {
    "the cursor passes faults whose write failed": _swap(Tick, "_checkpointed", _cursor_runs_ahead),
    "the cursor moves before the plan was applied": _cursor_moves_before_the_plan,
    "faults whose write failed are dropped": _unwritten_faults_dropped,
    "no poll looks back": lambda: _spans_without("overlap_ns"),
    "nothing sweeps": lambda: _spans_without("sweep_every_ns"),
    "a start looks no further back than its cursor": lambda: _spans_without("lateness_ns"),
    "a cut answer counts as complete": _every_answer_complete,
    "Loki may answer from its cache": _swap(wire, "fixed_headers", _without_no_cache),
    "the fence is always open": _swap(LeaderLease, "budget_seconds", lambda _self: 60.0),
    "another's Lease is taken at once": _swap(LeaderLease, "_may_take", lambda _self, _seen: True),
    "a patch tests nothing": _swap(node_patch, "_tests", lambda _seen, _operations: []),
    "a refused patch counts as applied": _swap(NodeWriter, "_read_again", _applied_on_any_refusal),
    "our taint replaces the others": _others_taints_replaced,
    "the watch is not followed": _swap(NodeStore, "_watch", lambda _self: None),
    "kernel positions tell no replay": _swap(KernelPosition, "at_or_before", lambda _self, _other: None),
    "nothing was seen before": _swap(IncidentBuilder, "seen", lambda _self, _fault: False),
    "no answer is asked for with fewer entries": _swap(window_query, "_is_too_large", lambda _error: False),
    "no line counts as delivered": _swap(DeliveredLines, "has", lambda *_args: False),
    "a release covers no incident": _swap(release, "_released", lambda incident, _boot, _until: incident),
    "a release covers everything": _swap(incidents, "covers", lambda *_args, **_more: True),
    "a taint taken off by hand is set again": _hands_unnoticed,
    "a line counts for the present boot, whatever it names": _no_line_names_its_boot,
    "boots are never past": _swap(incidents, "PAST_BOOTS_KEPT", 0),
    "the brake lets nobody pass": _swap(decide, "admit", _admit_nobody),
    "the brake lets everybody pass": _swap(decide, "admit", _admit_all),
    "a pause is not heeded": _swap(brake, "_holding", lambda _steering, _now: None),
    "pools have no brake of their own": _swap(
        brake, "_budgets", lambda count, _state, _rules: (count.fleet,)
    ),
    "the pace is not kept": _swap(FleetCount, "pace", lambda _self, _rules: None),
    "the brake does not cool down": _swap(Budget, "released", lambda *_args: None),
    "a deleted node is forgotten": _swap(brake, "_note_deleted", lambda *_args: None),
    "an acknowledgement is forgotten": _acks_forgotten,
    "every growth is written at once": _swap(change, "is_due", lambda *_args: True),
    "collateral taints": _collateral_taints,
    "no event has an origin": _swap(correlation, "_origins", lambda *_args: frozenset()),
    "hardware's own failure may be collateral": _every_fatal_line_may_be_collateral,
    "nothing waits to be told apart": _swap(escalation, "settling", lambda *_args: {}),
    "what is to be told apart waits for ever": _swap(escalation, "settling", _all_settle),
    "no event keeps its name": _no_event_keeps_its_name,
    "a threshold is one too low": lambda: _threshold_off_by(-1),
    "a threshold is one too high": lambda: _threshold_off_by(1),
    "lines of one failure count one by one": _swap(evidence_window, "EPISODE_NS", 0),
    "a release does not end the counting": _swap(evidence, "settled_ns", lambda *_args: 0),
    "a reboot does not end the counting": _swap(evidence, "boot_in", lambda *_args: None),
    "the past is forgotten at a restart": _swap(evidence, "with_past", lambda found, *_args: found),
    "the softer taint lingers": _softer_taint_lingers,
    "a pod's word of its memory is enough": _swap(escalation, "_together", lambda *_args: "a pod says so"),
    "nothing confirms a pod": _swap(escalation, "_together", lambda *_args: ""),
    "a job's end confirms a pod": _swap(escalation, "_is_meant", _any_kernel_line),
    "a pod is confirmed however long ago": _confirmed_at_any_time,
    "a kernel's word that comes late confirms nothing": _only_a_pods_line_is_news,
    "all the jobs of one failure count": _swap(escalation, "_distinct_jobs", _every_job_named),
    "one job counts again and again": _swap(escalation, "_distinct_jobs", _every_line_of_a_job),
    "whose a page fault was nobody learns from pods": _swap(evidence, "_with_jobs", lambda mine, _span: mine),
    "what a failure elsewhere explains counts": _swap(escalation, "counting", _all_that_is_not_recorded),
}

GUARDED_TWICE = {
    "no line counts as delivered": "kernel positions and timestamps in the record tell a line read again",
    "no poll looks back": "sweeps and starts read the lateness again; only sooner would it be found",
    "Loki may answer from its cache": "only a line ten minutes late may be hidden, and few are",
    "no event keeps its name": "another name alone is no reason to write; it waits for one",
    "boots are never past": "a line of another boot than the Node's is pending, and never taints",
}
"""What nothing catches because another guard holds; here to be told, and to be noticed if that changes."""


def caught_by(name: str, seeds: range) -> tuple[int, str] | None:
    """The first seed that catches a mutant, and the sentence; None where none does.

    Raises ValueError where the mutant does not fit the program any more: it breaks a turn, not a promise.
    """
    with MUTANTS[name]():
        for seed in seeds:
            broken = play(schedule_of(seed)).broken
            if broken and any(crash in broken[0] for crash in ("AttributeError", "TypeError")):
                raise ValueError(f"{name}: {broken[0]}")
            if broken:
                return seed, broken[0]
    return None


def _main(schedules: int = 300, first: int = 1) -> int:
    survivors = 0
    seeds = range(first, first + schedules)
    with ProcessPoolExecutor() as pool:
        for name, found in zip(MUTANTS, pool.map(partial(caught_by, seeds=seeds), MUTANTS), strict=True):
            told = f"seed {found[0]}: {found[1]}" if found else f"NOT caught by {schedules} schedules"
            if not found and name in GUARDED_TWICE:
                told = f"guarded twice: {GUARDED_TWICE[name]}"
            survivors += not found and name not in GUARDED_TWICE
            sys.stdout.write(f"{name}\n    {told}\n")
            sys.stdout.flush()
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(_main(*(int(argument) for argument in sys.argv[1:3])))
