"""Mutants: each breaks one promise of the program on purpose, and a schedule must notice it.

``python -m tests.chaos.mutants [SCHEDULES [SEED]]`` tries every mutant and prints what noticed it: its
example, the schedule of its seed, or the first of SCHEDULES schedules (300 by default) that breaks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from konductor_like.model import BrakeState, Checkpoint, KernelPosition, Role
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.lifecycle import Happening
from konductor_like.policy.recovery.guards import Guard
from tests.chaos.examples import EXAMPLES
from tests.chaos.examples_of_alerts import ALERT_EXAMPLES
from tests.chaos.examples_of_guards import BESIDE, GUARD_EXAMPLES, GUARDED, KEPT_BY, OF_THE_COMMAND_LINE
from tests.chaos.examples_of_harm import HARM_EXAMPLES
from tests.chaos.examples_of_others import OTHERS_EXAMPLES
from tests.chaos.mutant import Mutant
from tests.chaos.mutants_of_alerts import MUTANTS_OF_ALERTS
from tests.chaos.mutants_of_harm import MUTANTS_OF_HARM
from tests.chaos.mutants_of_others import MUTANTS_OF_OTHERS
from tests.chaos.schedule import play, schedule_of


def _returns(value: Any) -> Callable[[Any], Any]:
    """Replace a function by one that always returns ``value``."""
    return lambda _real: lambda *_args, **_more: value


def _first_argument(_real: Any) -> Any:
    """Replace a function by one that returns its first argument."""
    return lambda first, *_args, **_more: first


def _changed(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Replace a function by one that changes its result."""
    return lambda real: lambda *args, **more: change(real(*args, **more))


def _list_that_hides_nothing(real: Any) -> Any:
    """A new list of the Nodes does not begin the spans again for which they stood."""

    def listed(self: Any) -> None:
        before = self._since
        real(self)
        self._since |= {name: since for name, since in before.items() if name in self._since}

    return listed


def _cursor_moves_before_the_plan(real: Any) -> Any:
    def run(self: Any, lines: Any, read_ns: Any, *rest: Any, **more: Any) -> Any:
        self._checkpoint = Checkpoint({**self._read_ns, **read_ns}, self._act_from_ns)
        return real(self, lines, read_ns, *rest, **more)

    return run


def _unwritten_faults_dropped(real: Any) -> Any:
    return lambda self, plan, faults, again, _unwritten, now: real(self, plan, faults, again, set(), now)


def _spans_without(name: str) -> Callable[[Any], Any]:
    def of(real: Any) -> Any:
        def spans_of(cls: Any, settings: Any, source: Any) -> Any:
            spans = real.__func__(cls, settings, source)
            object.__setattr__(spans, name, 0)
            return spans

        return classmethod(spans_of)

    return of


def _never_sweeping(real: Any) -> Any:
    def planned(progress: Any, spans: Any, gaps: Any, now_ns: int) -> Any:
        rare = spans if progress.swept_ns is None else replace(spans, sweep_every_ns=10**18)
        return real(progress, rare, gaps, now_ns)

    return planned


def _others_taints_replaced(real: Any) -> Any:
    ours: dict[str, str] = real.__globals__["OUR_TAINT"]

    def on_taints(seen: Any, wanted: Any) -> Any:
        if ours in (wanted or ()) and ours not in (seen or ()):
            return [{"op": "add", "path": "/spec/taints", "value": [dict(ours)]}]
        return real(seen, wanted)

    return on_taints


def _applied_on_any_refusal(real: Any) -> Any:
    result, outcome = real.__globals__["WriteResult"], real.__globals__["Outcome"]

    def look_again(self: Any, _state: Any, change: Any, *_: Any) -> Any:
        fresh = self._decode(self._client.get(f"/api/v1/nodes/{change.node}"))
        return result(change, outcome.APPLIED, fresh)

    return look_again


def _no_line_names_its_boot(real: Any) -> Any:
    def fold_fault(folded: Any, state: Any, fault: Any, now: Any) -> Any:
        position = fault.finding.position
        bare = KernelPosition(None, position.sequence, position.stamp_us)
        finding = fault.finding._replace(position=bare)
        return real(folded, state, replace(fault, finding=finding), now)

    return fold_fault


def _deferred_for_ever(_real: Any) -> Any:
    def deferred_of(record: Any, _state: Any, _mine: Any, rules: Any, now_ns: int) -> dict[Any, int]:
        keys = (i.key for i in record.incidents if rules.escalation(i.key.rule).defer_seconds)
        return dict.fromkeys(keys, now_ns + 10**9)

    return deferred_of


def _threshold_off_by(number: int) -> Callable[[Any], Any]:
    return lambda real: (
        lambda threshold, *rest: real(replace(threshold, count=threshold.count + number), *rest)
    )


def _only_pod_lines_confirm(real: Any) -> Any:
    is_news = real.__globals__["is_news"]

    def together(together: Any, incident: Any, own: Any, mine: Any, now_ns: int) -> str:
        return str(real(together, incident, own, mine, now_ns)) if is_news(own, now_ns) else ""

    return together


def _no_failure_group_keeps_its_name(real: Any) -> Any:
    numbers = count()
    return lambda group, *rest: replace(real(group, *rest), known_as=f"{group.shared}@{next(numbers)}")


def _not_collateral(incident: Any) -> Any:
    return replace(incident, role=None) if incident.role is Role.COLLATERAL else incident


def _admit(everybody: bool) -> Callable[[Any], Any]:
    def admit(real: Any) -> Any:
        admission = real.__globals__["Admission"]

        def admitted(candidates: Any, *_rest: Any) -> Any:
            out = len(candidates)
            brake = BrakeState(out, 0, out) if everybody else BrakeState(out, 0, 1)
            return admission(frozenset(candidates if everybody else ()), {}, brake)

        return admitted

    return admit


def _with_policy(**instead: Any) -> Callable[[Any], Any]:
    """Replace a function by one that has these settings in its policy."""
    return lambda real: (
        lambda *args: real(
            *(replace(each, **instead) if isinstance(each, PolicyConfig) else each for each in args)
        )
    )


def _as_of_one_boot(real: Any) -> Any:
    def seen(known: Any, state: Any, *rest: Any) -> Any:
        if known is not None:
            machine = replace(known.state.machine, boot_id=state.machine.boot_id)
            known = replace(known, state=replace(known.state, machine=machine))
        return real(known, state, *rest)

    return seen


def _relapsed(each: Any) -> bool:
    return each.relapsed_at is not None


def _never(*guards: Guard) -> Callable[[Any], Any]:
    """Replace a function that yields what keeps a node out by one that leaves out these guards."""
    return lambda real: lambda *args: (each for each in real(*args) if each.guard not in guards)


ALL_EXAMPLES = EXAMPLES | HARM_EXAMPLES | GUARD_EXAMPLES | OTHERS_EXAMPLES | ALERT_EXAMPLES

MUTANTS: dict[str, Mutant] = {
    # The cursor
    "the cursor passes faults whose write failed": Mutant(
        *(
            "controller.Reconciler._checkpointed",
            lambda _: lambda self: Checkpoint(dict(self._read_ns), self._act_from_ns),
        ),
        example="a fault whose write failed is found by the next process",
    ),
    "the cursor moves before the plan was applied": Mutant(
        *("controller.Reconciler.run", _cursor_moves_before_the_plan),
        example="while writes are under way the cursor stays behind them",
    ),
    "faults whose write failed are dropped": Mutant(
        *("controller.Reconciler._carry_over", _unwritten_faults_dropped),
        example="a fault whose write failed is found by the next process",
    ),
    # Reading
    "polls have no overlap": Mutant(
        *("loki.ReaderConfig.of", _spans_without("overlap_ns")),
        guarded="sweeps and starts read the lateness span again and find the same lines, only later",
    ),
    "nothing sweeps": Mutant(
        *("loki.planned", _never_sweeping),
        example="a line that comes later than any poll looks back is found",
    ),
    "a start does not read before its cursor": Mutant(
        *("loki.ReaderConfig.of", _spans_without("lateness_ns")),
        example="a line that came late while nobody read is found",
    ),
    "a cut answer counts as complete": Mutant(
        "loki.is_complete", _returns(True), example="an answer that Loki cut hides no node"
    ),
    "no query is repeated with fewer entries": Mutant("loki._is_too_large", _returns(False), seed=17),
    "Loki may answer from its cache": Mutant(
        *(
            "loki.fixed_headers",
            _changed(lambda headers: {name: headers[name] for name in headers if name != "Cache-Control"}),
        ),
        guarded="Loki's cache can hide only a line that comes ten minutes late, and few do",
    ),
    "no line counts as delivered": Mutant(
        *("loki.DeliveredLines.has", _returns(False)),
        guarded="kernel positions and timestamps in the record recognise a line that is read again",
    ),
    # One writer
    "the fence is always open": Mutant(
        *("cluster.LeaderLease.budget_seconds", _returns(60.0)),
        example="a process that stood still does not write until it has renewed the Lease",
    ),
    "the Lease of another holder is taken at once": Mutant(
        "cluster.LeaderLease._may_take", _returns(True), seed=6
    ),
    "a return does not test that nothing of the Node changed": Mutant(
        *(
            "cluster._tests",
            _changed(lambda tests: [each for each in tests if "Version" not in each["path"]]),
        ),
        example="a node that is cordoned between the decision and the write stays tainted",
    ),
    "a failing write is tried ever more rarely": Mutant(
        *(
            "backoff.Backoff.longest_seconds",
            lambda _: lambda self, failures: self.first_seconds * 2**failures,
        ),
        example="a return that is refused for long is tried again every two minutes",
    ),
    "a patch tests nothing": Mutant(
        "cluster._tests", _returns([]), example="a change that others make during a write is kept"
    ),
    "a refused patch counts as applied": Mutant(
        *("cluster.NodeWriter._read_again", _applied_on_any_refusal),
        example="a refused write is made again",
    ),
    "our taint replaces the others": Mutant(
        "cluster._on_taints", _others_taints_replaced, example="fields that others own on a Node are kept"
    ),
    "the watch is not followed": Mutant(
        "cluster.NodeStore._watch",
        _returns(None),
        example="a node that was released is tainted by its next fault",
    ),
    "a change that was taken back begins no span again": Mutant(
        "cluster.node.store._unchanged_since",
        lambda _real: lambda known, _before, _state, now: known or (now, now),
        example="a node whose GPUs come and go stays tainted",
    ),
    "a new list begins no span again": Mutant(
        "cluster.NodeStore._list",
        _list_that_hides_nothing,
        example="a flap that a new list of the Nodes hides keeps the node out",
    ),
    "a node that stands is never seen to": Mutant(
        "cluster.NodeStore.standing",
        _returns({}),
        example="a node that keeps its GPUs and its readiness returns, whatever it did before",
    ),
    "a second fall of GPUs is another one": Mutant(
        "policy.node.gpu_counts._back",
        lambda real: lambda seen, now_ns: replace(real(seen, now_ns), since_ns=None),
        example="a node whose GPUs come and go in service is suspect",
    ),
    # Nothing acts twice
    "kernel positions recognise no replay": Mutant(
        "model.KernelPosition.at_or_before", _returns(None), seed=3
    ),
    "a stamp without a boot id counts as one with it": Mutant(
        "model.KernelPosition.plain",
        lambda _: lambda self, boot_id: replace(self, boot_id=boot_id),
        example="a stamp ahead of the uptime hides no fault after the release",
    ),
    "nothing was seen before": Mutant("policy.IncidentBuilder.seen", _returns(False), seed=3),
    "a release covers no incident": Mutant("policy._released", _first_argument, seed=7),
    "a release covers everything": Mutant("policy.covers", _returns(True), seed=7),
    "a release covers by its time what has a place in the kernel log": Mutant(
        *("policy.decides_by_position", _returns(False)),
        example="a fault after a reset taints although the clock of its node is behind",
    ),
    "a taint removed by hand is set again": Mutant(
        *("policy.released_by_hand", _first_argument),
        example="a taint that was removed by hand is not set again",
    ),
    "a line counts for the present boot, even if it names another": Mutant(
        "policy._fold_fault", _no_line_names_its_boot, seed=1
    ),
    "boots are never past": Mutant(
        *("policy.PAST_BOOTS_KEPT", lambda _: 0),
        guarded="a line of another boot than the Node's is pending, and does not taint",
    ),
    "the suspect taint is never removed": Mutant("policy.has_old_taint", _returns(False), seed=27),
    "a record has any number of GPUs": Mutant(
        *("policy.GPUS_OF_RULE_MOST", lambda _: 1000),
        example="a driver that names ever new GPUs does not fill the record",
    ),
    # The brake
    "the brake allows no taint": Mutant(
        "policy.admit", _admit(everybody=False), example="fields that others own on a Node are kept"
    ),
    "the brake allows every taint": Mutant("policy.admit", _admit(everybody=True), seed=3),
    "a pause is ignored": Mutant("model.ControlAct.holds", _returns(False), seed=62),
    "pools have no brake": Mutant(
        "policy.FleetCount.budgets", lambda _: lambda self, _pool: (self.fleet,), seed=13
    ),
    "the rate limit is ignored": Mutant(
        "policy.FleetCount.pace", _returns(None), example="the rate limit allows one node in its window"
    ),
    "the brake does not cool down": Mutant(
        "policy.FleetCount.note_release",
        _returns(None),
        example="the brake counts a released node until the cool-down ends",
    ),
    "a deleted node is forgotten": Mutant(
        "policy.FleetCount.note_deleted",
        _returns(None),
        example="the brake counts a deleted node until the cool-down ends",
    ),
    # The way back
    "a return covers unread lines": Mutant(
        *("model.ReleaseHow.by_controller", lambda _: property(lambda _how: False)),
        example="a fault of the new boot whose line comes after the return taints",
    ),
    "a relapse is forgotten": Mutant(
        *(
            "policy.what_failed",
            _changed(lambda what: what if what is not Happening.RELAPSED else Happening.FAILED_AGAIN),
        ),
        example="a node that fails on probation does not return by itself again",
    ),
    "the relapses of the fleet are forgotten": Mutant(
        *("policy.is_stopped", _returns(False)), example="after three relapses no node returns by itself"
    ),
    "every resume forgets the relapses": Mutant(
        *("policy.settled_by_resume", lambda _: lambda controls: [*filter(_relapsed, controls.returned)]),
        example="a resume before the stop forgets no relapse",
    ),
    "the faults of another board are repaired by its boot": Mutant(
        "policy._of_another_machine", _first_argument, example="a node that gets another board stays tainted"
    ),
    "any number of nodes return in an hour": Mutant(
        *("policy.returns_left", _returns(100)), example="two nodes return in an hour if two may"
    ),
    "a test ends although a fault taints too": Mutant(
        *("policy.returns_by_time", _returns(True)), example="a test does not end beside a fault"
    ),
    # GPUs that are missing
    "the time of missing GPUs goes on over a reboot": Mutant(
        *("policy._seen", _as_of_one_boot),
        example="the time of missing GPUs begins again after a reboot",
    ),
    "GPUs that were lost at any time were lost together": Mutant(
        *("policy.counted", _with_policy(gpu_count_seconds=1e6)),
        example="GPUs that many nodes lost earlier do not excuse a node that loses some now",
    ),
    # Many nodes at once
    "collateral taints": Mutant(
        *("policy._in_group", _changed(_not_collateral)),
        example="link failures of a rack after a GPU's failure are collateral",
    ),
    "no failure group has a root cause": Mutant(
        *("policy._root_causes", _returns(frozenset())),
        example="link failures of a rack after a GPU's failure are collateral",
    ),
    "every fatal fault may be collateral": Mutant(
        *("policy.Evidence.is_deferrable", lambda _: property(lambda each: each.severity.taints)),
        example="two GPUs of a rack that fail one after the other both taint",
    ),
    "a fault that a failure elsewhere explains counts": Mutant(
        *(
            "policy.evidence_that_counts",
            lambda _: lambda found, *_rest: [each for each in found if not each.recorded],
        ),
        example="page faults that failures of another node explain taint only that node",
    ),
    "nothing is deferred": Mutant(
        *("policy.deferred_of", _returns({})),
        example="a link failure is deferred until lines of other nodes may have arrived",
    ),
    "a deferred fault waits for ever": Mutant(
        "policy.deferred_of", _deferred_for_ever, example="a link failure that nothing explains taints"
    ),
    "no failure group keeps its name": Mutant(
        *("policy.named", _no_failure_group_keeps_its_name),
        guarded="another name alone causes no write",
    ),
    # Evidence from before a restart, or that is read late
    "a threshold is one too high": Mutant(
        *("policy._threshold_reached", _threshold_off_by(1)),
        example="three failures of a GPU taint, even with a restart between them",
    ),
    "the past is forgotten at a restart": Mutant(
        "policy.with_past",
        _first_argument,
        example="three failures of a GPU taint, even with a restart between them",
    ),
    "a kernel line that comes late confirms nothing": Mutant(
        *("policy._confirmed_by", _only_pod_lines_confirm),
        example="a kernel line that is read long after a restart confirms a memory error",
    ),
}

MUTANTS |= (
    MUTANTS_OF_OTHERS
    | MUTANTS_OF_ALERTS
    | MUTANTS_OF_HARM
    | {
        f"the guard {guard} never holds": Mutant(
            "policy.recovery.guards.blockers",
            _never(guard, *BESIDE.get(guard, ())),
            example=KEPT_BY.get(guard),
            guarded=GUARDED.get(guard, ""),
        )
        for guard in Guard
        # A contest keeps no taint on a node: it is the reason why the taint is off.
        if guard not in (*OF_THE_COMMAND_LINE, Guard.CONTESTED)
    }
)


def noticed_by(name: str, seeds: range = range(0)) -> str:
    """Return what notices a mutant (its example, its seed or one of ``seeds``), and the sentence; "" if none.

    Raises NoSuchNameError or ValueError if the mutant no longer fits the program.
    """
    mutant = MUTANTS[name]
    schedules = [(f"example {mutant.example!r}", ALL_EXAMPLES[mutant.example])] if mutant.example else []
    numbers = (mutant.seed,) if mutant.seed is not None else () if mutant.example else seeds
    with mutant():
        for source, schedule in (*schedules, *((f"seed {seed}", schedule_of(seed)) for seed in numbers)):
            for sentence in play(schedule, until_broken=True).broken:
                if any(error in sentence for error in ("AttributeError", "NameError", "TypeError")):
                    raise ValueError(f"{name}: {sentence}")
                return f"{source}: {sentence}"
    return ""


def _main(schedules: int = 300, first: int = 1) -> int:
    survivors = 0
    seeds = range(first, first + schedules)
    with ProcessPoolExecutor() as pool:
        for name, found in zip(MUTANTS, pool.map(partial(noticed_by, seeds=seeds), MUTANTS), strict=True):
            guarded = MUTANTS[name].guarded
            survivors += not (found or guarded)
            noticed = found or (f"not noticed, because {guarded}" if guarded else "NOT noticed")
            sys.stdout.write(f"{name}\n    {noticed}\n")
            sys.stdout.flush()
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(_main(*(int(argument) for argument in sys.argv[1:3])))
