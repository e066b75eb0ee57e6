"""A test that ``konductor-like test`` ends at once, as the controller ends it after two minutes."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import (
    IncidentKey,
    IncidentState,
    Life,
    NodeRecord,
    Quarantine,
    ReleaseHow,
    Severity,
)
from konductor_like.policy.operator import end_test, operator_taint
from tests.policy.scenes import Cluster, at, fault, fleet

OTHER_GPU = "0000:9a:00"
TEST = IncidentKey("xid.14", "0000:ff:1f")


def out_for_test(*others: str, severity: Severity = Severity.FATAL) -> Cluster:
    """A fleet whose ``gpu-1`` has a test, and a fault of each of these rules."""
    cluster = Cluster(fleet(10))
    faults = [fault(rule=rule, severity=severity, stamp=100 + n) for n, rule in enumerate(others)]
    test = fault(rule=TEST.rule, gpu=TEST.gpu, severity=Severity.TEST, stamp=200, seconds=1, needs="none")
    cluster.tick(*faults, test, seconds=2)
    assert cluster.tainted == {"gpu-1"}
    return cluster


def end(cluster: Cluster, seconds: float = 10) -> str:
    """End the test, and return the Event's message."""
    change = end_test(cluster.nodes["gpu-1"], TEST, at=at(seconds), by="ann", reason="test of the chain")
    assert change is not None
    cluster.apply(change)
    return change.message


def test_the_taint_of_a_test_goes_with_it_and_no_time_out_is_counted() -> None:
    cluster = out_for_test()

    assert end(cluster) == "xid 14 on GPU 0000:ff:1f ended by ann: test of the chain."

    record = cluster.nodes["gpu-1"].record
    assert cluster.tainted == set()
    assert (record.releases[0].how, record.releases[0].by) == (ReleaseHow.TEST_ENDED, "ann")
    assert record.life == Life()
    assert end_test(cluster.nodes["gpu-1"], TEST, at=at(20), by="ann", reason="again") is None


def test_a_fault_beside_it_keeps_the_taint() -> None:
    cluster = out_for_test("xid.79")

    end(cluster)

    assert cluster.tainted == {"gpu-1"}
    assert cluster.nodes["gpu-1"].record.releases == ()
    states = {each.key.rule: each.state for each in cluster.nodes["gpu-1"].record.incidents}
    assert states == {"xid.79": IncidentState.ACTIVE, "xid.14": IncidentState.RELEASED}


def test_a_suspicion_stays() -> None:
    cluster = out_for_test("xid.63", severity=Severity.SUSPECT)

    end(cluster)

    assert cluster.tainted == set()
    assert cluster.nodes["gpu-1"].record.incidents[0].state is IncidentState.ACTIVE


def test_a_persons_own_taint_stays() -> None:
    cluster = out_for_test()
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(5), by="kim", reason="riser swap"))

    end(cluster)

    assert cluster.tainted == {"gpu-1"}


def test_a_line_from_before_the_end_that_is_read_after_it_taints() -> None:
    """The end of a test covers the test alone: a fault may have been printed at the same time."""
    cluster = out_for_test()
    end(cluster)

    cluster.tick(fault(stamp=150, gpu=OTHER_GPU, seconds=12), seconds=13)

    assert cluster.tainted == {"gpu-1"}


def test_a_replay_of_the_test_taints_nothing() -> None:
    cluster = out_for_test()
    end(cluster)

    again = fault(rule=TEST.rule, gpu=TEST.gpu, severity=Severity.TEST, stamp=200, seconds=60, needs="none")
    cluster.tick(again, seconds=61)

    assert cluster.tainted == set()


def test_it_interrupts_no_probation() -> None:
    cluster = Cluster(fleet(10))
    state = cluster.nodes["gpu-1"]
    life = Life(
        quarantines=(Quarantine(at(-7200), at(-3600), "xid.79", ReleaseHow.REBOOT),),
        probation_until=at(10 * 86_400),
    )
    cluster.nodes["gpu-1"] = replace(state, record=NodeRecord(state.machine, life))
    test = fault(rule=TEST.rule, gpu=TEST.gpu, severity=Severity.TEST, stamp=200, seconds=1, needs="none")
    cluster.tick(test, seconds=2)

    end(cluster)

    assert cluster.nodes["gpu-1"].record.life == life
    assert cluster.tainted == set()


def test_a_node_without_the_test_is_left_alone() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(), seconds=1)

    assert end_test(cluster.nodes["gpu-1"], TEST, at=at(5), by="ann", reason="x") is None
    assert cluster.nodes["gpu-1"].tainted
