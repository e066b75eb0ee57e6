"""The clock by which windows are placed: ours, or Loki's where they differ."""

from __future__ import annotations

import time
from contextlib import closing
from email.utils import format_datetime, formatdate

import httpx
import pytest
import respx

from konductor_like.loki.query import client as clients
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.readers.source import SourceReader
from konductor_like.model import Source
from tests.chaos.clock import SECOND_NS, Clock, moment_of
from tests.loki.support import (
    ENDPOINT,
    NOW,
    QUERY,
    answer,
    answer_bytes,
    client_of,
    kernel_labels,
    settings,
    texts_of,
)


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


def ask_at(loki: LokiClient, stepped: Stepped) -> None:
    with respx.mock:
        date = format_datetime(stepped.clock.moment(), usegmt=True)
        respx.get(f"{ENDPOINT}/loki/api/v1/query_range").respond(json=answer(), headers={"Date": date})
        loki.query_range(QUERY, NOW - SECOND_NS, NOW, 10)


class Gateway:
    """Loki behind a gateway whose ``Date`` may be wrong, polled every 15 seconds for two hours."""

    def __init__(self, stepped: Stepped) -> None:
        self.clock = stepped.clock
        self.date_offset_ns = 0
        self.entries: list[tuple[int, str]] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        start_ns, end_ns = (int(request.url.params[name]) for name in ("start", "end"))
        found = [[str(at_ns), text] for at_ns, text in self.entries if start_ns <= at_ns < end_ns]
        shown = moment_of(self.clock.true_ns + self.date_offset_ns)
        body = answer([(kernel_labels(), found)] if found else [])
        return httpx.Response(200, json=body, headers={"Date": format_datetime(shown, usegmt=True)})

    def poll(self, loki: LokiClient, reader: SourceReader) -> list[str]:
        self.clock.true_ns += 15 * SECOND_NS
        batch = reader.poll(loki.now_ns())
        if loki.now_ns() < batch.upto_ns:  # as the source's loop does: the answer has put our clock right
            batch = reader.poll(loki.now_ns())
        reader.commit(batch)
        return texts_of(batch)


def follow(
    gateway: Gateway, stepped: Stepped, ours_seconds: int, theirs_seconds: int
) -> list[tuple[int, str]]:
    """Print a fault every five minutes, while a clock is wrong for 90; return the faults with delays in s."""
    read: list[tuple[int, str]] = []
    with closing(LokiClient(settings())) as loki, respx.mock:
        respx.get(f"{ENDPOINT}/loki/api/v1/query_range").mock(side_effect=gateway.answer)
        start_ns, other = NOW - 60 * SECOND_NS, loki.other_clock_ns
        reader = SourceReader(Source.KERNEL, loki, QUERY, settings(), start_ns, other_clock_ns=other)
        for number in range(480):
            wrong = 20 <= number < 380
            gateway.date_offset_ns = theirs_seconds * SECOND_NS if wrong else 0
            stepped.clock.offset_ns = ours_seconds * SECOND_NS if wrong else 0
            if number % 20 == 10:
                gateway.entries.append((gateway.clock.true_ns, f"fault {number}"))
            for text in gateway.poll(loki, reader):
                [at_ns] = [at_ns for at_ns, kept in gateway.entries if kept == text]
                read.append(((gateway.clock.true_ns - at_ns) // SECOND_NS, text))
    return read


@pytest.mark.parametrize(
    ("ours_seconds", "theirs_seconds"), [(0, -86_400), (0, 7200), (-86_400, 0), (7200, 0)]
)
def test_a_wrong_clock_of_ours_or_of_lokis_answers_neither_hides_nor_delays_a_line(
    monkeypatch: pytest.MonkeyPatch, ours_seconds: int, theirs_seconds: int
) -> None:
    stepped = Stepped(monkeypatch)

    read = follow(Gateway(stepped), stepped, ours_seconds, theirs_seconds)

    assert [text for _, text in read] == [f"fault {number}" for number in range(10, 480, 20)]
    assert max(delay for delay, _ in read) <= 30


def test_a_clock_that_is_wrong_from_the_start_counts_until_loki_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stepped = Stepped(monkeypatch)
    stepped.clock.offset_ns = -600 * SECOND_NS
    with closing(LokiClient(settings())) as loki:
        assert loki.now_ns() == NOW - 600 * SECOND_NS
        ask_at(loki, stepped)
        assert loki.now_ns() == NOW


@pytest.mark.parametrize("seconds", [-600, 600])
def test_a_clock_that_is_set_between_two_answers_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    stepped = Stepped(monkeypatch)
    with closing(LokiClient(settings())) as loki:
        ask_at(loki, stepped)
        stepped.clock.offset_ns = seconds * SECOND_NS
        assert loki.now_ns() == NOW
        ask_at(loki, stepped)
        assert loki.now_ns() == NOW
        stepped.clock.offset_ns = 0
        assert loki.now_ns() == NOW


def test_a_clock_that_is_set_a_little_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = Stepped(monkeypatch)
    with closing(LokiClient(settings())) as loki:
        ask_at(loki, stepped)
        stepped.clock.offset_ns = 3 * SECOND_NS
        assert loki.now_ns() == NOW + 3 * SECOND_NS


def answer_with(loki: respx.MockRouter, **headers: str) -> None:
    loki.route().mock(return_value=httpx.Response(200, content=answer_bytes(), headers=headers))


@pytest.mark.parametrize("ahead_seconds", [-86_400, -700, -590, -300, 300, 590, 700, 86_400])
def test_lokis_clock_counts_unless_the_two_are_too_far_apart_then_the_earlier_one(
    loki: respx.MockRouter, ahead_seconds: int
) -> None:
    """When the clocks are far apart, ours may be wrong, or that of a gateway between."""
    answer_with(loki, Date=formatdate(time.time() + ahead_seconds, usegmt=True))
    with closing(client_of()) as client:
        client.query_range(QUERY, NOW, NOW + 1, 100)
        later_ns, far = client.other_clock_ns(), abs(ahead_seconds) > 600

        assert client.clock_ahead_seconds == pytest.approx(ahead_seconds, abs=3)
        reckoned = time.time() + (min(0, ahead_seconds) if far else ahead_seconds)
        assert client.now_ns() / 1e9 == pytest.approx(reckoned, abs=3)
        assert (later_ns is not None) == far
        if later_ns is not None:
            assert later_ns / 1e9 == pytest.approx(time.time() + max(0, ahead_seconds), abs=3)

        answer_with(loki)
        client.query_range(QUERY, NOW, NOW + 1, 100)
        assert client.clock_ahead_seconds == pytest.approx(ahead_seconds, abs=3), "no Date tells nothing"
        answer_with(loki, Date=formatdate(time.time(), usegmt=True))
        client.query_range(QUERY, NOW, NOW + 1, 100)
        assert client.clock_ahead_seconds == 0
