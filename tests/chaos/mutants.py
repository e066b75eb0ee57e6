"""Can the suite fail? Each mutant breaks one promise of the program on purpose, and must be noticed.

``python -m tests.chaos.mutants [SCHEDULES [SEED]]`` tries each and prints what noticed it: its example, the
schedule of its seed, or else the first of so many schedules.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from types import ModuleType
from typing import Any
from unittest.mock import patch as patched

from konductor_like.model import BrakeState, Checkpoint, KernelPosition, Role, Source
from tests.chaos.examples import EXAMPLES
from tests.chaos.schedule import play, schedule_of

PRODUCT = "konductor_like"


class NoSuchNameError(Exception):
    """The program has nothing of that name any more, so the mutant has to be fitted to it again."""


@dataclass(frozen=True)
class Mutant:
    """One thing of the program, and what takes its place.

    ``name`` is a package and what one of its modules defines, wherever in the package that is:
    ``controller.Reconciler.run``. Where two define the name, the module is named too. ``instead`` gives
    the replacement for what is there.
    """

    name: str
    instead: Callable[[Any], Any]
    seed: int | None = None
    """Its schedule notices the mutant."""
    example: str | None = None
    """Notices the mutant where few schedules would."""
    guarded: str = ""
    """Which other guard keeps the promise, so that nothing can notice the mutant."""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """The program is broken meanwhile. Raises NoSuchNameError."""
        with ExitStack() as stack:
            places = _places(self.name)
            holder, name = places[0]
            value = self.instead(inspect.getattr_static(holder, name))
            for holder, name in places:
                stack.enter_context(patched.object(holder, name, value))
            yield


def _places(path: str) -> list[tuple[Any, str]]:
    """Where the thing stands: in its class, or in all modules that know it."""
    package, first, rest = _split(path)
    mine = _modules(package)
    defining = [module for module in mine if first in vars(module) and _defines(module, first)]
    if len({id(vars(module)[first]) for module in defining}) != 1:
        raise NoSuchNameError(f"{len(defining)} modules of {package} define {first} (for {path})")
    thing: Any = vars(defining[0])[first]
    if rest:
        if rest[0] not in vars(thing):
            raise NoSuchNameError(f"{first} of {package} has no {rest[0]}")
        return [(thing, rest[0])]
    if not callable(thing):  # a constant
        return [(module, first) for module in mine if first in vars(module)]
    loaded = [each for name, each in sys.modules.items() if name.startswith((PRODUCT, "tests.chaos"))]
    return [(each, name) for each in loaded for name, value in list(vars(each).items()) if value is thing]


def _split(path: str) -> tuple[str, str, list[str]]:
    """The package or module of a path, what it defines, and the name in that where it is a class."""
    parts = path.split(".")
    in_module = len(parts) > 2 and parts[1].islower() and find_spec(f"{PRODUCT}.{parts[0]}.{parts[1]}")
    at = 2 if in_module else 1
    return ".".join([PRODUCT, *parts[:at]]), parts[at], parts[at + 1 :]


def _modules(package: str) -> list[ModuleType]:
    found = import_module(package)
    places = getattr(found, "__path__", None)
    names = pkgutil.walk_packages(places, f"{package}.") if places else ()
    return [found, *(import_module(each.name) for each in names)]


def _defines(module: ModuleType, name: str) -> bool:
    value = vars(module)[name]
    if isinstance(value, ModuleType):
        return False
    return getattr(value, "__module__", module.__name__) == module.__name__


def _always(value: Any) -> Callable[[Any], Any]:
    """Whatever it is asked for, it says the same."""
    return lambda _real: lambda *_args, **_more: value


def _first(_real: Any) -> Any:
    """It gives back what it was given first."""
    return lambda first, *_args, **_more: first


def _but(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What it says, changed."""
    return lambda real: lambda *args, **more: change(real(*args, **more))


def _told(**instead: Any) -> Callable[[Any], Any]:
    """It is told something else."""
    return lambda real: lambda *args, **more: real(*args, **{**more, **instead})


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

    def look_again(self: Any, _state: Any, change: Any, _refusal: Any, _unknown: Any) -> Any:
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


def _all_is_deferred(_real: Any) -> Any:
    def deferred_of(record: Any, _state: Any, _mine: Any, rules: Any, now_ns: int) -> dict[Any, int]:
        keys = (i.key for i in record.incidents if rules.escalation(i.key.rule).defer_seconds)
        return dict.fromkeys(keys, now_ns + 10**9)

    return deferred_of


def _threshold_off_by(number: int) -> Callable[[Any], Any]:
    return lambda real: (
        lambda threshold, *rest: real(replace(threshold, count=threshold.count + number), *rest)
    )


def _only_a_pods_line_is_news(real: Any) -> Any:
    is_news = real.__globals__["is_news"]

    def together(together: Any, incident: Any, own: Any, mine: Any, now_ns: int) -> str:
        return str(real(together, incident, own, mine, now_ns)) if is_news(own, now_ns) else ""

    return together


def _no_event_keeps_its_name(real: Any) -> Any:
    numbers = count()
    return lambda event, *rest: replace(real(event, *rest), known_as=f"{event.shared}@{next(numbers)}")


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
    "no poll looks back": Mutant(
        *("loki.ReaderConfig.of", _spans_without("overlap_ns")),
        guarded="sweeps and starts read the lateness again; only sooner would it be found",
    ),
    "nothing sweeps": Mutant(
        *("loki.planned", _never_sweeping),
        example="a line that comes later than any poll looks back is found",
    ),
    "a start looks no further back than its cursor": Mutant(
        *("loki.ReaderConfig.of", _spans_without("lateness_ns")),
        example="a line that came late while nobody read is found",
    ),
    "a cut answer counts as complete": Mutant(
        "loki.is_complete", _always(True), example="an answer that Loki cut hides nobody"
    ),
    "no answer is asked for with fewer entries": Mutant("loki._is_too_large", _always(False), seed=17),
    "Loki may answer from its cache": Mutant(
        *(
            "loki.fixed_headers",
            _but(lambda headers: {name: headers[name] for name in headers if name != "Cache-Control"}),
        ),
        guarded="only a line ten minutes late may be hidden, and few are",
    ),
    "no line counts as delivered": Mutant(
        *("loki.DeliveredLines.has", _always(False)),
        guarded="kernel positions and timestamps in the record tell a line read again",
    ),
    # One writer
    "the fence is always open": Mutant(
        *("cluster.LeaderLease.budget_seconds", _always(60.0)),
        example="a process that stood still does not write until it has renewed the Lease",
    ),
    "another's Lease is taken at once": Mutant("cluster.LeaderLease._may_take", _always(True), seed=6),
    "a patch tests nothing": Mutant(
        "cluster._tests", _always([]), example="what others write in the midst of a write stays"
    ),
    "a refused patch counts as applied": Mutant(
        *("cluster.NodeWriter._read_again", _applied_on_any_refusal),
        example="a refused write is made again",
    ),
    "our taint replaces the others": Mutant(
        "cluster._on_taints", _others_taints_replaced, example="what others own of a node stays"
    ),
    "the watch is not followed": Mutant(
        "cluster.NodeStore._watch", _always(None), example="a node that was let go is known to be back"
    ),
    "every growth is written at once": Mutant(
        "policy.is_due", _always(True), example="a count that grows is written once in ten minutes"
    ),
    # Nothing acts twice
    "kernel positions tell no replay": Mutant("model.KernelPosition.at_or_before", _always(None), seed=16),
    "nothing was seen before": Mutant("policy.IncidentBuilder.seen", _always(False), seed=2),
    "a release covers no incident": Mutant("policy._released", _first, seed=4),
    "a release covers everything": Mutant("policy.covers", _always(True), seed=7),
    "a taint taken off by hand is set again": Mutant(
        *("policy.fold_faults", _told(removal=None)),
        example="what was taken off by hand stays off",
    ),
    "an acknowledgement is forgotten": Mutant(
        "policy.IncidentBuilder.value", _but(lambda incident: replace(incident, ack=None)), seed=3
    ),
    "a line counts for the present boot, whatever it names": Mutant(
        "policy._fold_fault", _no_line_names_its_boot, seed=1
    ),
    "boots are never past": Mutant(
        *("policy.PAST_BOOTS_KEPT", lambda _: 0),
        guarded="a line of another boot than the Node's is pending, and never taints",
    ),
    "the softer taint lingers": Mutant(
        "policy.bears_suspect_taint",
        lambda real: lambda state, *rest, **more: bool(state.suspect_tainted or real(state, *rest, **more)),
        seed=1,
    ),
    # The brake
    "the brake lets nobody pass": Mutant(
        "policy.admit", _admit(everybody=False), example="what others own of a node stays"
    ),
    "the brake lets everybody pass": Mutant("policy.admit", _admit(everybody=True), seed=2),
    "a pause is not heeded": Mutant("model.ControlAct.holds", _always(False), seed=2),
    "pools have no brake of their own": Mutant(
        "policy.FleetCount.budgets", lambda _: lambda self, _pool: (self.fleet,), seed=13
    ),
    "the pace is not kept": Mutant("policy.FleetCount.pace", _always(None), example="one node a window"),
    "the brake does not cool down": Mutant(
        "policy.FleetCount.note_release",
        _always(None),
        example="the place of a released node stays empty for a while",
    ),
    "a deleted node is forgotten": Mutant(
        "policy.FleetCount.note_deleted",
        _always(None),
        example="the place of a deleted node stays empty for a while",
    ),
    # Many nodes at once
    "collateral taints": Mutant(
        *("policy._in_group", _but(_not_collateral)),
        example="what the links of a rack print after a GPU's failure is collateral",
    ),
    "no event has an origin": Mutant(
        *("policy._root_causes", _always(frozenset())),
        example="what the links of a rack print after a GPU's failure is collateral",
    ),
    "hardware's own failure may be collateral": Mutant(
        "policy.Evidence.is_deferrable", lambda _: property(lambda each: each.severity.taints), seed=8
    ),
    "nothing waits to be told apart": Mutant(
        *("policy.deferred_of", _always({})),
        example="a link's failure is not acted upon before others may have been heard",
    ),
    "what is to be told apart waits for ever": Mutant(
        "policy.deferred_of", _all_is_deferred, example="a link's failure that nothing explains taints"
    ),
    "no event keeps its name": Mutant(
        *("policy.named", _no_event_keeps_its_name),
        guarded="another name alone is no reason to write; it waits for one",
    ),
    # Again and again on one GPU
    "a threshold is one too low": Mutant(
        "policy._threshold_reached", _threshold_off_by(-1), example="two failures of a GPU are not enough"
    ),
    "a threshold is one too high": Mutant(
        *("policy._threshold_reached", _threshold_off_by(1)),
        example="three failures of a GPU are enough, a restart between them or not",
    ),
    "lines of one failure count one by one": Mutant(
        "policy.EPISODE_NS", lambda _: 0, example="many lines of one failure are one"
    ),
    "a release does not end the counting": Mutant(
        *("policy.dealt_with_until_ns", _always(0)),
        example="a link's failure right after a reset waits anew",
    ),
    "a reboot does not end the counting": Mutant(
        "policy.boot_in", _always(None), example="a reboot ends the counting"
    ),
    "the past is forgotten at a restart": Mutant(
        "policy.with_past",
        _first,
        example="three failures of a GPU are enough, a restart between them or not",
    ),
    # Whose a page fault was
    "all the jobs of one failure count": Mutant(
        *("policy._distinct_jobs", lambda _: lambda own: len({job for each in own for job in each.jobs})),
        example="page faults that may be of any of three jobs are nobody's",
    ),
    "one job counts again and again": Mutant(
        "policy._distinct_jobs",
        lambda _: lambda own: sum(bool(each.jobs) for each in own),
        example="page faults of one job are the job's",
    ),
    "whose a page fault was nobody learns from pods": Mutant(
        "policy._with_jobs", _first, example="page faults of three jobs are the GPU's"
    ),
    "what a failure elsewhere explains counts": Mutant(
        *(
            "policy.evidence_that_counts",
            lambda _: lambda found, *_rest: [each for each in found if not each.recorded],
        ),
        example="page faults that failures of another node explain are that node's",
    ),
    # A pod's word of its GPU's memory
    "a pod's word of its memory is enough": Mutant(
        "policy._confirmed_by", _always("a pod says so"), example="a pod's word of memory is not enough"
    ),
    "nothing confirms a pod": Mutant(
        "policy._confirmed_by", _always(""), example="a pod's word of memory and the kernel's are"
    ),
    "a job's end confirms a pod": Mutant(
        *("policy._confirms", lambda _: lambda _rule, other: other.source is Source.KERNEL),
        example="what any end of a job prints confirms no pod",
    ),
    "a pod is confirmed however long ago": Mutant(
        *(
            "policy._confirmed_by",
            lambda real: lambda rule, *rest: real(replace(rule, within_seconds=86_400), *rest),
        ),
        example="a kernel's word twelve minutes later confirms no pod",
    ),
    "a kernel's word that comes late confirms nothing": Mutant(
        *("policy._confirmed_by", _only_a_pods_line_is_news),
        example="a kernel's word that is read long after a restart confirms a pod's",
    ),
}


def noticed_by(name: str, seeds: range = range(0)) -> str:
    """What notices a mutant, and the sentence: its example, its seed, or one of ``seeds``; "" for nothing.

    Raises NoSuchNameError or ValueError where the mutant does not fit the program any more.
    """
    mutant = MUTANTS[name]
    schedules = [(f"example {mutant.example!r}", EXAMPLES[mutant.example])] if mutant.example else []
    numbers = (mutant.seed,) if mutant.seed is not None else () if mutant.example else seeds
    with mutant():
        for told, schedule in (*schedules, *((f"seed {seed}", schedule_of(seed)) for seed in numbers)):
            for sentence in play(schedule).broken:
                if "AttributeError" in sentence or "TypeError" in sentence:
                    raise ValueError(f"{name}: {sentence}")
                return f"{told}: {sentence}"
    return ""


def _main(schedules: int = 300, first: int = 1) -> int:
    survivors = 0
    seeds = range(first, first + schedules)
    with ProcessPoolExecutor() as pool:
        for name, found in zip(MUTANTS, pool.map(partial(noticed_by, seeds=seeds), MUTANTS), strict=True):
            guarded = MUTANTS[name].guarded
            survivors += not (found or guarded)
            told = found or (f"guarded twice: {guarded}" if guarded else "NOT noticed")
            sys.stdout.write(f"{name}\n    {told}\n")
            sys.stdout.flush()
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(_main(*(int(argument) for argument in sys.argv[1:3])))
