"""The code makes of each recorded node exactly what the build that recorded it made."""

from __future__ import annotations

import pytest

from tests.policy.answers import answer
from tests.policy.recorded_decisions import recorded, text_again

RECORDED = list(recorded())


@pytest.mark.parametrize("part", range(8))
def test_each_recorded_question_has_the_recorded_answer(part: int) -> None:
    for asked, expected, _ in RECORDED[part::8]:
        assert (asked.name, answer(asked.question)) == (asked.name, expected)


def test_each_recorded_record_is_read_and_written_as_before() -> None:
    records = {asked.question["record"]: (asked.name, again) for asked, _, again in RECORDED}
    for text, (name, again) in records.items():
        assert (name, text_again(text)) == (name, again)
