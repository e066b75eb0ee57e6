"""Boots known from heartbeats: which have ended, and which names have two machines (rule 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.model import IncidentState, Machine, Severity, Verb
from konductor_like.policy.node.machines import Heard, boots_left, is_ambiguous, with_beat
from tests.policy.scenes import Cluster, fault, fleet, ns


def heard(*heartbeats: tuple[str, float]) -> Heard:
    """Heartbeats of boots, at seconds after noon, in the order in which they were read."""
    boots: Heard = ()
    for boot_id, seconds in heartbeats:
        boots = with_beat(boots, boot_id, ns(seconds), ns(-3600))
    return boots


def every_minute(boot_id: str, first: int, last: int) -> list[tuple[str, float]]:
    return [(boot_id, seconds) for seconds in range(first, last + 1, 60)]


@pytest.mark.parametrize(
    ("one", "other", "seconds", "ambiguous"),
    [
        pytest.param((0, 600), (900, 1500), 1500, False, id="a restart"),
        pytest.param((0, 600), (480, 1200), 1200, False, id="a restart with a wrong clock"),
        pytest.param((0, 600), (30, 600), 600, True, id="two live boots"),
        pytest.param((0, 600), (0, 3000), 1500, True, id="one of two has just been heard"),
        pytest.param((0, 600), (0, 3000), 1501, False, id="one of two was silent for a quarter of an hour"),
    ],
)
def test_interleaved_heartbeats_of_two_boots_make_a_name_ambiguous(
    one: tuple[int, int], other: tuple[int, int], seconds: int, *, ambiguous: bool
) -> None:
    heartbeats = every_minute("boot-a", *one) + every_minute("boot-b", *other)
    boots = heard(*sorted(heartbeats, key=lambda heartbeat: heartbeat[1]))

    assert is_ambiguous(boots, ns(seconds)) is ambiguous
    assert ambiguous or boots[0].boot_id == "boot-b"


def test_late_heartbeats_give_the_same_result_in_any_order() -> None:
    heartbeats = every_minute("boot-a", 0, 600) + every_minute("boot-b", 900, 1500)

    assert heard(*heartbeats) == heard(*reversed(heartbeats))


def test_only_the_latest_boots_are_remembered() -> None:
    boots = heard(*((f"boot-{number}", number * 1000.0) for number in range(10)))

    assert [boot.boot_id for boot in boots] == ["boot-9", "boot-8", "boot-7", "boot-6"]


def pending(boot: str) -> Cluster:
    cluster = Cluster(fleet(2))
    cluster.tick(fault(boot=boot, stamp=3))
    assert cluster.nodes["gpu-1"].record.incidents[0].state is IncidentState.PENDING
    return cluster


@pytest.mark.parametrize(
    ("heartbeats", "left"),
    [
        ([], set()),
        ([("boot-a", 10.0)], set()),
        ([("boot-a", 120.0)], set()),
        ([("boot-a", 121.0)], {"boot-b"}),
        ([("boot-a", 121.0), ("boot-b", 125.0)], set()),
        ([("boot-b", 30.0), ("boot-a", 300.0)], {"boot-b"}),
        ([("boot-c", 300.0)], set()),
    ],
    ids=[
        "nothing heard",
        "heard before it was read",
        "within the reach of a fast clock",
        "the present boot was heard since",
        "the other boot lives",
        "the other boot is dead",
        "a third boot",
    ],
)
def test_a_pending_boot_has_ended_once_the_present_boot_has_a_later_heartbeat(
    heartbeats: list[tuple[str, float]], left: set[str]
) -> None:
    cluster = pending("boot-b")

    assert boots_left(cluster.nodes["gpu-1"], heard(*heartbeats), {"boot-b": ns(0)}) == left


def test_lines_of_an_ended_boot_become_history_and_stay_history() -> None:
    cluster = pending("boot-b")
    cluster.tick(fault(severity=Severity.SUSPECT, rule="xid.63", stamp=50))
    cluster.snapshot = replace(cluster.snapshot, left={"gpu-1": frozenset({"boot-b"})})
    assert len(cluster.tick(seconds=300).changes) == 1
    assert cluster.tick(seconds=305).changes == ()

    assert [incident.key.rule for incident in cluster.nodes["gpu-1"].record.incidents] == ["xid.63"]
    assert cluster.nodes["gpu-1"].record.past_boots == ("boot-b",)
    plan = cluster.tick(fault(boot="boot-b", stamp=9, seconds=310), seconds=311)
    assert [item.reason for item in plan.ignored] == ["the line is from an earlier boot of the node"]
    assert cluster.tainted == set()


def test_a_boot_that_the_node_reached_meanwhile_has_not_ended() -> None:
    """Its lines came before the kubelet posted it, so an older view of the Node counted it as ended."""
    cluster = pending("boot-b")
    cluster.snapshot = replace(cluster.snapshot, left={"gpu-1": frozenset({"boot-b"})})
    cluster.reboot("gpu-1", "boot-b")

    cluster.tick(seconds=300)

    assert cluster.tainted == {"gpu-1"}


def test_a_fault_on_an_ambiguous_name_is_recorded_and_taints_once_the_name_is_unambiguous() -> None:
    cluster = Cluster(fleet(10))
    cluster.snapshot = replace(cluster.snapshot, ambiguous=frozenset({"gpu-1"}))

    plan = cluster.tick(fault("gpu-1"), fault("gpu-2"))

    assert cluster.tainted == {"gpu-2"}
    assert plan.brake.held == ()
    recorded = next(change for change in plan.changes if change.node == "gpu-1")
    assert recorded.verb is Verb.RECORD
    assert "two machines report under the node's name." in recorded.message
    cluster.snapshot = replace(cluster.snapshot, ambiguous=frozenset())
    cluster.tick(seconds=900)
    assert cluster.tainted == {"gpu-1", "gpu-2"}


def test_a_tainted_node_stays_tainted_when_its_name_becomes_ambiguous() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault("gpu-1"))
    cluster.snapshot = replace(cluster.snapshot, ambiguous=frozenset({"gpu-1"}))

    cluster.tick(fault("gpu-1", stamp=200, seconds=60), seconds=61)

    assert cluster.tainted == {"gpu-1"}


def test_lines_of_an_earlier_machine_with_the_name_never_count() -> None:
    """Lines of the earlier machine arrive late, after a new machine has taken the name."""
    cluster = Cluster(fleet(10))
    newcomer = replace(
        cluster.nodes["gpu-1"], machine=Machine("uid-new", "system-new", "boot-new"), created_ns=ns(600)
    )
    cluster.nodes["gpu-1"] = newcomer

    plan = cluster.tick(fault(boot="boot-a", seconds=300), fault(stamp=7, seconds=400), seconds=700)

    assert cluster.tainted == set()
    assert {item.reason for item in plan.ignored} == {"the line is older than this Node"}
    cluster.tick(fault(boot="boot-new", stamp=9, seconds=710), seconds=711)
    assert cluster.tainted == {"gpu-1"}
