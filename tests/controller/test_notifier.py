"""Notifications are sent beside the reconciles: grouped, retried, limited, and none delays a write."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from konductor_like.cluster.node.writer import DryRunWriter
from konductor_like.controller import logs
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side import notifier as module
from konductor_like.controller.side.notifier import (
    REMEMBERED_SECONDS,
    TRIES,
    WAITING_MOST,
    Notifications,
    Notifier,
)
from konductor_like.controller.wiring import Options, open_controller
from konductor_like.model import Change, EventReason
from konductor_like.notify.messages import Message, text_of
from konductor_like.notify.news import TOLD, Kind, News
from konductor_like.notify.webhook import Webhook, WebhookError, WebhookOffError
from konductor_like.policy.node.release import release
from konductor_like.policy.operator import operator_taint
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.controller.reconciling import Scene, xid
from tests.notify.scenes import event
from tests.policy.scenes import at, node

BUSY = WebhookError("the receiver answered 429", transient=True, retry_after_seconds=77)
REFUSED = WebhookError("the receiver answered 400: invalid_payload")


class Receiver:
    """Takes messages once its gate is open; raises the errors in ``moods`` first, one for each try."""

    def __init__(self, name: str = "slack") -> None:
        self.name = name
        self.gate = threading.Event()
        self.gate.set()
        self.tried = threading.Semaphore(0)
        self.done = threading.Semaphore(0)
        self.moods: list[Exception] = []
        self.taken: list[Message] = []

    def send(self, message: Message) -> None:
        self.tried.release()
        assert self.gate.wait(10)
        try:
            if self.moods:
                raise self.moods.pop(0)
            self.taken.append(message)
        finally:
            self.done.release()

    def wait(self, tries: int = 1) -> None:
        """Wait until so many tries are over."""
        for _ in range(tries):
            assert self.done.acquire(timeout=10)

    @property
    def texts(self) -> list[str]:
        return [text_of(message).splitlines()[0].partition(" · ")[0] for message in self.taken]


class Clock:
    """A clock that only pauses move; it counts them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.gate.set()


@pytest.fixture
def log() -> io.StringIO:
    logs.set_up("text", "info", stream=(stream := io.StringIO()))
    return stream


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.0)


def notifier(receiver: Receiver, metrics: Metrics | None = None, clock: Clock | None = None) -> Notifier:
    """A notifier whose thread runs."""
    clock = clock or Clock()
    made = Notifier(
        cast("Webhook", receiver), metrics or Metrics(), pause=clock.pause, clock=lambda: clock.seconds
    )
    made.queue.start()
    return made


class Silent:
    """Sends no Events, and remembers them."""

    def __init__(self) -> None:
        self.events: list[EventReason | None] = []

    def announce(self, _state: object, change: Change) -> None:
        self.events.append(change.event)

    def fleet(self, reason: EventReason, _message: str, _act: str = "") -> None:
        self.events.append(reason)


def notifications(*receivers: Receiver, metrics: Metrics | None = None) -> Notifications:
    silent = Silent()
    webhooks = [cast("Webhook", receiver) for receiver in receivers]
    made = Notifications(silent, silent.fleet, webhooks, metrics or Metrics())
    for queue in made.threads:
        queue.start()
    return made


def news(number: int, reason: EventReason = EventReason.TAINTED) -> News:
    return News(reason, f"{reason}-{number}", at(0), "Something.", f"gpu-{number}", rule=f"xid.{number}")


def put(sender: Notifier, *numbers: int, reason: EventReason = EventReason.TAINTED) -> None:
    for number in numbers:
        sender.put(partial(news, number, reason), urgent=TOLD[reason].kind.urgent)


def close(sender: Notifier | Notifications) -> None:
    for queue in sender.threads if isinstance(sender, Notifications) else [sender.queue]:
        queue.close()
        queue.join(10)


def results(metrics: Metrics, name: str = "slack") -> dict[str, float]:
    found = {}
    for result in ("sent", "failed", "dropped"):
        labels = {"sink": name, "result": result}
        found[result] = metrics.registry.get_sample_value("konductor_like_notifications_total", labels) or 0.0
    return {result: count for result, count in found.items() if count}


def test_a_reconcile_ends_while_a_receiver_stalls_and_the_other_receiver_is_served(
    receiver: Receiver,
) -> None:
    receiver.gate.clear()
    other, scene = Receiver("webhook"), Scene(20)
    both = notifications(receiver, other)
    scene.reconciler._events = both

    scene.run(xid("gpu-1"), seconds=2)
    assert receiver.tried.acquire(timeout=10)
    other.wait()
    scene.run(xid("gpu-2"), seconds=3)

    assert scene.cluster.tainted == {"gpu-1", "gpu-2"}
    other.wait()
    assert other.texts == ["gpu-1 out of service", "gpu-2 out of service"]
    assert receiver.taken == []
    receiver.gate.set()
    close(both)
    assert receiver.texts == other.texts


def test_a_failure_of_twenty_nodes_is_one_message_and_events_are_sent_as_before(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 60.0)
    scene = Scene(100)
    sender = notifications(receiver)
    scene.reconciler._events = sender

    scene.run(*(xid(f"gpu-{number}") for number in range(1, 21)), seconds=2)
    close(sender)

    assert receiver.texts == ["20 nodes out of service"]
    assert cast("Silent", sender._events).events == [EventReason.TAINTED] * 20


def test_the_same_write_announced_again_is_sent_once(receiver: Receiver) -> None:
    scene, metrics = Scene(), Metrics()
    scene.run(xid("gpu-1"), seconds=2)
    [change] = scene.cluster.written
    sender = notifications(receiver, metrics=metrics)

    for _ in range(2):
        sender.announce(scene.cluster.nodes["gpu-1"], change)
    sender.announce(node("gpu-2"), event(EventReason.SILENT, name="gpu-2"))
    close(sender)

    assert sorted(each.node for message in receiver.taken for each in message.news) == ["gpu-1", "gpu-2"]


def test_the_same_words_an_hour_later_are_another_notification(receiver: Receiver) -> None:
    clock = Clock()
    sender = notifier(receiver, clock=clock)
    for at_seconds in (0, REMEMBERED_SECONDS - 1, REMEMBERED_SECONDS, REMEMBERED_SECONDS + 1):
        clock.seconds = at_seconds
        put(sender, 1)
        put(sender, int(at_seconds) + 2, reason=EventReason.HELD)
        receiver.wait(1 + (at_seconds in (0, REMEMBERED_SECONDS)))
    close(sender)

    assert receiver.texts.count("gpu-1 out of service") == 2


def test_events_of_the_fleet_are_notified_of_and_records_are_not(receiver: Receiver) -> None:
    sender = notifications(receiver)

    sender.announce(node(), event(EventReason.RECORDED))
    sender.fleet(EventReason.FREE, "The brake stopped holding nodes back.")
    sender.fleet(EventReason.SILENT, "The kernel log of 40 nodes has not arrived.")
    close(sender)

    [message] = receiver.taken
    assert text_of(message).splitlines()[0] == "The kernel log of 40 nodes has not arrived"


def test_a_persons_reset_is_notified_of_and_a_removal_by_hand_is_left_to_its_event(
    receiver: Receiver,
) -> None:
    scene = Scene()
    sender = notifications(receiver)
    scene.reconciler._events = sender
    scene.reconciler._report._onlooker = sender
    scene.run(xid("gpu-1"), xid("gpu-2"), seconds=2)
    nodes = scene.cluster.nodes
    change = release(nodes["gpu-1"], at=at(3), by="ann", reason="new riser", read_ns={})
    assert change is not None
    assert change.record is not None
    as_read = replace(nodes["gpu-1"].as_read, record="…")
    nodes["gpu-1"] = replace(nodes["gpu-1"], taints=(), record=change.record, as_read=as_read)
    nodes["gpu-2"] = replace(nodes["gpu-2"], taints=(), removed_by="kubectl-taint")

    scene.run(seconds=4)
    scene.run(seconds=5)
    close(sender)

    returned = [each for one in receiver.taken if one.first.kind is Kind.RETURNED for each in one.news]
    assert {each.node: each.text for each in returned} == {
        "gpu-1": change.message,
        "gpu-2": "kubectl-taint removed the taint. The evidence so far does not taint again. "
        "Unmet need: reboot (xid 79 on GPU 0000:4e:00).",
    }
    assert {each.audit_id for each in returned if each.node == "gpu-1"} == {change.act_id}


@pytest.mark.parametrize("way", ["reset", "by hand"])
@pytest.mark.parametrize("fault", ["", "before", "after"])
def test_the_end_of_a_persons_own_taint_is_sent_only_if_a_fault_ends_with_it(
    receiver: Receiver, way: str, fault: str
) -> None:
    scene, metrics = Scene(), Metrics()
    sender = notifications(receiver, metrics=metrics)
    scene.reconciler._events = sender
    scene.reconciler._report._onlooker = sender
    nodes = scene.cluster.nodes

    def write(change: Change | None) -> None:
        assert change is not None
        written = DryRunWriter().write(nodes["gpu-1"], change).state
        assert written is not None
        nodes["gpu-1"] = written

    if fault == "before":
        scene.run(xid("gpu-1"), seconds=2)
    write(operator_taint(nodes["gpu-1"], at=at(3), by="ann", reason="new riser"))
    if fault == "after":
        scene.run(xid("gpu-1", seconds=3), seconds=4)
    scene.run(seconds=5)
    assert nodes["gpu-1"].tainted

    if way == "reset":
        write(release(nodes["gpu-1"], at=at(6), by="ann", reason="done", read_ns={}))
    else:
        nodes["gpu-1"] = replace(nodes["gpu-1"], taints=(), removed_by="kubectl-taint")
    scene.run(seconds=7)
    close(sender)

    assert not nodes["gpu-1"].tainted
    ends = [each for each in receiver.taken if each.first.kind is Kind.RETURNED]
    assert len(ends) == bool(fault)
    assert len(receiver.taken) == 2 * bool(fault)


def test_a_busy_receiver_is_tried_again_after_the_wait_that_it_asks_for(receiver: Receiver) -> None:
    metrics, clock = Metrics(), Clock()
    receiver.moods = [BUSY, WebhookError("the receiver answered 500", transient=True)]
    sender = notifier(receiver, metrics, clock)

    put(sender, 1)
    receiver.wait(3)
    close(sender)

    _, asked, own, *_ = clock.pauses
    assert asked == 77
    assert 0 < own < 10
    assert receiver.texts == ["gpu-1 out of service"]
    assert results(metrics) == {"sent": 1}


def told(receiver: Receiver) -> list[tuple[EventReason | None, list[str]]]:
    return [(message.first.reason, list(message.about)) for message in receiver.taken]


def test_messages_keep_the_order_of_time_whatever_is_urgent_and_however_often_one_is_tried(
    receiver: Receiver,
) -> None:
    receiver.gate.clear()
    receiver.moods = [BUSY] * (TRIES - 1)
    sender = notifier(receiver)
    put(sender, 1)
    assert receiver.tried.acquire(timeout=10)
    put(sender, 2, reason=EventReason.RETURNED)
    put(sender, 1, reason=EventReason.WORSENED)
    put(sender, 1, reason=EventReason.RETURNED)
    put(sender, 3)

    receiver.gate.set()
    receiver.wait(TRIES + 4)
    close(sender)

    assert told(receiver) == [
        (EventReason.TAINTED, ["gpu-1"]),
        (EventReason.RETURNED, ["gpu-2"]),
        (EventReason.WORSENED, ["gpu-1"]),
        (EventReason.RETURNED, ["gpu-1"]),
        (EventReason.TAINTED, ["gpu-3"]),
    ]


def test_a_return_that_waits_or_is_tried_again_is_dropped_when_the_node_is_tainted_again(
    receiver: Receiver,
) -> None:
    metrics = Metrics()
    receiver.gate.clear()
    receiver.moods = [BUSY]
    sender = notifier(receiver, metrics)
    put(sender, 1, reason=EventReason.RETURNED)
    assert receiver.tried.acquire(timeout=10)
    put(sender, 2, reason=EventReason.RETURNED)
    put(sender, 1, 2)

    receiver.gate.set()
    receiver.wait(2)
    close(sender)

    assert told(receiver) == [(EventReason.TAINTED, ["gpu-1", "gpu-2"])]
    assert results(metrics) == {"sent": 1}


def test_news_stay_in_the_queue_while_many_wait_already_and_at_the_end(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MOST", 1)
    sender = Notifier(cast("Webhook", receiver), Metrics())

    def left_after(number: int) -> int:
        put(sender, number)
        sender._send(Message((news(0),)))
        return len(sender.queue)

    assert [left_after(1), left_after(2)] == [0, 1]
    sender.queue.rest()
    sender._waiting = []
    sender.queue.close()
    assert left_after(3) == 1


def test_the_number_of_nodes_that_are_out_is_that_after_the_write(receiver: Receiver) -> None:
    scene = Scene(20)
    sender = notifications(receiver)
    scene.reconciler._events = sender
    scene.reconciler._report._onlooker = sender

    scene.run(xid("gpu-1"), seconds=2)
    scene.run(xid("gpu-2"), xid("gpu-3"), seconds=3)
    scene.cluster.nodes["gpu-1"] = replace(
        scene.cluster.nodes["gpu-1"], taints=(), removed_by="kubectl-taint"
    )
    scene.run(seconds=4)
    close(sender)

    news = [each for message in receiver.taken for each in message.news]
    assert {(each.node, each.kind): each.out for each in news} == {
        ("gpu-1", Kind.TAINTED): (1, 20),
        ("gpu-2", Kind.TAINTED): (3, 20),
        ("gpu-3", Kind.TAINTED): (3, 20),
        ("gpu-1", Kind.RETURNED): (2, 20),
    }


def test_a_message_is_given_up_after_some_tries_and_at_once_if_it_is_refused(
    receiver: Receiver, log: io.StringIO
) -> None:
    metrics = Metrics()
    receiver.moods = [*[BUSY] * TRIES, REFUSED, REFUSED]
    sender = notifier(receiver, metrics)

    for number in range(4):
        put(sender, number)
        receiver.wait(TRIES if number == 0 else 1)
    close(sender)

    assert results(metrics) == {"failed": 3, "sent": 1}
    said = [line.split(" ", 1)[1] for line in log.getvalue().splitlines()]
    failed = "WARNING A notification to Slack failed: the receiver answered"
    assert said == [
        f"{failed} 429. It was: gpu-0 out of service.",
        f"{failed} 400: invalid_payload. It was: gpu-1 out of service.",
        "INFO Notifications to Slack arrive.",
    ]


def test_without_a_file_nothing_is_sent_counted_or_logged_twice(receiver: Receiver, log: io.StringIO) -> None:
    metrics = Metrics()
    receiver.moods = [WebhookOffError("KONDUCTOR_NOTIFY_SLACK_FILE: there is no file /x")] * 2
    sender = notifier(receiver, metrics)

    for number in range(2):
        put(sender, number)
        receiver.wait()
    close(sender)

    assert results(metrics) == {}
    assert log.getvalue().count("\n") == log.getvalue().count("Notifications to Slack are off.") == 1


def test_an_error_of_our_own_loses_one_notification_and_its_text_is_not_logged(
    receiver: Receiver, log: io.StringIO
) -> None:
    def broken() -> News:
        raise RuntimeError("https://hooks.slack.com/secret")

    metrics = Metrics()
    receiver.gate.clear()
    sender = notifier(receiver, metrics)
    put(sender, 0)
    assert receiver.tried.acquire(timeout=10)
    sender.put(broken, urgent=True)
    put(sender, 1, reason=EventReason.HELD)
    put(sender, 2)

    receiver.moods = [WebhookOffError("off"), RuntimeError("https://hooks.slack.com/secret")]
    receiver.gate.set()
    receiver.wait(3)
    close(sender)

    assert receiver.texts == ["gpu-2 out of service"]
    assert results(metrics) == {"sent": 1, "failed": 2}
    assert log.getvalue().count("A notification to Slack failed (RuntimeError). Please report this.") == 1
    assert "secret" not in log.getvalue()


def test_each_message_waits_for_news_that_belong_to_it_and_none_is_lost(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 5.0)
    clock = Clock()
    receiver.gate.clear()
    sender = notifier(receiver, clock=clock)
    put(sender, 0)
    assert receiver.tried.acquire(timeout=10)
    put(sender, *range(1, 40))
    put(sender, 40, reason=EventReason.HELD)
    put(sender, *range(41, 50))

    receiver.gate.set()
    receiver.wait(3)
    close(sender)

    assert clock.pauses == [5.0] * 3
    assert [each.first.kind for each in receiver.taken] == [Kind.TAINTED, Kind.TAINTED, Kind.HELD]
    assert sorted(int(name[4:]) for each in receiver.taken for name in each.about) == [*range(50)]


def test_in_a_full_queue_coverage_and_returns_are_dropped_first_and_counted(receiver: Receiver) -> None:
    metrics = Metrics()
    sender = Notifier(cast("Webhook", receiver), metrics)

    put(sender, 1, reason=EventReason.RETURNED)
    put(sender, *range(WAITING_MOST))
    assert {make().kind for _, make in sender.queue.rest()} == {Kind.TAINTED}

    assert results(metrics) == {"dropped": 1}


def test_at_the_end_a_failing_receiver_is_tried_once_more_and_no_longer(receiver: Receiver) -> None:
    receiver.moods = [BUSY] * 20
    metrics = Metrics()
    sender = Notifier(cast("Webhook", receiver), metrics)
    sender.queue.close()

    put(sender, 1)
    put(sender, 2, reason=EventReason.HELD)
    sender.queue.start()
    sender.queue.join(10)

    assert results(metrics) == {"failed": 2}


def test_at_the_end_what_waits_is_sent_at_once(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 60.0)
    metrics = Metrics()
    sender = Notifier(cast("Webhook", receiver), metrics)
    put(sender, 1, reason=EventReason.HELD)
    put(sender, 2, 3)
    sender.queue.start()

    close(sender)

    assert told(receiver) == [(EventReason.HELD, ["gpu-1"]), (EventReason.TAINTED, ["gpu-2", "gpu-3"])]
    assert results(metrics) == {"sent": 2}


def test_a_real_run_has_a_notifier_for_each_file_and_a_dry_run_has_none(tmp_path: Path) -> None:
    kubeconfig = str(KubernetesServer().kubeconfig(tmp_path / "config"))
    settings = Settings(notify_slack_file=tmp_path / "slack", notify_webhook_file=tmp_path / "webhook")
    threads, before = [], {*threading.enumerate()}
    for dry_run in (True, False):
        options = Options(dry_run=dry_run, kubeconfig=kubeconfig)
        with open_controller(settings, options, Metrics(), threading.Event()):
            started = {*threading.enumerate()} - before
            threads.append({each.name for each in started if each.name.startswith("notify-")})

    assert threads == [set(), {"notify-slack", "notify-webhook"}]
