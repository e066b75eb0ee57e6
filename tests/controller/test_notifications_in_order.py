"""Whatever happens while messages wait or are tried again, the last message about a node is true."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import cast

import pytest

from konductor_like.cluster.node.writer import DryRunWriter
from konductor_like.controller.fleet.coverage import CoverageChanges
from konductor_like.controller.fleet.coverage_report import CoverageReport
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.notifier import Notifications, Notifier
from konductor_like.model import Coverage, EventReason
from konductor_like.notify.messages import Message
from konductor_like.notify.news import Kind, News
from konductor_like.notify.webhook import Webhook, WebhookError
from konductor_like.policy.fleet.brake import held_back
from konductor_like.policy.node.health import tainting
from konductor_like.policy.node.release import release
from konductor_like.policy.operator import operator_taint
from tests.controller.reconciling import Cluster, Scene, xid
from tests.policy.scenes import NOON, at, ns

STEPS = 40


class Events:
    """Takes all Events."""

    def announce(self, *_: object) -> None:
        pass

    def fleet(self, *_: object) -> None:
        pass


class Story:
    """Random happenings on a fleet of ten nodes, and one receiver that often fails.

    Everything is in one thread: happenings go on in the pauses of the notifier.
    """

    name = "slack"

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.happenings = [
            *[self.fail] * 3,
            self.release,
            self.by_hand,
            self.reboot,
            self.taint_held,
            *[self.hear] * 2,
        ]
        self.seconds = 0.0
        self.left = STEPS
        self.failures = 0
        self.sent: list[Message] = []
        events, metrics = Events(), Metrics()
        self.notifications = Notifications(events, events.fleet, [], metrics)
        self.notifier = Notifier(cast("Webhook", self), metrics, pause=self.pause, clock=lambda: self.seconds)
        self.notifications._notifiers = [self.notifier]
        self.scene = Scene(10)
        self.scene.reconciler._events = self.scene.reconciler._writes._events = self.notifications
        report = self.scene.reconciler._report
        report._onlooker = self.notifications
        report._fleet_event = report.brake._fleet_event = self.notifications.fleet
        self.coverage = CoverageReport(metrics, self.notifications, self.notifications.fleet)
        self.silent: dict[str, float] = {}

    def send(self, message: Message) -> None:
        if self.failures < 3 and self.random.random() < 0.4:
            self.failures += 1
            raise WebhookError("busy", transient=True)
        self.failures = 0
        self.sent.append(message)

    def pause(self, seconds: float) -> None:
        self.seconds += seconds
        for _ in range(self.random.randrange(3)):
            self.happen()

    def happen(self) -> None:
        if self.left <= 0:
            return
        self.left -= 1
        self.seconds += self.random.choice([0.5, 3, 40, 400])
        cluster, name = self.scene.cluster, f"gpu-{self.random.randint(1, 5)}"
        self.random.choice(self.happenings)(cluster, name)
        self.scene.run(seconds=self.seconds)

    def fail(self, _: Cluster, name: str) -> None:
        self.scene.run(xid(name, seconds=self.seconds, stamp=self.seconds), seconds=self.seconds)

    def release(self, cluster: Cluster, name: str) -> None:
        state = cluster.nodes[name]
        change = release(state, at=at(self.seconds), by="ann", reason="new riser", read_ns={})
        if change is not None and change.record is not None:
            as_read = replace(state.as_read, taints=(), record=f"by ann at {self.seconds}")
            cluster.nodes[name] = replace(state, taints=(), record=change.record, as_read=as_read)

    def taint_held(self, cluster: Cluster, name: str) -> None:
        """Taint a held node as ``konductor-like taint`` does."""
        state = cluster.nodes[name]
        if held_back(state):
            change = operator_taint(state, at=at(self.seconds), by="ann", reason="held")
            assert change is not None
            written = DryRunWriter().write(state, change).state
            assert written is not None
            cluster.nodes[name] = written

    def by_hand(self, cluster: Cluster, name: str) -> None:
        state = cluster.nodes[name]
        as_read = replace(state.as_read, taints=())
        cluster.nodes[name] = replace(state, taints=(), removed_by="kubectl-taint", as_read=as_read)

    def reboot(self, cluster: Cluster, name: str) -> None:
        state = cluster.nodes[name]
        machine = replace(state.machine, boot_id=f"boot-{self.seconds}")
        cluster.nodes[name] = replace(state, machine=machine)

    def hear(self, _: Cluster, name: str) -> None:
        changes = CoverageChanges()
        if name in self.silent:
            changes.heard.append((name, (ns(self.silent.pop(name)), ns(self.seconds))))
        else:
            self.silent[name] = self.seconds
            changes.silent.append((name, (ns(self.seconds), None)))
        self.tell(changes)

    def tell(self, changes: CoverageChanges) -> None:
        self.coverage.tell(changes, Coverage(NOON), self.scene.cluster.nodes, ns(self.seconds))

    def play(self) -> None:
        while self.left > 0 or len(self.notifier.queue):
            self.happen()
            if len(self.notifier.queue) and (self.left <= 0 or self.random.random() < 0.5):
                self.notifier.queue.step()
        for _ in range(2):
            self.seconds += 4000
            self.tell(CoverageChanges())
        while len(self.notifier.queue):
            self.notifier.queue.step()

    def last(self, name: str, *, of_logs: bool) -> News | None:
        """Return the last news of a node in the messages, about its kernel log or about its life.

        An Event about the fleet names the nodes whose kernel logs it is about.
        """
        found = [
            each
            for message in self.sent
            for each in message.news
            if (each.told.kind is Kind.LOG_LOST) is of_logs
            and name in (each.node, *re.findall(r"gpu-\d+", each.text if of_logs else ""))
        ]
        return found[-1] if found else None


@pytest.mark.parametrize("seed", range(8))
def test_the_last_message_about_a_node_is_true_and_no_time_runs_backwards(seed: int) -> None:
    story = Story(seed)

    story.play()

    times = [message.at for message in story.sent]
    assert times == sorted(times)
    for name, state in story.scene.cluster.nodes.items():
        said = story.last(name, of_logs=False)
        if state.tainted:
            assert said is not None
            by_person = said.kind is Kind.HELD and any(each.by_person for each in tainting(state.record))
            assert said.tells_taint or by_person, (name, said)
        elif held_back(state):
            assert said is not None
            assert said.kind is Kind.HELD, (name, said)
        else:  # a hold that ends has no message of its own
            assert said is None or said.kind in (Kind.RETURNED, Kind.HELD), (name, said)
        logs = story.last(name, of_logs=True)
        if name in story.coverage._told:
            assert logs is not None
            assert logs.reason is EventReason.SILENT
