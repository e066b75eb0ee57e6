"""The returns of the fleet: the limit of an hour, and the stop after relapses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from konductor_like.model import (
    Control,
    ControlAct,
    Controls,
    Life,
    NodeRecord,
    NodeState,
    Quarantine,
    ReleaseHow,
    ReturnedNode,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.recovery import returns
from konductor_like.policy.recovery.returns import (
    known_returns,
    returns_left,
    settled_by_resume,
    stop_words,
)
from tests.policy.scenes import NOON, at, node

HOUR = 3600.0
YEARS = 10 * 365 * 86_400.0
RULES = PolicyConfig(returns_by_reboot=True)
PAUSE = ControlAct(Control.PAUSE, NOON, "kim", "move", at(60))


def out(count: int, *, relapsed: int = 0, ago: float = 7200.0) -> Controls:
    """The returns of ``count`` nodes, the first of them with a relapse."""
    return Controls(
        returned=tuple(
            ReturnedNode(f"gpu-{n}", at(-ago + n), at(-ago + n + 60) if n <= relapsed else None)
            for n in range(count, 0, -1)
        )
    )


def resumed(controls: Controls, seconds: float = -60) -> Controls:
    """The controls after ``konductor-like resume``."""
    relapses = settled_by_resume(controls)
    return controls.with_act(ControlAct(Control.RESUME, at(seconds), "kim", relapses=relapses))


def and_relapsed(controls: Controls, *names: str, ago: float = 30.0) -> Controls:
    """The controls after these nodes have returned and relapsed, too."""
    more = tuple(ReturnedNode(name, at(-ago - n), at(-ago)) for n, name in enumerate(names))
    return replace(controls, returned=known_returns((*controls.returned, *more), (), NOON))


def counted(controls: Controls) -> list[str]:
    return [name for _, name in returns.relapses(controls)]


def test_relapses_before_a_resume_count_no_longer_also_when_old_returns_leave_the_ten() -> None:
    controls = resumed(out(10, relapsed=4, ago=9000))
    assert counted(controls) == []

    for number in range(2):
        controls = and_relapsed(controls, f"new-{number}", ago=50 - number)
        assert not returns.is_stopped(controls)
    controls = and_relapsed(controls, "new-2")

    assert counted(controls) == ["new-0", "new-1", "new-2"]
    assert "new-0 at 2026-03-04T11:59:10Z, new-1" in stop_words(controls)


def test_the_resume_of_an_ordinary_pause_changes_nothing_also_after_the_end_of_an_earlier_stop() -> None:
    controls = and_relapsed(resumed(out(3, relapsed=3)), "new-1", "new-2")

    controls = resumed(controls.with_act(replace(PAUSE, at=at(-20), until=None)), -10)
    assert counted(controls) == ["new-1", "new-2"]

    assert returns.is_stopped(and_relapsed(controls, "new-3", ago=5))


def test_a_resume_before_the_stop_changes_nothing() -> None:
    controls = and_relapsed(resumed(out(2, relapsed=2)), "new-1")

    assert counted(controls) == ["gpu-1", "gpu-2", "new-1"]


def test_the_second_stop_ends_like_the_first() -> None:
    controls = and_relapsed(resumed(out(3, relapsed=3)), "new-1", "new-2", "new-3")
    assert returns.is_stopped(controls)

    assert counted(resumed(controls, -1)) == []


def test_a_resume_with_a_time_in_the_future_hides_no_later_relapse() -> None:
    controls = and_relapsed(resumed(out(3, relapsed=3), YEARS), "new-1", "new-2", "new-3")

    assert returns.is_stopped(controls)


def test_a_resume_ends_a_stop_whose_returns_and_relapses_have_times_in_the_future() -> None:
    nodes = [back(f"gpu-{n}", YEARS + n, relapse=True, out_again=YEARS + 60) for n in range(3)]
    controls = Controls(returned=known_returns((), nodes, NOON))
    assert returns.is_stopped(controls)

    controls = resumed(controls)

    assert counted(replace(controls, returned=known_returns(controls.returned, nodes, at(3600)))) == []


def test_one_node_alone_does_not_stop_the_returns_of_the_fleet() -> None:
    times = [
        Quarantine(at(-9 * n), at(-9 * n + 1), "xid.79", ReleaseHow.REBOOT, relapse=True) for n in range(1, 9)
    ]
    state = replace(node("gpu-1"), record=NodeRecord(life=Life(quarantines=tuple(times))))

    assert counted(Controls(returned=known_returns((), [state], NOON))) == ["gpu-1"]


def test_relapses_before_the_last_resume_no_longer_count_also_after_a_later_pause() -> None:
    controls = resumed(out(3, relapsed=3))
    assert not returns.is_stopped(controls)

    controls = controls.with_act(replace(PAUSE, at=at(-30), until=at(-20)))

    assert not returns.is_stopped(controls)


def test_the_words_of_a_stop_stay_the_same_when_a_fourth_node_fails() -> None:
    assert stop_words(out(4, relapsed=4)) == stop_words(out(4, relapsed=3))


def test_returns_older_than_an_hour_make_room() -> None:
    assert returns_left(out(4, ago=600), RULES, NOON) == 0
    assert returns_left(out(4, ago=3600), RULES, NOON) == 0
    assert returns_left(out(4, ago=3602), RULES, NOON) == 2
    assert returns_left(out(4, ago=7200), replace(RULES, returns_per_hour=0), NOON) == 0


def back(name: str, seconds: float, *, relapse: bool, out_again: float | None = None) -> NodeState:
    """A node whose record shows a return by reboot at ``seconds``."""
    quarantines = (Quarantine(at(seconds - 60), at(seconds), "xid.79", ReleaseHow.REBOOT, relapse=relapse),)
    tainted_at = None if out_again is None else at(out_again)
    return replace(node(name), record=NodeRecord(life=Life(tainted_at, quarantines=quarantines)))


def test_the_records_of_nodes_show_returns_and_relapses_that_the_lease_does_not_have_yet() -> None:
    nodes = [back("gpu-1", 0, relapse=True, out_again=50), back("gpu-2", 10, relapse=False)]

    first, second = known_returns((), nodes, NOON)

    assert (first.name, first.relapsed_at) == ("gpu-2", None)
    assert (second.name, second.returned_at, second.relapsed_at) == ("gpu-1", NOON, at(50))
    assert known_returns((first, second), nodes, NOON) == (first, second)


def test_a_deleted_or_purged_node_stays_among_the_last_returns() -> None:
    before = known_returns((), [back("gpu-1", 0, relapse=True, out_again=50)], NOON)

    assert known_returns(before, [node("gpu-1")], NOON) == before
    older = (replace(before[0], relapsed_at=None),)
    for known in (before + older, older + before):
        assert known_returns(known, [], NOON) == before


def test_only_the_last_ten_returns_are_kept_and_other_ways_back_are_no_returns() -> None:
    nodes = [back(f"gpu-{n}", n, relapse=False) for n in range(12)]
    by_hand = replace(nodes[0].record.life.quarantines[0], how=ReleaseHow.RESET)
    nodes[0] = replace(nodes[0], record=NodeRecord(life=Life(quarantines=(by_hand,))))

    found = known_returns((), nodes, NOON)

    assert [each.name for each in found] == [f"gpu-{n}" for n in range(11, 1, -1)]


@pytest.mark.parametrize(("ahead", "left"), [(HOUR - 1, 3), (HOUR, 4), (YEARS, 4)])
def test_a_return_an_hour_or_more_ahead_uses_up_nothing_of_the_hour(ahead: float, left: int) -> None:
    controls = Controls(returned=known_returns((), [back("gpu-1", ahead, relapse=False)], NOON))

    assert len(controls.returned) == 1
    assert returns_left(controls, RULES, NOON) == left
    assert returns_left(controls, RULES, at(2 * HOUR) if ahead < YEARS else NOON) == 4


def forged(name: str, *seconds: float) -> NodeState:
    """A node whose record shows returns at these times, as its own kubelet may write."""
    times = (Quarantine(at(each - 1), at(each), "xid.79", ReleaseHow.REBOOT) for each in seconds)
    return replace(node(name), record=NodeRecord(life=Life(quarantines=tuple(times))))


@pytest.mark.parametrize(
    "seconds", [range(-10, 0), range(3000, 3010), [YEARS + n for n in range(10)]], ids=["now", "ahead", "far"]
)
def test_the_record_of_one_node_uses_up_one_return_of_the_hour_and_displaces_no_other(
    seconds: Iterable[float],
) -> None:
    others = [back(f"gpu-{n}", -7200 + n, relapse=True, out_again=-7000) for n in range(1, 10)]

    found = known_returns((), [forged("gpu-99", *seconds), *others], NOON)

    assert [each.name for each in found if each.relapsed_at] == [f"gpu-{n}" for n in range(9, 0, -1)]
    assert len(found) == 10
    assert returns_left(Controls(returned=found), RULES, NOON) >= 3


def test_a_return_in_the_future_gives_way_to_the_returns_of_ten_other_nodes() -> None:
    others = [back(f"gpu-{n}", -n, relapse=False) for n in range(10)]

    found = known_returns(known_returns((), [forged("gpu-99", YEARS)], NOON), others, NOON)

    assert {each.name for each in found} == {f"gpu-{n}" for n in range(10)}


def test_of_a_node_that_returned_twice_its_relapse_stays_known() -> None:
    before = known_returns((), [back("gpu-1", -7200, relapse=True, out_again=-7000)], NOON)

    assert known_returns(before, [back("gpu-1", -60, relapse=False)], NOON) == before


def test_an_hour_of_returns_counts_in_both_directions_of_a_clock_that_was_set() -> None:
    controls = Controls(returned=(ReturnedNode("gpu-1", NOON + timedelta(minutes=30)),))

    assert returns_left(controls, RULES, NOON) == 3
