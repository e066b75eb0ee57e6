"""Can the suite fail? Each mutant breaks one promise of the program on purpose, and must be caught.

``python -m tests.chaos.mutants [SEEDS]`` tries each on so many schedules and prints after which seed it was
caught, and by which sentence. What is caught late needs a rare schedule; what is never caught is either
guarded twice, as its note says, or a hole in the suite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch as patched

from konductor_like.cluster import patch, writer
from konductor_like.cluster.lease import LeaderLease
from konductor_like.controller.tick import Tick
from konductor_like.loki import client, reader, window
from konductor_like.loki.reader import SourceReader
from konductor_like.loki.spans import Spans
from konductor_like.model import Checkpoint, KernelPosition
from tests.chaos.schedule import play, schedule_of

# Functions of the package hide these modules.
decide = import_module("konductor_like.policy.decide")
release_module = import_module("konductor_like.policy.release")
judge = import_module("konductor_like.policy.judge")

Mutant = Callable[[], AbstractContextManager[Any]]


def _swap(target: object, name: str, value: object) -> Mutant:
    return lambda: patched.object(target, name, value)


def _cursor_runs_ahead(self: Tick) -> Checkpoint:
    return Checkpoint(dict(self._read_ns), self._act_from_ns)


@contextmanager
def _cursor_moves_before_the_plan() -> Iterator[None]:
    real = Tick.run

    def run(self: Tick, lines: Any, read_ns: Mapping[Any, int], now: Any) -> Any:
        self._checkpoint = Checkpoint({**self._read_ns, **read_ns}, self._act_from_ns)
        return real(self, lines, read_ns, now)

    with patched.object(Tick, "run", run):
        yield


@contextmanager
def _spans_without(name: str) -> Iterator[None]:
    real = Spans.of.__func__  # type: ignore[attr-defined]  # a classmethod's function

    def of(cls: type[Spans], settings: Any, source: Any) -> Spans:
        spans = real(cls, settings, source)
        object.__setattr__(spans, name, 0)
        return spans  # type: ignore[no-any-return]  # as the real one

    with patched.object(Spans, "of", classmethod(of)):
        yield


@contextmanager
def _others_taints_replaced() -> Iterator[None]:
    def on_taints(seen: Any, verb: Any) -> list[dict[str, Any]]:
        if verb is patch.Verb.TAINT and not patch._ours_at(seen.taints):
            return [{"op": "add", "path": "/spec/taints", "value": [dict(patch.OUR_TAINT)]}]
        return real(seen, verb)

    real = patch._on_taints
    with patched.object(patch, "_on_taints", on_taints):
        yield


@contextmanager
def _headers_without_no_cache() -> Iterator[None]:
    from tests.chaos import wire

    def headers(settings: Any) -> dict[str, str]:
        return {name: value for name, value in real(settings).items() if name != "Cache-Control"}

    real = client.fixed_headers
    with patched.object(wire, "fixed_headers", headers):
        yield


@contextmanager
def _commits_before_acting() -> Iterator[None]:
    real = SourceReader.poll

    def poll(self: SourceReader, *args: Any) -> Any:
        batch = real(self, *args)
        kept = self._open
        self.commit(batch)
        self._open = kept
        return batch

    with patched.object(SourceReader, "poll", poll):
        yield


@contextmanager
def _unwritten_faults_dropped() -> Iterator[None]:
    real = Tick._settle

    def settle(self: Tick, plan: Any, faults: Any, again: Any, _unwritten: Any) -> None:
        real(self, plan, faults, again, set())

    with patched.object(Tick, "_settle", settle):
        yield


@contextmanager
def _applied_on_any_refusal() -> Iterator[None]:
    def look_again(self: Any, state: Any, change: Any, _refusal: Any, _unknown: Any) -> Any:
        fresh = self._decode(self._client.get(writer.paths.node(change.node)))
        return writer.WriteResult(change, writer.Outcome.APPLIED, fresh)

    with patched.object(writer.NodeWriter, "_look_again", look_again):
        yield


MUTANTS: dict[str, Mutant] = {
    "the cursor passes faults whose write failed": _swap(Tick, "_checkpointed", _cursor_runs_ahead),
    "the cursor moves before the plan was applied": _cursor_moves_before_the_plan,
    "a batch is committed before it was acted upon": _commits_before_acting,
    "faults whose write failed are dropped": _unwritten_faults_dropped,
    "no poll looks back": lambda: _spans_without("overlap_ns"),
    "no line counts as delivered": _swap(reader.Seen, "has", lambda *_args: False),
    "a cut answer counts as complete": _swap(window, "is_complete", lambda _result: True),
    "Loki may answer from its cache": _headers_without_no_cache,
    "the fence is always open": _swap(LeaderLease, "budget_seconds", lambda _self: 60.0),
    "another's Lease is taken at once": _swap(LeaderLease, "_may_take", lambda _self, _seen: True),
    "a patch tests nothing": _swap(patch, "_tests", lambda _seen, _operations: []),
    "a refused patch counts as applied": _applied_on_any_refusal,
    "our taint replaces the others": _others_taints_replaced,
    "kernel positions tell no replay": _swap(KernelPosition, "at_or_before", lambda _self, _other: None),
    "nothing was seen before": _swap(judge, "_seen", lambda _incident, _fault: False),
    "a release covers no incident": _swap(
        release_module, "_released", lambda incident, _boot, _until: incident
    ),
    "a release covers nothing but incidents": _swap(judge, "covers", lambda *_args, **_more: False),
    "a release covers everything": _swap(judge, "covers", lambda *_args, **_more: True),
    "a line of another boot counts": _swap(judge, "_with_boot", lambda fault, _boot: fault),
    "the brake admits nobody": _swap(
        decide, "admit", lambda c, n, i, r: (frozenset(), decide.BrakeState(1, 0, 1))
    ),
    "every growth is written at once": _swap(decide, "_due", lambda *_args: True),
}


def caught_by(name: str, seeds: range) -> tuple[int, str] | None:
    """The first seed that catches a mutant, and the sentence; None where none does."""
    with MUTANTS[name]():
        for seed in seeds:
            broken = play(schedule_of(seed)).broken
            if broken:
                return seed, broken[0]
    return None


def _main(count: int = 300) -> int:
    survivors = 0
    for name in MUTANTS:
        found = caught_by(name, range(1, count + 1))
        survivors += found is None
        told = f"seed {found[0]}: {found[1]}" if found else f"NOT caught by {count} schedules"
        sys.stdout.write(f"{name}\n    {told}\n")
        sys.stdout.flush()
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(_main(*(int(argument) for argument in sys.argv[1:2])))
