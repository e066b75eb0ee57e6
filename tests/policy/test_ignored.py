"""A node with the label that opts it out: its faults are recorded, and it is neither tainted nor released."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.model import CoverageState, EventReason, IncidentState, Severity, SkipReason, Verb
from konductor_like.policy.node.health import Health, state_of
from tests.policy.scenes import Cluster, at, fault, fleet, reset_node
from tests.policy.scenes import node as healthy_node


def labelled(cluster: Cluster, name: str = "gpu-1", *, ignored: bool = True) -> Cluster:
    """The cluster after a person set the label, or removed it."""
    cluster.nodes[name] = replace(cluster.nodes[name], opted_out=ignored)
    return cluster


def failed() -> Cluster:
    """Ten nodes; gpu-1 is ignored and has an Xid 79."""
    cluster = labelled(Cluster(fleet(10)))
    cluster.tick(fault())
    return cluster


def labels(cluster: Cluster) -> tuple[str | None, str | None]:
    """The labels of gpu-1 for health and needs."""
    has = cluster.nodes["gpu-1"].as_read
    return has.health, has.needs


def health(cluster: Cluster) -> Health:
    return state_of(cluster.nodes["gpu-1"], CoverageState.MEASURED)


def test_its_faults_are_recorded_and_told_without_a_taint_or_a_label() -> None:
    [change] = failed().writes

    assert (change.verb, change.health, change.needs) == (Verb.RECORD, None, None)
    assert change.event is EventReason.RECORDED
    assert "xid 79" in change.message
    assert "Not tainted: the node has the label trainy.konduktor.ai/ignore." in change.message


def test_its_state_is_ignored_with_and_without_a_fault() -> None:
    assert health(failed()) is Health.IGNORED
    assert health(labelled(Cluster(fleet(1)))) is Health.IGNORED
    assert state_of(healthy_node(), CoverageState.MEASURED) is Health.HEALTHY


def test_its_fault_takes_no_place_of_the_brake_and_the_node_counts_in_the_fleet() -> None:
    cluster = failed()
    cluster.rules = replace(cluster.rules, brake_max_percent=10)

    plan = cluster.tick(fault("gpu-2", seconds=1), seconds=1)

    assert cluster.tainted == {"gpu-2"}
    assert [(each.node, each.why) for each in plan.refused] == [("gpu-1", SkipReason.OPTED_OUT)]
    assert (plan.brake.gpu_nodes, plan.brake.held) == (10, ())


def test_an_open_fault_taints_when_the_label_goes() -> None:
    cluster = labelled(failed(), ignored=False)

    cluster.tick(seconds=60)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize("is_rebooted", [True, False])
def test_a_fault_that_a_reboot_or_a_release_ended_does_not_taint_when_the_label_goes(
    is_rebooted: bool,
) -> None:
    cluster = failed()
    if is_rebooted:
        cluster.reboot("gpu-1", "boot-b")
    else:
        reset_node(cluster, "gpu-1", 30)
    cluster.tick(seconds=60)
    assert [each.state for each in cluster.nodes["gpu-1"].record.incidents] == [IncidentState.RELEASED]

    labelled(cluster, ignored=False).tick(seconds=90)

    assert cluster.tainted == set()
    assert health(cluster) is Health.HEALTHY


def test_our_labels_go_when_the_label_comes_and_come_back_when_it_goes() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(rule="xid.63", severity=Severity.SUSPECT, needs="gpu-reset"))
    assert labels(cluster) == ("suspect", "gpu-reset")

    [change] = labelled(cluster).tick(seconds=60).changes
    assert (labels(cluster), change.upkeep) == ((None, None), True)
    assert cluster.tick(seconds=61).changes == ()

    labelled(cluster, ignored=False).tick(seconds=90)
    assert labels(cluster) == ("suspect", "gpu-reset")


def test_labels_that_are_right_but_for_the_other_build_of_the_policy_are_not_written() -> None:
    cluster = labelled(Cluster(fleet(10)))
    cluster.snapshot = replace(cluster.snapshot, labels_needs=False)

    cluster.tick(fault())

    assert cluster.tick(seconds=60).changes == ()


def test_a_node_that_had_the_taint_before_keeps_it_and_its_state_and_labels() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault())

    labelled(cluster).tick(seconds=60)

    assert cluster.tainted == {"gpu-1"}
    assert (health(cluster), labels(cluster)) == (Health.FAULTY, ("faulty", "reboot"))


def test_a_further_fault_of_a_tainted_node_is_recorded_too() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault())

    labelled(cluster).tick(fault(rule="xid.48", seconds=60, stamp=160), seconds=60)

    assert {each.key.rule for each in cluster.nodes["gpu-1"].record.incidents} == {"xid.79", "xid.48"}
    assert at(60) == cluster.nodes["gpu-1"].record.act.at  # type: ignore[union-attr]  # it was written
