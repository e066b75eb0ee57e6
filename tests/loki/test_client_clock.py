"""By which clock windows are reckoned: ours, or Loki's where they differ."""

from __future__ import annotations

from email.utils import format_datetime

import pytest
import respx

from konductor_like.loki import client as clients
from konductor_like.loki.client import LokiClient
from tests.chaos.clock import SECOND_NS, Clock
from tests.loki.support import ENDPOINT, NOW, QUERY, answer, settings


class Stepped:
    """Our machine's clock, which somebody may set, and Loki's, which is right."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.clock.true_ns = NOW
        monkeypatch.setattr(clients, "time", self)

    def time_ns(self) -> int:
        return self.clock.wall_ns()

    def time(self) -> float:
        return self.clock.wall_ns() / SECOND_NS

    def monotonic(self) -> float:
        return self.clock.seconds()


def ask(loki: LokiClient, stepped: Stepped) -> None:
    with respx.mock:
        date = format_datetime(stepped.clock.moment(), usegmt=True)
        respx.get(f"{ENDPOINT}/loki/api/v1/query_range").respond(json=answer(), headers={"Date": date})
        loki.query_range(QUERY, NOW - SECOND_NS, NOW, 10)


def test_a_clock_that_is_wrong_from_the_start_counts_until_loki_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stepped = Stepped(monkeypatch)
    stepped.clock.offset_ns = -600 * SECOND_NS
    with LokiClient(settings()) as loki:
        assert loki.now_ns() == NOW - 600 * SECOND_NS
        ask(loki, stepped)
        assert loki.now_ns() == NOW


@pytest.mark.parametrize("seconds", [-600, 600])
def test_a_clock_that_is_set_between_two_answers_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    stepped = Stepped(monkeypatch)
    with LokiClient(settings()) as loki:
        ask(loki, stepped)
        stepped.clock.offset_ns = seconds * SECOND_NS
        assert loki.now_ns() == NOW
        ask(loki, stepped)
        assert loki.now_ns() == NOW
        stepped.clock.offset_ns = 0
        assert loki.now_ns() == NOW


def test_a_clock_that_is_set_a_little_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = Stepped(monkeypatch)
    with LokiClient(settings()) as loki:
        ask(loki, stepped)
        stepped.clock.offset_ns = 3 * SECOND_NS
        assert loki.now_ns() == NOW + 3 * SECOND_NS
