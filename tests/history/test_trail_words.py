"""The words on a line of the audit trail."""

from __future__ import annotations

from datetime import timedelta

import pytest

from konductor_like.cli.history.timeline import sentence
from konductor_like.history.trail import WORDS, TrailLine
from tests.cli.scenes import NOW


@pytest.mark.parametrize("why", WORDS)
def test_the_timeline_has_words_for_each_reason(why: str) -> None:
    line = TrailLine(NOW + timedelta(minutes=2), "record", "applied", "gpu-1", rule="xid.48", why=why)

    assert sentence(line) == f"{WORDS[why]}: xid 48"
