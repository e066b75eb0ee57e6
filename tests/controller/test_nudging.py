"""Few polls for many nudges, the first of them at once; and a tail whose loss is said once."""

from __future__ import annotations

import io
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.nudging import Nudge, Rhythm, TailNudges
from konductor_like.loki.errors import LokiRefused, LokiUnreachable
from konductor_like.sandbox.loki import LokiServer
from konductor_like.settings import Settings

PATIENCE_SECONDS = 20.0
INTERVAL = 5.0
QUERY = '{k8s_container_name="dmesg"} |= "NVRM"'


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rhythm(clock: Clock) -> Rhythm:
    """A source that has just polled because its time had come."""
    rhythm = Rhythm(INTERVAL, clock)
    assert rhythm.take() is None
    rhythm.polled(None, found=False, seconds=0.01)
    return rhythm


def poll(rhythm: Rhythm, *, found: bool = True, seconds: float = 0.01) -> Nudge | None:
    nudge = rhythm.take()
    rhythm.polled(nudge, found=found, seconds=seconds)
    return nudge


# When to poll


def test_without_a_nudge_it_polls_by_its_interval(rhythm: Rhythm, clock: Clock) -> None:
    assert rhythm.due() == clock.now + INTERVAL
    clock.now += INTERVAL
    assert poll(rhythm) is None
    assert rhythm.due() == clock.now + INTERVAL


def test_a_nudge_after_quiet_polls_at_once(rhythm: Rhythm, clock: Clock) -> None:
    rhythm.nudge(7)

    assert rhythm.due() <= clock.now


def test_nudges_until_the_poll_begins_are_one_with_the_oldest_time(rhythm: Rhythm) -> None:
    for oldest_ns in (9, None, 7, 8):
        rhythm.nudge(oldest_ns)

    assert poll(rhythm) == Nudge(7)
    assert rhythm.take() is None


def test_a_nudge_during_a_poll_leads_to_exactly_one_more(rhythm: Rhythm, clock: Clock) -> None:
    rhythm.nudge(7)
    first = rhythm.take()
    rhythm.nudge(8)
    rhythm.nudge(9)
    rhythm.polled(first, found=True, seconds=0.01)

    assert rhythm.due() == pytest.approx(clock.now + 0.1)
    clock.now += 0.1
    assert poll(rhythm) == Nudge(8)
    assert rhythm.due() > clock.now + 1


@pytest.mark.parametrize(("seconds", "apart"), [(0.01, 0.1), (0.5, 1.5), (100.0, INTERVAL)])
def test_under_load_nudged_polls_are_three_polls_apart(
    seconds: float, apart: float, rhythm: Rhythm, clock: Clock
) -> None:
    rhythm.nudge(7)
    poll(rhythm, seconds=seconds)
    rhythm.nudge(8)

    assert rhythm.due() == pytest.approx(clock.now + apart)


def test_a_storm_of_nudges_is_no_storm_of_polls(rhythm: Rhythm, clock: Clock) -> None:
    polls = 0
    for _ in range(10_000):
        rhythm.nudge(7)
        if rhythm.due() <= clock.now:
            poll(rhythm, seconds=0.05)
            polls += 1
        clock.now += 0.001

    assert 60 <= polls <= 70


def test_nudges_do_not_put_off_the_regular_poll(rhythm: Rhythm, clock: Clock) -> None:
    regular = rhythm.due()
    for _ in range(8):
        clock.now += 0.5
        rhythm.nudge(7)
        poll(rhythm)

    assert rhythm.due() == regular


def test_what_a_nudged_poll_did_not_find_is_asked_for_once_more(rhythm: Rhythm, clock: Clock) -> None:
    rhythm.nudge(7)
    poll(rhythm, found=False)

    assert rhythm.due() == pytest.approx(clock.now + 0.25)
    assert rhythm.take() is None, "too early"
    clock.now += 0.25
    assert poll(rhythm, found=False) == Nudge(7, again=True)
    assert rhythm.due() > clock.now + 1


def test_a_nudge_that_names_no_line_is_answered_by_one_poll(rhythm: Rhythm, clock: Clock) -> None:
    rhythm.nudge(None)
    assert poll(rhythm, found=False) == Nudge(None)

    assert rhythm.due() > clock.now + 1


def test_a_nudge_whose_poll_failed_is_answered_by_the_next(rhythm: Rhythm) -> None:
    rhythm.nudge(7)
    rhythm.failed(rhythm.take())
    rhythm.nudge(8)

    assert rhythm.take() == Nudge(7)


@pytest.mark.parametrize("how", ["a nudge", "the stop"])
def test_the_pause_ends_at_once_with(how: str) -> None:
    rhythm, stop = Rhythm(3600.0), threading.Event()
    poll(rhythm)
    thread = threading.Thread(target=rhythm.rest, args=(stop,))
    thread.start()
    if how == "the stop":
        stop.set()
    rhythm.nudge(None)
    thread.join(PATIENCE_SECONDS)

    assert not thread.is_alive()


# The tail


@contextmanager
def nudges(endpoint: str, metrics: Metrics, query: str = QUERY) -> Iterator[queue.Queue[int | None]]:
    told: queue.Queue[int | None] = queue.Queue()
    tail = TailNudges(Settings(log_endpoint=endpoint), query, time.time_ns, metrics)
    tail.start(told.put)
    try:
        yield told
    finally:
        tail.close(PATIENCE_SECONDS)


def sample(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"konductor_like_{name}")


def test_a_line_nudges_and_is_counted() -> None:
    metrics = Metrics()
    with LokiServer() as loki, nudges(loki.url, metrics) as told:
        assert told.get(timeout=PATIENCE_SECONDS) is None
        assert sample(metrics, "tails_connected") == 1
        now_ns = time.time_ns()
        loki.push({"k8s_container_name": "dmesg"}, [(now_ns, "NVRM: Xid")])
        assert told.get(timeout=PATIENCE_SECONDS) == now_ns
        assert sample(metrics, "tail_nudges_total") == 2
        assert sample(metrics, "tail_connections_total") == 1

    assert sample(metrics, "tails_connected") == 0


@pytest.fixture
def log() -> io.StringIO:
    logs.set_up("text", "warning", stream=(stream := io.StringIO()))
    return stream


def test_what_does_not_pass_by_itself_is_said_once(log: io.StringIO) -> None:
    tail = TailNudges(Settings(), QUERY, time.time_ns, Metrics())
    refused = LokiRefused("Loki at http://loki answered 400: no tail here")

    for failures in range(1, 10):
        tail.disconnected(refused, failures)

    [line] = log.getvalue().splitlines()
    assert "no tail here. Nothing is lost" in line


def test_a_single_broken_connection_is_not_said(log: io.StringIO) -> None:
    tail = TailNudges(Settings(), QUERY, time.time_ns, Metrics())
    broken = LokiUnreachable("Loki at http://loki: cannot connect: Connection refused")

    for failures in (1, 2):
        tail.disconnected(broken, failures)
    assert not log.getvalue()
    tail.disconnected(broken, 3)

    assert "Connection refused" in log.getvalue()
