"""The controller takes a taint off by itself: its release covers less than a person's (rule 34)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.model import (
    EventReason,
    Fault,
    IncidentState,
    MetBy,
    NodeState,
    ReleaseHow,
    Severity,
    Snapshot,
    Verb,
)
from konductor_like.policy.change import change_of
from konductor_like.policy.decide import decide
from konductor_like.policy.fleet.brake import admit
from konductor_like.policy.fleet.evidence import dealt_with_until_ns
from konductor_like.policy.node.incidents import fold_faults
from konductor_like.policy.node.machines import recent_releases
from konductor_like.policy.node.release import RELEASES_KEPT
from konductor_like.policy.node.undone import reminders
from tests.policy.scenes import Cluster, at, fault, fleet, ns, reset_node
from tests.policy.test_guards import LOST, RULES, SNAPSHOT, STATE


def met(state: NodeState) -> NodeState:
    """Return the node after a reboot met the needs of its tainting incidents."""
    incidents = tuple(
        replace(each, met_ns=ns(50), met_by=MetBy.REBOOT) if each.taints else each
        for each in state.record.incidents
    )
    return replace(state, record=replace(state.record, incidents=incidents))


def returned_cluster(*faults: Fault) -> Cluster:
    """A cluster whose gpu-1 the controller returned a minute after noon, because of a reboot."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100), *faults)
    assert cluster.tainted == {"gpu-1"}
    give_back(cluster)
    return cluster


def give_back(cluster: Cluster, seconds: float = 60) -> None:
    state = cluster.nodes["gpu-1"] = met(cluster.nodes["gpu-1"])
    update = replace(fold_faults(state, (), Snapshot({}), at(seconds)), return_how=ReleaseHow.REBOOT)
    snapshot = replace(cluster.snapshot, nodes=cluster.nodes)
    admission = admit({}, snapshot, cluster.rules, at(seconds))
    cluster.apply(change_of(update, admission, snapshot, cluster.rules, at(seconds)))


def test_the_controller_removes_its_taint_and_the_record_says_how() -> None:
    cluster = returned_cluster()

    change, state = cluster.writes[-1], cluster.nodes["gpu-1"]
    assert (change.verb, change.event, change.health) == (Verb.UNTAINT, EventReason.RETURNED, "probation")
    assert change.act_id
    assert not state.tainted
    assert state.record.life.tainted_at is None
    [mark] = state.record.releases
    assert (mark.by, mark.how, mark.at) == ("konductor-like", "reboot", at(60))
    assert [(each.how, each.released_at) for each in state.record.life.quarantines] == [("reboot", at(60))]
    assert cluster.tick(seconds=61).changes == ()


def test_recorded_lines_are_covered_and_every_line_that_was_not_read_before_taints() -> None:
    cluster = returned_cluster()

    assert cluster.tick(fault(stamp=100, seconds=70), seconds=71).changes == ()
    assert cluster.tainted == set()


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(fault(gpu="0000:9a:00", stamp=90, seconds=100), id="of another GPU, earlier in the log"),
        pytest.param(fault(gpu="0000:9a:00", stamp=None, seconds=-5), id="without a stamp, from before"),
        pytest.param(fault(stamp=101, seconds=30), id="of the same incident, from before the return"),
        pytest.param(fault(stamp=200, seconds=100), id="of the same incident, from after the return"),
    ],
)
def test_a_late_fatal_line_of_the_present_boot_taints_after_the_controllers_release(late: Fault) -> None:
    cluster = returned_cluster()

    cluster.tick(late, seconds=110)

    assert cluster.tainted == {"gpu-1"}


def test_a_suspicion_that_nothing_has_ended_stays_open_and_still_counts() -> None:
    cluster = returned_cluster(fault(rule="xid.63", severity=Severity.SUSPECT, stamp=101))

    states = {each.key.rule: each.state for each in cluster.nodes["gpu-1"].record.incidents}
    assert states == {"xid.79": IncidentState.RELEASED, "xid.63": IncidentState.ACTIVE}
    assert cluster.nodes["gpu-1"].as_read.health == "suspect"


def test_what_a_person_released_stays_covered_after_releases_by_the_controller() -> None:
    """The line was read before the reset, and no incident shows it: only the reset's mark covers it."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100))
    reset_node(cluster, "gpu-1", 10, read=9)
    warning = reminders(cluster.nodes["gpu-1"])
    for number in range(1, RELEASES_KEPT + 2):
        cluster.tick(fault(stamp=100 + 20 * number, seconds=20 * number), seconds=20 * number)
        give_back(cluster, 20 * number + 10)

    cluster.tick(fault(gpu="0000:9a:00", stamp=90, seconds=300), seconds=301)

    assert cluster.tainted == set()
    assert len(cluster.nodes["gpu-1"].record.releases) == RELEASES_KEPT
    assert warning == ["Unmet need: reboot (xid 79 on GPU 0000:4e:00)."]
    assert reminders(cluster.nodes["gpu-1"]) == warning


def test_a_node_that_is_created_again_keeps_a_persons_release_and_the_controllers() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100))
    reset_node(cluster, "gpu-1", 10, read=9)
    cluster.tick(fault(stamp=120, seconds=20), seconds=20)
    give_back(cluster, 30)

    [kept] = recent_releases((), cluster.nodes.values(), at(60))

    assert [mark.how for mark in kept.releases] == ["reboot", "reset"]
    assert kept.read == kept.releases[1].read


def test_evidence_from_before_a_release_by_the_controller_counts_on_for_thresholds() -> None:
    cluster = returned_cluster()
    state = cluster.nodes["gpu-1"]
    assert dealt_with_until_ns(state, state.record) == state.created_ns

    cluster.tick(fault(stamp=200, seconds=80), seconds=80)
    reset_node(cluster, "gpu-1", 90)

    state = cluster.nodes["gpu-1"]
    assert dealt_with_until_ns(state, state.record) == ns(90)


def test_a_return_does_not_wait_as_upkeep_although_the_same_decision_finds_the_need_met() -> None:
    """The controller was away during the reboot, and has heard the new boot for long enough since."""
    unmet = replace(LOST, met_ns=None, met_by=None)
    state = replace(STATE, record=replace(STATE.record, incidents=(unmet,)))

    [change] = decide(replace(SNAPSHOT, nodes={"gpu-1": state}), (), RULES, at(0)).changes

    assert (change.event, change.upkeep) == (EventReason.RETURNED, False)
