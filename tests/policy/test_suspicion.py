"""The softer taint of suspects comes and goes with the suspicion, and takes nothing out of service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from konductor_like.model import Change, Severity, Source, Verb
from konductor_like.policy.brake import brake_state
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.operator import acknowledge, operator_taint
from konductor_like.policy.release import purge, release
from tests.policy.scenes import OURS, SUSPECTS, Cluster, at, fault, fleet, node

SOFT = PolicyConfig(suspect_taint=True)
SUSPECT = fault(rule="xid.63", severity=Severity.SUSPECT)


def suspected(size: int = 3) -> Cluster:
    """A fleet whose first node is suspect and bears the softer taint."""
    cluster = Cluster(fleet(size), SOFT)
    cluster.tick(SUSPECT)
    assert cluster.nodes["gpu-1"].taints == (SUSPECTS,)
    return cluster


def test_it_comes_in_the_write_that_makes_the_node_suspect() -> None:
    cluster = suspected()

    [change] = cluster.writes
    assert (change.verb, change.health, change.suspect_taint) == (Verb.RECORD, "suspect", True)
    assert cluster.tick(seconds=5).changes == ()


def test_by_default_there_is_none() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(SUSPECT)

    assert cluster.nodes["gpu-1"].taints == ()


def test_the_brake_does_not_count_it() -> None:
    cluster = suspected(5)

    cluster.tick(fault("gpu-2", seconds=1), seconds=5)

    assert cluster.tainted == {"gpu-2"}
    assert brake_state(cluster.nodes, SOFT, now=at(5)).out == 1


def test_a_taint_takes_its_place() -> None:
    cluster = suspected()

    cluster.tick(fault(seconds=1, stamp=101), seconds=5)

    assert cluster.nodes["gpu-1"].taints == (OURS,)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(
            lambda state: release(
                state, at=at(60), by="kim", reason="", how="reset", read_ns={Source.KERNEL: 0}
            ),
            id="reset",
        ),
        pytest.param(purge, id="purge"),
        pytest.param(lambda state: acknowledge(state, None, at=at(60), by="kim", reason="x"), id="ack"),
        pytest.param(lambda state: operator_taint(state, at=at(60), by="kim", reason="x"), id="taint"),
    ],
)
def test_what_people_do_takes_it_off_in_the_same_write(act: Callable[..., Change | None]) -> None:
    cluster = suspected()

    cluster.apply(act(cluster.nodes["gpu-1"]))

    assert SUSPECTS not in cluster.nodes["gpu-1"].taints
    assert cluster.tick(seconds=65).changes == ()


def test_acknowledging_one_of_two_faults_leaves_it_there() -> None:
    cluster = suspected()
    cluster.tick(fault(rule="xid.94", severity=Severity.SUSPECT, seconds=1, stamp=101), seconds=5)

    cluster.apply(acknowledge(cluster.nodes["gpu-1"], "xid.94", at=at(60), by="kim", reason="x"))

    assert cluster.nodes["gpu-1"].taints == (SUSPECTS,)


def test_switched_off_it_goes_by_itself_and_once() -> None:
    cluster = suspected()
    cluster.rules = PolicyConfig()

    [change] = cluster.tick(seconds=5).changes

    assert (change.suspect_taint, change.health) == (False, "suspect")
    assert not cluster.nodes["gpu-1"].suspect_tainted
    assert cluster.tick(seconds=10).changes == ()


def test_switched_on_it_comes_with_the_next_news_of_a_suspect() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(SUSPECT)
    cluster.rules = SOFT

    cluster.tick(seconds=5)
    assert not cluster.nodes["gpu-1"].suspect_tainted
    cluster.tick(fault(rule="xid.94", severity=Severity.SUSPECT, seconds=6, stamp=106), seconds=7)

    assert cluster.nodes["gpu-1"].suspect_tainted


def test_taken_off_by_hand_it_stays_off_and_releases_nothing() -> None:
    cluster = suspected()
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=())

    assert cluster.tick(seconds=5).changes == ()
    assert cluster.nodes["gpu-1"].record.releases == ()


def test_a_node_that_is_opted_out_loses_it() -> None:
    cluster = suspected()
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], opted_out=True)

    cluster.tick(seconds=5)

    assert cluster.nodes["gpu-1"].taints == ()


def test_one_that_no_record_of_ours_explains_is_left_alone_until_it_is_purged() -> None:
    cluster = Cluster({"gpu-1": replace(node(), taints=(SUSPECTS,))}, SOFT)

    assert cluster.tick().changes == ()
    assert purge(cluster.nodes["gpu-1"]) is not None
