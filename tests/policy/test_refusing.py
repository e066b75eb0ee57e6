"""Every node with an open tainting fault that is not tainted is reported with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.cluster.events import event_subject
from konductor_like.model import (
    TAINT_EFFECT,
    TAINT_KEY,
    EventReason,
    Fault,
    FaultKind,
    IncidentKey,
    Machine,
    NodeState,
    Role,
    Severity,
    SkipReason,
    Source,
    Taint,
)
from konductor_like.policy.change import shadow_event, would_taint
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings
from tests.policy.scenes import GPU, Cluster, fault, fleet, node

KEY = IncidentKey("xid.79", GPU)


def skipped(cluster: Cluster, *faults_of: str, seconds: float = 0) -> list[tuple[str, SkipReason]]:
    """Return the skipped taints, with reasons, for an Xid 79 on each of these nodes."""
    plan = cluster.tick(*(fault(name, seconds=seconds) for name in faults_of), seconds=seconds)
    assert all(item.key == KEY for item in plan.refused)
    return [(item.node, item.why) for item in plan.refused]


def test_a_held_node_is_reported_for_as_long_as_it_is_held() -> None:
    cluster = Cluster(fleet(5))

    assert skipped(cluster, "gpu-1", "gpu-2") == [("gpu-2", SkipReason.BRAKE)]
    assert skipped(cluster, seconds=5) == [("gpu-2", SkipReason.BRAKE)]


def test_a_tainted_node_is_not_reported() -> None:
    cluster = Cluster(fleet(5))

    assert skipped(cluster, "gpu-1") == []
    assert skipped(cluster, "gpu-1", seconds=10) == []


def test_a_held_node_that_is_opted_out_is_reported_as_opted_out() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1))
    cluster.nodes["gpu-2"] = replace(cluster.nodes["gpu-2"], opted_out=True)

    assert skipped(cluster, seconds=5) == [("gpu-2", SkipReason.OPTED_OUT)]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (replace(node(), selected=False), SkipReason.NOT_SELECTED),
        (replace(node(), taints=(Taint(TAINT_KEY, "someone-elses", TAINT_EFFECT),)), SkipReason.BLOCKED),
        (node(), SkipReason.AMBIGUOUS),
    ],
)
def test_a_node_that_may_not_be_tainted_is_reported_with_the_reason(
    state: NodeState, reason: SkipReason
) -> None:
    cluster = Cluster({"gpu-1": state})
    ambiguous = frozenset({"gpu-1"} if reason is SkipReason.AMBIGUOUS else ())
    cluster.snapshot = replace(cluster.snapshot, ambiguous=ambiguous)

    assert skipped(cluster, "gpu-1") == [("gpu-1", reason)]
    assert cluster.tainted == set()


def test_a_line_of_another_boot_is_reported_as_pending_until_the_node_reaches_it() -> None:
    cluster = Cluster(fleet(3))
    plan = cluster.tick(fault(boot="boot-b"))

    assert [(item.why, item.detail) for item in plan.refused] == [(SkipReason.PENDING, "boot boot-b")]
    assert skipped(cluster, seconds=5) == [("gpu-1", SkipReason.PENDING)]
    cluster.reboot("gpu-1", "boot-b")
    assert skipped(cluster, seconds=10) == []
    assert cluster.tainted == {"gpu-1"}


def test_a_node_without_a_gpu_is_reported_unless_its_kernel_proves_one() -> None:
    cluster = Cluster({"cpu-1": replace(node("cpu-1", gpu=False), machine=Machine("u", "s", "boot-a"))})

    plan = cluster.tick(fault("cpu-1", rule="site.flux", kind=FaultKind.CUSTOM))

    assert [item.why for item in plan.refused] == [SkipReason.NO_GPU]
    assert skipped(cluster, "cpu-1") == []
    assert cluster.tainted == {"cpu-1"}


def test_a_collateral_node_is_reported_with_its_failure_group() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1))
    state = cluster.nodes["gpu-2"]
    swept = replace(state.record.incidents[0], role=Role.COLLATERAL, failure_group="ev-1")
    cluster.nodes["gpu-2"] = replace(state, record=replace(state.record, incidents=(swept,)))

    plan = cluster.tick(seconds=5)

    assert [(item.node, item.why, item.detail) for item in plan.refused] == [
        ("gpu-2", SkipReason.COLLATERAL, "ev-1")
    ]


def test_a_fault_that_does_not_taint_is_not_reported() -> None:
    suspect = fault(rule="xid.63", severity=Severity.SUSPECT)
    for state in (node(), node(opted_out=True), node(gpu=False)):
        assert Cluster({"gpu-1": state}).tick(suspect).refused == ()


def test_a_storm_on_an_opted_out_node_is_one_skipped_taint() -> None:
    cluster = Cluster({"gpu-1": node(opted_out=True)})

    plan = cluster.tick(*(fault(seconds=n, stamp=100 + n) for n in range(50)), seconds=50)

    assert [(item.node, item.why) for item in plan.refused] == [("gpu-1", SkipReason.OPTED_OUT)]
    assert skipped(cluster, seconds=60) == [("gpu-1", SkipReason.OPTED_OUT)]


# Kernel records that a user wrote.


def test_a_record_that_a_user_wrote_taints_by_default_and_the_event_says_who_wrote_it() -> None:
    cluster = Cluster(fleet(2))

    cluster.rules = PolicyConfig(brake_max_percent=100)
    plan = cluster.tick(fault(user_written=True), fault("gpu-2", seconds=1))

    assert cluster.tainted == {"gpu-1", "gpu-2"}
    assert "xid 79 on GPU 0000:4e:00 (written by a user): GPU lost." in plan.changes[0].message
    assert "written by a user" not in plan.changes[1].message


def test_a_record_that_a_user_wrote_is_only_counted_if_the_setting_ignores_it() -> None:
    cluster = Cluster(fleet(2), PolicyConfig(count_user_written=False))

    plan = cluster.tick(fault("gpu-1", user_written=True), fault("gpu-2"))

    ignored = [(item.fault.node, item.reason) for item in plan.ignored]
    assert ignored == [("gpu-1", "a user wrote the line into the kernel log")]
    assert [item.why for item in plan.refused] == [SkipReason.USER_WRITTEN]
    assert plan.refused[0].about == fault(user_written=True)
    assert [change.node for change in plan.changes] == ["gpu-2"]


def test_the_setting_for_user_written_records_reaches_the_policy() -> None:
    assert Settings().policy().count_user_written
    assert not Settings(user_written="ignore").policy().count_user_written


def test_an_incident_is_no_longer_user_written_once_the_driver_prints_the_same() -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(fault(stamp=100, user_written=True))
    [written] = cluster.nodes["gpu-1"].record.incidents
    assert written.user_written

    cluster.tick(fault(seconds=700, stamp=800), seconds=700)
    cluster.tick(seconds=1400)
    [printed] = cluster.nodes["gpu-1"].record.incidents
    assert not printed.user_written
    assert printed.count == 2


# Rules on trial.


@pytest.mark.parametrize(
    ("state", "found", "expected"),
    [
        pytest.param(node(), fault(), True, id="a fatal kernel line"),
        pytest.param(node(gpu=False), fault(), True, id="a kernel line that proves a GPU"),
        pytest.param(node(gpu=False), fault(kind=FaultKind.AER), False, id="a node without a GPU"),
        pytest.param(node(opted_out=True), fault(), False, id="a node that is opted out"),
        pytest.param(replace(node(), selected=False), fault(), False, id="a node outside the selector"),
        pytest.param(node(), fault(severity=Severity.SUSPECT), False, id="a rule that only suspects"),
        pytest.param(node(), fault(source=Source.POD), False, id="text out of a pod"),
        pytest.param(node(), fault(before_install=True), False, id="a line from before the install"),
    ],
)
def test_a_rule_on_trial_would_taint_the_same_nodes_as_a_rule_in_force(
    state: NodeState, found: Fault, expected: bool
) -> None:
    assert would_taint(state, found) is expected


def test_the_event_of_a_rule_on_trial_names_rule_and_line_and_writes_no_record() -> None:
    change = shadow_event(node(), fault())

    assert (change.record, change.event, change.act_id) == (None, EventReason.SHADOW, "")
    assert (
        "would have tainted the node, but its rule is in shadow mode: xid.79 on GPU 0000:4e:00"
        in change.message
    )
    assert change.message.endswith(f'Line: "{fault().finding.text}"')


def test_a_rule_on_trial_sends_one_event_per_boot() -> None:
    first, again = (event_subject(shadow_event(node(), fault(seconds=n, stamp=n))) for n in (1, 2))
    next_boot = event_subject(shadow_event(node(boot="boot-b"), fault(seconds=3)))
    other_gpu = event_subject(shadow_event(node(), fault(gpu="0000:9a:00")))

    assert first == again
    assert len({first, next_boot, other_gpu}) == 3
