"""The worker that asks Prometheus once a minute: what it keeps, and what it tells (rule 44)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from konductor_like.controller import logs
from konductor_like.controller.reporting.attempts import AttemptLog
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.alerts import STRANGER_SECONDS, Alerts
from konductor_like.model import AlertKey, AlertsAnswer, NodeState, ToldAlert
from konductor_like.model.attempts import Doing
from konductor_like.prometheus.answer import Parsed
from konductor_like.prometheus.client import AlertsError
from tests.policy.scenes import node
from tests.policy.test_alerts import KEY, NAME, firing

EXPORTERS = {NAME: "dcgm", "KonductorIBPortDown": "node"}


class World:
    """A Prometheus that answers as the test says, and the nodes."""

    problem: Exception | None = None

    def __init__(self, exporters: Mapping[str, str] = EXPORTERS) -> None:
        self.nodes: dict[str, NodeState] = {"gpu-1": node()}
        self.answers: Parsed | AlertsError = self.parsed()
        self.asked: list[tuple[list[str], list[str]]] = []
        self.seconds, self.woken = 0.0, 0
        self.metrics, self.attempts = Metrics(), AttemptLog()
        self.worker = Alerts(
            self,
            exporters,
            self,
            self.metrics,
            self.attempts,
            changed=self.wake,
            clock=lambda: self.seconds,
        )

    @staticmethod
    def parsed(*keys: AlertKey, **more: Any) -> Parsed:
        return Parsed(
            AlertsAnswer(7_000_000_000, dict.fromkeys(keys, ToldAlert("fires"))),
            **{"watched": {"dcgm": 2}, **more},
        )

    def snapshot(self) -> Mapping[str, NodeState]:
        return self.nodes

    def apply(self, _: NodeState) -> None:
        raise AssertionError("the worker writes nothing")

    def wake(self) -> None:
        self.woken += 1

    def ask(self, names: Collection[str], nodes: Collection[str]) -> Parsed:
        self.asked.append((sorted(names), sorted(nodes)))
        if isinstance(self.answers, AlertsError):
            raise self.answers
        return self.answers

    def hears(self, *keys: AlertKey, **more: Any) -> str:
        """Make a round with this answer; return the problem that the Lease tells."""
        self.answers = self.parsed(*keys, **more)
        self.worker.round()
        return self.attempts.latest()[Doing.ALERTS].error


def test_an_answer_is_kept_and_only_another_set_of_alerts_wakes_the_controller() -> None:
    world = World()
    assert world.worker.seen() is None

    assert world.hears() == ""
    world.hears()
    assert world.woken == 1
    world.hears(KEY)
    world.hears(KEY)
    assert world.woken == 2
    found = world.worker.seen()
    assert found is not None
    assert list(found.firing) == [KEY]


def test_the_exporters_are_asked_for_where_an_alert_fires_or_the_record_has_one() -> None:
    world = World()
    world.nodes["gpu-2"] = replace(firing().state, name="gpu-2")
    world.hears(KEY)
    world.hears()
    world.hears()

    names = sorted(EXPORTERS)
    world.hears(KEY._replace(node="no Node"))
    world.hears()

    assert world.asked.pop() == world.asked.pop() == (names, ["gpu-2"])
    assert world.asked == [(names, ["gpu-2"]), (names, ["gpu-1", "gpu-2"]), (names, ["gpu-2"])]


def test_an_error_keeps_the_last_answer_is_told_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logs.LOGGER.name)
    world = World()
    world.hears(KEY)
    world.answers = AlertsError("Prometheus answered 503")
    world.worker.round()
    world.worker.round()
    kept = world.worker.seen()

    assert kept is not None
    assert list(kept.firing) == [KEY]
    assert world.attempts.latest()[Doing.ALERTS].error == "Prometheus answered 503"
    assert world.hears(KEY) == ""
    assert [record.message.partition(".")[0] for record in caplog.records] == [
        "Alerts: Prometheus answered 503",
        "Alerts are read again",
    ]


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ({"warnings": ("store is down",)}, "in part only, with 1 warning"),
        ({"watched": {}}, "no series konductor_exporter_up"),
        ({"skipped": 3}, "3 firing alerts have no label node"),
    ],
    ids=str,
)
def test_an_answer_that_cannot_be_trusted_is_told(odd: dict[str, Any], says: str) -> None:
    assert says in World().hears(KEY, **odd)


def test_a_node_that_the_cluster_does_not_have_is_told_after_ten_minutes() -> None:
    world = World()
    stranger = KEY._replace(node="gpu-9.other")
    assert world.hears(stranger, KEY) == ""
    world.seconds = STRANGER_SECONDS - 1
    assert world.hears(stranger, KEY) == ""
    world.seconds = STRANGER_SECONDS
    assert "alerts fire for gpu-9.other, and no Node has this name" in world.hears(stranger, KEY)

    assert world.hears() == ""
    assert world.hears(stranger) == ""


def test_the_metric_shows_when_alerts_were_read() -> None:
    world = World()
    world.hears(KEY, watched={"dcgm": 2, "of a tenant": 5})
    lines = generate_latest(world.metrics.registry).decode().splitlines()

    assert "konductor_like_alerts_read_timestamp_seconds 7.0" in lines


def read_at(world: World) -> float:
    [family] = world.metrics.alerts_read.collect()
    return float(family.samples[0].value)


def test_only_a_good_answer_counts_as_read_and_before_the_first_one_the_start_does() -> None:
    world = World()
    start = read_at(world)
    assert start > 1_700_000_000

    world.hears(KEY, watched={})
    assert read_at(world) == start
    world.hears(KEY)
    assert read_at(world) == 7


def test_names_of_strangers_are_cut_and_safe_to_print() -> None:
    world = World()
    stranger = KEY._replace(node="\x1b[2J" + "x" * 3_000_000)
    world.hears(stranger)
    world.seconds = STRANGER_SECONDS
    told = world.hears(stranger)

    assert "no Node has this name" in told
    assert told.isprintable()


def test_a_bug_waits_a_minute_before_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    waits: list[float] = []
    monkeypatch.setattr(world.worker.closing, "wait", waits.append)
    monkeypatch.setattr(world, "ask", {}.__getitem__)
    with pytest.raises(TypeError):
        world.worker.step()

    assert waits == [60.0]


def test_without_a_rule_nothing_is_asked() -> None:
    world = World(exporters={})
    world.worker.round()

    assert (world.asked, world.worker.seen()) == ([], None)
