"""Events are sent after the writes: in order, a few at once, without delaying a write, until close."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from konductor_like.controller import announcer as module
from konductor_like.controller.announcer import SENDERS, Announcer
from konductor_like.model import Change, EventReason, NodeState, Verb
from tests.policy.scenes import node


class Sender:
    """Remembers the Events that were sent; each send waits until the gate opens."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun: list[str] = []
        self.lock = threading.Lock()
        self.busy = threading.Semaphore(0)

    def send(self, node: NodeState, reason: EventReason, message: str, about: str, act: str = "") -> bool:
        del reason, about, act
        with self.lock:
            self.begun.append(node.name)
        self.busy.release()
        assert self.gate.wait(10)
        if message == "broken":
            raise RuntimeError(message)
        return True


@pytest.fixture
def sender() -> Iterator[Sender]:
    """A sender whose gate opens when the test ends, if not before."""
    made = Sender()
    yield made
    made.gate.set()


def announce(announcer: Announcer, count: int, message: str = "x") -> None:
    for number in range(count):
        name = f"gpu-{number}"
        change = Change(name, Verb.RECORD, None, None, EventReason.RECORDED, message)
        announcer.announce(node(name), change)


def test_a_few_are_sent_at_once_and_all_before_the_end(sender: Sender) -> None:
    announcer = Announcer(sender.send)
    announce(announcer, 20)
    for _ in range(SENDERS):
        assert sender.busy.acquire(timeout=10)

    assert sorted(sender.begun) == sorted(f"gpu-{number}" for number in range(SENDERS))
    sender.gate.set()
    announcer.close()
    assert len(sender.begun) == len(set(sender.begun)) == 20


def test_after_an_event_that_raises_the_next_one_is_sent(sender: Sender) -> None:
    sender.gate.set()
    announcer = Announcer(sender.send)

    announce(announcer, 2 * SENDERS, "broken")
    announce(announcer, 1)
    announcer.close()

    assert len(sender.begun) == 2 * SENDERS + 1


def test_close_does_not_wait_for_a_server_that_hangs(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(module, "WAITING_AT_MOST", SENDERS)
    announcer = Announcer(sender.send)
    announce(announcer, 1)
    assert sender.busy.acquire(timeout=10)
    announce(announcer, 50)

    announcer.close()

    assert len(sender.begun) <= 2 * SENDERS
