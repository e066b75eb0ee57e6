"""A poller polls, delivers, and commits only accepted results."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from konductor_like.controller.reading.poller import Delivery, Poller, PollThread, poll_threads
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.loki.query.errors import LokiError, LokiUnavailable
from konductor_like.loki.readers.poll import PollResult

PATIENCE_SECONDS = 10.0


def batch(number: int, *, more: bool = False) -> PollResult:
    return PollResult(upto_ns=number, more=more, queries=1)


class ScriptedReader:
    """Returns the results of its script, then empty ones for ever."""

    def __init__(self, *script: PollResult | LokiError) -> None:
        self.script = list(script)
        self.committed: list[int] = []
        self.asked: list[int | None] = []
        self.polls = 0

    def poll(self, now_ns: int, oldest_ns: int | None = None) -> PollResult:
        assert now_ns > 0
        self.asked.append(oldest_ns)
        self.polls += 1
        step = self.script[0] if self.script else batch(999)
        if isinstance(step, LokiError):
            self.script.pop(0)
            raise step
        return step

    def commit(self, done: PollResult) -> None:
        self.committed.append(done.upto_ns)
        if self.script:
            self.script.pop(0)


def poller_of(
    name: str,
    reader: ScriptedReader,
    inbox: queue.Queue[Delivery],
    stop: threading.Event,
    interval_seconds: float,
    now_ns: Callable[[], int] = lambda: 1,
) -> Poller:
    return Poller(
        name,
        reader,
        inbox.put,
        Metrics(),
        interval_seconds=interval_seconds,
        now_ns=now_ns,
        stop=stop,
    )


Start = Callable[..., tuple[Poller, "queue.Queue[Delivery]"]]
"""Starts a poller over a reader; it ends with the test."""


@pytest.fixture
def start() -> Iterator[Start]:
    stop = threading.Event()
    threads: list[PollThread] = []

    def begin(
        reader: ScriptedReader, interval_seconds: float = 0.01, now_ns: Callable[[], int] = lambda: 1
    ) -> tuple[Poller, queue.Queue[Delivery]]:
        inbox: queue.Queue[Delivery] = queue.Queue()
        loop = poller_of("kernel", reader, inbox, stop, interval_seconds, now_ns)
        threads.append(PollThread("kernel", [loop], stop))
        threads[-1].start()
        return loop, inbox

    yield begin
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)


def take(inbox: queue.Queue[Delivery], *, accept: bool) -> int:
    delivery = inbox.get(timeout=PATIENCE_SECONDS)
    delivery.accepted = accept
    delivery.done.set()
    return delivery.batch.upto_ns


def test_a_batch_is_committed_once_it_was_acted_upon_and_comes_again_until_then(start: Start) -> None:
    reader = ScriptedReader(batch(1), batch(2))
    _, inbox = start(reader)

    assert [take(inbox, accept=accept) for accept in (False, False, True)] == [1, 1, 1]
    second = inbox.get(timeout=PATIENCE_SECONDS)
    with pytest.raises(queue.Empty):  # the reader waits, however slow the reconcile is
        inbox.get(timeout=0.1)
    assert reader.committed == [1]
    assert second.batch.upto_ns == 2


def test_a_failed_poll_is_an_error_and_not_an_empty_batch(start: Start) -> None:
    reader = ScriptedReader(LokiUnavailable("Loki at http://loki: starting"), batch(1))
    loop, inbox = start(reader)

    assert take(inbox, accept=True) == 1
    assert take(inbox, accept=True) == 999
    assert loop.problem is None
    assert reader.polls >= 3


def test_an_exception_in_commit_is_logged_and_does_not_end_the_poller(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ScriptedReader(batch(1), batch(2))
    commit = reader.commit

    def mistaken(_done: PollResult) -> None:
        monkeypatch.setattr(reader, "commit", commit)
        raise ValueError("not this one")

    monkeypatch.setattr(reader, "commit", mistaken)
    loop, inbox = start(reader)

    assert take(inbox, accept=True) == 1
    again = inbox.get(timeout=PATIENCE_SECONDS)
    assert str(loop.problem) == "Reading kernel lines failed: ValueError('not this one')"
    again.accepted = True
    again.done.set()
    assert again.batch.upto_ns == 1
    assert take(inbox, accept=True) == 2


def test_a_backlog_is_read_without_waiting_until_the_poller_has_caught_up(start: Start) -> None:
    reader = ScriptedReader(batch(1, more=True), batch(2))
    loop, inbox = start(reader)

    assert take(inbox, accept=True) == 1
    second = inbox.get(timeout=PATIENCE_SECONDS)
    assert not loop.caught_up
    second.accepted = True
    second.done.set()
    take(inbox, accept=True)

    assert loop.caught_up


def test_a_nudge_polls_at_once_from_the_time_that_it_names(start: Start) -> None:
    reader = ScriptedReader(batch(1))
    loop, inbox = start(reader, 3600.0)
    assert take(inbox, accept=True) == 1
    loop.nudge(77)

    assert take(inbox, accept=True) == 999
    assert reader.asked == [None, 77]


def test_after_a_failed_poll_nudges_do_not_shorten_the_wait(start: Start) -> None:
    reader = ScriptedReader(LokiUnavailable("Loki at http://loki: starting"))
    loop, inbox = start(reader, 3600.0)
    loop.nudge(77)

    with pytest.raises(queue.Empty):
        inbox.get(timeout=0.2)
    assert reader.polls == 1


def test_stopping_ends_the_pause_at_once() -> None:
    stop, inbox = threading.Event(), queue.Queue[Delivery]()
    [thread] = poll_threads({"kernel": poller_of("kernel", ScriptedReader(), inbox, stop, 3600.0)}, stop)
    thread.start()
    take(inbox, accept=True)
    stop.set()
    thread.join(PATIENCE_SECONDS)

    assert not thread._thread.is_alive()


def test_kernel_and_pod_lines_have_a_thread_each_and_the_others_share_one_by_who_is_due_first() -> None:
    stop, inbox = threading.Event(), queue.Queue[Delivery]()
    readers = {"heartbeat": ScriptedReader(), "warmup": ScriptedReader(batch(1, more=True))}
    pollers = {name: poller_of(name, reader, inbox, stop, 3600.0) for name, reader in readers.items()}
    [thread] = poll_threads(pollers, stop)
    thread.start()
    names = []
    for _ in range(3):
        delivery = inbox.get(timeout=PATIENCE_SECONDS)
        names.append(delivery.name)
        delivery.accepted = True
        delivery.done.set()
    stop.set()
    thread.join(PATIENCE_SECONDS)

    assert names == ["heartbeat", "warmup", "warmup"]
    own = {
        name: poller_of(name, ScriptedReader(), inbox, stop, 1.0) for name in ("kernel", "pod", "backfill")
    }
    assert [each._thread.name for each in poll_threads(own, stop)] == [
        "read-kernel",
        "read-pod",
        "read-background",
    ]


def test_lines_read_by_a_clock_that_loki_then_corrected_are_read_again(start: Start) -> None:
    """Otherwise the cursor would lie in the future, and lines written until then would be missed."""
    times = iter([1000, 400, 400])
    reader = ScriptedReader()
    seen: list[int] = []
    poll = reader.poll

    def noted(now_ns: int, oldest_ns: int | None = None) -> PollResult:
        seen.append(now_ns)
        return poll(now_ns, oldest_ns)

    reader.poll = noted  # type: ignore[method-assign]  # notes what it is asked
    _, inbox = start(reader, now_ns=lambda: next(times, 500))

    take(inbox, accept=True)
    inbox.get(timeout=PATIENCE_SECONDS)

    assert seen[:2] == [1000, 400]
    assert reader.committed == [999]
