"""A Node that was deleted and made anew is the same machine when systemUUID and boot say so (rule 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from konductor_like.controller.returning import Returned, Returning
from konductor_like.model import IncidentState, Machine, NodeState
from tests.policy.scenes import OURS, Cluster, fault, fleet, node, ns


def tainted() -> NodeState:
    cluster = Cluster({"gpu-1": node("gpu-1")})
    cluster.tick(fault())
    return cluster.nodes["gpu-1"]


def anew(name: str = "gpu-1", *, system: str = "system-gpu-1", boot: str | None = "boot-a") -> NodeState:
    state = node(name)
    return replace(state, machine=Machine("uid-anew", system, boot), created_ns=ns(600))


def after(*views: Mapping[str, NodeState], first: Mapping[str, NodeState]) -> list[Returned]:
    returning = Returning(None)
    assert returning.look(first, ns(0)) == []
    return [found for view in views for found in returning.look(view, ns(60))]


def test_a_node_that_comes_back_gets_its_memory_and_needs_its_taint_again() -> None:
    [returned] = after({}, {"gpu-1": anew()}, first={"gpu-1": tainted()})

    assert returned.record.tainted_at is None
    assert [incident.state for incident in returned.record.incidents] == [IncidentState.HELD]


def test_deleted_and_made_anew_between_two_looks_is_noticed_by_the_uid() -> None:
    assert len(after({"gpu-1": anew()}, first={"gpu-1": tainted()})) == 1


def test_it_is_told_once() -> None:
    back = {"gpu-1": anew()}

    assert len(after({}, back, dict(back), dict(back), first={"gpu-1": tainted()})) == 1


def test_a_new_machine_under_an_old_name_is_a_stranger() -> None:
    assert after({}, {"gpu-1": anew(system="system-new")}, first={"gpu-1": tainted()}) == []


def test_a_machine_that_rebooted_meanwhile_starts_afresh() -> None:
    assert after({}, {"gpu-1": anew(boot="boot-b")}, first={"gpu-1": tainted()}) == []


def test_a_node_whose_kubelet_has_not_posted_its_boot_is_waited_for() -> None:
    assert len(after({}, {"gpu-1": anew(boot=None)}, {"gpu-1": anew()}, first={"gpu-1": tainted()})) == 1


def test_a_node_that_brought_its_record_along_keeps_that_one() -> None:
    """Somebody saved the manifest and applied it again."""
    back = replace(anew(), record=tainted().record, taints=(OURS,))

    [returned] = after({}, {"gpu-1": back}, first={"gpu-1": tainted()})

    assert returned.record.empty


def test_gpu_nodes_made_while_no_controller_ran_are_read_too() -> None:
    returning = Returning(ns(300))
    nodes = {**fleet(3), "gpu-9": anew("gpu-9"), "cpu-1": replace(anew("cpu-1"), is_gpu_node=False)}

    assert [returned.state.name for returned in returning.look(nodes, ns(700))] == ["gpu-9"]
