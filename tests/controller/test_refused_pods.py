"""Refused pods from the Events to the record: two threads that delay nothing, and what they remember."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient, ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError, KubeForbidden, KubeTimeout
from konductor_like.cluster.refused_pods import look_at_pods
from konductor_like.controller.reporting.attempts import AttemptLog
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side import refused_pods
from konductor_like.controller.side.refused_pods import (
    AGAIN_SECONDS,
    DELAY_SECONDS,
    DENIED_SECONDS,
    LOOKS_A_MINUTE,
    OPEN_SECONDS,
    PodLooks,
    RefusalEvents,
)
from konductor_like.controller.side.work import running
from konductor_like.model import (
    REFUSES_PODS,
    FaultKind,
    Incident,
    IncidentState,
    KernelPosition,
    NodeRecord,
    NodeState,
    PodsSeen,
    RefusedPod,
    Severity,
)
from konductor_like.model.attempts import Doing
from konductor_like.policy.node.refused_pods import SPAN_NS
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cluster.scenes import wait_until
from tests.cluster.test_refused_pods import refusal_event, refused_pod
from tests.policy.scenes import fleet, ns

SEEN = PodsSeen((RefusedPod(1, "team-a"),), "GPU is lost")
OPEN = Incident(
    REFUSES_PODS,
    FaultKind.NODE,
    Severity.SUSPECT,
    IncidentState.ACTIVE,
    3,
    ns(0),
    ns(0),
    KernelPosition("boot-a"),
)


class Looking:
    """Looks at nodes in memory; the test moves the clock."""

    problem = None

    def __init__(self, size: int = 30) -> None:
        self.nodes = fleet(size)
        self.seconds = 1000.0
        self.found: dict[str, PodsSeen] = {}
        self.error: KubeError | None = None
        self.looked: list[str] = []
        self.woken = 0
        self.metrics = Metrics()
        self.looks = PodLooks(self.look, self, self.metrics, changed=self.wake, clock=lambda: self.seconds)

    def snapshot(self) -> Mapping[str, NodeState]:
        return self.nodes

    def apply(self, state: NodeState) -> None:
        raise AssertionError(f"a look writes no Node: {state.name}")

    def wake(self) -> None:
        self.woken += 1

    def look(self, node: str) -> PodsSeen:
        self.looked.append(node)
        if self.error is not None:
            raise self.error
        return self.found.get(node, PodsSeen())

    def after(self, seconds: float) -> list[str]:
        """Let time pass and make a round. Return the nodes that were looked at."""
        self.seconds += seconds
        self.looked = []
        self.looks.round()
        return self.looked


def test_a_node_is_looked_at_soon_after_the_first_of_its_events_and_once_for_many() -> None:
    here = Looking()
    here.found["gpu-3"] = SEEN
    for _ in range(100):
        here.looks.want("gpu-3")

    assert here.after(DELAY_SECONDS - 1) == []
    assert here.after(1) == ["gpu-3"]
    assert here.after(1) == []
    assert here.looks.seen().seen == {"gpu-3": SEEN}
    assert here.woken == 1

    here.looks.want("gpu-3")
    assert here.after(AGAIN_SECONDS) == ["gpu-3"]
    assert here.woken == 1  # nothing new was seen


def test_a_node_whose_pods_are_refused_all_the_time_is_looked_at_once_a_minute() -> None:
    here = Looking()
    looks = []
    for _ in range(300):
        here.looks.want("gpu-3")
        looks += here.after(1)

    assert len(looks) == 5


def test_events_between_two_looks_lead_to_one_more() -> None:
    here = Looking()
    here.looks.want("gpu-3")
    here.after(DELAY_SECONDS)
    here.after(10)
    here.looks.want("gpu-3")

    assert here.after(AGAIN_SECONDS - 11) == []
    assert here.after(1) == ["gpu-3"]


def test_an_event_during_a_look_leads_to_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Looking()
    here.looks.want("gpu-3")
    look = here.look

    def looking(node: str) -> PodsSeen:
        here.looks.want("gpu-3")
        return look(node)

    monkeypatch.setattr(here.looks, "_look", looking)
    assert here.after(DELAY_SECONDS) == ["gpu-3"]
    assert here.after(AGAIN_SECONDS) == ["gpu-3"]


def test_a_bug_in_a_look_costs_one_node_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Looking()
    monkeypatch.setattr(here.looks, "_look", {"gpu-4": SEEN}.__getitem__)
    here.looks.want("gpu-3")
    here.seconds += 1
    here.looks.want("gpu-4")
    here.seconds += DELAY_SECONDS
    with pytest.raises(KeyError):
        here.looks.round()
    here.looks.round()

    assert here.looks.seen().seen["gpu-4"] == SEEN


def test_a_pod_keeps_the_first_time_that_was_seen_of_it() -> None:
    """While a pod's start is in the future, its creation counts: the clock of its node is ahead."""
    here = Looking()
    for at_ns in (500, 9000):
        here.found["gpu-3"] = PodsSeen((RefusedPod(700, "team-b", "b"), RefusedPod(at_ns, "team-a", "a")))
        here.looks.want("gpu-3")
        here.after(AGAIN_SECONDS + DELAY_SECONDS)

    assert [pod.at_ns for pod in here.looks.seen().seen["gpu-3"].refused] == [500, 700]


def test_at_most_some_nodes_are_looked_at_in_a_minute_and_no_node_is_forgotten() -> None:
    here = Looking()
    for name in here.nodes:
        here.looks.want(name)
    found = [here.after(10) for _ in range(18)]

    assert sorted(name for names in found for name in names) == sorted(here.nodes)
    assert [len(names) for names in found[:6]] == [LOOKS_A_MINUTE, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["", "gpu-99", "cpu-1"])
def test_an_event_about_a_node_that_is_unknown_or_has_no_gpu_leads_to_nothing(name: str) -> None:
    here = Looking()
    here.nodes["cpu-1"] = replace(here.nodes["gpu-1"], name="cpu-1", is_gpu_node=False)
    here.looks.want(name)

    assert here.after(DELAY_SECONDS) == []


def test_what_was_seen_is_forgotten_after_the_span_in_which_it_counts() -> None:
    here = Looking()
    here.found["gpu-3"] = SEEN
    here.looks.want("gpu-3")
    here.after(DELAY_SECONDS)
    here.after(SPAN_NS / 1e9)
    assert here.looks.seen().seen == {"gpu-3": SEEN}

    here.after(1)
    assert here.looks.seen().seen == {}


def test_a_node_whose_fault_is_open_is_looked_at_now_and_then_without_an_event() -> None:
    here = Looking()
    here.nodes["gpu-3"] = replace(here.nodes["gpu-3"], record=NodeRecord(incidents=(OPEN,)))
    assert here.after(0) == ["gpu-3"]
    assert here.after(OPEN_SECONDS - 1) == []
    assert here.after(1) == ["gpu-3"]

    released = replace(OPEN, state=IncidentState.RELEASED)
    here.nodes["gpu-3"] = replace(here.nodes["gpu-3"], record=NodeRecord(incidents=(released,)))
    here.after(OPEN_SECONDS)
    assert here.after(OPEN_SECONDS) == []


@pytest.mark.parametrize(
    ("error", "again_seconds"),
    [(KubeTimeout("no answer"), AGAIN_SECONDS), (KubeForbidden("pods"), DENIED_SECONDS)],
)
def test_a_look_that_fails_forgets_nothing_and_is_repeated_later(
    error: KubeError, again_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    here = Looking()
    here.found["gpu-3"] = SEEN
    here.looks.want("gpu-3")
    here.after(DELAY_SECONDS)
    here.error = error
    here.looks.want("gpu-3")
    assert here.after(AGAIN_SECONDS) == ["gpu-3"]
    assert here.after(again_seconds - 1) == []
    assert here.after(1) == ["gpu-3"]

    assert here.looks.seen().seen == {"gpu-3": SEEN}
    assert len([record for record in caplog.records if "cannot look for refused pods" in record.message]) == 1
    assert here.metrics.kube_errors.labels(type(error).__name__)._value.get() == 2


class Watching:
    """The thread that watches Events of a stand-in API server."""

    def __init__(self, client: ReadOnlyKubeClient) -> None:
        self.found: list[str] = []
        self.attempts, self.metrics = AttemptLog(), Metrics()
        self.events = RefusalEvents(client, self.found.append, self.metrics, self.attempts)

    def told(self) -> Any:
        return self.attempts.latest().get(Doing.REFUSED_PODS)


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer(bookmark_seconds=0.1) as started:
        yield started


@pytest.fixture
def watching(server: KubernetesServer, tmp_path: Path) -> Iterator[Watching]:
    with closing(KubeClient.connect(str(server.kubeconfig(tmp_path / "kc")), None, 5.0)) as client:
        yield Watching(client)


def watched(server: KubernetesServer, there: Watching, act: Callable[[], object]) -> float:
    """Follow the Events while a watch is open; ``act`` then happens, and the watch is cut."""

    def meanwhile() -> None:
        try:
            wait_until(lambda: server.watches.open == 1)
            before = len(there.found)
            if act() is not None:
                wait_until(lambda: len(there.found) > before)
        finally:
            server.watches.cut()

    other = threading.Thread(target=meanwhile)
    other.start()
    seconds = there.events.follow()
    other.join(10)
    return seconds


def put(server: KubernetesServer, name: str, node: str) -> Callable[[], object]:
    def act() -> object:
        server.put("events", refusal_event(name, node))
        return True

    return act


def test_each_event_tells_its_node_and_older_ones_are_not_read(
    server: KubernetesServer, watching: Watching
) -> None:
    server.put("events", refusal_event("old.1", "gpu-1"))
    watched(server, watching, put(server, "new.1", "gpu-2"))

    assert watching.found == ["gpu-2"]
    assert watching.told().since is None


def test_a_watch_that_ended_is_resumed_so_that_nothing_is_lost(
    server: KubernetesServer, watching: Watching
) -> None:
    watched(server, watching, put(server, "a.1", "gpu-1"))
    server.put("events", refusal_event("a.2", "gpu-2"))
    watched(server, watching, put(server, "a.3", "gpu-3"))

    assert watching.found == ["gpu-1", "gpu-2", "gpu-3"]


def test_a_version_that_is_too_old_begins_anew_without_an_error(
    server: KubernetesServer, watching: Watching
) -> None:
    watched(server, watching, put(server, "a.1", "gpu-1"))
    server.put("events", refusal_event("a.2", "gpu-2"))
    server.forget_history()
    watching.events.follow()
    watched(server, watching, put(server, "a.3", "gpu-3"))

    assert watching.found == ["gpu-1", "gpu-3"]
    assert watching.told().since is None


def test_after_a_restore_of_etcd_the_watch_begins_at_the_lower_version(
    server: KubernetesServer, watching: Watching
) -> None:
    backup = server.backup()
    for number in range(5):
        server.put("events", refusal_event(f"x.{number}", "gpu-9"))
    watched(server, watching, put(server, "a.1", "gpu-1"))
    server.restore(backup)
    watched(server, watching, put(server, "a.2", "gpu-2"))

    assert watching.found == ["gpu-1", "gpu-2"]


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_missing_right_is_told_and_waits_for_minutes(
    server: KubernetesServer, watching: Watching, verb: str
) -> None:
    server.access.deny(verb, "events")

    assert watching.events.follow() == DENIED_SECONDS
    assert watching.told().error == f"{verb} events is forbidden"
    assert watching.metrics.kube_errors.labels("KubeForbidden")._value.get() == 1


def test_other_errors_wait_longer_each_time_and_the_next_watch_ends_them(
    server: KubernetesServer, watching: Watching
) -> None:
    server.mishaps.add(Mishap(status=500), times=4)
    waits = [watching.events.follow() for _ in range(4)]
    assert watching.told().since is not None
    assert waits[-1] > waits[0]
    assert max(waits) <= refused_pods.BACKOFF.most_seconds

    watched(server, watching, lambda: None)
    assert watching.told().since is None


def test_the_threads_find_a_refused_pod_and_end_at_once(server: KubernetesServer, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    with closing(KubeClient.connect(str(server.kubeconfig(tmp_path / "kc")), None, 5.0)) as client:
        here = Looking()
        looks = PodLooks(
            lambda node: look_at_pods(client, node, datetime.now(UTC)),
            here,
            here.metrics,
            clock=lambda: here.seconds,
        )
        events = RefusalEvents(client, looks.want, here.metrics, AttemptLog())
        with running(events, looks):
            wait_until(lambda: server.watches.open == 1)
            server.put_pod(refused_pod("train-0", now - timedelta(seconds=5)))
            server.put("events", refusal_event("train-0.1"))
            wait_until(lambda: bool(looks._due))
            here.seconds += DELAY_SECONDS
            wait_until(lambda: bool(looks.seen().seen))
        assert not any(thread.is_alive() for side in (events, looks) for thread in side._threads)

    assert [pod.namespace for pod in looks.seen().seen["gpu-1"].refused] == ["team-a"]
