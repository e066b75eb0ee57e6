"""Somebody else removes our taint: it is a release, and an Event reports it (rule 23)."""

from __future__ import annotations

import pytest

from konductor_like.model import EventReason, Verb
from konductor_like.policy.node.release import is_controller
from tests.policy.scenes import Cluster, at, fault, fleet, reset_node


@pytest.mark.parametrize(
    ("manager", "controller"),
    [
        (None, False),
        ("kubectl-taint", False),
        ("kubectl", False),
        ("k9s", False),
        ("Mozilla", False),
        ("node-fetch", False),
        ("oc", False),
        ("octopus-operator", True),
        ("karpenter", True),
        ("node-remover", True),
    ],
)
def test_a_field_manager_is_recognised_as_person_or_controller(manager: str | None, controller: bool) -> None:
    assert is_controller(manager) is controller


def removed(cluster: Cluster, seconds: float, who: str = "kubectl-taint") -> EventReason | None:
    """Let ``who`` remove the taint a second after it was set, and return the reason of the Event."""
    cluster.tick(fault("gpu-1", stamp=seconds, seconds=seconds - 1), seconds=seconds - 1)
    assert cluster.tainted == {"gpu-1"}
    cluster.untaint_by_hand("gpu-1", who)
    plan = cluster.tick(seconds=seconds)
    assert cluster.tainted == set()
    [change] = plan.changes
    return change.event


def test_a_removal_by_a_person_is_not_contested() -> None:
    cluster = Cluster(fleet(5))

    assert removed(cluster, 60) is EventReason.RELEASED
    assert cluster.nodes["gpu-1"].record.life.contested_at is None


def test_a_removal_by_another_controller_is_contested_and_accepted() -> None:
    cluster = Cluster(fleet(5))

    assert removed(cluster, 60, "taint-cleaner") is EventReason.CONTESTED
    cluster.tick(seconds=61)

    assert cluster.tainted == set()
    assert cluster.nodes["gpu-1"].record.life.contested_at == at(60)
    assert "removed by taint-cleaner" in cluster.writes[-1].message


def test_the_third_removal_within_an_hour_is_contested_even_by_a_person() -> None:
    cluster = Cluster(fleet(5))

    reasons = [removed(cluster, seconds) for seconds in (60, 1800, 3600)]

    assert reasons == [EventReason.RELEASED, EventReason.RELEASED, EventReason.CONTESTED]
    assert "removed 3 times in an hour, the last time by kubectl-taint" in cluster.writes[-1].message


def test_three_removals_in_more_than_an_hour_are_not_contested() -> None:
    cluster = Cluster(fleet(5))

    reasons = [removed(cluster, seconds) for seconds in (60, 1800, 3700)]

    assert set(reasons) == {EventReason.RELEASED}


def test_resets_are_no_removals() -> None:
    cluster = Cluster(fleet(5))
    for seconds in (60, 120):
        cluster.tick(fault("gpu-1", stamp=seconds, seconds=seconds), seconds=seconds)
        reset_node(cluster, "gpu-1", seconds + 1)

    assert removed(cluster, 180) is EventReason.RELEASED


def test_new_evidence_taints_after_a_contested_removal_and_the_event_names_both() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"))
    cluster.untaint_by_hand("gpu-1", "taint-cleaner")

    [change] = cluster.tick(fault("gpu-1", stamp=200, seconds=60), seconds=60).changes

    assert (change.verb, change.event) == (Verb.TAINT, EventReason.TAINTED)
    assert "Contested" in change.message


def test_a_reset_ends_a_contested_removal() -> None:
    cluster = Cluster(fleet(5))
    removed(cluster, 60, "taint-cleaner")
    cluster.tick(fault("gpu-1", stamp=300, seconds=300), seconds=300)
    assert cluster.nodes["gpu-1"].record.life.contested_at is not None

    reset_node(cluster, "gpu-1", 400)

    assert cluster.nodes["gpu-1"].record.life.contested_at is None
