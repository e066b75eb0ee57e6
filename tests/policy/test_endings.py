"""An end for suspicions and tests (rule 35)."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest

from konductor_like.model import (
    Control,
    ControlAct,
    Controls,
    EventReason,
    Fault,
    FaultKind,
    Hearing,
    Incident,
    IncidentState,
    MetBy,
    Role,
    Severity,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.endings import over_ns, release_ns
from konductor_like.policy.operator import operator_taint
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, ns, reset_node
from tests.policy.shared import RULES, xid

DAY = 86_400.0
WEEK = 7 * DAY
HEARD = Hearing("boot-a", ns(0), ns(0))


def suspect(*, seconds: float = 0, stamp: float = 100, needs: str = "inspection") -> Fault:
    return fault(rule="xid.63", severity=Severity.SUSPECT, seconds=seconds, stamp=stamp, needs=needs)


def fake(*, seconds: float = 0, stamp: float = 100) -> Fault:
    """The driver's own fake error, Xid 14."""
    return fault(rule="xid.14", severity=Severity.TEST, seconds=seconds, stamp=stamp, needs="none")


def heard(*faults: Fault, hearing: Hearing | None = HEARD, given_up: float | None = None) -> Cluster:
    """A cluster with faults on gpu-1, whose kernel log is heard."""
    cluster = Cluster(fleet(10))
    cluster.tick(*faults)
    cluster.snapshot = replace(
        cluster.snapshot,
        hearing={} if hearing is None else {"gpu-1": hearing},
        gaps_given_up={} if given_up is None else {"gpu-1": ns(given_up)},
    )
    return cluster


def of_gpu_1(cluster: Cluster) -> Incident:
    [incident] = cluster.nodes["gpu-1"].record.incidents
    return incident


def test_a_fatal_line_that_was_read_after_a_release_ends_with_a_boot_and_not_by_quiet() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(boot="boot-a", seq=9))
    reset_node(cluster, "gpu-1", 60, read=59)
    cluster.tick(fault(boot="boot-a", seq=8, stamp=90, gpu="0000:9a:00", seconds=70), seconds=71)
    cluster.snapshot = replace(cluster.snapshot, hearing={"gpu-1": HEARD})

    assert cluster.tick(seconds=2 * WEEK).changes == ()
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=2 * WEEK + 60)

    assert cluster.nodes["gpu-1"].record.incidents[-1].met_by is MetBy.REBOOT
    assert cluster.nodes["gpu-1"].as_read.health is None


def test_refused_pods_in_the_record_of_an_earlier_build_end_with_a_boot_and_not_by_quiet() -> None:
    """Nothing sees any more whether the node admits pods."""
    refused = fault(
        rule="node.refuses_pods", kind=FaultKind.NODE, gpu=None, boot="boot-a", severity=Severity.SUSPECT
    )
    cluster = heard(refused)

    assert cluster.tick(seconds=2 * WEEK).changes == ()
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=2 * WEEK + 60)

    assert of_gpu_1(cluster).met_by is MetBy.REBOOT


def test_a_suspicion_ends_after_seven_days_that_were_heard() -> None:
    cluster = heard(suspect())
    assert cluster.nodes["gpu-1"].as_read.health == "suspect"
    assert cluster.tick(seconds=WEEK - 1).changes == ()

    [change] = cluster.tick(seconds=WEEK).changes

    incident = of_gpu_1(cluster)
    assert (incident.state, incident.met_by, incident.met_ns) == (
        IncidentState.RELEASED,
        MetBy.QUIET,
        ns(WEEK),
    )
    assert (change.upkeep, change.health, change.event) == (True, None, EventReason.ENDED)
    assert change.message == (
        "xid 63 on GPU 0000:4e:00 ended: the kernel log was heard for 7 days without it."
    )
    assert cluster.tick(seconds=WEEK + 10).changes == ()


@pytest.mark.parametrize(
    "hearing",
    [
        pytest.param(None, id="silent, or without heartbeats"),
        pytest.param(replace(HEARD, boot_id="boot-z"), id="another boot is heard"),
        pytest.param(replace(HEARD, has_gap=True, has_any_gap=True), id="a gap"),
        pytest.param(replace(HEARD, has_any_gap=True), id="a gap of the reboot"),
    ],
)
def test_a_suspicion_never_ends_by_quiet_while_its_node_is_not_heard(hearing: Hearing | None) -> None:
    cluster = heard(suspect(), hearing=hearing)

    assert cluster.tick(seconds=100 * DAY).changes == ()


def test_no_suspicion_ends_by_quiet_while_the_past_is_read_or_where_the_setting_says_never() -> None:
    reading, never = heard(suspect()), heard(suspect())
    reading.snapshot = replace(reading.snapshot, replaying=True)
    never.rules = PolicyConfig(suspect_days=0)

    assert reading.tick(seconds=WEEK).changes == never.tick(seconds=WEEK).changes == ()


def test_the_clock_of_quiet_begins_anew_after_a_gap_that_was_given_up_with_one_write() -> None:
    cluster = heard(suspect(), given_up=2 * DAY)

    [change] = cluster.tick(seconds=3 * DAY).changes

    assert change.upkeep
    assert (change.event, change.record and change.record.quiet_since) == (None, at(2 * DAY))
    cluster.snapshot = replace(cluster.snapshot, gaps_given_up={})  # the next controller does not know it
    assert cluster.tick(seconds=WEEK).changes == ()
    cluster.tick(seconds=9 * DAY)
    assert of_gpu_1(cluster).met_by is MetBy.QUIET


def test_a_gap_from_before_the_fault_or_on_a_node_without_suspicions_is_not_written() -> None:
    cluster = heard(suspect(), given_up=-60)
    tainted = heard(fault(), given_up=DAY)

    assert cluster.tick(seconds=DAY).changes == tainted.tick(seconds=2 * DAY).changes == ()


def test_a_suspicion_on_a_young_node_waits_for_seven_days_of_this_node() -> None:
    cluster = heard(suspect())
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], created_ns=ns(DAY))

    assert cluster.tick(seconds=WEEK).changes == ()
    cluster.tick(seconds=WEEK + DAY)
    assert of_gpu_1(cluster).met_by is MetBy.QUIET


def test_a_line_that_is_counted_but_not_written_puts_the_end_off() -> None:
    cluster = heard(suspect())
    cluster.tick(suspect(seconds=300, stamp=400), seconds=301)
    assert cluster.writes[-1].record is not None
    assert of_gpu_1(cluster).last_ns == ns(0)

    cluster.tick(seconds=WEEK)

    assert (of_gpu_1(cluster).state, of_gpu_1(cluster).last_ns) == (IncidentState.ACTIVE, ns(300))


def test_a_symptom_of_another_node_ends_by_quiet_too() -> None:
    cluster = heard(suspect())
    state = cluster.nodes["gpu-1"]
    symptom = replace(
        of_gpu_1(cluster), key=of_gpu_1(cluster).key._replace(rule="nccl.socket"), role=Role.COLLATERAL
    )
    both = (*state.record.incidents, symptom)
    cluster.nodes["gpu-1"] = replace(state, record=replace(state.record, incidents=both))

    [change] = cluster.tick(seconds=WEEK).changes

    assert [each.met_by for each in cluster.nodes["gpu-1"].record.incidents] == [MetBy.QUIET] * 2
    assert [change.event, *(reason for reason, _ in change.also)] == [EventReason.ENDED] * 2


@pytest.mark.parametrize("severity", [Severity.APPLICATION, Severity.INFO])
def test_faults_that_make_no_suspect_end_with_a_reboot_only_and_without_an_event(severity: Severity) -> None:
    cluster = heard(fault(rule="xid.31", severity=severity, needs="application-restart"), given_up=DAY)
    assert cluster.tick(seconds=2 * WEEK).changes == ()

    cluster.reboot("gpu-1", "boot-b")
    [change] = cluster.tick(seconds=2 * WEEK + 60).changes

    assert of_gpu_1(cluster).met_by is MetBy.REBOOT
    assert (change.event, change.also) == (None, ())


def test_a_suspicion_that_a_reboot_ended_was_over_and_released_when_the_reboot_was_seen() -> None:
    cluster = heard(suspect(needs="reboot"))
    assert (over_ns(of_gpu_1(cluster)), release_ns(of_gpu_1(cluster), ())) == (None, None)
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=60)

    [incident] = cluster.nodes["gpu-1"].record.incidents

    assert (over_ns(incident), release_ns(incident, ())) == (ns(60), ns(60))


def test_a_fault_that_taints_was_released_with_its_node_and_over_when_its_need_was_met() -> None:
    cluster = heard(fault())
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=60)
    assert (over_ns(of_gpu_1(cluster)), release_ns(of_gpu_1(cluster), ())) == (None, None)
    by_person, by_hand = copy(cluster), copy(cluster)
    by_person.nodes, by_hand.nodes = {**cluster.nodes}, {**cluster.nodes}
    reset_node(by_person, "gpu-1", 90)
    by_hand.untaint_by_hand("gpu-1")
    by_hand.tick(seconds=90)

    for done in (by_person, by_hand):
        record = done.nodes["gpu-1"].record
        [incident] = record.incidents
        assert (over_ns(incident), release_ns(incident, record.releases)) == (ns(60), ns(90))


def test_missing_gpus_never_end_by_quiet_because_they_print_no_line_anyway() -> None:
    missing = fault(
        rule="node.gpus_missing", gpu=None, kind=FaultKind.NODE, severity=Severity.SUSPECT, stamp=None
    )
    cluster = heard(missing)

    assert cluster.tick(seconds=100 * DAY).changes == ()
    assert of_gpu_1(cluster).state is IncidentState.ACTIVE


def test_a_fatal_fault_never_ends_by_quiet() -> None:
    """A dead GPU prints nothing more."""
    cluster = heard(fault())
    collateral = heard(fault())
    state = collateral.nodes["gpu-1"]
    record = replace(state.record, incidents=(replace(of_gpu_1(collateral), role=Role.COLLATERAL),))
    labelled = replace(state.as_read, needs="inspection")
    collateral.nodes["gpu-1"] = replace(state, record=record, as_read=labelled)

    assert cluster.tick(seconds=30 * DAY).changes == collateral.tick(seconds=30 * DAY).changes == ()


def test_a_replay_of_an_ended_suspicion_adds_nothing_and_a_new_line_opens_it_again() -> None:
    cluster = heard(suspect())
    cluster.tick(seconds=WEEK)

    assert cluster.tick(suspect(seconds=WEEK + 60), seconds=WEEK + 61).changes == ()
    cluster.tick(suspect(seconds=WEEK + 120, stamp=WEEK), seconds=WEEK + 121)

    incident = of_gpu_1(cluster)
    assert (incident.state, incident.met_by, incident.count) == (IncidentState.ACTIVE, None, 1)
    assert cluster.nodes["gpu-1"].as_read.health == "suspect"


def test_new_lines_of_the_node_are_never_delayed_by_an_end() -> None:
    cluster = heard(suspect())
    other = fault(rule="xid.94", severity=Severity.SUSPECT, seconds=WEEK, stamp=WEEK)

    [change] = cluster.tick(other, seconds=WEEK).changes

    assert not change.upkeep
    assert change.event is EventReason.RECORDED
    assert [reason for reason, _ in change.also] == [EventReason.ENDED]


def test_a_test_ends_by_itself_after_an_hour_and_its_taint_with_it() -> None:
    cluster = heard(fake(), hearing=None)
    assert cluster.tainted == {"gpu-1"}
    assert cluster.tick(seconds=3599).changes == ()

    [change] = cluster.tick(seconds=3600).changes

    incident, record = of_gpu_1(cluster), cluster.nodes["gpu-1"].record
    assert cluster.tainted == set()
    assert (incident.state, incident.met_by) == (IncidentState.RELEASED, MetBy.TIME)
    assert (change.verb, change.health, change.upkeep) == (Verb.UNTAINT, None, True)
    assert change.event is EventReason.RETURNED
    assert change.also == ((EventReason.ENDED, "xid 14 on GPU 0000:4e:00 ended: a test ends by itself."),)
    assert [(mark.by, mark.how) for mark in record.releases] == [("konductor-like", "time")]
    assert (record.life.quarantines, record.life.tainted_at) == ((), None)
    assert cluster.tick(seconds=3610).changes == ()


def test_the_hour_of_a_test_begins_at_its_last_line() -> None:
    cluster = heard(fake(), fake(seconds=1800, stamp=1900))

    cluster.tick(seconds=3600)
    assert cluster.tainted == {"gpu-1"}
    cluster.tick(seconds=5400)

    assert cluster.tainted == set()


def test_the_setting_zero_keeps_the_taint_of_a_test_until_a_reset() -> None:
    cluster = heard(fake())
    cluster.rules = PolicyConfig(test_seconds=0)

    assert cluster.tick(seconds=WEEK).changes == ()


def test_a_test_ends_and_the_taint_stays_where_another_fault_is_a_reason_for_it() -> None:
    cluster = heard(fake(), fault())

    [change] = cluster.tick(seconds=3600).changes

    assert cluster.tainted == {"gpu-1"}
    assert (change.verb, change.event, change.upkeep) == (Verb.RECORD, EventReason.ENDED, True)
    states = {each.key.rule: each.state for each in cluster.nodes["gpu-1"].record.incidents}
    assert states == {"xid.14": IncidentState.RELEASED, "xid.79": IncidentState.ACTIVE}


def test_a_test_ends_with_its_taint_although_a_new_suspicion_is_recorded_at_the_same_time() -> None:
    cluster = heard(fake())

    [change] = cluster.tick(suspect(seconds=3600, stamp=3700), seconds=3600).changes

    assert cluster.tainted == set()
    assert (change.verb, change.event, change.health) == (Verb.UNTAINT, EventReason.RECORDED, "suspect")
    assert [reason for reason, _ in change.also] == [EventReason.RETURNED, EventReason.ENDED]


def test_the_taint_stays_where_a_threshold_is_reached_as_the_test_ends() -> None:
    cluster = Cluster(fleet(10), RULES)
    cluster.tick(fake())
    for seconds in (1200, 2400, 3600):
        cluster.tick(xid("gpu-1", 94, seconds=seconds), seconds=seconds)

    states = {each.key.rule: each.state for each in cluster.nodes["gpu-1"].record.incidents}
    assert states == {"xid.14": IncidentState.RELEASED, "xid.94": IncidentState.ACTIVE}
    assert cluster.tainted == {"gpu-1"}
    assert Verb.UNTAINT not in [change.verb for change in cluster.writes]


def test_a_persons_own_taint_outlasts_a_test() -> None:
    cluster = heard(fake())
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(60), by="kim", reason="new riser"))

    cluster.tick(seconds=3600)

    assert cluster.tainted == {"gpu-1"}


def test_no_test_ends_while_tainting_is_paused() -> None:
    cluster = heard(fake())
    pause = ControlAct(Control.PAUSE, at(60), "kim", "driver roll-out", until=at(9000))
    cluster.snapshot = replace(cluster.snapshot, controls=Controls((pause,)))

    assert cluster.tick(seconds=3600).changes == ()
    cluster.tick(seconds=9000)

    assert cluster.tainted == set()


@pytest.mark.parametrize(
    "marks",
    [{"contested_at": at(0)}, {"replace_since": at(0)}, {"hold_until": at(WEEK)}],
    ids=["contested", "marked for replacement", "held"],
)
def test_no_test_ends_on_a_contested_marked_or_held_node(
    marks: dict[str, object],
) -> None:
    cluster = heard(fake())
    state = cluster.nodes["gpu-1"]
    record = replace(state.record, life=replace(state.record.life, **marks))  # type: ignore[arg-type]  # fields by name
    needs = "replacement" if record.life.replace_since else state.as_read.needs
    cluster.nodes["gpu-1"] = replace(state, record=record, as_read=replace(state.as_read, needs=needs))

    assert cluster.tick(seconds=3600).changes == ()


def test_a_replay_of_a_test_that_ended_taints_nothing_and_a_new_test_line_taints() -> None:
    cluster = heard(fake())
    cluster.tick(seconds=3600)

    assert cluster.tick(fake(seconds=3700), seconds=3701).changes == ()
    cluster.tick(fake(seconds=3800, stamp=3900), seconds=3801)

    assert cluster.tainted == {"gpu-1"}
    assert of_gpu_1(cluster).count == 1


def test_nothing_ends_on_a_tainted_node_that_is_opted_out_until_the_label_goes() -> None:
    cluster = heard(fake(), suspect(stamp=101))
    labelled = replace(cluster.nodes["gpu-1"], opted_out=True)
    cluster.nodes["gpu-1"] = labelled
    assert cluster.tick(seconds=WEEK).changes == ()

    cluster.nodes["gpu-1"] = replace(labelled, opted_out=False)
    cluster.tick(seconds=WEEK)

    ended = {each.key.rule: each.met_by for each in cluster.nodes["gpu-1"].record.incidents}
    assert ended == {"xid.14": MetBy.TIME, "xid.63": MetBy.QUIET}


def test_a_test_that_the_brake_held_ends_too() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault("gpu-2"), fake())
    assert cluster.tainted == {"gpu-2"}

    [change] = cluster.tick(seconds=3600).changes

    assert (change.verb, change.health) == (Verb.RECORD, None)
    assert of_gpu_1(cluster).met_by is MetBy.TIME


def test_a_fatal_line_that_is_read_after_a_test_ended_taints() -> None:
    cluster = heard(fake())
    cluster.tick(seconds=3600)

    cluster.tick(fault(seconds=-30, stamp=50), seconds=3700)

    assert cluster.tainted == {"gpu-1"}


def test_a_line_that_reports_the_end_ends_a_suspicion_with_an_event() -> None:
    cluster = heard(fault(rule="xid.163", severity=Severity.SUSPECT))
    end = fault(rule="xid.162", severity=Severity.INFO, stamp=200, seconds=10)

    cluster.tick(replace(end, finding=end.finding._replace(clears="xid.163")), seconds=10)

    ended = next(each for each in cluster.nodes["gpu-1"].record.incidents if each.key.rule == "xid.163")
    assert (ended.state, ended.met_by, ended.met_ns) == (
        IncidentState.RELEASED,
        MetBy.HEALTHY_LINE,
        ns(10),
    )
    change = cluster.writes[-1]
    assert (change.event, change.upkeep) == (EventReason.ENDED, False)
    assert change.message == ("xid 163 on GPU 0000:4e:00 ended: a later line of the kernel log reported it.")


def test_the_end_of_a_test_leaves_a_taint_that_was_there_before() -> None:
    """Somebody had tainted the node, or Konduktor had."""
    cluster = Cluster(fleet(10))
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=(OURS,))
    cluster.tick(fake())

    cluster.tick(seconds=3600)

    assert cluster.tainted == {"gpu-1"}
    [found, test] = cluster.nodes["gpu-1"].record.incidents
    assert found.by_person
    assert test.state is IncidentState.RELEASED


def test_no_test_ends_while_the_record_cannot_be_read_in_full() -> None:
    cluster = heard(fake(), hearing=None)
    state = cluster.nodes["gpu-1"]
    cluster.nodes["gpu-1"] = replace(state, record_problem="incidents[0].severity: 'dire' is unknown")

    cluster.tick(seconds=3600)

    assert cluster.tainted == {"gpu-1"}


def test_no_test_ends_while_the_lease_cannot_be_read_because_somebody_may_have_paused() -> None:
    cluster = heard(fake(), hearing=None)
    cluster.snapshot = replace(cluster.snapshot, lease_unread=True)

    assert cluster.tick(seconds=3600).changes == ()
