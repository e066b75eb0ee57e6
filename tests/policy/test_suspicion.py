"""The suspect taint: it is set while a node is suspect, and takes no node out of service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from konductor_like.model import Change, Role, Severity, Source, Verb
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.brake import brake_state
from konductor_like.policy.node.health import is_suspicious
from konductor_like.policy.node.release import purge, release
from konductor_like.policy.operator import acknowledge, operator_taint
from tests.policy.scenes import OURS, SUSPECTS, Cluster, at, fault, fleet, node

SOFT = PolicyConfig(suspect_taint=True)
SUSPECT = fault(rule="xid.63", severity=Severity.SUSPECT)


def suspected(size: int = 3) -> Cluster:
    """A fleet whose first node is suspect and has the suspect taint."""
    cluster = Cluster(fleet(size), SOFT)
    cluster.tick(SUSPECT)
    assert cluster.nodes["gpu-1"].taints == (SUSPECTS,)
    return cluster


def test_the_suspect_taint_is_added_in_the_write_that_makes_the_node_suspect() -> None:
    cluster = suspected()

    [change] = cluster.writes
    assert (change.verb, change.health, change.suspect_taint) == (Verb.RECORD, "suspect", True)
    assert cluster.tick(seconds=5).changes == ()


def test_a_suspect_gets_no_taint_by_default() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(SUSPECT)

    assert cluster.nodes["gpu-1"].taints == ()


def test_the_brake_does_not_count_the_suspect_taint() -> None:
    cluster = suspected(5)

    cluster.tick(fault("gpu-2", seconds=1), seconds=5)

    assert cluster.tainted == {"gpu-2"}
    assert brake_state(cluster.nodes, SOFT, now=at(5)).out == 1


def test_the_fault_taint_replaces_the_suspect_taint() -> None:
    cluster = suspected()

    cluster.tick(fault(seconds=1, stamp=101), seconds=5)

    assert cluster.nodes["gpu-1"].taints == (OURS,)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(
            lambda state: release(state, at=at(60), by="kim", reason="", read_ns={Source.KERNEL: 0}),
            id="reset",
        ),
        pytest.param(purge, id="purge"),
        pytest.param(lambda state: acknowledge(state, None, at=at(60), by="kim", reason="x"), id="ack"),
        pytest.param(lambda state: operator_taint(state, at=at(60), by="kim", reason="x"), id="taint"),
    ],
)
def test_a_persons_command_removes_the_suspect_taint_in_its_own_write(
    act: Callable[..., Change | None],
) -> None:
    cluster = suspected()

    cluster.apply(act(cluster.nodes["gpu-1"]))

    assert SUSPECTS not in cluster.nodes["gpu-1"].taints
    assert cluster.tick(seconds=65).changes == ()


def test_an_acknowledgement_of_one_of_two_faults_keeps_the_suspect_taint() -> None:
    cluster = suspected()
    cluster.tick(fault(rule="xid.94", severity=Severity.SUSPECT, seconds=1, stamp=101), seconds=5)

    cluster.apply(acknowledge(cluster.nodes["gpu-1"], "xid.94", at=at(60), by="kim", reason="x"))

    assert cluster.nodes["gpu-1"].taints == (SUSPECTS,)


def test_the_suspect_taint_is_removed_once_when_it_is_switched_off() -> None:
    cluster = suspected()
    cluster.rules = PolicyConfig()

    [change] = cluster.tick(seconds=5).changes

    assert (change.suspect_taint, change.health) == (False, "suspect")
    assert not cluster.nodes["gpu-1"].suspect_tainted
    assert cluster.tick(seconds=10).changes == ()


def test_the_suspect_taint_is_added_with_the_next_write_after_it_is_switched_on() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(SUSPECT)
    cluster.rules = SOFT

    cluster.tick(seconds=5)
    assert not cluster.nodes["gpu-1"].suspect_tainted
    cluster.tick(fault(rule="xid.94", severity=Severity.SUSPECT, seconds=6, stamp=106), seconds=7)

    assert cluster.nodes["gpu-1"].suspect_tainted


def test_a_suspect_taint_removed_by_hand_is_not_added_again_and_releases_nothing() -> None:
    cluster = suspected()
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=())

    assert cluster.tick(seconds=5).changes == ()
    assert cluster.nodes["gpu-1"].record.releases == ()


def test_an_opted_out_node_loses_its_suspect_taint() -> None:
    cluster = suspected()
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], opted_out=True)

    cluster.tick(seconds=5)

    assert cluster.nodes["gpu-1"].taints == ()


def test_a_suspect_taint_without_a_record_is_kept_until_a_purge() -> None:
    cluster = Cluster({"gpu-1": replace(node(), taints=(SUSPECTS,))}, SOFT)

    assert cluster.tick().changes == ()
    assert purge(cluster.nodes["gpu-1"]) is not None


def test_of_the_collateral_faults_only_a_fatal_one_makes_its_node_suspect() -> None:
    cluster = Cluster(fleet(1))
    cluster.tick(SUSPECT, fault())
    found = [replace(each, role=Role.COLLATERAL) for each in cluster.nodes["gpu-1"].record.incidents]

    assert [each.key.rule for each in found if is_suspicious(each)] == ["xid.79"]
