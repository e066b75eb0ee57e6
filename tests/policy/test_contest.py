"""Somebody else removes our taint: who did it, when it is put back, and when it stays off (rule 23)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import (
    TAINT_KEY,
    Change,
    Control,
    ControlAct,
    Controls,
    EventReason,
    IncidentKey,
    Life,
    NodeState,
    Severity,
    Stage,
    Taint,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.health import Health, state_of
from konductor_like.policy.node.release import release
from konductor_like.policy.node.removal import (
    NODES_OF_ONE_WRITER,
    WAITS_SECONDS,
    contest_words,
    is_person,
    put_back_at,
    writers_answered,
)
from konductor_like.policy.operator import operator_taint
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, node, reset_node
from tests.policy.test_probation import rebooted

PROGRAMS = [None, "karpenter", "kubectl-replace", "kubectl-client-side-apply", "kubectl (apply)", "kubectl"]
PROGRAMS += ["argocd-controller (apply)", "octopus-operator", "node-remover", "kubectl-taint (apply)"]


@pytest.mark.parametrize("manager", ["kubectl-taint", "kubectl-edit", "k9s", "Mozilla", "node-fetch", "oc"])
def test_the_tools_of_people_are_persons(manager: str) -> None:
    assert is_person(manager)


@pytest.mark.parametrize("manager", PROGRAMS)
def test_nobody_a_program_an_apply_and_a_replace_are_no_persons(manager: str | None) -> None:
    assert not is_person(manager)


def broken(*, size: int = 5, rules: PolicyConfig | None = None) -> Cluster:
    """A fleet whose gpu-1 was tainted at noon for an Xid 79."""
    cluster = Cluster(fleet(size), rules)
    cluster.tick(fault("gpu-1"))
    assert cluster.tainted == {"gpu-1"}
    return cluster


def life(cluster: Cluster, name: str = "gpu-1") -> Life:
    return cluster.nodes[name].record.life


def reasons(cluster: Cluster, name: str = "gpu-1") -> list[EventReason | None]:
    """The reasons of the Events about a node, in order."""
    return [change.event for change in cluster.writes if change.node == name]


def fight(cluster: Cluster, who: str | None, *, start: float = 60, name: str = "gpu-1") -> list[float]:
    """Let ``who`` remove the taint each time that it is there, for half an hour; return when it was back."""
    back, seconds = [], start
    while seconds < start + 1800:
        if name in cluster.tainted:
            back.append(seconds)
            cluster.untaint_by_hand(name, who)
        cluster.tick(seconds=seconds)
        seconds += 5
    return back[1:]


def test_a_removal_by_a_person_is_a_release() -> None:
    cluster = broken()
    cluster.untaint_by_hand("gpu-1")

    [change] = cluster.tick(seconds=60).changes

    assert (change.event, change.health, change.needs) == (EventReason.RELEASED, None, None)
    assert change.record is not None
    assert [mark.by for mark in change.record.releases] == ["kubectl-taint"]
    assert not life(cluster).claimed
    assert cluster.tick(seconds=120).changes == ()


@pytest.mark.parametrize("who", PROGRAMS)
def test_a_removal_by_anybody_else_is_put_back_after_ten_seconds(who: str | None) -> None:
    cluster = broken()
    cluster.untaint_by_hand("gpu-1", who)

    [noted] = cluster.tick(seconds=60).changes
    early = cluster.tick(seconds=69).changes
    [back] = cluster.tick(seconds=70).changes

    assert (noted.verb, noted.event, noted.health, noted.needs) == (
        Verb.RECORD,
        EventReason.REMOVED,
        "faulty",
        "reboot",
    )
    assert "at 2026-03-04T12:01:10Z. `konductor-like reset gpu-1` releases the node." in noted.message
    assert early == ()
    assert (back.verb, back.event) == (Verb.TAINT, EventReason.PUT_BACK)
    assert "put back (1 of 3 times for this fault)" in back.message
    assert "`konductor-like reset gpu-1` releases the node. xid 79" in back.message
    assert (who or "somebody unknown") in noted.message
    assert (who or "somebody unknown") in back.message
    assert cluster.tainted == {"gpu-1"}
    assert life(cluster).tainted_at == at(0)
    assert cluster.nodes["gpu-1"].record.releases == ()


def test_the_waits_grow_and_after_three_put_backs_the_taint_stays_off() -> None:
    cluster = broken()

    back = fight(cluster, "karpenter")

    assert back == [75, 140, 445]  # the put-back itself is seen five seconds after it
    assert cluster.tainted == set()
    assert (life(cluster).put_backs, life(cluster).contested_at) == (3, at(445))
    assert reasons(cluster)[-1] is EventReason.CONTESTED
    assert reasons(cluster).count(EventReason.PUT_BACK) == 3
    assert cluster.tick(seconds=999_999).changes == ()


def test_two_programs_that_take_turns_end_in_a_contest() -> None:
    cluster = broken()
    for seconds in range(60, 120, 15):
        cluster.untaint_by_hand("gpu-1", "karpenter")
        cluster.tick(seconds=seconds)
        if seconds < 105:
            state = cluster.nodes["gpu-1"]
            cluster.nodes["gpu-1"] = replace(state, taints=(OURS,))
            cluster.tick(seconds=seconds + 5)

    assert life(cluster).contested_at == at(105)
    assert reasons(cluster)[-1] is EventReason.CONTESTED


@pytest.mark.parametrize(("seconds", "back"), [(5997, False), (5000, True)], ids=["a little", "much"])
def test_a_clock_that_is_set_back_keeps_no_taint_off(seconds: float, back: bool) -> None:
    cluster = broken()
    cluster.untaint_by_hand("gpu-1", "karpenter")
    cluster.tick(seconds=6000)

    cluster.tick(seconds=seconds)

    assert (cluster.tainted == {"gpu-1"}) is back


def contested(who: str | None = "karpenter", rules: PolicyConfig | None = None) -> Cluster:
    cluster = broken(rules=rules)
    fight(cluster, who)
    assert life(cluster).contested_at is not None
    return cluster


def test_a_contested_node_is_faulty_and_in_service() -> None:
    cluster = contested()
    state, change = cluster.nodes["gpu-1"], cluster.writes[-1]

    assert state.stage is Stage.REMOVED
    assert (change.health, change.needs) == ("faulty", "reboot")
    assert state_of(state, coverage=None) is Health.FAULTY  # type: ignore[arg-type]  # the record decides
    assert state.record.releases == ()


@pytest.mark.parametrize(("returns", "ends"), [(False, "ends this."), (True, "or a return of the node by")])
def test_the_event_of_a_contest_names_who_and_what_ends_it(returns: bool, ends: str) -> None:
    change = contested(rules=PolicyConfig(returns_by_reboot=returns)).writes[-1]

    assert "karpenter removed the controller's taint, and it was put back 3 times" in change.message
    assert "`konductor-like reset gpu-1` or `konductor-like taint gpu-1 --reason '...'`" in change.message
    assert ends in change.message


def test_the_put_backs_survive_a_restart() -> None:
    cluster = broken()
    for seconds in (60, 200, 600):
        cluster.untaint_by_hand("gpu-1", None)
        cluster.tick(seconds=seconds)
        cluster = Cluster(cluster.nodes)  # a new controller
        cluster.tick(seconds=seconds + 300)
    assert cluster.tainted == {"gpu-1"}
    cluster = Cluster({name: replace(state, removed_by=None) for name, state in cluster.nodes.items()})

    cluster.untaint_by_hand("gpu-1", None)
    cluster.tick(seconds=2000)

    assert reasons(cluster) == [EventReason.CONTESTED]


def test_a_wait_ends_with_a_persons_word() -> None:
    """The watch may show only later who it was, for example if our own answer came before it."""
    cluster = broken()
    cluster.untaint_by_hand("gpu-1", None)
    cluster.tick(seconds=60)
    cluster.untaint_by_hand("gpu-1", "kubectl-edit")

    [change] = cluster.tick(seconds=65).changes

    assert change.event is EventReason.RELEASED
    assert cluster.tick(seconds=100).changes == ()


def by_reset(cluster: Cluster) -> Change | None:
    return release(cluster.nodes["gpu-1"], at=at(5000), by="ann", reason="", read_ns={})


def by_taint(cluster: Cluster) -> Change | None:
    return operator_taint(cluster.nodes["gpu-1"], at=at(5000), by="ann", reason="broken")


@pytest.mark.parametrize(("act", "tainted"), [(by_reset, set()), (by_taint, {"gpu-1"})])
def test_reset_and_taint_end_a_contest(act: Callable[[Cluster], Change | None], tainted: set[str]) -> None:
    cluster = contested()

    cluster.apply(act(cluster))
    cluster.tick(seconds=6000)

    assert cluster.tainted == tainted
    after = life(cluster)
    assert (after.contested_at, after.removed_at, after.put_backs) == (None, None, 0)
    assert after.claimed is bool(tainted)


def test_a_new_fault_taints_a_contested_node_at_once_and_has_put_backs_of_its_own() -> None:
    cluster = contested()

    [change] = cluster.tick(fault(rule="xid.48", stamp=5000, seconds=5000), seconds=5000).changes

    assert (change.verb, change.event) == (Verb.TAINT, EventReason.TAINTED)
    assert (life(cluster).contested_at, life(cluster).put_backs) == (None, 0)
    assert len(fight(cluster, "karpenter", start=6000)) == 3


def test_another_line_of_the_same_fault_does_not_taint_a_contested_node() -> None:
    cluster = contested()

    cluster.tick(fault(stamp=5000, seconds=5000), seconds=5000)

    assert cluster.tainted == set()
    assert cluster.nodes["gpu-1"].record.incidents[0].count == 2


def test_a_new_fault_that_the_brake_refuses_taints_when_there_is_a_place() -> None:
    cluster = contested()
    cluster.tick(fault("gpu-2", stamp=5000, seconds=5000), seconds=5000)

    cluster.tick(fault(rule="xid.48", stamp=6000, seconds=6000), seconds=6000)
    assert cluster.tainted == {"gpu-2"}
    reset_node(cluster, "gpu-2", 7000)
    cluster.tick(seconds=9000)

    assert cluster.tainted == {"gpu-1"}


def hold(cluster: Cluster, how: str) -> None:
    """Let something keep gpu-1 from being tainted."""
    if how == "pause":
        pause = ControlAct(Control.PAUSE, at(0), "kim", "move", at(3000))
        cluster.snapshot = replace(cluster.snapshot, controls=Controls((pause,)))
    elif how == "ignore":
        cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], opted_out=True)
    else:
        cluster.tick(fault("gpu-2", stamp=61, seconds=61), seconds=61)


def free(cluster: Cluster, how: str) -> None:
    if how == "brake":
        reset_node(cluster, "gpu-2", 3000)
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], opted_out=False)


def test_the_event_of_an_opted_out_node_promises_no_taint() -> None:
    cluster = broken()
    hold(cluster, "ignore")
    cluster.untaint_by_hand("gpu-1", "karpenter")

    [noted] = cluster.tick(seconds=60).changes

    assert noted.event is EventReason.REMOVED
    assert "puts the taint back" not in noted.message


@pytest.mark.parametrize("how", ["pause", "ignore", "brake"])
def test_a_put_back_passes_pause_opt_out_and_brake_like_a_new_taint(how: str) -> None:
    cluster = broken()
    cluster.untaint_by_hand("gpu-1", "karpenter")
    cluster.tick(seconds=60)

    hold(cluster, how)
    cluster.tick(seconds=100)
    cluster.tick(seconds=2000)
    assert "gpu-1" not in cluster.tainted
    assert life(cluster).claimed
    free(cluster, how)
    cluster.tick(seconds=4000)

    assert cluster.tainted == {"gpu-1"}
    assert life(cluster).put_backs == 1


def test_a_node_without_its_taint_takes_no_place_of_the_brake() -> None:
    cluster = contested()

    plan = cluster.tick(fault("gpu-2", stamp=5000, seconds=5000), seconds=5000)

    assert (plan.brake.bound, cluster.tainted) == (1, {"gpu-2"})
    assert plan.brake.held == ()


def cooling(cluster: Cluster, seconds: float) -> int:
    """The places that stay empty after returns; a fault on two nodes makes the brake hold one back."""
    return cluster.tick(seconds=seconds).brake.cooling


def test_a_contested_node_counts_as_one_return_at_its_first_removal() -> None:
    cluster = broken(rules=PolicyConfig(brake_cooldown_seconds=600))
    cluster.tick(fault("gpu-2", stamp=1, seconds=1), fault("gpu-3", stamp=1, seconds=1), seconds=2)
    cluster.untaint_by_hand("gpu-1", "karpenter")
    cluster.nodes["gpu-1"] = replace(
        cluster.nodes["gpu-1"],
        record=replace(cluster.nodes["gpu-1"].record, life=replace(life(cluster), put_backs=3)),
    )
    cluster.tick(seconds=60)
    assert life(cluster).contested_at == at(60)
    assert cooling(cluster, 600) == 1

    assert cooling(cluster, 661) == 0
    reset_node(cluster, "gpu-1", 700)

    assert cooling(cluster, 701) == 0
    [past] = life(cluster).quarantines
    assert (past.released_at, past.returned_at) == (at(700), at(60))


def strip(cluster: Cluster, names: list[str], who: str | None, seconds: float) -> None:
    for name in names:
        cluster.untaint_by_hand(name, who)
    cluster.tick(seconds=seconds)


@pytest.mark.parametrize("who", ["karpenter", None])
def test_against_one_writer_no_more_than_ten_nodes_are_put_back_within_an_hour(who: str | None) -> None:
    cluster = Cluster(fleet(40), PolicyConfig(brake_max_percent=100))
    names = [f"gpu-{number}" for number in range(1, 34)]
    cluster.tick(*(fault(name) for name in names))

    strip(cluster, names, who, 60)
    cluster.tick(seconds=70)

    assert len(cluster.tainted) == NODES_OF_ONE_WRITER == 10
    off = [name for name in names if name not in cluster.tainted]
    assert all(life(cluster, name).contested_at == at(70) for name in off)
    assert all(life(cluster, name).claimed for name in names)
    assert len(writers_answered(cluster.nodes, at(71))[who or ""]) == 33
    strip(cluster, sorted(cluster.tainted), who, 100)
    cluster.tick(seconds=2000)
    assert cluster.tainted == set()


def test_another_writer_is_answered_all_the_same() -> None:
    cluster = Cluster(fleet(40), PolicyConfig(brake_max_percent=100))
    names = [f"gpu-{number}" for number in range(1, 14)]
    cluster.tick(*(fault(name) for name in names))
    strip(cluster, names[:12], "karpenter", 60)
    cluster.tick(seconds=70)

    strip(cluster, ["gpu-13"], "pool-controller", 100)
    cluster.tick(seconds=110)

    assert "gpu-13" in cluster.tainted


def test_a_contest_of_many_nodes_says_so() -> None:
    words = contest_words(Life(at(0), removed_at=at(1)), "gpu-1", returns=False)

    assert "the taints of more than 10 nodes were removed in this way within an hour" in words


def keyed(state: NodeState, value: str | None, effect: str = "NoSchedule") -> NodeState:
    """The Node with a taint of our key in place of ours."""
    others = tuple(taint for taint in state.taints if taint.key != TAINT_KEY)
    return replace(state, taints=(*others, Taint(TAINT_KEY, value, effect)))


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
@pytest.mark.parametrize("value", ["rma-42", "false", None])
def test_our_key_with_another_value_is_no_release_and_is_left_alone(value: str | None, effect: str) -> None:
    cluster = broken()
    cluster.nodes["gpu-1"] = keyed(cluster.nodes["gpu-1"], value, effect)

    assert cluster.tick(seconds=60).changes == ()
    cluster.tick(fault(rule="xid.48", stamp=500, seconds=500), seconds=500)

    state = cluster.nodes["gpu-1"]
    assert state.taints == (Taint(TAINT_KEY, value, effect),)
    assert (state.record.life.claimed, state.as_read.health) == (True, "faulty")
    assert state.kept_out_by == state.taints[0]
    assert cluster.tick(seconds=600).brake.out == 1


def test_a_node_that_is_kept_out_for_weeks_uses_up_no_taint_of_the_rate() -> None:
    cluster = broken(size=20, rules=PolicyConfig(brake_rate_nodes=1, brake_rate_window_seconds=3600))
    cluster.nodes["gpu-1"] = keyed(cluster.nodes["gpu-1"], "rma-42")

    cluster.tick(fault("gpu-2", seconds=7200), seconds=7200)

    assert cluster.tainted == {"gpu-2"}


@pytest.mark.parametrize(("who", "tainted"), [("kubectl-taint", set()), (None, {"gpu-1"})])
def test_when_that_taint_goes_it_is_judged_who_removed_it(who: str | None, tainted: set[str]) -> None:
    cluster = broken()
    cluster.nodes["gpu-1"] = keyed(cluster.nodes["gpu-1"], "rma-42")
    cluster.tick(seconds=60)

    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=(), removed_by=who)
    cluster.tick(seconds=600)
    cluster.tick(seconds=611)

    assert cluster.tainted == tainted
    assert life(cluster).claimed is bool(tainted)


@pytest.mark.parametrize("effect", ["NoExecute", "PreferNoSchedule"])
def test_another_effect_of_our_taint_is_put_right_with_an_event(effect: str) -> None:
    cluster = broken()
    cluster.nodes["gpu-1"] = keyed(cluster.nodes["gpu-1"], "true", effect)

    [change] = cluster.tick(seconds=60).changes

    assert (change.verb, change.event, change.health) == (Verb.RECORD, EventReason.PUT_BACK, "faulty")
    assert f"changed the effect of the controller's taint to {effect}" in change.message
    assert cluster.nodes["gpu-1"].taints == (OURS,)
    assert cluster.nodes["gpu-1"].record.releases == ()
    assert cluster.tick(seconds=61).changes == ()


def test_an_effect_that_changes_again_and_again_is_put_right_once_a_minute() -> None:
    cluster = broken()

    for seconds in range(60, 660, 5):
        cluster.nodes["gpu-1"] = keyed(cluster.nodes["gpu-1"], "true", "NoExecute")
        cluster.tick(seconds=seconds)

    assert reasons(cluster).count(EventReason.PUT_BACK) == 10


def test_ours_beside_the_same_taint_with_another_effect_is_left_alone() -> None:
    cluster = broken()
    other = Taint(TAINT_KEY, "true", "NoExecute")
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=(other, OURS))

    assert cluster.tick(seconds=60).changes == ()


def test_a_persons_taint_with_another_effect_on_a_node_without_a_fault_is_left_alone() -> None:
    cluster = Cluster({"gpu-1": keyed(node(), "true", "NoExecute")})

    assert cluster.tick(seconds=60).changes == ()


def test_a_taint_that_somebody_else_puts_back_ends_the_wait_and_the_contest() -> None:
    cluster = contested()
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=(OURS,))

    cluster.tick(seconds=5000)

    assert (life(cluster).removed_at, life(cluster).contested_at) == (None, None)
    assert (life(cluster).put_backs, life(cluster).claimed) == (3, True)


def test_a_count_of_put_backs_that_somebody_forged_delays_nothing() -> None:
    assert put_back_at(Life(at(0), removed_at=at(0), put_backs=-7)) == at(WAITS_SECONDS[0])
    assert put_back_at(Life(at(0), removed_at=at(0), put_backs=10**12)) is None


def test_a_test_whose_taint_was_removed_ends_by_itself() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault(rule="xid.14", severity=Severity.TEST))
    fight(cluster, "karpenter")

    cluster.tick(seconds=3700)

    assert not life(cluster).claimed
    assert cluster.nodes["gpu-1"].as_read.health is None
    assert cluster.nodes["gpu-1"].record.incident(IncidentKey("xid.14", "0000:4e:00")) is not None


def test_a_label_of_ours_that_is_not_true_is_written_off_a_node_without_a_record() -> None:
    state = node()
    lying = replace(state, as_read=replace(state.as_read, health="faulty", needs="reboot"))
    cluster = Cluster({"gpu-1": lying})

    [change] = cluster.tick(seconds=60).changes

    assert (change.record, change.health, change.needs, change.upkeep) == (None, None, None, True)
    assert cluster.tick(seconds=61).changes == ()


def test_a_record_that_vanished_from_a_tainted_node_is_written_again_with_an_event() -> None:
    cluster = broken()
    state = cluster.nodes["gpu-1"]
    cluster.nodes["gpu-1"] = replace(state, as_read=replace(state.as_read, record=None))

    [change] = cluster.tick(seconds=60).changes

    assert (change.event, change.health, change.needs) == (EventReason.PUT_BACK, "faulty", "reboot")
    assert change.record is not None
    assert change.record.life.tainted_at == at(0)
    assert cluster.tick(seconds=61).changes == ()


def test_an_hour_without_put_backs_frees_a_writer() -> None:
    cluster = Cluster(fleet(40), PolicyConfig(brake_max_percent=100))
    names = [f"gpu-{number}" for number in range(1, 12)]
    cluster.tick(*(fault(name) for name in names))
    strip(cluster, names, "karpenter", 60)
    cluster.tick(seconds=70)
    assert len(cluster.tainted) == 10
    hour = timedelta(hours=1).total_seconds()

    strip(cluster, ["gpu-1"], "karpenter", 80 + hour)
    cluster.tick(seconds=160 + hour)

    assert "gpu-1" in cluster.tainted


def returning(contested_at: float | None) -> Cluster:
    """A repaired, rebooted and heard node with ``RETURN=reboot``, whose taint somebody removed for good."""
    cluster = rebooted("gpu-1")
    state = cluster.nodes["gpu-1"]
    off = replace(state.record.life, removed_at=at(-3000), put_backs=3, first_removed_at=at(-3300))
    at_last = None if contested_at is None else at(contested_at)
    record = replace(state.record, life=replace(off, contested_at=at_last))
    cluster.nodes["gpu-1"] = replace(state, taints=(), record=record)
    return cluster


def test_a_contest_ends_when_nothing_but_the_contest_speaks_against_a_return() -> None:
    cluster = returning(-2900)

    [change] = cluster.tick().changes

    assert (change.verb, change.event, change.health) == (Verb.RECORD, EventReason.RETURNED, "probation")
    [past] = life(cluster).quarantines
    assert (life(cluster).claimed, past.returned_at, past.how) == (False, at(-3300), "reboot")


@pytest.mark.parametrize(
    "what",
    [{"unschedulable": True}, {"ready": False}, {"opted_out": True}],
    ids=str,
)
def test_a_contest_goes_on_while_another_guard_keeps_the_node_out(what: dict[str, bool]) -> None:
    cluster = returning(-2900)
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], **what)  # type: ignore[arg-type]  # flags

    cluster.tick()

    assert life(cluster).claimed


def test_with_the_default_settings_a_contest_ends_by_a_person_only() -> None:
    cluster = returning(-2900)
    cluster.rules = PolicyConfig()

    assert cluster.tick().changes == ()
    assert cluster.tick(seconds=86_400).changes == ()


WRITERS = [None, "karpenter", "kubectl-replace", "kubectl-taint", "argocd (apply)"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["remove", "restart", "effect", "value", "value off", "record", "put on", "line", "fault"]
        ),
        st.sampled_from(WRITERS),
        st.sampled_from([1, 11, 61, 301, 4000]),
    ),
    max_size=25,
)


@given(STEPS)
def test_whatever_programs_write_only_a_persons_removal_releases_a_broken_node(
    steps: list[tuple[str, str | None, int]],
) -> None:
    cluster, seconds, faults = broken(), 60.0, 1
    for what, who, wait in steps:
        state, is_fault = cluster.nodes["gpu-1"], what in ("line", "fault")
        removed_by_person, held_before = False, life(cluster).claimed
        if what == "remove" and state.tainted:
            cluster.untaint_by_hand("gpu-1", who)
            removed_by_person = is_person(who)
        elif what == "restart":
            cluster = restarted(cluster)
        elif what in ("effect", "value") and state.tainted:
            twin = ("true", "NoExecute") if what == "effect" else ("rma-42", "NoSchedule")
            cluster.nodes["gpu-1"] = keyed(state, *twin)
        elif what == "value off" and state.kept_out_by is not None:
            cluster.nodes["gpu-1"] = replace(state, taints=(), removed_by=who)
            removed_by_person = is_person(who)
        elif what == "record" and state.record.life.claimed:
            seen = replace(state.as_read, record=None)
            cluster.nodes["gpu-1"] = replace(state, as_read=seen)
        elif what == "put on" and state.stage is Stage.REMOVED and state.kept_out_by is None:
            cluster.nodes["gpu-1"] = replace(state, taints=(OURS,), removed_by=None)
        faults += what == "fault"
        rule = f"xid.{200 + faults}" if what == "fault" else "xid.79"
        lines = [fault(rule=rule, stamp=seconds, seconds=seconds)] if is_fault else []
        for pause in (1, wait, 1):
            cluster.tick(*lines, seconds=seconds)
            lines, seconds = [], seconds + pause
        state = cluster.nodes["gpu-1"]
        if held_before and not state.record.life.claimed:
            assert removed_by_person, (what, who)
        if state.record.life.claimed:
            assert state.as_read.health == "faulty"
            assert state.as_read.record is not None
        put_backs = [c for c in cluster.writes if c.event is EventReason.PUT_BACK and c.verb is Verb.TAINT]
        assert len(put_backs) <= 3 * faults
        assert state.record.life.put_backs <= 3


def restarted(cluster: Cluster) -> Cluster:
    """The same Nodes with a new controller, which has not seen who wrote them."""
    nodes = {name: replace(state, removed_by=None) for name, state in cluster.nodes.items()}
    again = Cluster(nodes, cluster.rules)
    again.writes = cluster.writes
    return again
