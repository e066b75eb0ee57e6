"""Waits after failures double, with jitter. How calls are repeated: `tests/loki/test_errors.py`."""

from __future__ import annotations

from konductor_like.backoff import Backoff


def test_waits_double_and_are_spread() -> None:
    backoff = Backoff(first_seconds=1, most_seconds=8)

    for failures, most in [(1, 1), (2, 2), (3, 4), (4, 8), (50, 8), (5000, 8)]:
        waits = {backoff.seconds(failures) for _ in range(50)}
        assert most / 2 <= min(waits) < max(waits) <= most


def test_waits_are_never_shorter_than_asked_for() -> None:
    assert Backoff(first_seconds=1).seconds(1, 30.0) == 30.0
