"""A Node that was deleted and made anew is the same machine when systemUUID and boot say so (rule 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from konductor_like.controller.fleet_monitor import ReregisteredNodes
from konductor_like.model import IncidentState, Machine, NodeRecord, NodeState, Release
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, node, ns

RELEASED = NodeRecord(
    Machine("uid", "system-gpu-1", "boot-a"), releases=(Release(at(200), "ann", "", "reset"),)
)


def tainted() -> NodeState:
    cluster = Cluster({"gpu-1": node("gpu-1")})
    cluster.tick(fault())
    return cluster.nodes["gpu-1"]


def anew(name: str = "gpu-1", *, system: str = "system-gpu-1", boot: str | None = "boot-a") -> NodeState:
    state = node(name)
    return replace(state, machine=Machine("uid-anew", system, boot), created_ns=ns(600))


def after(*views: Mapping[str, NodeState]) -> list[NodeRecord]:
    """What is known of the nodes that came back while the fleet looked so, one view after the other."""
    returning = ReregisteredNodes(None)
    return [
        record
        for before, view in pairwise(views)
        for record in returning.update(before, view, ns(60)).values()
    ]


def test_a_node_that_comes_back_gets_its_memory_and_needs_its_taint_again() -> None:
    [returned] = after({"gpu-1": tainted()}, {}, {"gpu-1": anew()})

    assert returned.tainted_at is None
    assert [incident.state for incident in returned.incidents] == [IncidentState.HELD]


def test_deleted_and_made_anew_between_two_looks_is_noticed_by_the_uid() -> None:
    assert len(after({"gpu-1": tainted()}, {"gpu-1": anew()})) == 1


def test_it_is_told_once() -> None:
    back = {"gpu-1": anew()}

    assert len(after({"gpu-1": tainted()}, {}, back, dict(back), dict(back))) == 1


def test_a_new_machine_under_an_old_name_is_a_stranger() -> None:
    assert after({"gpu-1": tainted()}, {}, {"gpu-1": anew(system="system-new")}) == []


def test_a_machine_that_rebooted_meanwhile_starts_afresh() -> None:
    assert after({"gpu-1": tainted()}, {}, {"gpu-1": anew(boot="boot-b")}) == []


def test_a_node_whose_kubelet_has_not_posted_its_boot_is_waited_for() -> None:
    assert len(after({"gpu-1": tainted()}, {}, {"gpu-1": anew(boot=None)}, {"gpu-1": anew()})) == 1


def test_a_node_that_brought_its_record_along_keeps_that_one() -> None:
    """Somebody saved the manifest and applied it again."""
    back = replace(anew(), record=tainted().record, taints=(OURS,))

    [returned] = after({"gpu-1": tainted()}, {}, {"gpu-1": back})

    assert returned.empty


def test_gpu_nodes_made_while_no_controller_ran_are_read_too() -> None:
    returning = ReregisteredNodes(ns(300))
    nodes = {**fleet(3), "gpu-9": anew("gpu-9"), "cpu-1": replace(anew("cpu-1"), is_gpu_node=False)}

    assert list(returning.update({}, nodes, ns(700))) == ["gpu-9"]


def test_what_a_release_covers_is_known_again_of_a_node_made_while_no_controller_ran() -> None:
    returning = ReregisteredNodes(ns(300), [RELEASED])

    [returned] = returning.update(
        {}, {"gpu-1": replace(anew(), is_gpu_node=False), **fleet(0)}, ns(700)
    ).values()

    assert returned == RELEASED


def test_it_waits_until_the_kubelet_has_posted_the_boot() -> None:
    returning = ReregisteredNodes(ns(300), [RELEASED])

    assert returning.update({}, {"gpu-1": anew(boot=None)}, ns(700)) == {}
    [returned] = returning.update({}, {"gpu-1": anew()}, ns(710)).values()
    assert returned == RELEASED
    assert returning.update({}, {"gpu-1": anew()}, ns(720)) == {}


def test_a_release_of_another_machine_or_another_boot_is_none_of_this_one() -> None:
    for other in (anew(system="system-new"), anew(boot="boot-b")):
        returning = ReregisteredNodes(ns(300), [RELEASED])

        [returned] = returning.update({}, {"gpu-1": other}, ns(700)).values()

        assert returned.empty
