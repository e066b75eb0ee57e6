"""A line that says that an earlier one has ended (Xid 162 of an Xid 163) closes it, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.detection import find
from konductor_like.model import Fault, IncidentState, Severity, Source
from tests.policy.scenes import GPU, Cluster, fault, fleet


def begun(*, severity: Severity = Severity.SUSPECT, stamp: float = 100, seconds: float = 0) -> Fault:
    """An Xid 163."""
    return fault(rule="xid.163", severity=severity, stamp=stamp, seconds=seconds)


def ended(*, gpu: str = GPU, stamp: float = 200, seconds: float = 10) -> Fault:
    """The Xid 162 that takes it back."""
    told = fault(rule="xid.162", severity=Severity.INFO, gpu=gpu, stamp=stamp, seconds=seconds)
    return replace(told, finding=told.finding._replace(clears="xid.163"))


def state_of(cluster: Cluster, rule: str) -> IncidentState:
    """How the one incident of a rule stands on gpu-1."""
    [incident] = [each for each in cluster.nodes["gpu-1"].record.incidents if each.key.rule == rule]
    return incident.state


def test_an_xid_162_says_that_it_takes_back_163_and_no_other_xid_takes_anything_back() -> None:
    found = {
        code: find(f"NVRM: Xid (PCI:0000:4e:00): {code}, pid=1, name=a, b", Source.KERNEL)
        for code in range(1, 177)
    }

    assert {code: each.clears for code, each in found.items() if each and each.clears} == {162: "xid.163"}


def test_what_has_ended_is_closed() -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(begun())
    assert state_of(cluster, "xid.163") is IncidentState.ACTIVE
    cluster.tick(ended(), seconds=10)

    assert state_of(cluster, "xid.163") is IncidentState.RELEASED


def test_a_replay_of_what_has_ended_does_not_open_it_again_and_a_new_one_does() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(begun())
    cluster.tick(ended(), seconds=10)

    cluster.tick(begun(seconds=20), seconds=20)
    assert state_of(cluster, "xid.163") is IncidentState.RELEASED
    cluster.tick(begun(stamp=300, seconds=30), seconds=30)

    assert state_of(cluster, "xid.163") is IncidentState.ACTIVE


@pytest.mark.parametrize(
    "end", [ended(gpu="0000:5e:00"), ended(stamp=50)], ids=["another GPU's", "an older one"]
)
def test_the_end_of_something_else_closes_nothing(end: Fault) -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(begun())
    cluster.tick(end, seconds=10)

    assert state_of(cluster, "xid.163") is IncidentState.ACTIVE


def test_a_taint_waits_for_its_reset() -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(begun(severity=Severity.FATAL))
    cluster.tick(ended(), seconds=10)

    assert cluster.tainted == {"gpu-1"}
    assert state_of(cluster, "xid.163") is IncidentState.ACTIVE
