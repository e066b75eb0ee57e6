from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model.time import micro_time, moment_of_text, ns_of_text, stamp, text_of, text_of_ns


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        pytest.param(0, "1970-01-01T00:00:00Z", id="the epoch"),
        pytest.param(1_778_068_800_000_000_000, "2026-05-06T12:00:00Z", id="whole seconds"),
        pytest.param(1_778_068_800_120_000_000, "2026-05-06T12:00:00.12Z", id="no more decimals than needed"),
        pytest.param(1_778_068_800_000_000_001, "2026-05-06T12:00:00.000000001Z", id="one nanosecond"),
        pytest.param(300_000_000_000 * 10**9, 300_000_000_000 * 10**9, id="beyond year 9999 a number"),
    ],
)
def test_nanoseconds_read_as_rfc_3339(ns: int, text: str | int) -> None:
    assert text_of_ns(ns) == text


@given(st.integers(0, 253_402_300_799_999_999_999))
def test_no_nanosecond_is_lost(ns: int) -> None:
    assert ns_of_text(str(text_of_ns(ns))) == ns


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001 -- hypothesis wants bare bounds
def test_no_microsecond_is_lost(moment: datetime) -> None:
    assert moment_of_text(text_of(moment)) == moment


@pytest.mark.parametrize(
    "text",
    [
        "2026-05-06T14:00:00+02:00",
        "2026-05-06t12:00:00z",
        "2026-05-06 12:00:00Z",
        " 2026-05-06T12:00:00.000Z ",
        "2026-05-06T06:30:00-05:30",
    ],
)
def test_the_usual_spellings_of_one_moment_are_understood(text: str) -> None:
    assert ns_of_text(text) == 1_778_068_800_000_000_000


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-05-06", "2026-13-06T12:00:00Z", "2026-05-06T12:00:00", "1778068800"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ns_of_text(text)


def test_the_first_year_in_a_zone_ahead_is_refused_and_not_a_crash() -> None:
    with pytest.raises(ValueError, match="out of range"):
        moment_of_text("0001-01-01T00:00:00+05:00")


def test_a_micro_time_always_has_six_decimals() -> None:
    there = timezone(timedelta(hours=2))

    assert micro_time(datetime(2026, 5, 6, 14, 0, tzinfo=there)) == "2026-05-06T12:00:00.000000Z"


def test_a_plain_time_has_none() -> None:
    moment = datetime(2026, 5, 6, 12, 0, 0, 999_999, tzinfo=UTC)

    assert stamp(moment) == "2026-05-06T12:00:00Z"
