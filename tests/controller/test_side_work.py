"""Threads beside the reconcile: bounded, at a rate, stopped by a refusal, and not by a bug or at the end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.announcer import Announcer
from konductor_like.controller.side.job_events import JobOwners
from konductor_like.controller.side.notifier import Notifier
from konductor_like.controller.side.pod_jobs import PodJobs
from konductor_like.controller.side.work import AFTER_BUG_SECONDS, Rate, SideQueue, SideThread, running
from konductor_like.notify.webhook import Webhook
from tests.cluster.scenes import wait_until


class Work:
    """A queue whose items wait for a gate; the test sets the time. The item ``broken`` raises."""

    def __init__(self, **options: Any) -> None:
        self.seconds = 0.0
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.done: list[object] = []
        self.lost: list[int] = []
        defaults: dict[str, Any] = {"most": 3, "close_seconds": 10.0}
        self.queue = SideQueue[str](
            name="work",
            handle=self.handle,
            what="parcels",
            lost=self.lost.append,
            clock=lambda: self.seconds,
            **defaults | options,
        )

    def handle(self, item: str) -> None:
        self.begun.release()
        assert self.gate.wait(10)
        if item == "broken":
            raise RuntimeError(item)
        self.done.append(item)

    def put(self, *items: str, **options: Any) -> None:
        for item in items:
            self.queue.put(item, **options)

    def begin(self, *items: str) -> None:
        """Start the thread, and let it begin with the first of these items."""
        self.put(items[0])
        self.queue.start()
        assert self.begun.acquire(timeout=10)
        self.put(*items[1:])

    def finish(self) -> list[object]:
        """Hand on all that waits; return what was handed on."""
        self.gate.set()
        self.queue.close()
        self.queue.join(10)
        return self.done


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work()
    yield made
    made.gate.set()


def test_urgent_items_go_first_and_too_many_push_out_the_oldest_that_is_not_urgent(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    work.begin("at hand")

    work.put("old", "news")
    work.put("urgent 1", "urgent 2", urgent=True)

    assert work.finish() == ["at hand", "urgent 1", "urgent 2", "news"]
    assert work.lost == [1]
    assert [each.message for each in caplog.records] == ["1 parcels were dropped: too many waited."]


def test_a_key_waits_once() -> None:
    work = Work(most=9)
    work.begin("at hand")

    work.put("a", "a", key="a")
    work.put("b", "b")

    assert work.finish() == ["at hand", "a", "b", "b"]


def test_an_item_that_waited_too_long_is_forgotten() -> None:
    work = Work(patience_seconds=60)
    work.begin("at hand", "old")
    work.seconds = 61

    work.put("new")

    assert work.finish() == ["at hand", "new"]


def test_no_more_than_the_rate_is_handed_on_and_the_rest_later() -> None:
    seconds = [0.0]
    work = Work(most=9, rate=Rate(2, 60, lambda: seconds[0]))
    work.gate.set()
    work.begin("a", "b", "c", "d")
    wait_until(lambda: work.done == ["a", "b"])
    assert len(work.queue) == 2

    seconds[0] = 60
    work.put("e")
    wait_until(lambda: work.done == ["a", "b", "c", "d"])

    assert work.finish() == ["a", "b", "c", "d", "e"]  # the end does not wait for the rate


def test_a_refusal_drops_what_waits_and_stops_the_work_for_a_while(work: Work) -> None:
    work.begin("refused", "waits")

    work.queue.pause(600)
    work.seconds = 599
    work.put("too early")
    work.seconds = 600
    work.put("in time")

    assert work.finish() == ["refused", "in time"]


def test_a_bug_costs_one_item_and_is_logged(work: Work, caplog: pytest.LogCaptureFixture) -> None:
    work.begin("broken", "next")

    assert work.finish() == ["next"]
    assert "Work on parcels failed. Please report this." in caplog.text
    assert "RuntimeError: broken" in caplog.text


def test_several_threads_work_at_once_and_end_together() -> None:
    work = Work(threads=2, most=20)
    with running(work.queue):
        work.put(*(str(number) for number in range(10)))
        for _ in range(2):
            assert work.begun.acquire(timeout=10)
        assert not work.begun.acquire(timeout=0.05)
        work.gate.set()

    assert len(work.done) == len(set(work.done)) == 10
    assert [each.name for each in work.queue._threads] == ["work-0", "work-1"]
    assert not any(each.is_alive() for each in work.queue._threads)


def test_the_end_waits_no_longer_than_its_deadline_and_says_what_is_lost(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    work.queue.close_seconds, began = 0.05, time.monotonic()
    with running(work.queue):
        work.put("hangs")
        assert work.begun.acquire(timeout=10)
        work.put("waits", "waits too")

    assert time.monotonic() - began < 2
    assert work.lost == [2]
    assert [each.message for each in caplog.records] == [
        "The controller stops before all parcels were handled: 2 waited."
    ]
    work.gate.set()
    work.queue.join(10)
    assert work.done == ["hangs"]


class Steps(SideThread):
    """Makes steps; the second one has a bug."""

    def __init__(self) -> None:
        super().__init__(name="steps", what="steps", close_seconds=10)
        self.made = 0

    def step(self) -> None:
        self.made += 1
        if self.made == 2:
            raise RuntimeError("a bug")
        self.closing.wait(0.01)


def test_a_thread_makes_steps_until_it_is_closed_and_a_bug_costs_one() -> None:
    steps = Steps()

    with running(steps):
        wait_until(lambda: steps.made > 3)

    assert not steps._threads[0].is_alive()


def test_a_bug_in_every_step_costs_no_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        steps.close()

    monkeypatch.setattr(steps, "step", {}.popitem)
    monkeypatch.setattr(steps.closing, "wait", wait)
    steps._run()

    assert waits == [AFTER_BUG_SECONDS]


def test_each_queue_has_its_own_limits() -> None:
    any_: Any = None
    webhook = Webhook("slack", Path("x"), "text/plain", lambda *_: {}, "")
    announcer, questions = Announcer(any_, any_, any_), PodJobs(any_, Metrics())
    others = JobOwners(any_, any_, any_, Metrics()).queue, Notifier(webhook, Metrics()).queue
    queues: list[SideQueue[Any]] = [*announcer.threads, questions.queue, *others]

    limits = {each.name: (each.most, each.patience_seconds, each.close_seconds) for each in queues}

    assert limits == {
        "events": (2000, math.inf, 5),
        "lease-events": (100, math.inf, 2),
        "pods": (1000, 120, 0),
        "job-events": (200, 600, 2),
        "notify-slack": (1000, math.inf, 5),
    }
    assert questions.queue.rate is not None
    assert questions.queue.rate.left() == 120  # a minute
