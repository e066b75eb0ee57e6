"""Suspect nodes, and the suspect taint that an earlier version gave them: it is taken off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from konductor_like.model import Change, NodeRecord, Role, Severity, Source, Taint, Verb
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.brake import brake_state
from konductor_like.policy.node.health import is_suspicious
from konductor_like.policy.node.release import purge, release
from konductor_like.policy.operator import operator_taint
from tests.policy.scenes import OURS, SUSPECTS, Cluster, at, fault, fleet

SUSPECT = fault(rule="xid.63", severity=Severity.SUSPECT)


def left_over(size: int = 3, *taints: Taint, suspect: bool = True) -> Cluster:
    """A fleet whose first node has the suspect taint that an earlier version gave it."""
    cluster = Cluster(fleet(size))
    if suspect:
        cluster.tick(SUSPECT)
    taints = (*taints, *cluster.nodes["gpu-1"].taints, SUSPECTS)
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=taints)
    return cluster


def test_a_suspect_gets_no_taint() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(SUSPECT)

    assert cluster.nodes["gpu-1"].taints == ()
    assert cluster.nodes["gpu-1"].as_read.health == "suspect"


@pytest.mark.parametrize("suspect", [True, False], ids=["with a record", "alone on the node"])
def test_the_suspect_taint_of_an_earlier_version_is_taken_off_by_one_write_that_may_wait(
    suspect: bool,
) -> None:
    team = Taint("team", "a", "NoSchedule")
    cluster = left_over(3, team, suspect=suspect)
    record, health = cluster.nodes["gpu-1"].record, cluster.nodes["gpu-1"].as_read.health

    [change] = cluster.tick(seconds=5).changes

    assert (change.verb, change.upkeep, change.event) == (Verb.RECORD, True, None)
    assert (change.record or NodeRecord(), change.health) == (record, health)
    assert cluster.nodes["gpu-1"].taints == (team,)
    assert cluster.tick(seconds=10).changes == ()


def test_the_brake_does_not_count_the_suspect_taint() -> None:
    cluster = left_over(5)

    cluster.tick(fault("gpu-2", seconds=1), seconds=5)

    assert cluster.tainted == {"gpu-2"}
    assert brake_state(left_over(5).nodes, PolicyConfig(), now=at(5)).out == 0


def test_the_fault_taint_takes_the_suspect_taint_along() -> None:
    cluster = left_over()

    [change] = cluster.tick(fault(seconds=1, stamp=101), seconds=5).changes

    assert (change.verb, change.upkeep) == (Verb.TAINT, False)
    assert cluster.nodes["gpu-1"].taints == (OURS,)


def test_a_node_with_both_taints_keeps_the_one_for_its_fault() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(fault())
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=(OURS, SUSPECTS))

    [change] = cluster.tick(seconds=5).changes

    assert (change.verb, change.upkeep, change.health) == (Verb.RECORD, True, "faulty")
    assert cluster.nodes["gpu-1"].taints == (OURS,)
    assert cluster.tick(seconds=10).changes == ()


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(
            lambda state: release(state, at=at(60), by="kim", reason="", read_ns={Source.KERNEL: 0}),
            id="reset",
        ),
        pytest.param(purge, id="purge"),
        pytest.param(lambda state: operator_taint(state, at=at(60), by="kim", reason="x"), id="taint"),
    ],
)
def test_a_persons_command_removes_the_suspect_taint_in_its_own_write(
    act: Callable[..., Change | None],
) -> None:
    cluster = left_over()

    cluster.apply(act(cluster.nodes["gpu-1"]))

    assert SUSPECTS not in cluster.nodes["gpu-1"].taints
    assert cluster.tick(seconds=65).changes == ()


def test_a_reset_or_a_purge_finds_the_suspect_taint_alone() -> None:
    state = left_over(suspect=False).nodes["gpu-1"]

    assert release(state, at=at(60), by="kim", reason="", read_ns={}) is not None
    assert purge(state) is not None


def test_an_opted_out_node_loses_its_suspect_taint() -> None:
    cluster = left_over()
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], opted_out=True)

    cluster.tick(seconds=5)

    assert cluster.nodes["gpu-1"].taints == ()


def test_the_suspect_taint_of_a_node_that_the_controller_may_not_taint_stays() -> None:
    cluster = left_over()
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], selected=False)
    assert cluster.tick(seconds=5).changes == ()

    cluster.tick(fault(rule="xid.94", severity=Severity.SUSPECT, seconds=6, stamp=106), seconds=10)

    assert len(cluster.nodes["gpu-1"].record.incidents) == 2
    assert cluster.nodes["gpu-1"].taints == (SUSPECTS,)


def test_of_the_collateral_faults_only_a_fatal_one_makes_its_node_suspect() -> None:
    cluster = Cluster(fleet(1))
    cluster.tick(SUSPECT, fault())
    found = [replace(each, role=Role.COLLATERAL) for each in cluster.nodes["gpu-1"].record.incidents]

    assert [each.key.rule for each in found if is_suspicious(each)] == ["xid.79"]
