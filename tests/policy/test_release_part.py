"""A release in part: only the chosen incidents are released, and the rest of the node stays as it is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.catalog import Needs
from konductor_like.model import EventReason, Fault, IncidentKey, IncidentState, NodeState, Severity, Verb
from konductor_like.policy.health import tainting
from konductor_like.policy.machines import recent_releases
from konductor_like.policy.operator import operator_taint, release_selected
from konductor_like.policy.release import RELEASES_KEPT, reminder
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, node, ns, reset_node
from tests.policy.shared import gpu_fleet, xid

OTHER_GPU = "0000:9a:00"
SUSPECT = {"rule": "xid.63", "severity": Severity.SUSPECT, "needs": "gpu-reset"}
TEST = {"rule": "xid.14", "severity": Severity.TEST, "gpu": "0000:ff:1f", "needs": "nothing"}


def release_rules(cluster: Cluster, seconds: float, *rules: str, name: str = "gpu-1") -> None:
    """Release the incidents of these rules as ``konductor-like reset NAME --rule R`` does."""
    change = release_selected(
        cluster.nodes[name], lambda each: each.key.rule in rules, at=at(seconds), by="ann", reason="seen"
    )
    cluster.apply(change)


def faults_of(keys: Collection[tuple[str, str, bool]], *, stamp: float, seconds: float) -> list[Fault]:
    return [
        fault(rule=rule, gpu=gpu, severity=Severity.FATAL if fatal else Severity.SUSPECT,
              stamp=stamp + number, seconds=seconds + number, text=f"{rule} {gpu} {stamp}")
        for number, (rule, gpu, fatal) in enumerate(sorted(keys))
    ]  # fmt: skip


KEYS = [(rule, gpu, rule != "xid.63") for rule in ("xid.48", "xid.63", "xid.79") for gpu in ("a", "b")]


@given(st.sets(st.sampled_from(KEYS), min_size=1), st.sets(st.sampled_from(KEYS), min_size=1))
def test_only_the_chosen_incidents_change_and_the_taint_stays_exactly_for_the_others(
    there: set[tuple[str, str, bool]], chosen: set[tuple[str, str, bool]]
) -> None:
    cluster = Cluster(fleet(10))
    old = faults_of(there, stamp=100, seconds=0)
    cluster.tick(*old, seconds=20)
    before = cluster.nodes["gpu-1"]
    keys = {IncidentKey(rule, gpu) for rule, gpu, _ in chosen}

    change = release_selected(before, lambda each: each.key in keys, at=at(60), by="ann", reason="")

    if not chosen & there:
        assert change is None
        return
    cluster.apply(change)
    after = cluster.nodes["gpu-1"]
    left = [each for each in after.record.incidents if each.key not in keys]
    assert left == [each for each in before.record.incidents if each.key not in keys]
    assert all(i.state is IncidentState.RELEASED for i in after.record.incidents if i.key in keys)
    assert after.tainted is bool(tainting(after.record))
    assert (after.record.tainted_at is not None) is after.tainted

    cluster.tick(*(replace(each, timestamp_ns=ns(300)) for each in old), seconds=301)  # a replay
    assert cluster.nodes["gpu-1"].tainted is after.tainted
    assert cluster.nodes["gpu-1"].record.incidents == after.record.incidents

    cluster.tick(*faults_of(chosen & there, stamp=500, seconds=400), seconds=420)
    news = {each.key for each in cluster.nodes["gpu-1"].record.incidents if each.first_ns >= ns(400)}
    assert news == {IncidentKey(rule, gpu) for rule, gpu, _ in chosen & there}
    is_faulty_again = any(fatal for _, _, fatal in chosen & there)
    assert cluster.nodes["gpu-1"].tainted is (after.tainted or is_faulty_again)


def test_the_release_of_a_test_leaves_a_real_fault_and_says_so() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100), fault(**TEST, stamp=101, seconds=1), seconds=2)  # type: ignore[arg-type]

    release_rules(cluster, 60, "xid.14")

    assert cluster.tainted == {"gpu-1"}
    write = cluster.writes[-1]
    assert (write.verb, write.event, write.health) == (Verb.RECORD, EventReason.RELEASED, "faulty")
    assert write.message == (
        "xid 14 on GPU 0000:ff:1f released by ann: seen. The taint stays, for xid 79 on GPU 0000:4e:00."
    )
    [mark] = write.record.releases if write.record else ()
    assert mark.how == "reset of xid 14 on GPU 0000:ff:1f"
    assert write.act_id


def test_the_last_reason_takes_the_taint_along_and_a_suspicion_stays() -> None:
    cluster = Cluster(fleet(10))
    suspect = fault(**SUSPECT, gpu=OTHER_GPU, stamp=101, seconds=1)  # type: ignore[arg-type]
    cluster.tick(fault(stamp=100), suspect, seconds=2)

    release_rules(cluster, 60, "xid.79")

    write = cluster.writes[-1]
    assert (write.verb, write.health, write.needs) == (Verb.UNTAINT, "suspect", Needs.GPU_RESET)
    assert [each.rule for each in cluster.nodes["gpu-1"].record.quarantines] == ["xid.79"]
    assert reminder(cluster.nodes["gpu-1"]).startswith("The node has not rebooted since: xid 79")


@pytest.mark.parametrize(
    "state",
    [
        replace(node(), taints=(OURS,)),
        replace(node(), taints=(OURS,), record_problem="not JSON"),
    ],
    ids=["a taint that nobody claims", "a damaged record"],
)
def test_a_taint_for_an_unknown_reason_stays(state: NodeState) -> None:
    cluster = Cluster({"gpu-1": state})
    cluster.tick(fault(**TEST))  # type: ignore[arg-type]

    release_rules(cluster, 60, "xid.14")

    assert cluster.tainted == {"gpu-1"}


def test_a_persons_own_taint_stays() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(**TEST))  # type: ignore[arg-type]
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(10), by="kim", reason="riser swap"))

    release_rules(cluster, 60, "xid.14")
    assert cluster.tainted == {"gpu-1"}

    release_rules(cluster, 70, "operator")
    assert cluster.tainted == set()


def test_a_line_that_no_incident_counted_yet_taints_after_a_release_in_part() -> None:
    """The release covers what was chosen; a whole reset would cover this line by its place in the log."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100))
    release_rules(cluster, 60, "xid.79")

    cluster.tick(fault(rule="xid.48", gpu=OTHER_GPU, stamp=90, seconds=50), seconds=61)

    assert cluster.tainted == {"gpu-1"}


def test_many_releases_in_part_push_no_whole_release_out_of_the_record() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(rule="xid.48", gpu=OTHER_GPU, stamp=100))
    reset_node(cluster, "gpu-1", 60, read=59)
    for number in range(RELEASES_KEPT + 2):
        cluster.tick(fault(**TEST, stamp=200 + 100 * number, seconds=100 + 100 * number),  # type: ignore[arg-type]
                     seconds=101 + 100 * number)  # fmt: skip
        release_rules(cluster, 130 + 100 * number, "xid.14")

    record = cluster.nodes["gpu-1"].record
    assert [mark.how for mark in record.releases if not mark.in_part] == ["reset"]
    cluster.tick(fault(stamp=90, seconds=50), seconds=2000)
    assert cluster.tainted == set()


def test_a_release_in_part_keeps_the_reminder_of_the_reset_before_it() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100))
    reset_node(cluster, "gpu-1", 60)
    cluster.tick(fault(**TEST, stamp=200, seconds=100), seconds=101)  # type: ignore[arg-type]

    release_rules(cluster, 130, "xid.14")

    assert "has not rebooted" in reminder(cluster.nodes["gpu-1"])
    cluster.reboot("gpu-1", "boot-b")
    assert reminder(cluster.nodes["gpu-1"]) == ""


def test_a_machine_that_registers_again_remembers_both_releases() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(rule="xid.48", gpu=OTHER_GPU, stamp=100))
    reset_node(cluster, "gpu-1", 60, read=59)
    cluster.tick(fault(**TEST, stamp=200, seconds=100), seconds=101)  # type: ignore[arg-type]
    release_rules(cluster, 130, "xid.14")

    [kept] = recent_releases((), cluster.nodes.values(), at(140))

    assert [mark.how.split(" on ")[0] for mark in kept.releases] == ["reset of xid 14", "reset"]


def test_released_evidence_counts_towards_no_threshold_any_more() -> None:
    cluster = gpu_fleet(10)
    for number in range(3):
        cluster.tick(xid("gpu-1", 94, seconds=3600 * number), seconds=3600 * number + 1)
    assert cluster.tainted == {"gpu-1"}

    release_rules(cluster, 7300, "xid.94")
    cluster.tick(xid("gpu-1", 94, seconds=7400), seconds=7401)

    assert cluster.tainted == set()
