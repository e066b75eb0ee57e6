"""A wrong clock of ours must not move the windows past the lines: Loki's clock corrects it."""

from __future__ import annotations

import time
from email.utils import formatdate

import httpx
import pytest
import respx

from tests.loki.http_support import ask, client_of
from tests.loki.support import NOW, QUERY, answer_bytes

EMPTY = answer_bytes()


def answer_with(loki: respx.MockRouter, **headers: str) -> None:
    loki.route().mock(return_value=httpx.Response(200, content=EMPTY, headers=headers))


@pytest.mark.parametrize("ahead_seconds", [-590, -300, 300, 590])
def test_windows_are_reckoned_from_lokis_clock_where_ours_is_wrong(
    loki: respx.MockRouter, ahead_seconds: int
) -> None:
    answer_with(loki, Date=formatdate(time.time() + ahead_seconds, usegmt=True))
    with client_of() as client:
        ask(client)

        assert client.clock_ahead_seconds == pytest.approx(ahead_seconds, abs=3)
        assert client.now_ns() / 1e9 == pytest.approx(time.time() + ahead_seconds, abs=3)
        assert client.other_clock_ns() is None


@pytest.mark.parametrize("ahead_seconds", [-86_400, -700, 700, 86_400])
def test_of_two_clocks_that_are_too_far_apart_the_earlier_counts_and_the_other_is_known(
    loki: respx.MockRouter, ahead_seconds: int
) -> None:
    """It may be ours that is wrong, or that of a gateway between."""
    answer_with(loki, Date=formatdate(time.time() + ahead_seconds, usegmt=True))
    with client_of() as client:
        ask(client)
        later_ns = client.other_clock_ns()

        assert client.clock_ahead_seconds == pytest.approx(ahead_seconds, abs=3)
        assert client.now_ns() / 1e9 == pytest.approx(time.time() + min(0, ahead_seconds), abs=3)
        assert later_ns is not None
        assert later_ns / 1e9 == pytest.approx(time.time() + max(0, ahead_seconds), abs=3)


@pytest.mark.parametrize("date", [None, "", "yesterday", "Thu, 99 Foo 2026 00:00:00 GMT", "agrees"])
def test_our_own_clock_counts_while_the_two_agree_or_loki_names_no_time(
    loki: respx.MockRouter, date: str | None
) -> None:
    text = formatdate(time.time() + 2, usegmt=True) if date == "agrees" else date
    answer_with(loki, **({} if text is None else {"Date": text}))
    with client_of() as client:
        ask(client)

        assert client.clock_ahead_seconds == 0


def test_a_clock_that_was_put_right_is_trusted_again(loki: respx.MockRouter) -> None:
    with client_of() as client:
        for ahead_seconds in (900, 0):
            answer_with(loki, Date=formatdate(time.time() + ahead_seconds, usegmt=True))
            client.query_range(QUERY, NOW, NOW + 1, 100)

        assert client.clock_ahead_seconds == 0
