"""Reading another clock off a Date header."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from konductor_like.clocks import seconds_ahead

NOON = 1_772_625_600.0


@pytest.mark.parametrize("ahead", [-86_400, -11, 11, 3600])
def test_a_difference_that_matters_is_told(ahead: int) -> None:
    assert seconds_ahead(formatdate(NOON + ahead, usegmt=True), NOON) == ahead


@pytest.mark.parametrize("ahead", [-9, 0, 1, 9])
def test_clocks_that_agree_well_enough_differ_by_nothing(ahead: int) -> None:
    assert seconds_ahead(formatdate(NOON + ahead, usegmt=True), NOON) == 0


@pytest.mark.parametrize("date", [None, "", "soon", "Thu, 99 Foo 2026 00:00:00 GMT"])
def test_a_header_that_tells_no_time_tells_nothing(date: str | None) -> None:
    assert seconds_ahead(date, NOON) is None
