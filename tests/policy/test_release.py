"""Releases: which lines a release covers, and which it does not (rule 4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.model import (
    EventReason,
    Fault,
    IncidentState,
    KernelPosition,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    Severity,
    SkipReason,
    Source,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.covers import COVERED_BY_TIME, covered_to
from konductor_like.policy.node.machines import recent_releases
from konductor_like.policy.node.release import purge, release
from konductor_like.policy.operator import operator_taint
from tests.policy.scenes import Cluster, at, fault, fleet, node, ns, reset_node


def tainted_cluster(**of_fault: float | str | None) -> Cluster:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(**of_fault))  # type: ignore[arg-type]  # as they are named there
    assert cluster.tainted == {"gpu-1"}
    return cluster


def test_a_reset_removes_the_taint_and_records_name_and_reason() -> None:
    cluster = tainted_cluster()

    reset_node(cluster, "gpu-1", 60)

    state = cluster.nodes["gpu-1"]
    assert not state.tainted
    assert state.record.life.tainted_at is None
    [mark] = state.record.releases
    assert (mark.by, mark.reason, mark.at) == ("ann", "new riser", at(60))
    assert cluster.writes[-1].event is EventReason.RELEASED
    assert cluster.writes[-1].health is None


@pytest.mark.parametrize("stamp", [100.0, None], ids=["stamped", "no stamp"])
def test_the_lines_of_a_node_whose_clock_is_ahead_taint_at_once_and_are_covered_by_a_reset(
    stamp: float | None,
) -> None:
    ahead = fault(stamp=stamp, seconds=300)
    cluster = Cluster(fleet(10))
    cluster.tick(ahead, seconds=1)
    assert cluster.tainted == {"gpu-1"}
    reset_node(cluster, "gpu-1", 60, read=59)

    cluster.tick(ahead, seconds=400)
    assert cluster.tainted == set()

    cluster.tick(fault(stamp=stamp and 161.0, seconds=361), seconds=401)
    assert cluster.tainted == {"gpu-1"}


def test_after_a_reset_a_replay_changes_nothing_and_a_new_fault_taints_at_once() -> None:
    cluster = tainted_cluster(stamp=100)
    reset_node(cluster, "gpu-1", 60)

    assert cluster.tick(fault(stamp=100, seconds=120), seconds=121).changes == ()
    assert cluster.tainted == set()
    cluster.tick(fault(stamp=180, seconds=80), seconds=122)

    assert cluster.tainted == {"gpu-1"}
    [incident] = cluster.nodes["gpu-1"].record.incidents
    assert (incident.state, incident.count) == (IncidentState.ACTIVE, 1)


@pytest.mark.parametrize("seconds", [50, -1_200, 61], ids=["before the reset", "slow clock", "after it"])
def test_a_line_that_no_record_had_reached_at_the_reset_taints_whatever_its_time_is(seconds: float) -> None:
    """A clock of the node, of the laptop or of the API server may be off; the kernel log's order is not."""
    cluster = tainted_cluster(stamp=100)
    reset_node(cluster, "gpu-1", 60, read=59)

    cluster.tick(fault(stamp=150, seconds=seconds), seconds=62)

    assert cluster.tainted == {"gpu-1"}


def test_a_fault_of_another_gpu_taints_after_the_reset_of_a_node_whose_clock_is_slow() -> None:
    cluster = tainted_cluster(stamp=100)
    reset_node(cluster, "gpu-1", 60, read=59)

    cluster.tick(fault(gpu="0000:9a:00", stamp=150, seconds=-1_200), seconds=62)

    assert cluster.tainted == {"gpu-1"}


def test_a_fault_taints_although_its_time_is_before_the_reset_of_a_persons_taint() -> None:
    """Nothing of this boot's kernel log was recorded at the reset."""
    cluster = Cluster(fleet(10))
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(0), by="ann", reason="a look at the riser"))
    reset_node(cluster, "gpu-1", 60, read=59)

    new = fault(seconds=30)
    place = KernelPosition("boot-a", 500, 150_000_000)
    cluster.tick(replace(new, finding=new.finding._replace(position=place)), seconds=62)

    assert cluster.tainted == {"gpu-1"}


def test_a_fatal_line_that_only_its_time_covers_is_reported() -> None:
    cluster = tainted_cluster(stamp=None)
    reset_node(cluster, "gpu-1", 60)

    plan = cluster.tick(fault(stamp=None, seconds=50, text="NVRM: Xid 79, later"), seconds=62)

    assert cluster.tainted == set()
    assert [item.reason for item in plan.ignored] == [COVERED_BY_TIME]
    assert [skipped.why for skipped in plan.refused] == [SkipReason.COVERED]


def test_a_reset_covers_lines_that_are_only_counted_in_memory() -> None:
    """The record on the node is up to ten minutes behind the lines; the release covers them all."""
    cluster = tainted_cluster(stamp=100)
    cluster.tick(fault(stamp=140, seconds=40), seconds=41)
    reset_node(cluster, "gpu-1", 60)

    extension = cluster.tick(seconds=61)
    cluster.tick(fault(stamp=140, seconds=300), seconds=301)

    assert [change.verb for change in extension.changes] == [Verb.RECORD]
    assert cluster.tainted == set()


def test_a_fault_that_was_counted_before_a_release_moves_only_what_that_release_covers() -> None:
    """Otherwise an older release, or one of some faults by an earlier build, would hide faults."""
    older, newer = (
        Release(at(n), "ann", "", ReleaseHow.RESET, KernelPosition("boot-a", n, n)) for n in (10, 60)
    )
    part = Release(at(60), "ann", "", ReleaseHow.PART, KernelPosition("boot-a"))
    counted = fault(boot="boot-a")
    counted = replace(counted, finding=counted.finding._replace(position=KernelPosition("boot-a", 70, 70)))

    found = covered_to(NodeRecord(releases=(part, newer, older)), counted, ns(60))

    assert [mark.read.sequence for mark in found.releases] == [None, 70, 10]


def test_a_fault_counted_between_a_reset_and_its_observation_taints() -> None:
    """The controller had not seen the reset yet; lines that it counted after the reset are new evidence."""
    cluster = tainted_cluster(stamp=100)
    cluster.tick(fault(stamp=170, seconds=70), seconds=71)
    reset_node(cluster, "gpu-1", 65)

    cluster.tick(seconds=72)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize(
    ("late", "tainted"),
    [
        pytest.param(
            fault(gpu="0000:9a:00", stamp=90, seconds=200), False, id="read before the reset, by stamp"
        ),
        pytest.param(fault(gpu="0000:9a:00", stamp=101, seconds=50), True, id="not read before the reset"),
        pytest.param(
            fault(gpu="0000:9a:00", stamp=None, seconds=40), False, id="read before the reset, by cursor"
        ),
        pytest.param(fault(gpu="0000:9a:00", stamp=None, seconds=56), True, id="after the cursor"),
    ],
)
def test_a_reset_covers_other_evidence_up_to_the_cursor(late: Fault, tainted: bool) -> None:
    cluster = tainted_cluster(stamp=100)
    reset_node(cluster, "gpu-1", 60, read=55)

    cluster.tick(late, seconds=201)

    assert ("gpu-1" in cluster.tainted) is tainted


@pytest.mark.parametrize("seconds", [600, 50], ids=["a later time", "a time before the cursor"])
def test_a_reset_covers_no_line_of_the_next_boot(seconds: float) -> None:
    """Lines of a booting node may have a time from before the reset, until its clock is set."""
    cluster = tainted_cluster(stamp=100)
    reset_node(cluster, "gpu-1", 60, read=55)
    cluster.reboot("gpu-1", "boot-b")

    cluster.tick(fault(stamp=12, seconds=seconds, boot="boot-b"), seconds=601)

    assert cluster.tainted == {"gpu-1"}


def test_a_reset_of_a_taint_without_a_record_is_recorded() -> None:
    """Konduktor's own taints are the same key, value and effect."""
    from tests.policy.scenes import OURS

    change = release(replace(node(), taints=(OURS,)), at=at(0), by="ann", reason="", read_ns={})

    assert change is not None
    assert change.verb is Verb.UNTAINT
    assert change.record is not None
    assert change.record.releases[0].read == KernelPosition("boot-a")


def test_a_purge_removes_the_record_and_a_healthy_node_needs_no_reset() -> None:
    cluster = tainted_cluster()

    cluster.apply(purge(cluster.nodes["gpu-1"]))

    assert not cluster.nodes["gpu-1"].tainted
    assert cluster.nodes["gpu-1"].record.empty
    assert purge(cluster.nodes["gpu-1"]) is None
    assert release(node(), at=at(0), by="ann", reason="", read_ns={}) is None


def test_a_taint_removed_by_hand_is_a_release() -> None:
    cluster = tainted_cluster(stamp=100)
    cluster.untaint_by_hand("gpu-1", who="kubectl-taint")

    plan = cluster.tick(seconds=60)

    [change] = plan.changes
    assert (change.verb, change.event) == (Verb.RECORD, EventReason.RELEASED)
    mark = cluster.nodes["gpu-1"].record.releases[0]
    assert (mark.by, mark.how) == ("kubectl-taint", "taint removed")

    cluster.tick(fault(stamp=100, seconds=90), seconds=91)
    assert cluster.tainted == set()

    cluster.tick(fault(stamp=200, seconds=100), seconds=101)
    assert cluster.tainted == {"gpu-1"}


def test_a_removal_by_hand_does_not_cover_a_fault_read_after_it() -> None:
    """Both are seen at once after a pause: the removal covers only recorded faults."""
    cluster = tainted_cluster(stamp=100)
    cluster.untaint_by_hand("gpu-1")

    cluster.tick(fault(stamp=150, seconds=50), seconds=7200)

    assert cluster.tainted == {"gpu-1"}


def test_a_suspect_node_without_a_taint_can_be_reset() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault(severity=Severity.SUSPECT))

    reset_node(cluster, "gpu-1", 60)

    assert cluster.writes[-1].verb is Verb.RECORD
    assert cluster.nodes["gpu-1"].record.incidents[0].state is IncidentState.RELEASED


def test_a_late_line_of_a_closed_incident_is_covered_by_the_last_reset() -> None:
    cluster = tainted_cluster(stamp=100)
    reset_node(cluster, "gpu-1", 60)
    cluster.tick(fault(rule="xid.48", stamp=210, seconds=120), seconds=121)
    assert cluster.tainted == {"gpu-1"}
    reset_node(cluster, "gpu-1", 180)

    plan = cluster.tick(fault(stamp=205, seconds=119), seconds=200)

    assert cluster.tainted == set()
    assert [item.reason for item in plan.ignored] == ["covered by the last release"]
    cluster.tick(fault(stamp=300, seconds=210), seconds=211)
    assert cluster.tainted == {"gpu-1"}


def test_an_unread_fatal_line_that_a_reset_covers_is_reported_and_kept_as_suspect() -> None:
    """A line that was overtaken on its way looks like a replay of a line that no record includes."""
    cluster = tainted_cluster(stamp=100, boot="boot-a", seq=7)
    reset_node(cluster, "gpu-1", 60, read=59)

    plan = cluster.tick(fault(gpu="0000:5d:00", boot="boot-a", seq=6, stamp=90, seconds=70), seconds=71)

    assert cluster.tainted == set()
    [dropped] = plan.ignored
    assert dropped.reason == "the line precedes the last release in the kernel log, but was read after it"
    [change] = plan.changes
    assert (change.health, change.event) == ("suspect", EventReason.READ_LATE)
    assert "(before the release)" in change.message


def test_a_release_covers_recorded_faults_even_beyond_the_saved_cursor() -> None:
    cluster = tainted_cluster(stamp=86_400, seconds=100)
    reset_node(cluster, "gpu-1", 105, read=90)  # the Lease has the cursor of up to ten seconds ago
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=300)

    cluster.tick(fault(stamp=86_400, seconds=100), seconds=400)

    assert cluster.tainted == set()


def test_a_reset_with_a_cursor_from_the_future_covers_no_later_fault() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(
        fault(source=Source.POD, stamp=None, rule="nccl.socket", severity=Severity.SUSPECT), seconds=1
    )

    reset_node(cluster, "gpu-1", 10, read=10**8)
    cluster.tick(fault(seconds=20), seconds=21)

    assert cluster.tainted == {"gpu-1"}


def released_state(name: str, *, seconds: float, boot: str = "boot-a") -> NodeState:
    """A node that was tainted, and reset ``seconds`` after noon."""
    cluster = Cluster({name: node(name, boot=boot), **fleet(9)})
    cluster.tick(fault(name))
    reset_node(cluster, name, seconds)
    return cluster.nodes[name]


def test_a_release_is_remembered_for_a_day_after_its_node_is_deleted() -> None:
    state = released_state("gpu-1", seconds=60)

    [known] = recent_releases((), [state, *fleet(3).values()], at(61))

    assert (known.machine, known.releases) == (state.record.machine, state.record.releases)
    assert recent_releases([known], fleet(0).values(), at(86_400)) == (known,)
    assert recent_releases([known], fleet(0).values(), at(86_461)) == ()


def test_the_record_on_a_node_replaces_a_remembered_release_of_its_machine() -> None:
    state = released_state("gpu-1", seconds=60)
    [known] = recent_releases((), [state], at(61))
    purged = replace(state, record=NodeRecord())
    reset_again = replace(
        state, record=replace(state.record, releases=(replace(state.record.releases[0], at=at(80)),))
    )

    assert recent_releases([known], [purged], at(90)) == ()
    assert [each.releases[0].at for each in recent_releases([known], [reset_again], at(90))] == [at(80)]


def test_a_release_of_an_ended_boot_is_not_remembered() -> None:
    state = released_state("gpu-1", seconds=60)
    [known] = recent_releases((), [state], at(61))
    rebooted = replace(state, machine=replace(state.machine, boot_id="boot-b"))

    assert recent_releases((), [rebooted], at(90)) == ()
    assert recent_releases([known], [rebooted], at(90)) == (known,)  # the old boot may still return


def test_only_the_newest_releases_are_remembered() -> None:
    states = [released_state(f"gpu-{number}", seconds=number) for number in range(10, 70)]

    known = recent_releases((), states, at(100))

    assert [each.machine and each.machine.system_id for each in known] == [
        f"system-gpu-{number}" for number in range(69, 19, -1)
    ]


def test_a_held_fault_is_told_and_not_the_removal_by_hand_before_it() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault())
    cluster.untaint_by_hand("gpu-1")
    cluster.rules = PolicyConfig(brake_max_nodes=0)

    [change] = cluster.tick(fault(seconds=60, stamp=160, gpu="0000:9a:00"), seconds=61).changes

    assert (change.verb, change.event) == (Verb.RECORD, EventReason.HELD)
    assert "does not taint again" not in change.message
