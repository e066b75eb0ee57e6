"""A day without Loki or the API server: thousands of failures in a row end nothing (rule 27)."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from konductor_like.backoff import Backoff
from konductor_like.cluster.api.errors import KubeUnavailable
from konductor_like.cluster.node.store import NodeStore
from konductor_like.controller.loop import leader
from konductor_like.controller.loop.leader import Controller
from konductor_like.controller.loop.retries import FailedWrites
from konductor_like.controller.reading.poller import BACKOFF_CAP_SECONDS, Delivery, Poller
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.loki.query.errors import LokiUnavailable
from konductor_like.loki.readers.poll import PollResult
from konductor_like.model import Change, Verb
from tests.controller.reconciling import Scene
from tests.controller.test_poller import ScriptedReader
from tests.controller.test_waking import bare_leadership
from tests.policy.scenes import at

MANY = 100_000


def test_a_source_that_failed_thousands_of_times_still_tries_twice_a_minute() -> None:
    loop = Poller(
        "kernel",
        ScriptedReader(),
        lambda _: None,
        Metrics(),
        interval_seconds=5.0,
        now_ns=lambda: 1,
        stop=threading.Event(),
    )
    loop.problem, loop._failures = LokiUnavailable("gone"), MANY

    assert 5.0 <= loop._pause_seconds() <= BACKOFF_CAP_SECONDS


def test_a_reconcile_that_failed_thousands_of_times_does_not_end_the_loop() -> None:
    leadership = bare_leadership(reconciler=Scene().reconciler)
    leadership._failures = MANY
    leadership._stop.set()  # nobody waits here
    broken = Delivery("kernel", cast("PollResult", None))

    leadership._reconcile([broken])

    assert not broken.accepted
    assert leadership._failures == MANY + 1


def test_an_api_server_that_failed_thousands_of_times_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "BACKOFF", Backoff(0.5, 0.5))
    controller = Controller(
        cast("NodeStore", None), None, lambda *_: pytest.fail("no leadership"), list, Metrics(), once=False
    )
    controller._failures = MANY
    stop = threading.Event()
    stop.set()

    controller._trouble(KubeUnavailable("the API server is away"), stop)

    assert controller._failures == MANY + 1


def test_an_error_is_logged_once_until_all_is_well_and_the_waits_begin_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr("konductor_like.controller.loop.leader.logs.error", said.append)
    controller = Controller(
        cast("NodeStore", None), None, lambda *_: pytest.fail("no leadership"), list, Metrics(), once=False
    )
    stop = threading.Event()
    stop.set()  # nobody waits here
    away = KubeUnavailable("the API server is away")

    controller._trouble(away, stop)
    controller._trouble(away, stop)
    assert (controller._failures, len(said)) == (2, 1)
    assert said[0].startswith("The API server is away. ")
    controller._well()
    assert (controller._failures, controller._obstacle) == (0, "")
    controller._trouble(away, stop)
    assert len(said) == 2


def test_nodes_that_are_gone_for_good_are_not_remembered_for_their_failed_writes() -> None:
    writes = FailedWrites()
    for number in range(1000):
        change = Change(f"spot-{number}", Verb.RECORD, record=None, health=None)
        writes.failed(change, at(60.0 * number))
        writes.keep((), at(60.0 * number))

    assert len(writes._latest) == 1


def test_a_clock_that_is_put_back_by_a_day_does_not_keep_a_node_from_being_tainted() -> None:
    writes = FailedWrites()
    day_seconds = 86_400.0
    writes.failed(Change("gpu-1", Verb.TAINT, record=None, health=None), at(day_seconds))

    assert writes.resting(at(day_seconds + 1)) == {"gpu-1": Verb.TAINT}
    assert writes.resting(at(0.0)) == {}


def test_a_write_that_keeps_failing_is_tried_again_every_two_minutes() -> None:
    writes, seconds, waits = FailedWrites(), 0.0, []
    for _ in range(10):
        writes.failed(Change("gpu-1", Verb.UNTAINT, None, None), at(seconds))
        waits.append(next(wait for wait in range(1, 1000) if not writes.resting(at(seconds + wait))))
        seconds += waits[-1]

    assert waits == [2, 4, 8, 16, 32, 64, 120, 120, 120, 120]
    assert writes.failing(at(seconds - 1)) == {"gpu-1": at(0)}
    assert writes.failing(at(seconds)) == {}
