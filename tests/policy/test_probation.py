"""Nodes return by reboot, are on probation, and relapse: what the decision writes, and in which order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from konductor_like.model import (
    Change,
    EventReason,
    Hearing,
    IncidentState,
    Life,
    Quarantine,
    ReleaseHow,
    Severity,
    Source,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.operator import operator_taint
from konductor_like.policy.recovery.returns import known_returns
from tests.policy.scenes import Cluster, at, fault, fleet, ns, reset_node
from tests.policy.test_guards import HEARD, LOST, RECORD, RULES, SNAPSHOT, STATE, STOOD

DAY = 86_400.0


def rebooted(*names: str, rules: PolicyConfig = RULES, size: int = 10) -> Cluster:
    """A fleet with these nodes tainted, rebooted and heard: nothing keeps them out."""
    cluster = Cluster(fleet(size), replace(rules, brake_max_percent=100))
    for number, name in enumerate(names):
        machine = replace(STATE.machine, node_uid=f"uid-{name}", system_id=f"system-{name}")
        record = replace(RECORD, machine=machine, life=Life(at(-3600 + number)))
        cluster.nodes[name] = replace(STATE, name=name, machine=machine, record=record)
    heard, stood = dict.fromkeys(names, HEARD), dict.fromkeys(names, STOOD)
    cluster.snapshot = replace(SNAPSHOT, nodes=cluster.nodes, hearing=heard, standing=stood)
    return cluster


def on_probation(rules: PolicyConfig = RULES) -> Cluster:
    """A fleet whose gpu-1 has just returned."""
    cluster = rebooted("gpu-1", rules=rules)
    cluster.tick()
    assert cluster.tainted == set()
    return cluster


def fails(cluster: Cluster, seconds: float, **how: object) -> Change | None:
    """``gpu-1`` logs a fault of its new boot; return the write."""
    written = len(cluster.writes)
    cluster.tick(fault(boot="boot-b", stamp=5000 + seconds, seconds=seconds, **how), seconds=seconds + 1)  # type: ignore[arg-type]  # the words of a fault
    return cluster.writes[-1] if len(cluster.writes) > written else None


def test_a_return_is_one_write_that_says_why_and_until_when_probation_lasts() -> None:
    cluster = on_probation()

    [change] = cluster.writes
    assert (change.verb, change.event, change.health) == (Verb.UNTAINT, EventReason.RETURNED, "probation")
    assert change.message == (
        "Returned to service: the reboot seen at 2026-03-04T11:45:00Z met the needs of all faults "
        "(xid 79 on GPU 0000:4e:00). The node is on probation until 2026-03-05T12:00:00Z: a fault that "
        "taints it ends its automatic returns."
    )
    assert change.also == ()
    record = cluster.nodes["gpu-1"].record
    assert (record.life.probation_until, record.life.tainted_at) == (at(DAY), None)
    assert (record.releases[0].how, record.releases[0].by) == ("reboot", "konductor-like")
    assert record.life.quarantines == (
        Quarantine(at(-3600), at(0), "xid.79", ReleaseHow.REBOOT, gpu="0000:4e:00"),
    )
    assert cluster.tick(seconds=60).changes == ()


def test_with_the_default_settings_a_reboot_returns_no_node() -> None:
    cluster = rebooted("gpu-1", rules=PolicyConfig())

    assert cluster.tick().changes == ()
    assert cluster.tick(seconds=DAY).changes == ()


def test_a_fault_that_is_read_in_the_same_decision_keeps_the_node_out() -> None:
    cluster = rebooted("gpu-1")

    fails(cluster, 1)

    assert cluster.tainted == {"gpu-1"}
    assert cluster.tick(seconds=DAY).changes == ()


def test_at_most_four_nodes_return_within_an_hour_the_longest_tainted_first() -> None:
    cluster = rebooted(*(f"gpu-{n}" for n in range(6, 0, -1)))

    cluster.tick()
    assert cluster.tainted == {"gpu-1", "gpu-2"}

    returned = known_returns((), cluster.nodes.values(), at(0))
    controls = replace(cluster.snapshot.controls, returned=returned)
    cluster.snapshot = replace(cluster.snapshot, controls=controls)
    assert cluster.tick(seconds=3599).changes == ()
    cluster.tick(seconds=3601)
    assert cluster.tainted == set()


def test_a_node_gives_its_place_to_a_held_node_after_the_cool_down() -> None:
    cluster = rebooted("gpu-1", size=5)
    cluster.rules = replace(RULES, brake_max_percent=20)

    cluster.tick(fault("gpu-2"))

    assert cluster.tainted == set()
    assert cluster.nodes["gpu-2"].as_read.health == "held"
    cluster.tick(seconds=299)
    assert cluster.tainted == set()
    cluster.tick(seconds=300)
    assert cluster.tainted == {"gpu-2"}


def test_while_a_held_node_waits_for_the_cool_down_no_other_node_returns() -> None:
    cluster = rebooted("gpu-1", "gpu-2", "gpu-3")
    cluster.rules = replace(RULES, brake_max_percent=30)
    cluster.tick(fault("gpu-4"))
    assert cluster.tainted == {"gpu-2", "gpu-3"}

    cluster.tick(seconds=299)
    assert cluster.tainted == {"gpu-2", "gpu-3"}
    assert cluster.tick(seconds=300).brake.held == ()

    assert cluster.tainted == {"gpu-4"}  # it is held no longer, so nothing keeps the others out


def test_while_a_held_node_waits_for_the_rate_no_node_returns() -> None:
    cluster = rebooted("gpu-1")
    cluster.rules = replace(cluster.rules, brake_rate_nodes=1, brake_rate_window_seconds=7200.0)
    cluster.tick(fault("gpu-2"))  # gpu-1 was tainted an hour ago
    cluster.tick(seconds=3599)
    assert cluster.tainted == {"gpu-1"}
    assert cluster.nodes["gpu-2"].as_read.health == "held"

    cluster.tick(seconds=3600)

    assert cluster.tainted == {"gpu-2"}


def test_a_node_of_another_pool_that_waits_for_the_cool_down_keeps_no_node_out() -> None:
    cluster = rebooted("gpu-1", "gpu-28", size=30)
    small = {"gpu-28", "gpu-29", "gpu-30"}
    for name, state in cluster.nodes.items():
        cluster.nodes[name] = replace(state, pool="small" if name in small else "big")
    cluster.rules = replace(cluster.rules, brake_pool_max_percent=67)
    heard, cluster.snapshot = cluster.snapshot, replace(cluster.snapshot, hearing={})
    cluster.tick(fault("gpu-29"), fault("gpu-30", seconds=1), seconds=1)
    reset_node(cluster, "gpu-29", 3)
    assert cluster.tainted == {"gpu-1", "gpu-28"}

    cluster.snapshot = replace(cluster.snapshot, hearing=heard.hearing)
    cluster.tick(seconds=4)
    cluster.tick(seconds=5)

    assert cluster.tainted == {"gpu-28"}
    assert cluster.nodes["gpu-30"].as_read.health == "held"


def test_a_held_test_keeps_no_node_out() -> None:
    cluster = rebooted("gpu-1", "gpu-2")
    cluster.rules = replace(cluster.rules, brake_rate_nodes=0)

    cluster.tick(fault("gpu-3", rule="xid.14", severity=Severity.TEST))

    assert cluster.nodes["gpu-3"].as_read.health == "held"
    assert cluster.tainted == set()


def test_probation_ends_in_silence_by_a_write_that_is_not_urgent() -> None:
    cluster = on_probation()

    assert cluster.tick(seconds=DAY - 1).changes == ()
    [change] = cluster.tick(seconds=DAY).changes
    assert (change.verb, change.event, change.health, change.upkeep) == (Verb.RECORD, None, None, True)
    assert change.record is not None
    assert change.record.life.probation_until is None
    assert cluster.tick(seconds=DAY + 1).changes == ()


def test_a_suspect_node_on_probation_has_the_graver_label() -> None:
    cluster = on_probation()

    change = fails(cluster, 60, rule="xid.63", severity=Severity.SUSPECT, needs="gpu-reset")

    assert change is not None
    assert (change.verb, change.health) == (Verb.RECORD, "suspect")
    assert cluster.nodes["gpu-1"].record.life.probation_until == at(DAY)


def test_a_fault_on_probation_taints_at_once_with_a_doubled_hold_and_its_own_event() -> None:
    cluster = on_probation()

    change = fails(cluster, 3600)

    assert change is not None
    assert (change.verb, change.event, change.health) == (Verb.TAINT, EventReason.RELAPSED, "faulty")
    assert "The node failed again on probation. It does not return by itself any more." in change.message
    assert "should stay out of service until 2026-03-04T14:00:01Z" in change.message
    assert change.evidence is not None
    record = cluster.nodes["gpu-1"].record
    assert record.life.probation_until is None
    assert record.life.hold_until == at(3601 + 2 * RULES.hold_base_seconds)
    assert [each.relapse for each in record.life.quarantines] == [True]
    [shown] = known_returns((), cluster.nodes.values(), at(3601))
    assert (shown.name, shown.returned_at, shown.relapsed_at) == ("gpu-1", at(0), at(3601))


def test_a_node_that_relapsed_never_returns_by_itself_again_also_after_a_persons_reset() -> None:
    cluster = on_probation()
    fails(cluster, 60)
    reset_node(cluster, "gpu-1", 8 * 3600)
    assert cluster.nodes["gpu-1"].record.life.probation_until is None

    change = fails(cluster, 9 * 3600)
    assert change is not None
    assert change.event is EventReason.TAINTED  # not on probation any more
    state = cluster.nodes["gpu-1"]
    incidents = tuple(
        replace(LOST, met_ns=ns(10 * 3600), first_ns=each.first_ns)
        for each in state.record.incidents
        if each.state is IncidentState.ACTIVE
    )
    life = replace(state.record.life, hold_until=None)
    record = replace(state.record, incidents=incidents, life=life)
    cluster.nodes["gpu-1"] = replace(state, record=record)
    heard = Hearing("boot-b", ns(10 * 3600), ns(30 * 3600))
    cluster.snapshot = replace(
        cluster.snapshot, hearing={"gpu-1": heard}, read_ns={Source.KERNEL: ns(30 * 3600)}
    )

    assert cluster.tick(seconds=30 * 3600).changes == ()
    assert cluster.tainted == {"gpu-1"}


def test_the_hold_after_a_relapse_doubles_the_ordinary_one_but_not_beyond_the_longest() -> None:
    cluster = on_probation(replace(RULES, hold_max_seconds=2400.0))

    fails(cluster, 60)

    assert cluster.nodes["gpu-1"].record.life.hold_until == at(61 + 2400)


def test_a_relapse_doubles_the_longer_hold_of_a_node_that_failed_before() -> None:
    cluster = on_probation(replace(RULES, repeat_count=0))
    state = cluster.nodes["gpu-1"]
    earlier = Quarantine(at(-DAY), at(-DAY + 60), "xid.79", ReleaseHow.RESET)
    life = replace(state.record.life, quarantines=(*state.record.life.quarantines, earlier))
    record = replace(state.record, life=life)
    cluster.nodes["gpu-1"] = replace(state, record=record)

    fails(cluster, 60)

    ordinary = 2 * RULES.hold_base_seconds  # the third time out
    assert cluster.nodes["gpu-1"].record.life.hold_until == at(61 + 2 * ordinary)


def test_a_relapse_that_the_brake_holds_back_is_a_relapse_also_after_the_end_of_probation() -> None:
    cluster = on_probation()
    cluster.rules = replace(RULES, brake_max_nodes=0)

    change = fails(cluster, DAY - 60)
    assert change is not None
    assert (change.event, change.health) == (EventReason.HELD, "held")
    assert cluster.tick(seconds=DAY + 60).changes == ()
    cluster.rules = RULES
    [change] = cluster.tick(seconds=DAY + 120).changes

    assert (change.verb, change.event) == (Verb.TAINT, EventReason.RELAPSED)


def test_a_fault_after_the_end_of_probation_is_no_relapse() -> None:
    cluster = on_probation()

    change = fails(cluster, DAY + 1)

    assert change is not None
    assert change.event is EventReason.TAINTED
    assert cluster.nodes["gpu-1"].record.life.quarantines[0].relapse is False


def test_a_persons_taint_on_probation_is_no_relapse_and_a_reset_of_it_ends_the_probation() -> None:
    cluster = on_probation()
    change = operator_taint(cluster.nodes["gpu-1"], at=at(60), by="kim", reason="a look inside")
    cluster.apply(change)

    assert cluster.tick(seconds=61).changes == ()
    assert cluster.nodes["gpu-1"].record.life.quarantines[0].relapse is False
    reset_node(cluster, "gpu-1", 120)
    assert cluster.nodes["gpu-1"].record.life.probation_until is None
    assert cluster.tick(seconds=121).changes == ()


def test_the_record_of_a_return_is_kept_when_the_probation_was_switched_off() -> None:
    cluster = on_probation(replace(RULES, probation_seconds=0))

    [change] = cluster.tick(seconds=1).changes

    assert (change.health, change.upkeep) == (None, True)
    assert cluster.nodes["gpu-1"].record.life.quarantines[0].how == "reboot"


def test_a_test_on_probation_is_no_relapse() -> None:
    cluster = on_probation()

    change = fails(cluster, 60, rule="xid.14", severity=Severity.TEST)

    assert change is not None
    assert (change.verb, change.event) == (Verb.TAINT, EventReason.TAINTED)
    assert cluster.nodes["gpu-1"].record.life.quarantines[0].relapse is False
    assert cluster.nodes["gpu-1"].record.life.probation_until == at(0) + timedelta(days=1)


def test_a_failure_on_probation_while_the_node_is_out_for_a_test_is_told_as_a_relapse() -> None:
    cluster = on_probation()
    fails(cluster, 60, rule="xid.14", severity=Severity.TEST)

    change = fails(cluster, 120)

    assert change is not None
    assert (change.verb, change.event) == (Verb.RECORD, EventReason.RELAPSED)
    assert "The node failed again on probation. It does not return by itself any more." in change.message
    assert cluster.nodes["gpu-1"].record.life.quarantines[0].relapse
    again = fails(cluster, 180, rule="xid.48")
    assert again is None or again.event is not EventReason.RELAPSED
