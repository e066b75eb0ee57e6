"""Records that somebody removed from a Node, and that come back (rules 21 and 23)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.model import (
    Control,
    ControlAct,
    Incident,
    IncidentKey,
    IncidentState,
    Life,
    NodeRecord,
    NodeState,
    TaintedNode,
)
from konductor_like.model.controls import NAMES_MOST
from konductor_like.policy.fleet.lost_records import is_purged, lost_claims
from konductor_like.policy.node.health import tainting
from tests.policy.scenes import OURS, Cluster, at, fault, fleet

CLAIMED = NodeRecord(life=Life(at(0)))


def purge(seconds: float, *names: str) -> ControlAct:
    return ControlAct(Control.PURGE, at(seconds), "kim", nodes=len(names), names=names)


@pytest.mark.parametrize(
    ("act", "purged"),
    [
        (None, False),
        (purge(60, "gpu-1"), True),
        (purge(60, "gpu-2"), False),
        (purge(-60, "gpu-1"), False),  # the node was tainted after that purge
        (purge(-5, "gpu-1"), True),  # the clocks of the server and the controller may differ
        (purge(60, *(f"gpu-{number}" for number in range(10, 10 + NAMES_MOST))), True),  # it names no more
    ],
)
def test_only_a_purge_of_this_node_since_its_taint_forgets_it(act: ControlAct | None, purged: bool) -> None:
    assert is_purged("gpu-1", CLAIMED, act) is purged


def stripped() -> tuple[NodeState, NodeState]:
    """gpu-1 out of service, and as it is after somebody removed taint and annotation."""
    cluster = Cluster(fleet(3))
    cluster.tick(fault())
    known = cluster.nodes["gpu-1"]
    seen = replace(known.as_read, record=None)
    return known, replace(known, taints=(), record=NodeRecord(), as_read=seen)


def test_the_record_comes_back_from_memory_for_the_same_node_and_boot_only() -> None:
    known, now = stripped()
    other_boot = replace(now, machine=replace(now.machine, boot_id="boot-b"))
    other_node = replace(now, as_read=replace(now.as_read, uid="another"))
    kept = replace(now, record_kept=True)

    def found(state: NodeState) -> dict[str, NodeRecord]:
        return lost_claims({"gpu-1": state}, {"gpu-1": known}, ())

    assert found(now) == {"gpu-1": known.record}
    assert found(other_boot) == found(other_node) == found(kept) == found(known) == {}


def test_after_a_restart_the_lease_tells_since_when_and_why() -> None:
    known, now = stripped()
    why, gpu = "xid 79 on GPU 0000:4e:00", "0000:4e:00"
    listed = TaintedNode("gpu-1", known.machine, at(0), why=why, needs="replacement", rule="xid.79", gpu=gpu)

    [record] = lost_claims({"gpu-1": now}, {}, [listed]).values()

    [incident] = tainting(record)
    assert record.life == Life(at(0))
    assert incident.key == IncidentKey("xid.79", "0000:4e:00")
    assert (incident.needs, incident.state) == ("replacement", IncidentState.ACTIVE)
    assert "xid 79 on GPU 0000:4e:00" in incident.title
    assert isinstance(incident, Incident)


@pytest.mark.parametrize("change", [{"why": ""}, {"deleted_at": at(5)}], ids=str)
def test_a_test_and_a_deleted_node_come_back_in_no_such_way(change: dict[str, object]) -> None:
    known, now = stripped()
    listed = TaintedNode("gpu-1", known.machine, at(0), why="xid 79")

    assert lost_claims({"gpu-1": now}, {}, [replace(listed, **change)]) == {}  # type: ignore[arg-type]  # fields by name


def test_memory_counts_before_the_lease() -> None:
    known, now = stripped()
    listed = TaintedNode("gpu-1", known.machine, at(0), why="xid 79")

    assert lost_claims({"gpu-1": now}, {"gpu-1": known}, [listed]) == {"gpu-1": known.record}
    assert OURS in known.taints
