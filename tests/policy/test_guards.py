"""A tainted node returns only if no guard keeps it out; each guard has a code and words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from konductor_like.model import (
    NO_GPUS,
    BrakeState,
    Control,
    ControlAct,
    Controls,
    FaultKind,
    GpuCount,
    GpuCounts,
    Hearing,
    Held,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    Machine,
    MetBy,
    NodeRecord,
    PoolBrake,
    Quarantine,
    ReleaseHow,
    ReturnedNode,
    Severity,
    SkipReason,
    Snapshot,
    Source,
    Standing,
    Taint,
    Validation,
    ValidationStage,
    ValidationVerdict,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.needs import with_repeats
from konductor_like.policy.recovery.guards import (
    ORDER,
    PUBLISHED,
    Blocker,
    Guard,
    blockers,
    published,
    to_publish,
)
from tests.policy.scenes import GPU, NOON, OURS, at, node, ns

HOUR = 3600.0
YEARS = 10 * 365 * 86_400.0
RULES = PolicyConfig(returns_by_reboot=True)
LOST = Incident(
    key=IncidentKey("xid.79", GPU),
    kind=FaultKind.XID,
    severity=Severity.FATAL,
    state=IncidentState.ACTIVE,
    count=1,
    first_ns=ns(-3600),
    last_ns=ns(-3600),
    last=KernelPosition("boot-a", None, 100),
    code=79,
    title="GPU lost",
    needs="reboot",
    met_ns=ns(-900),
    met_by=MetBy.REBOOT,
)
"""A fault of the boot before, met by the reboot."""
RECORD = NodeRecord(Machine("uid-gpu-1", "system-gpu-1", "boot-b"), Life(at(-3590)), (LOST,), gpus=8)
STATE = replace(
    (_NODE := node(boot="boot-b")),
    taints=(OURS,),
    record=RECORD,
    as_read=replace(_NODE.as_read, record="…", health="faulty", needs="none"),
    gpus=GpuCount(8, 8),
)
HEARD = Hearing("boot-b", ns(-900), ns(0))
STOOD = Standing(600.0, 600.0)
SNAPSHOT = Snapshot(
    {"gpu-1": STATE}, hearing={"gpu-1": HEARD}, standing={"gpu-1": STOOD}, read_ns={Source.KERNEL: ns(0)}
)
HELD = Held("gpu-2", LOST, SkipReason.COOLDOWN)
PAUSE = ControlAct(Control.PAUSE, NOON, "kim", "move", at(60))


def first(
    *,
    rules: PolicyConfig = RULES,
    record: NodeRecord = RECORD,
    snapshot: Snapshot = SNAPSHOT,
    brake: BrakeState | None = None,
    **of_state: object,
) -> Blocker | None:
    """Return what keeps the node out, after these changes of a node that may return."""
    state = replace(STATE, record=record, **of_state)  # type: ignore[arg-type]  # fields of a NodeState
    return next(blockers(state, snapshot, rules, NOON, brake), None)


def without(**changes: object) -> Snapshot:
    return replace(SNAPSHOT, **changes)  # type: ignore[arg-type]  # fields of a Snapshot


def of(incident: Incident = LOST, *more: Incident, **changes: object) -> NodeRecord:
    return replace(RECORD, incidents=(incident, *more), **changes)  # type: ignore[arg-type]  # fields of a record


def lived(**changes: object) -> NodeRecord:
    return of(life=replace(RECORD.life, **changes))  # type: ignore[arg-type]  # fields of a life


def foreign(key: str) -> tuple[Taint, ...]:
    return (OURS, Taint(key, None, "NoSchedule"))


def out(count: int, *, relapsed: int = 0, ago: float = 7200.0) -> Controls:
    """The returns of ``count`` nodes, the first of them with a relapse."""
    return Controls(
        returned=tuple(
            ReturnedNode(f"gpu-{n}", at(-ago + n), at(-ago + n + 60) if n <= relapsed else None)
            for n in range(count, 0, -1)
        )
    )


def test_a_rebooted_node_whose_needs_are_all_met_may_return() -> None:
    assert first() is None


BY_VALIDATION = PolicyConfig(returns_by_validation=True, validates=True)
ASKED = Validation(ValidationStage.ASKED, 3, at(-60), "kim")
FAILED = replace(ASKED, stage=ValidationStage.ENDED, verdict=ValidationVerdict.FAIL, why="memory")
SUSPECT = replace(LOST, key=IncidentKey("xid.63", GPU), code=63, severity=Severity.SUSPECT)
GUARDS: dict[str, tuple[Callable[[], Blocker | None], str]] = {
    "the setting is ask": (lambda: first(rules=PolicyConfig()), "KONDUCTOR_RETURN is ask"),
    "opted out": (lambda: first(opted_out=True), "the label trainy.konduktor.ai/ignore"),
    "not selected": (lambda: first(selected=False), "KONDUCTOR_NODE_SELECTOR does not select"),
    "paused": (
        lambda: first(snapshot=without(controls=Controls((PAUSE,)))),
        "paused by kim until 2026-03-04T12:01:00Z: move",
    ),
    "the Lease is not read": (lambda: first(snapshot=without(lease_unread=True)), "Lease cannot be read"),
    "another Node": (lambda: first(machine=Machine("uid-x", "system-gpu-1", "boot-b")), "another machine"),
    "another machine": (lambda: first(machine=Machine("uid-gpu-1", "other", "boot-b")), "another machine"),
    "a damaged record": (lambda: first(record_problem="it is not JSON"), "record cannot be read in full"),
    "a person's taint": (
        lambda: first(record=of(LOST, replace(LOST, key=IncidentKey("operator", None)))),
        "a person tainted it",
    ),
    "marked for replacement": (
        lambda: first(record=lived(replace_since=NOON)),
        "marked for replacement: it failed 1 times in 7 days",
    ),
    "lost lines": (
        lambda: first(snapshot=without(lost_boots={"gpu-1": "boot-b"})),
        "the kernel overwrote lines of its present boot before they were read",
    ),
    "the hold is not over": (
        lambda: first(record=lived(hold_until=at(60))),
        "stay out of service until 2026-03-04T12:01:00Z",
    ),
    "only a test": (
        lambda: first(record=of(replace(LOST, severity=Severity.TEST))),
        "it is out of service for a test (Xid 14), which ends by itself",
    ),
    "somebody else's taint": (
        lambda: first(record=lived(tainted_at=None)),
        "no fault that a reboot repairs",
    ),
    "another need": (
        lambda: first(record=of(replace(LOST, needs="replacement"))),
        f"xid 79 on GPU {GPU} needs replacement, not a reboot",
    ),
    "an unknown need": (lambda: first(record=of(replace(LOST, needs=""))), "needs a person"),
    "a suspicion that a reboot does not end": (
        lambda: first(record=of(LOST, replace(SUSPECT, needs="inspection", met_ns=None))),
        f"xid 63 on GPU {GPU} needs inspection",
    ),
    "a fault of this boot": (
        lambda: first(record=of(replace(LOST, last=KernelPosition("boot-b"), met_ns=None))),
        f"the controller has seen no reboot since xid 79 on GPU {GPU}",
    ),
    "a pending fault": (
        lambda: first(record=of(LOST, replace(SUSPECT, state=IncidentState.PENDING))),
        f"the controller has seen no reboot since xid 63 on GPU {GPU}",
    ),
    "a fault that a reboot did not end before": (
        lambda: first(
            record=with_repeats(of(LOST, replace(LOST, last=KernelPosition("boot-b"), met_by=None)))
        ),
        f"xid 79 on GPU {GPU} needs inspection, not a reboot",
    ),
    "a reboot that nobody saw": (
        lambda: first(record=of(replace(LOST, met_ns=None, met_by=None))),
        "has seen no reboot since xid 79",
    ),
    "relapsed before": (
        lambda: first(
            record=lived(quarantines=(Quarantine(at(-9), at(-8), "xid.79", ReleaseHow.REBOOT, relapse=True),))
        ),
        "failed again on probation, after its return at 2026-03-04T11:59:52Z",
    ),
    "contested": (lambda: first(record=lived(contested_at=at(-99))), "contested"),
    "cordoned": (lambda: first(unschedulable=True), "the Node is cordoned"),
    "not Ready": (lambda: first(ready=False), "not Ready"),
    "short of GPUs": (
        lambda: first(snapshot=without(gpus=GpuCounts(short={"gpu-1": "7 of 8 GPUs"}))),
        "7 of 8 GPUs",
    ),
    "fewer GPUs than its record has": (lambda: first(gpus=GpuCount(7, 8)), "it has only 7 of 8 GPUs"),
    "all GPUs broken": (lambda: first(gpus=GpuCount(0, 0)), "it has only 0 of 8 GPUs"),
    "no NVIDIA resource": (lambda: first(gpus=NO_GPUS), "cannot be counted: the Node tells of none"),
    "MIG": (lambda: first(gpus=GpuCount(56, 56, comparable=False)), "cannot be counted: they are split by"),
    "a driver upgrade": (lambda: first(gpus=GpuCount(8, 8, paused=True)), "is being replaced"),
    "GPUs that were not counted before": (
        lambda: first(record=of(gpus=None)),
        "cannot be counted: its record does not say how many it had",
    ),
    "time-slicing whose label is gone": (
        lambda: first(record=of(gpu_layout="replicas=4"), gpus=GpuCount(28, 28)),
        "cannot be counted: they are shared in another way than before (replicas=1, before replicas=4)",
    ),
    "all shared GPUs broken": (
        lambda: first(record=of(gpu_layout="replicas=4"), gpus=GpuCount(0, 0)),
        "it has only 0 of 8 GPUs",
    ),
    "history still being read": (lambda: first(snapshot=without(replaying=True)), "still reads older lines"),
    "a silent kernel log": (lambda: first(snapshot=without(hearing={})), "does not arrive"),
    "only the earlier boot heard": (
        lambda: first(snapshot=without(hearing={"gpu-1": replace(HEARD, boot_id="boot-a")})),
        "has not arrived yet",
    ),
    "a gap": (
        lambda: first(snapshot=without(hearing={"gpu-1": replace(HEARD, has_gap=True)})),
        "its kernel log has a gap",
    ),
    "a gap of this boot that was given up": (
        lambda: first(snapshot=without(gaps_given_up={"gpu-1": HEARD.first_ns + 1})),
        "its kernel log has a gap",
    ),
    "heard for too short a time": (
        lambda: first(snapshot=without(hearing={"gpu-1": replace(HEARD, first_ns=ns(-599))})),
        "must be heard without a fault until 2026-03-04T12:00:01Z",
    ),
    "heard, but its lines are not read yet": (
        lambda: first(snapshot=without(read_ns={Source.KERNEL: ns(-301)})),
        "must be heard without a fault until 2026-03-04T11:55:00Z",
    ),
    "heard for a minute, although the lines of other nodes are read further": (
        lambda: first(snapshot=without(hearing={"gpu-1": replace(HEARD, last_ns=ns(-840))})),
        "must be heard without a fault until 2026-03-04T11:55:00Z",
    ),
    "returns are stopped": (
        lambda: first(snapshot=without(controls=out(3, relapsed=3))),
        "3 of the last 10 returned nodes failed again",
    ),
    "claimed": (lambda: first(taints=foreign("karpenter.sh/disrupted")), "another tool repairs the Node"),
    "a fault waits for the cool-down": (
        lambda: first(brake=BrakeState(5, 0, 1, (HELD,), rearms_at=at(60))),
        "the brake holds gpu-2 back: the brake's cool-down ends at 2026-03-04T12:01:00Z",
    ),
    "Ready only since a moment ago, by the watch": (
        lambda: first(snapshot=without(standing={"gpu-1": replace(STOOD, ready_seconds=599.0)})),
        "it has been Ready only since 2026-03-04T11:50:01Z, and must stay so without a break until 2026",
    ),
    "Ready only since a moment ago, by the kubelet": (
        lambda: first(ready_since_ns=ns(-599)),
        "it has been Ready only since 2026-03-04T11:50:01Z",
    ),
    "all GPUs only since a moment ago": (
        lambda: first(snapshot=without(standing={"gpu-1": replace(STOOD, gpus_seconds=30.0)})),
        (
            "the same only since 2026-03-04T11:59:30Z, and must stay so without a break until "
            "2026-03-04T12:09:30Z"
        ),
    ),
    "the Nodes cannot be watched": (
        lambda: first(snapshot=without(standing={})),
        "the controller must see it Ready, with all its GPUs, for 10m without a break",
    ),
    "its last write failed": (
        lambda: first(snapshot=without(failing={"gpu-1": NOON})),
        "the controller's last write of the node failed",
    ),
    "a validation without a pass": (
        lambda: first(rules=BY_VALIDATION, record=of(validation=FAILED)),
        "the validation failed: memory",
    ),
    "a node that is not to be validated unasked": (
        lambda: first(rules=BY_VALIDATION, recovery_selected=False),
        "KONDUCTOR_RECOVERY_NODE_SELECTOR does not select the node",
    ),
    "the file of an earlier version": (
        lambda: first(rules=PolicyConfig(recovery_by_file=True)),
        "the file of KONDUCTOR_RECOVERY_FILE is there",
    ),
    "a rehearsal": (
        lambda: first(rules=replace(BY_VALIDATION, rehearses=True)),
        "KONDUCTOR_RECOVERY is rehearse",
    ),
    "no validation yet": (lambda: first(rules=BY_VALIDATION), "the node is validated first"),
    "a validation that waits": (
        lambda: first(rules=BY_VALIDATION, record=of(validation=replace(ASKED, waits="it is new"))),
        "a validation waits: it is new",
    ),
    "enough returns this hour": (
        lambda: first(snapshot=without(controls=out(4, ago=600))),
        "the limit of 4 returns an hour",
    ),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_node_stays_tainted(guard: str) -> None:
    why, words = GUARDS[guard]

    blocker = why()

    assert blocker is not None
    assert words in blocker.words


def test_a_boot_without_a_heartbeat_yet_is_young_and_not_silent() -> None:
    heard = replace(HEARD, boot_id="boot-a")
    blocker = first(snapshot=without(hearing={"gpu-1": heard}))

    assert blocker is not None
    assert blocker.guard is Guard.TOO_YOUNG


def test_every_guard_has_a_node_that_it_alone_keeps_out() -> None:
    found = {blocker.guard for why, _ in GUARDS.values() if (blocker := why())}

    assert found == set(Guard) - {
        Guard.SETTINGS_UNKNOWN,
        Guard.NOT_RUNNING,
        Guard.NOT_PUBLISHED,
    }  # only the command line has these


def test_the_guards_come_in_their_order() -> None:
    state = replace(STATE, unschedulable=True, opted_out=True, record_problem="no JSON")
    snapshot = without(replaying=True, failing={"gpu-1": NOON}, controls=out(4, ago=600))
    found = [guard for guard, _ in blockers(state, snapshot, PolicyConfig(), NOON)]

    assert found == sorted(found, key=ORDER.__getitem__)
    assert len(found) == 7


def test_a_node_that_stood_for_long_enough_returns_whatever_its_kubelets_clock_says() -> None:
    assert first(ready_since_ns=ns(-600)) is None
    assert first(ready_since_ns=ns(YEARS)) is None
    assert first(ready_since_ns=None) is None


def test_a_node_that_is_not_ready_or_short_of_gpus_is_not_called_unsteady_for_that() -> None:
    young = without(standing={"gpu-1": Standing(1.0, 1.0)})
    state = replace(STATE, ready=False, gpus=GpuCount(7, 8))
    found = [guard for guard, _ in blockers(state, young, RULES, NOON)]

    assert found == [Guard.NOT_READY, Guard.GPUS]


def test_a_fault_that_waits_for_a_place_and_one_of_another_pool_keep_no_node_out() -> None:
    full, cooling = Held("gpu-2", LOST), replace(HELD, pool="b")
    pools = (PoolBrake("a", 3, 0, 1), PoolBrake("b", 3, 0, 1))

    assert first(brake=BrakeState(5, 1, 1, (full,))) is None
    assert first(brake=BrakeState(5, 0, 1, (cooling,), pools=pools), pool="a") is None
    assert first(brake=BrakeState(5, 0, 1, (cooling,), pools=pools), pool="b") is not None


def test_a_held_node_without_a_pool_keeps_the_nodes_of_every_pool_out() -> None:
    brake = BrakeState(5, 0, 1, (HELD,), pools=(PoolBrake("a", 3, 0, 1), PoolBrake("b", 3, 0, 1)))

    assert HELD.pool is None
    assert first(brake=brake, pool="a") is not None
    assert first(brake=brake, pool="b") is not None


def test_the_published_code_of_a_newer_controller_keeps_a_node_out_too() -> None:
    assert published("gap", RULES) == (Guard.GAP, "its kernel log has a gap")
    assert published("moon", RULES) == (
        Guard.NOT_PUBLISHED,
        "the controller keeps it out for a reason that this command does not know (moon)",
    )
    assert to_publish({"gpu-1": Guard.CORDONED, "gpu-2": Guard.GAP}) == {"gpu-2": "gap"}


def test_the_page_on_returns_explains_every_guard() -> None:
    page = Path("docs/use/return.md").read_text("utf-8")
    seen, published_ones = page.split("## What keeps a node out")[1].split("Only the controller knows")

    assert guards_listed(seen) == set(Guard) - set(PUBLISHED)
    assert guards_listed(published_ones.split("\n## ")[0]) == set(PUBLISHED)


def guards_listed(text: str) -> set[str]:
    """Return the codes before the colon of each item."""
    heads = re.findall(r"^- (`[^:]*`):", text, re.MULTILINE)
    return {code for head in heads for code in re.findall(r"`([^`]*)`", head)}


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
        "medik8s.io/drain",
        "remediation.medik8s.io/self-node-remediation",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
        "nvsentinel.nvidia.com/external-remediation",
    ],
)
def test_a_node_that_another_repairer_claims_stays_tainted(key: str) -> None:
    assert f"the taint {key} shows that another tool repairs the Node" in str(first(taints=foreign(key)))


def test_any_other_taint_is_no_claim() -> None:
    assert first(taints=foreign("nvidia.com/gpu")) is None


def test_an_acknowledged_or_ended_suspicion_does_not_keep_a_node_out() -> None:
    assert first(record=of(LOST, replace(SUSPECT, state=IncidentState.RELEASED, needs="support"))) is None


def test_a_pause_that_is_over_does_not_keep_a_node_out() -> None:
    assert first(snapshot=without(controls=Controls((replace(PAUSE, until=NOON),)))) is None


def test_lines_lost_in_an_earlier_boot_do_not_keep_a_node_out() -> None:
    assert first(snapshot=without(lost_boots={"gpu-1": "boot-a", "gpu-2": "boot-b"})) is None


def test_two_relapses_do_not_stop_the_returns_of_the_fleet() -> None:
    assert first(snapshot=without(controls=out(10, relapsed=2))) is None


def test_a_fault_guard_never_depends_on_the_order_in_which_incidents_were_recorded() -> None:
    unmet = replace(SUSPECT, needs="inspection", met_ns=None)
    for one, other in product((LOST, unmet), repeat=2):
        if one is not other:
            assert "needs inspection" in str(first(record=of(one, other)))
