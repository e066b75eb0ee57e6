"""The controller's memory of records that Nodes have no room for, beside what commands write on the Lease."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from konductor_like.controller.loop.kept_records import AGAIN, WAITS, KeptRecords
from konductor_like.model import (
    Act,
    Change,
    Control,
    ControlAct,
    Controls,
    KeptRecord,
    NodeState,
    Verb,
    kept_beside,
)
from tests.cluster.scenes import NOON, OURS, incident, raw_node, record, release, state_of

OUT = replace(record(incident()), act=Act("a1", NOON))
BACK = replace(record(tainted=False, releases=(release(),)), act=Act("b2", NOON + timedelta(minutes=1)))
SHORT = '{"v":2,"releases":[{"at":"2026-05-06T12:00:00Z","by":"kim","how":"reset"}],"truncated":"in short"}'


def node(text: str | None = None, *, tainted: bool = True) -> NodeState:
    notes = {} if text is None else {"trainy.konduktor.ai/record": text}
    return state_of(raw_node(annotations=notes, taints=[OURS] if tainted else []))


def full() -> KeptRecords:
    """The memory after a taint for which the Node had no room."""
    found = KeptRecords()
    found.wrote(node(), Change("gpu-1", Verb.TAINT, OUT, "faulty"), NOON, has_record=False)
    return found


def on_lease(*kept: KeptRecord) -> Controls:
    return Controls(kept=kept)


RELEASED = kept_beside(node(), BACK, None, ahead=True)


def test_a_lost_taint_is_looked_up_on_the_lease_before_anybody_is_said_to_have_removed_it() -> None:
    """A command notes its release there first; the controller's last read may be older."""
    seen = full().see({"gpu-1": node(tainted=False)}, on_lease(), NOON, lambda: on_lease(RELEASED))

    assert seen["gpu-1"].record.releases
    assert not seen["gpu-1"].record.life.claimed


def test_a_record_in_short_that_is_not_known_is_looked_up_once() -> None:
    asked: list[KeptRecord] = []
    kept = kept_beside(node(SHORT), BACK, SHORT)
    records, state = KeptRecords(), node(SHORT, tainted=False)

    def latest() -> Controls:
        asked.append(kept)
        return on_lease(*there)

    there: list[KeptRecord] = []
    for _ in range(3):
        assert records.see({"gpu-1": state}, on_lease(), NOON, latest)["gpu-1"].record == state.record
    assert len(asked) == 1
    there.append(kept)
    seen = KeptRecords().see({"gpu-1": state}, on_lease(), NOON, latest)
    assert seen["gpu-1"].record.releases == BACK.releases


def test_a_release_that_the_node_never_shows_is_replaced_after_a_minute() -> None:
    records = full()
    for seconds in (0, 30):
        seen = records.see({"gpu-1": node()}, on_lease(RELEASED), NOON + timedelta(seconds=seconds))
        assert seen["gpu-1"].record.life.claimed
        assert RELEASED.act not in records.content.superseded

    records.see({"gpu-1": node()}, on_lease(RELEASED), NOON + WAITS)

    assert RELEASED.act in records.content.superseded


def test_a_purged_node_is_forgotten() -> None:
    purge = ControlAct(Control.PURGE, NOON + timedelta(minutes=1), "kim", nodes=1, names=("gpu-1",))

    seen = full().see({"gpu-1": node(tainted=False)}, on_lease(), NOON, lambda: Controls((purge,)))

    assert seen["gpu-1"].record.empty


@pytest.mark.parametrize("seconds", [-1, AGAIN.total_seconds()])
def test_the_record_is_tried_again_after_two_minutes_and_after_a_clock_was_set_back(seconds: float) -> None:
    records = full()

    assert records.due(NOON + timedelta(seconds=1)) == frozenset()
    assert records.due(NOON + timedelta(seconds=seconds)) == {"gpu-1"}


def test_a_record_that_is_on_its_node_again_leaves_the_lease() -> None:
    records = full()
    assert [each.name for each in records.content.records] == ["gpu-1"]

    records.wrote(node("{}"), Change("gpu-1", Verb.RECORD, OUT, "faulty"), NOON, has_record=True)

    assert records.content.records == ()
    assert len(records.content.superseded) == 1, "the entry on the Lease is ours to remove"
