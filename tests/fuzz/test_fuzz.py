"""A small part of ``make fuzz``, and everything that it ever found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from konductor_like.model import Source
from tests.fuzz import run

FOUND = [json.loads(line) for line in (Path(__file__).parent / "found.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("seed", range(1, 7))
def test_mutated_lines_are_judged_soundly_and_in_time(seed: int) -> None:
    outcome = run.batch(seed, 5000)

    assert outcome.wrong == []
    assert outcome.findings > 500  # they are not so mangled that nothing is left to judge


def test_what_is_wrong_is_made_as_short_as_it_stays_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        run, "judged", lambda line, _: (0.0, None, "wrong" if "a" in line and "b" in line else "")
    )

    assert run.shortest("xxaxxxxyyyyyybzz", Source.POD) == "ab"


@pytest.mark.parametrize("case", FOUND, ids=lambda case: f"seed {case['seed']}")
def test_what_was_found_once_stays_right(case: dict[str, Any]) -> None:
    line = case["before"] + case["again"] * case["times"] + case["after"]

    assert run.judged(line, Source(case["source"]))[2] == ""
