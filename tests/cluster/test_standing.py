"""For how long a Node has been Ready with its GPUs, by the watch; and the returns that wait for it (rule 36).

The store's own list and watch run here over a scripted API server and a scripted clock.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from konductor_like.cluster.api.client import Listing
from konductor_like.cluster.api.errors import KubeGone, KubeTimeout, KubeUnreachable
from konductor_like.cluster.api.watch import WatchEvent
from konductor_like.cluster.node import store as stores
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.cluster.node.store import NodeStore
from konductor_like.model import Standing
from konductor_like.model.time import span_ns, stamp
from konductor_like.policy.recovery.guards import blockers
from tests.cluster.scenes import raw_node
from tests.policy.scenes import at, ns
from tests.policy.test_guards import RULES, SNAPSHOT, STATE

if TYPE_CHECKING:
    from konductor_like.cluster.api.client import ReadOnlyKubeClient

QUIET = RULES.return_quiet_seconds


class Script:
    """One Node, the API server that shows it, and the store that follows it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        clock = SimpleNamespace(
            monotonic=lambda: self.seconds, time_ns=lambda: span_ns(self.seconds), sleep=None
        )
        monkeypatch.setattr(stores, "time", clock)
        self.ready, self.gpus, self.boot = True, 8, "boot-b"
        self.ready_at = 0.0
        """The ``lastTransitionTime``, in seconds after noon."""
        self.version = 7
        self._events: list[WatchEvent | Exception] = []
        self.store = NodeStore(cast("ReadOnlyKubeClient", self), decode_node)
        self.watch()

    # What the API server answers

    def node(self) -> dict[str, Any]:
        node = raw_node()
        node["metadata"]["resourceVersion"] = str(self.version)
        ready = {"type": "Ready", "status": str(self.ready), "lastTransitionTime": stamp(at(self.ready_at))}
        count = {"nvidia.com/gpu": str(self.gpus)}
        info = {"systemUUID": "system-gpu-1", "bootID": self.boot}
        node["status"] = {"conditions": [ready], "capacity": count, "allocatable": count, "nodeInfo": info}
        return node

    def list_pages(self, *_: object) -> Listing[Any]:
        return Listing([decode_node(self.node())], str(self.version))

    def list(self, *_: object) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": str(self.version)}}

    @contextmanager
    def stream(self, *_: object) -> Iterator[Iterator[WatchEvent]]:
        yield self._sent()

    def _sent(self) -> Iterator[WatchEvent]:
        for event in self._events:
            if isinstance(event, Exception):
                raise event
            yield event

    # What happens

    def changes(self, **what: Any) -> None:
        """Change the Node; the watch that is open shows it at once."""
        for name, value in what.items():
            setattr(self, name, value)
        self.version += 1
        self.watch(WatchEvent("MODIFIED", self.node()))

    def turns(self, *, ready: bool) -> None:
        """Let the kubelet report another readiness; it writes the time in whole seconds."""
        self.changes(ready=ready, ready_at=self.seconds // 1)

    def watch(self, *events: WatchEvent | Exception) -> None:
        """List if necessary, then watch until these events have come."""
        self._events = list(events)
        self.store._follow_once()

    @property
    def standing(self) -> Standing | None:
        return self.store.standing(["gpu-1"]).get("gpu-1")

    @property
    def returns(self) -> bool:
        """Whether the node would return now, if nothing else keeps it out."""
        seen = self.store.snapshot()["gpu-1"]
        state = replace(STATE, ready=seen.ready, ready_since_ns=seen.ready_since_ns, gpus=seen.gpus)
        hearing = {"gpu-1": replace(SNAPSHOT.hearing["gpu-1"], last_ns=ns(10**7))}
        snapshot = replace(
            SNAPSHOT,
            hearing=hearing,
            standing=self.store.standing(["gpu-1"]),
            read_ns=dict.fromkeys(SNAPSHOT.read_ns, ns(10**7)),
        )
        return next(blockers(state, snapshot, RULES, at(self.seconds)), None) is None


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


def test_a_node_stands_since_it_was_listed_and_then_since_its_last_change(script: Script) -> None:
    script.seconds = 100.0
    assert script.standing == Standing(100.0, 100.0)

    script.changes(gpus=7)
    script.seconds = 130.0
    assert script.standing == Standing(130.0, 30.0)
    script.turns(ready=False)
    script.seconds = 150.0
    assert script.standing == Standing(20.0, 50.0)


def test_a_change_that_was_taken_back_between_two_decisions_counts(script: Script) -> None:
    script.seconds = 100.0
    script.changes(gpus=7)
    script.changes(gpus=8)
    script.turns(ready=False)
    script.turns(ready=True)

    assert script.standing == Standing(0.0, 0.0)


def test_a_ready_node_whose_transition_time_moved_was_not_ready_in_between(script: Script) -> None:
    script.seconds = 100.0
    script.changes(ready_at=99.0)

    assert script.standing == Standing(0.0, 100.0)


def test_a_status_report_without_a_change_begins_nothing_again(script: Script) -> None:
    script.seconds = 100.0
    script.changes()

    assert script.standing == Standing(100.0, 100.0)


def test_a_change_that_the_answer_to_a_write_skipped_counts_once_the_watch_has_shown_it(
    script: Script,
) -> None:
    script.seconds = 1000.0
    script.gpus, script.version = 7, 8
    skipped = WatchEvent("MODIFIED", script.node())
    script.gpus, script.version = 8, 9
    script.store.apply(decode_node(script.node()))
    assert script.standing is None  # nobody knows yet what the watch will show
    assert not script.returns

    script.watch(skipped)
    script.changes()
    script.seconds = 1001.0
    assert script.standing == Standing(1001.0, 1.0)


def test_the_answer_to_a_write_begins_nothing_again(script: Script) -> None:
    script.seconds = 1000.0
    script.version = 8
    script.store.apply(decode_node(script.node()))
    script.watch(WatchEvent("MODIFIED", script.node()))

    assert script.standing == Standing(1000.0, 1000.0)


def test_another_boot_begins_both_spans_again(script: Script) -> None:
    script.seconds = 100.0
    script.changes(boot="boot-c")

    assert script.standing == Standing(0.0, 0.0)


@pytest.mark.parametrize("ends", [(), (KubeTimeout("silence"),)], ids=["in time", "in silence"])
def test_a_watch_that_ends_and_goes_on_begins_nothing_again(
    script: Script, ends: tuple[Exception, ...]
) -> None:
    for _ in range(20):
        script.seconds += 60.0
        script.watch(*ends)
        script.watch()

    assert script.standing == Standing(1200.0, 1200.0)


def test_a_new_list_begins_both_spans_again_although_it_shows_the_same(script: Script) -> None:
    script.seconds = 100.0
    script.watch(KubeGone("too old"))
    script.watch()
    script.seconds = 130.0

    assert script.standing == Standing(30.0, 30.0)


def test_a_node_that_is_created_again_stands_since_then(script: Script) -> None:
    script.seconds = 100.0
    script.version += 1
    script.watch(WatchEvent("DELETED", script.node()))
    assert script.standing is None
    script.version += 1
    script.watch(WatchEvent("ADDED", script.node()))

    assert script.standing == Standing(0.0, 0.0)


def test_while_the_nodes_cannot_be_watched_nobody_knows_whether_they_stand(script: Script) -> None:
    script.seconds = 1000.0
    assert script.returns
    script.watch(KubeUnreachable("refused"))
    assert script.standing is None
    assert not script.returns
    script.watch()  # it goes on where it ended, so nothing was missed

    assert script.standing == Standing(1000.0, 1000.0)


def test_a_node_returns_exactly_when_it_stood_ready_and_whole_for_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        rng, script = random.Random(seed), Script(monkeypatch)
        whole_since, ready_since = 0.0, 0.0
        for _ in range(40):
            script.seconds += rng.choice((1.0, 9.0, 50.0, 50.0, 300.0, QUIET))
            now = script.seconds
            match rng.randrange(14):
                case 0:
                    script.changes(gpus=15 - script.gpus)
                    whole_since = now
                case 1:
                    script.turns(ready=not script.ready)
                    ready_since = now
                case 2:  # there and back within one batch of events
                    script.changes(gpus=15 - script.gpus)
                    script.changes(gpus=15 - script.gpus)
                    whole_since = now
                case 3:
                    script.watch(KubeGone("too old"))
                    script.watch()
                    whole_since = ready_since = now
                case 4:
                    script.watch()
                case _:
                    script.changes()
            stood = min(now - whole_since, now - ready_since) >= QUIET
            may = script.ready and script.gpus == 8 and stood
            assert script.returns is may, (seed, now)
            seen["returns" if may else "stays out"] += 1

    assert min(seen["returns"], seen["stays out"]) > 200, seen
