from __future__ import annotations

from datetime import timedelta

from konductor_like.controller.repeats import Repeats
from tests.policy.scenes import at


def repeats() -> Repeats[str]:
    return Repeats(timedelta(minutes=10))


def test_the_first_time_is_said_at_once() -> None:
    said = repeats()
    said.add("a", 1)

    assert said.due(at(0)) == {"a": 1}
    assert said.due(at(1)) == {}


def test_what_comes_again_is_said_with_its_count_when_the_span_is_over() -> None:
    said = repeats()
    said.add("a", 1)
    said.due(at(0))
    said.add("a", 3)
    said.add("b", 2)
    said.add("a", 4)

    assert said.due(at(1)) == {"b": 2}
    assert said.due(at(599)) == {}
    assert said.due(at(600)) == {"a": 7}


def test_what_stayed_away_is_forgotten() -> None:
    said = repeats()
    said.add("a", 1)
    said.due(at(0))
    assert "a" in said

    said.due(at(600))

    assert len(said) == 0
