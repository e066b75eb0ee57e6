"""The words on a line of the audit trail: the timeline and a case say the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from konductor_like.cli.history.timeline import sentence
from konductor_like.history.case import acts
from konductor_like.history.outages import End, Outage
from konductor_like.history.trail import SILENT, WORDS, TrailLine
from konductor_like.model import NodeRecord
from tests.cli.scenes import NOW

OUT = Outage("gpu-1", NOW, rule="xid.79", end=End.OUT)


def line(why: str) -> TrailLine:
    return TrailLine(NOW + timedelta(minutes=2), "record", "applied", "gpu-1", rule="xid.48", why=why)


def told_of(why: str) -> list[str]:
    return [each.what for each in acts(OUT, [line(why)], NodeRecord(), NOW + timedelta(hours=1))][1:]


@pytest.mark.parametrize("why", WORDS)
def test_timeline_and_case_have_the_same_words(why: str) -> None:
    assert sentence(line(why)) == f"{WORDS[why]}: xid 48"
    assert told_of(why) == [f"{WORDS[why]}: xid 48"]


@pytest.mark.parametrize("why", [*SILENT, "GPUNoSuchReason"])
def test_a_case_leaves_out_what_tells_nothing(why: str) -> None:
    assert told_of(why) == []
