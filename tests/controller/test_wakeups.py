"""Many nudges make few polls, the first at once; the loss of a tail is logged once."""

from __future__ import annotations

import io
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from konductor_like.controller import logs
from konductor_like.controller.reading.wakeups import PollSchedule, TailWatcher
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.loki.query.errors import LokiError, LokiRefused, LokiUnreachable
from konductor_like.settings import Settings
from konductor_like_sandbox.loki import LokiServer

PATIENCE_SECONDS = 20.0
INTERVAL = 5.0
QUERY = '{k8s_container_name="dmesg"} |= "NVRM"'


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def schedule(clock: Clock) -> PollSchedule:
    """The schedule of a source that has just made its regular poll."""
    schedule = PollSchedule(INTERVAL, clock)
    assert poll(schedule) == (False, None)
    return schedule


def poll(schedule: PollSchedule, *, seconds: float = 0.01) -> tuple[bool, int | None]:
    nudged, oldest_ns = schedule.take()
    schedule.polled(nudged=nudged, seconds=seconds)
    return nudged, oldest_ns


def test_without_a_nudge_it_polls_by_its_interval(schedule: PollSchedule, clock: Clock) -> None:
    assert schedule.due_seconds() == INTERVAL
    clock.now += INTERVAL
    assert poll(schedule) == (False, None)
    assert schedule.due_seconds() == INTERVAL


@pytest.mark.parametrize(("nudges", "oldest_ns"), [((7,), 7), ((None,), None), ((9, None, 7, 8), 7)])
def test_nudges_until_the_poll_begins_poll_at_once_and_are_one_with_the_oldest_time(
    nudges: tuple[int | None, ...], oldest_ns: int | None, schedule: PollSchedule
) -> None:
    first, *others = (schedule.nudge(each) for each in nudges)

    assert first
    assert not any(others)
    assert schedule.due_seconds() <= 0
    assert poll(schedule) == (True, oldest_ns)
    assert schedule.take() == (False, None)


@pytest.mark.parametrize(("seconds", "apart"), [(0.01, 0.1), (0.5, 1.5), (100.0, INTERVAL)])
def test_under_load_nudged_polls_are_three_polls_apart(
    seconds: float, apart: float, schedule: PollSchedule
) -> None:
    schedule.nudge(7)
    poll(schedule, seconds=seconds)
    schedule.nudge(8)

    assert schedule.due_seconds() == pytest.approx(apart)


def test_nudges_do_not_put_off_the_regular_poll(schedule: PollSchedule, clock: Clock) -> None:
    for _ in range(8):
        clock.now += 0.5
        schedule.nudge(7)
        poll(schedule)

    assert schedule.due_seconds() == INTERVAL - 4


def test_after_a_failure_no_nudge_shortens_the_wait(schedule: PollSchedule) -> None:
    schedule.wait(30.0)
    schedule.nudge(7)

    assert schedule.due_seconds() == 30.0
    schedule.put_off(5.0)
    assert schedule.due_seconds() == 35.0


@contextmanager
def nudges(endpoint: str, metrics: Metrics, query: str = QUERY) -> Iterator[queue.Queue[int | None]]:
    told: queue.Queue[int | None] = queue.Queue()
    tail = TailWatcher(Settings(log_endpoint=endpoint), query, time.time_ns, metrics)
    tail.start(told.put)
    try:
        yield told
    finally:
        tail.close(PATIENCE_SECONDS)


def sample(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"konductor_like_{name}")


def test_a_line_nudges() -> None:
    metrics = Metrics()
    with LokiServer() as loki, nudges(loki.url, metrics) as told:
        assert told.get(timeout=PATIENCE_SECONDS) is None
        assert sample(metrics, "tails_connected") == 1
        now_ns = time.time_ns()
        loki.push({"k8s_container_name": "dmesg"}, [(now_ns, "NVRM: Xid")])
        assert told.get(timeout=PATIENCE_SECONDS) == now_ns

    assert sample(metrics, "tails_connected") == 0


@pytest.mark.parametrize(
    ("error", "said_at"),
    [
        (LokiRefused("Loki at http://loki answered 400: no tail here"), 1),
        (LokiUnreachable("Loki at http://loki: cannot connect: Connection refused"), 3),
    ],
    ids=["does not pass by itself", "a single broken connection is not said"],
)
def test_a_tail_that_cannot_be_followed_is_logged_once(error: LokiError, said_at: int) -> None:
    logs.set_up("text", "warning", stream=(log := io.StringIO()))
    tail = TailWatcher(Settings(), QUERY, time.time_ns, Metrics())

    for failures in range(1, said_at):
        tail.disconnected(error, failures)
    assert not log.getvalue()
    for failures in range(said_at, 10):
        tail.disconnected(error, failures)

    [line] = log.getvalue().splitlines()
    assert f"{error}. No line is lost" in line
