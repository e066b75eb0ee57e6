"""A Node that was deleted and made anew is the same machine when systemUUID and boot say so (rule 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from konductor_like.controller.fleet.fleet_monitor import ReregisteredNodes
from konductor_like.controller.loop.observation import Observer
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.model import IncidentState, Machine, NodeRecord, NodeState, Release, ReleaseHow
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.machines import without_shared_ids
from tests.controller.reconciling import Scene
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, node, ns

RELEASED = NodeRecord(
    Machine("uid", "system-gpu-1", "boot-a"), releases=(Release(at(200), "ann", "", ReleaseHow.RESET),)
)
Nodes = Mapping[str, NodeState]


def tainted() -> Nodes:
    cluster = Cluster({"gpu-1": node("gpu-1")})
    cluster.tick(fault())
    return cluster.nodes


def anew(name: str = "gpu-1", *, system: str = "system-gpu-1", boot: str | None = "boot-a") -> NodeState:
    state = node(name)
    return replace(state, machine=Machine("uid-anew", system, boot), created_ns=ns(600))


BACK, REBOOTED, NO_BOOT = {"gpu-1": anew()}, {"gpu-1": anew(boot="boot-b")}, {"gpu-1": anew(boot=None)}
STRANGER = {"gpu-1": anew(system="system-new")}


def after(*views: Nodes, nodes: ReregisteredNodes | None = None) -> list[NodeRecord]:
    """Return the records of the nodes that came back in these views of the fleet, one after the other."""
    nodes = nodes or ReregisteredNodes(None)
    return [
        record for before, view in pairwise(views) for record in nodes.update(before, view, ns(700)).values()
    ]


@pytest.mark.parametrize(
    "views",
    [[{}, BACK], [BACK], [{}, BACK, BACK, BACK], [{}, NO_BOOT, BACK]],
    ids=["seen to be gone", "noticed by its UID", "told once", "waited for until it tells its boot"],
)
def test_a_node_that_comes_back_gets_its_memory_and_needs_its_taint_again(views: list[Nodes]) -> None:
    [known] = after(tainted(), *views)

    assert known.life.tainted_at is None
    assert [incident.state for incident in known.incidents] == [IncidentState.HELD]


def test_another_machine_starts_without_a_record() -> None:
    assert after(tainted(), {}, STRANGER) == []


PLACEHOLDERS = (
    "03000200-0400-0500-0006-000700080009",
    "00000000-0000-0000-0000-000000000000",
    "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
    "Not Settable",
)


def under(system: str) -> Nodes:
    """Return the tainted Node under another system UUID."""
    return {
        name: replace(state, machine=replace(state.machine, system_id=system))
        for name, state in tainted().items()
    }


@pytest.mark.parametrize("system", PLACEHOLDERS)
@pytest.mark.parametrize("boot", ["boot-a", "boot-b"])
def test_a_placeholder_of_the_firmware_is_no_machine(system: str, boot: str) -> None:
    assert after(under(system), {}, {"gpu-1": anew(system=system, boot=boot)}) == []


def test_letters_of_another_case_are_the_same_machine() -> None:
    [known] = after(
        under("4C4C4544-0047-4A10-8051-C7C04F4D3532"),
        {},
        {"gpu-1": anew(system="4c4c4544-0047-4a10-8051-c7c04f4d3532")},
    )

    assert [incident.state for incident in known.incidents] == [IncidentState.HELD]


def test_a_system_id_that_two_present_nodes_have_is_no_machine() -> None:
    clone = replace(node("gpu-2"), machine=Machine("uid-gpu-2", "SYSTEM-GPU-1", "boot-z"))
    shared = without_shared_ids({**BACK, "gpu-2": clone, "gpu-3": node("gpu-3")})

    assert {name: state.machine.system for name, state in shared.items()} == {
        "gpu-1": None,
        "gpu-2": None,
        "gpu-3": "system-gpu-3",
    }
    assert shared["gpu-1"].machine.boot_id == "boot-a"
    assert after(tainted(), {}, shared) == []
    assert without_shared_ids(BACK) is BACK


def test_a_decision_sees_no_system_id_that_two_nodes_have() -> None:
    clone = replace(node("gpu-2"), machine=Machine("uid-gpu-2", "system-gpu-1", "boot-z"))
    scene = Scene(nodes={**BACK, "gpu-2": clone})
    observer = Observer(scene.cluster, Report(Metrics(), fleet_event=lambda *_: None))

    seen = observer.observe(PolicyConfig(), (), at(700)).nodes

    assert {name: state.machine.system for name, state in seen.items()} == {"gpu-1": None, "gpu-2": None}
    assert {state.machine.system for state in observer.states().values()} == {None}


@pytest.mark.parametrize("back", [STRANGER, REBOOTED], ids=["another machine", "rebooted meanwhile"])
def test_a_release_covers_nothing_of_another_machine_or_boot(back: Nodes) -> None:
    [known] = after({}, back, nodes=ReregisteredNodes(ns(300), [RELEASED]))

    assert known.empty


@pytest.mark.parametrize("views", [[{}, REBOOTED], [{}, NO_BOOT, REBOOTED]], ids=["at once", "later"])
def test_a_machine_that_was_rebooted_meanwhile_keeps_the_faults_that_it_was_tainted_for(
    views: list[Nodes],
) -> None:
    [known] = after(tainted(), *views)

    assert known.life.tainted_at is None
    assert [(each.key.rule, each.state) for each in known.incidents] == [("xid.79", IncidentState.ACTIVE)]


def test_a_node_that_brought_its_record_along_keeps_that_one() -> None:
    """Somebody saved the manifest and applied it again."""
    back = replace(anew(), record=tainted()["gpu-1"].record, taints=(OURS,))

    [known] = after(tainted(), {}, {"gpu-1": back})

    assert known.empty


def test_gpu_nodes_made_while_no_controller_ran_are_read_too() -> None:
    nodes = {**fleet(3), "gpu-9": anew("gpu-9"), "cpu-1": replace(anew("cpu-1"), is_gpu_node=False)}

    assert list(ReregisteredNodes(ns(300)).update({}, nodes, ns(700))) == ["gpu-9"]


def test_a_node_without_gpus_is_read_once_it_shows_them() -> None:
    """The device plugin reports some seconds after the kubelet has registered the Node."""
    bare, nodes = {"gpu-1": replace(anew(), is_gpu_node=False)}, ReregisteredNodes(ns(300))

    assert after({}, bare, bare, nodes=nodes) == []
    assert nodes.waiting(bare) == []

    assert after(bare, BACK, BACK, nodes=nodes) == [NodeRecord()]


def test_a_node_whose_boot_is_not_known_yet_waits_to_be_read() -> None:
    nodes = ReregisteredNodes(ns(300))

    assert after({}, NO_BOOT, nodes=nodes) == []
    assert nodes.waiting(NO_BOOT) == ["gpu-1"]
    assert nodes.waiting({}) == []


def test_a_node_with_a_record_is_read_too_and_keeps_its_record() -> None:
    """An earlier controller may have read a part of its lines before it ended."""
    back = replace(anew(), record=tainted()["gpu-1"].record)

    assert after({}, {"gpu-1": back}, nodes=ReregisteredNodes(ns(300), [RELEASED])) == [NodeRecord()]


@pytest.mark.parametrize("is_gpu_node", [True, False])
def test_what_a_release_covers_is_known_of_a_node_made_while_no_controller_ran(*, is_gpu_node: bool) -> None:
    back = {"gpu-1": replace(anew(), is_gpu_node=is_gpu_node)}

    assert after({}, NO_BOOT, back, back, nodes=ReregisteredNodes(ns(300), [RELEASED])) == [RELEASED]
