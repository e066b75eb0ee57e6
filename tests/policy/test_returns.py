"""A node returns by reboot only if nothing speaks against it; each reason against it is said in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from konductor_like.model import (
    NO_GPUS,
    Control,
    ControlAct,
    Controls,
    FaultKind,
    GpuCount,
    Hearing,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    Machine,
    MetBy,
    NodeRecord,
    NodeState,
    Quarantine,
    ReleaseHow,
    ReturnedNode,
    Severity,
    Snapshot,
    Source,
    Taint,
)
from konductor_like.policy import returns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.needs import with_repeats
from konductor_like.policy.returns import (
    known_returns,
    returns_left,
    settled_by_resume,
    stop_words,
    why_stays,
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
    as_read=replace(_NODE.as_read, health="faulty", needs="none"),
    gpus=GpuCount(8, 8),
)
HEARD = Hearing("boot-b", ns(-900), ns(0))
SNAPSHOT = Snapshot({"gpu-1": STATE}, hearing={"gpu-1": HEARD}, read_ns={Source.KERNEL: ns(0)})
PAUSE = ControlAct(Control.PAUSE, NOON, "kim", "move", at(60))


def reason(
    *,
    rules: PolicyConfig = RULES,
    record: NodeRecord = RECORD,
    snapshot: Snapshot = SNAPSHOT,
    **of_state: object,
) -> str | None:
    """Return why the node stays tainted, after these changes of a node that may return."""
    state = replace(STATE, record=record, **of_state)  # type: ignore[arg-type]  # fields of a NodeState
    return why_stays(state, snapshot, rules, NOON)


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
    assert reason() is None


SUSPECT = replace(LOST, key=IncidentKey("xid.63", GPU), code=63, severity=Severity.SUSPECT)
GUARDS: dict[str, tuple[Callable[[], str | None], str]] = {
    "the setting is ask": (lambda: reason(rules=PolicyConfig()), "KONDUCTOR_RETURN is ask"),
    "opted out": (lambda: reason(opted_out=True), "the label trainy.konduktor.ai/ignore"),
    "not selected": (lambda: reason(selected=False), "KONDUCTOR_NODE_SELECTOR does not select"),
    "paused": (
        lambda: reason(snapshot=without(controls=Controls((PAUSE,)))),
        "paused by kim until 2026-03-04T12:01:00Z: move",
    ),
    "the Lease is not read": (lambda: reason(snapshot=without(lease_unread=True)), "Lease cannot be read"),
    "another Node": (lambda: reason(machine=Machine("uid-x", "system-gpu-1", "boot-b")), "another machine"),
    "another machine": (lambda: reason(machine=Machine("uid-gpu-1", "other", "boot-b")), "another machine"),
    "a damaged record": (lambda: reason(record_problem="it is not JSON"), "record cannot be read in full"),
    "a person's taint": (
        lambda: reason(record=of(LOST, replace(LOST, key=IncidentKey("operator", None)))),
        "a person tainted it",
    ),
    "marked for replacement": (
        lambda: reason(record=lived(replace_since=NOON)),
        "marked for replacement: it failed 1 times in 7 days",
    ),
    "lost lines": (
        lambda: reason(snapshot=without(lost_boots={"gpu-1": "boot-b"})),
        "the kernel overwrote lines of its present boot before they were read",
    ),
    "the hold is not over": (
        lambda: reason(record=lived(hold_until=at(60))),
        "stay out of service until 2026-03-04T12:01:00Z",
    ),
    "only a test": (
        lambda: reason(record=of(replace(LOST, severity=Severity.TEST))),
        "no fault that a reboot repairs",
    ),
    "somebody else's taint": (
        lambda: reason(record=lived(tainted_at=None)),
        "no fault that a reboot repairs",
    ),
    "another need": (
        lambda: reason(record=of(replace(LOST, needs="replacement"))),
        f"xid 79 on GPU {GPU} needs replacement, not a reboot",
    ),
    "an unknown need": (lambda: reason(record=of(replace(LOST, needs=""))), "needs a person"),
    "a suspicion that a reboot does not end": (
        lambda: reason(record=of(LOST, replace(SUSPECT, needs="inspection", met_ns=None))),
        f"xid 63 on GPU {GPU} needs inspection",
    ),
    "a fault of this boot": (
        lambda: reason(record=of(replace(LOST, last=KernelPosition("boot-b"), met_ns=None))),
        f"the controller has seen no reboot since xid 79 on GPU {GPU}",
    ),
    "a pending fault": (
        lambda: reason(record=of(LOST, replace(SUSPECT, state=IncidentState.PENDING))),
        f"the controller has seen no reboot since xid 63 on GPU {GPU}",
    ),
    "a fault that a reboot did not end before": (
        lambda: reason(
            record=with_repeats(of(LOST, replace(LOST, last=KernelPosition("boot-b"), met_by=None)))
        ),
        f"xid 79 on GPU {GPU} needs inspection, not a reboot",
    ),
    "a reboot that nobody saw": (
        lambda: reason(record=of(replace(LOST, met_ns=None, met_by=None))),
        "has seen no reboot since xid 79",
    ),
    "relapsed before": (
        lambda: reason(
            record=lived(quarantines=(Quarantine(at(-9), at(-8), "xid.79", ReleaseHow.REBOOT, relapse=True),))
        ),
        "failed again on probation, after its return at 2026-03-04T11:59:52Z",
    ),
    "contested": (lambda: reason(record=lived(contested_at=at(-99))), "contested"),
    "cordoned": (lambda: reason(unschedulable=True), "the Node is cordoned"),
    "not Ready": (lambda: reason(ready=False), "not Ready"),
    "short of GPUs": (
        lambda: reason(snapshot=without(short_of_gpus={"gpu-1": "7 of 8 GPUs"})),
        "7 of 8 GPUs",
    ),
    "fewer GPUs than its record has": (lambda: reason(gpus=GpuCount(7, 8)), "it has only 7 of 8 GPUs"),
    "all GPUs broken": (lambda: reason(gpus=GpuCount(0, 0)), "it has only 0 of 8 GPUs"),
    "no NVIDIA resource": (lambda: reason(gpus=NO_GPUS), "cannot be counted: the Node tells of none"),
    "MIG": (lambda: reason(gpus=GpuCount(56, 56, comparable=False)), "cannot be counted: they are split by"),
    "a driver upgrade": (lambda: reason(gpus=GpuCount(8, 8, paused=True)), "is being replaced"),
    "GPUs that were not counted before": (
        lambda: reason(record=of(gpus=None)),
        "cannot be counted: its record does not say how many it had",
    ),
    "time-slicing whose label is gone": (
        lambda: reason(record=of(gpu_layout="replicas=4"), gpus=GpuCount(28, 28)),
        "cannot be counted: they are shared in another way than before (replicas=1, before replicas=4)",
    ),
    "all shared GPUs broken": (
        lambda: reason(record=of(gpu_layout="replicas=4"), gpus=GpuCount(0, 0)),
        "it has only 0 of 8 GPUs",
    ),
    "history still being read": (lambda: reason(snapshot=without(replaying=True)), "still reads older lines"),
    "a silent kernel log": (lambda: reason(snapshot=without(hearing={})), "does not arrive"),
    "only the earlier boot heard": (
        lambda: reason(snapshot=without(hearing={"gpu-1": replace(HEARD, boot_id="boot-a")})),
        "does not arrive",
    ),
    "a gap": (
        lambda: reason(snapshot=without(hearing={"gpu-1": replace(HEARD, has_gap=True)})),
        "its kernel log has a gap",
    ),
    "a gap of this boot that was given up": (
        lambda: reason(snapshot=without(gaps_given_up={"gpu-1": HEARD.first_ns + 1})),
        "its kernel log has a gap",
    ),
    "heard for too short a time": (
        lambda: reason(snapshot=without(hearing={"gpu-1": replace(HEARD, first_ns=ns(-599))})),
        "must be heard without a fault until 2026-03-04T12:00:01Z",
    ),
    "heard, but its lines are not read yet": (
        lambda: reason(snapshot=without(read_ns={Source.KERNEL: ns(-301)})),
        "must be heard without a fault until 2026-03-04T11:55:00Z",
    ),
    "returns are stopped": (
        lambda: reason(snapshot=without(controls=out(3, relapsed=3))),
        "3 of the last 10 returned nodes failed again",
    ),
    "enough returns this hour": (
        lambda: reason(snapshot=without(controls=out(4, ago=600))),
        "the limit of 4 returns an hour",
    ),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_node_stays_tainted(guard: str) -> None:
    why, words = GUARDS[guard]

    assert words in (why() or "it returns")


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
    assert f"the taint {key} shows that another tool repairs the Node" in (reason(taints=foreign(key)) or "")


def test_any_other_taint_is_no_claim() -> None:
    assert reason(taints=foreign("nvidia.com/gpu")) is None


def test_an_acknowledged_or_ended_suspicion_does_not_keep_a_node_out() -> None:
    assert reason(record=of(LOST, replace(SUSPECT, state=IncidentState.RELEASED, needs="support"))) is None


def test_a_pause_that_is_over_does_not_keep_a_node_out() -> None:
    assert reason(snapshot=without(controls=Controls((replace(PAUSE, until=NOON),)))) is None


def test_lines_lost_in_an_earlier_boot_do_not_keep_a_node_out() -> None:
    assert reason(snapshot=without(lost_boots={"gpu-1": "boot-a", "gpu-2": "boot-b"})) is None


def test_two_relapses_do_not_stop_the_returns_of_the_fleet() -> None:
    assert reason(snapshot=without(controls=out(10, relapsed=2))) is None


def resumed(controls: Controls, seconds: float = -60) -> Controls:
    """The controls after ``konductor-like resume``."""
    relapses = settled_by_resume(controls)
    return controls.with_act(ControlAct(Control.RESUME, at(seconds), "kim", relapses=relapses))


def and_relapsed(controls: Controls, *names: str, ago: float = 30.0) -> Controls:
    """The controls after these nodes have returned and relapsed, too."""
    more = tuple(ReturnedNode(name, at(-ago - n), at(-ago)) for n, name in enumerate(names))
    return replace(controls, returned=known_returns((*controls.returned, *more), (), NOON))


def counted(controls: Controls) -> list[str]:
    return [name for _, name in returns.relapses(controls)]


def test_relapses_before_a_resume_count_no_longer_also_when_old_returns_leave_the_ten() -> None:
    controls = resumed(out(10, relapsed=4, ago=9000))
    assert counted(controls) == []

    for number in range(2):
        controls = and_relapsed(controls, f"new-{number}", ago=50 - number)
        assert not returns.is_stopped(controls)
    controls = and_relapsed(controls, "new-2")

    assert counted(controls) == ["new-0", "new-1", "new-2"]
    assert "new-0 at 2026-03-04T11:59:10Z, new-1" in stop_words(controls)


def test_the_resume_of_an_ordinary_pause_changes_nothing_also_after_the_end_of_an_earlier_stop() -> None:
    controls = and_relapsed(resumed(out(3, relapsed=3)), "new-1", "new-2")

    controls = resumed(controls.with_act(replace(PAUSE, at=at(-20), until=None)), -10)
    assert counted(controls) == ["new-1", "new-2"]

    assert returns.is_stopped(and_relapsed(controls, "new-3", ago=5))


def test_a_resume_before_the_stop_changes_nothing() -> None:
    controls = and_relapsed(resumed(out(2, relapsed=2)), "new-1")

    assert counted(controls) == ["gpu-1", "gpu-2", "new-1"]


def test_the_second_stop_ends_like_the_first() -> None:
    controls = and_relapsed(resumed(out(3, relapsed=3)), "new-1", "new-2", "new-3")
    assert returns.is_stopped(controls)

    assert counted(resumed(controls, -1)) == []


def test_a_resume_with_a_time_in_the_future_hides_no_later_relapse() -> None:
    controls = and_relapsed(resumed(out(3, relapsed=3), YEARS), "new-1", "new-2", "new-3")

    assert returns.is_stopped(controls)


def test_a_resume_ends_a_stop_whose_returns_and_relapses_have_times_in_the_future() -> None:
    nodes = [back(f"gpu-{n}", YEARS + n, relapse=True, out_again=YEARS + 60) for n in range(3)]
    controls = Controls(returned=known_returns((), nodes, NOON))
    assert returns.is_stopped(controls)

    controls = resumed(controls)

    assert counted(replace(controls, returned=known_returns(controls.returned, nodes, at(3600)))) == []


def test_one_node_alone_does_not_stop_the_returns_of_the_fleet() -> None:
    times = [
        Quarantine(at(-9 * n), at(-9 * n + 1), "xid.79", ReleaseHow.REBOOT, relapse=True) for n in range(1, 9)
    ]
    state = replace(node("gpu-1"), record=NodeRecord(life=Life(quarantines=tuple(times))))

    assert counted(Controls(returned=known_returns((), [state], NOON))) == ["gpu-1"]


def test_relapses_before_the_last_resume_no_longer_count_also_after_a_later_pause() -> None:
    controls = resumed(out(3, relapsed=3))
    assert not returns.is_stopped(controls)

    controls = controls.with_act(replace(PAUSE, at=at(-30), until=at(-20)))

    assert reason(snapshot=without(controls=controls)) is None


def test_the_words_of_a_stop_stay_the_same_when_a_fourth_node_fails() -> None:
    assert stop_words(out(4, relapsed=4)) == stop_words(out(4, relapsed=3))


def test_returns_older_than_an_hour_make_room() -> None:
    assert returns_left(out(4, ago=600), RULES, NOON) == 0
    assert returns_left(out(4, ago=3600), RULES, NOON) == 0
    assert returns_left(out(4, ago=3602), RULES, NOON) == 2
    assert returns_left(out(4, ago=7200), replace(RULES, returns_per_hour=0), NOON) == 0


def back(name: str, seconds: float, *, relapse: bool, out_again: float | None = None) -> NodeState:
    """A node whose record shows a return by reboot at ``seconds``."""
    quarantines = (Quarantine(at(seconds - 60), at(seconds), "xid.79", ReleaseHow.REBOOT, relapse=relapse),)
    tainted_at = None if out_again is None else at(out_again)
    return replace(node(name), record=NodeRecord(life=Life(tainted_at, quarantines=quarantines)))


def test_the_records_of_nodes_show_returns_and_relapses_that_the_lease_does_not_have_yet() -> None:
    nodes = [back("gpu-1", 0, relapse=True, out_again=50), back("gpu-2", 10, relapse=False)]

    first, second = known_returns((), nodes, NOON)

    assert (first.name, first.relapsed_at) == ("gpu-2", None)
    assert (second.name, second.returned_at, second.relapsed_at) == ("gpu-1", NOON, at(50))
    assert known_returns((first, second), nodes, NOON) == (first, second)


def test_a_deleted_or_purged_node_stays_among_the_last_returns() -> None:
    before = known_returns((), [back("gpu-1", 0, relapse=True, out_again=50)], NOON)

    assert known_returns(before, [node("gpu-1")], NOON) == before
    older = (replace(before[0], relapsed_at=None),)
    for known in (before + older, older + before):
        assert known_returns(known, [], NOON) == before


def test_only_the_last_ten_returns_are_kept_and_other_ways_back_are_no_returns() -> None:
    nodes = [back(f"gpu-{n}", n, relapse=False) for n in range(12)]
    by_hand = replace(nodes[0].record.life.quarantines[0], how=ReleaseHow.RESET)
    nodes[0] = replace(nodes[0], record=NodeRecord(life=Life(quarantines=(by_hand,))))

    found = known_returns((), nodes, NOON)

    assert [each.name for each in found] == [f"gpu-{n}" for n in range(11, 1, -1)]


@pytest.mark.parametrize(("ahead", "left"), [(HOUR - 1, 3), (HOUR, 4), (YEARS, 4)])
def test_a_return_an_hour_or_more_ahead_uses_up_nothing_of_the_hour(ahead: float, left: int) -> None:
    controls = Controls(returned=known_returns((), [back("gpu-1", ahead, relapse=False)], NOON))

    assert len(controls.returned) == 1
    assert returns_left(controls, RULES, NOON) == left
    assert returns_left(controls, RULES, at(2 * HOUR) if ahead < YEARS else NOON) == 4


def forged(name: str, *seconds: float) -> NodeState:
    """A node whose record shows returns at these times, as its own kubelet may write."""
    times = (Quarantine(at(each - 1), at(each), "xid.79", ReleaseHow.REBOOT) for each in seconds)
    return replace(node(name), record=NodeRecord(life=Life(quarantines=tuple(times))))


@pytest.mark.parametrize(
    "seconds", [range(-10, 0), range(3000, 3010), [YEARS + n for n in range(10)]], ids=["now", "ahead", "far"]
)
def test_the_record_of_one_node_uses_up_one_return_of_the_hour_and_displaces_no_other(
    seconds: Iterable[float],
) -> None:
    others = [back(f"gpu-{n}", -7200 + n, relapse=True, out_again=-7000) for n in range(1, 10)]

    found = known_returns((), [forged("gpu-99", *seconds), *others], NOON)

    assert [each.name for each in found if each.relapsed_at] == [f"gpu-{n}" for n in range(9, 0, -1)]
    assert len(found) == 10
    assert returns_left(Controls(returned=found), RULES, NOON) >= 3


def test_a_return_in_the_future_gives_way_to_the_returns_of_ten_other_nodes() -> None:
    others = [back(f"gpu-{n}", -n, relapse=False) for n in range(10)]

    found = known_returns(known_returns((), [forged("gpu-99", YEARS)], NOON), others, NOON)

    assert {each.name for each in found} == {f"gpu-{n}" for n in range(10)}


def test_of_a_node_that_returned_twice_its_relapse_stays_known() -> None:
    before = known_returns((), [back("gpu-1", -7200, relapse=True, out_again=-7000)], NOON)

    assert known_returns(before, [back("gpu-1", -60, relapse=False)], NOON) == before


def test_a_fault_guard_never_depends_on_the_order_in_which_incidents_were_recorded() -> None:
    unmet = replace(SUSPECT, needs="inspection", met_ns=None)
    for one, other in product((LOST, unmet), repeat=2):
        if one is not other:
            assert "needs inspection" in (reason(record=of(one, other)) or "")


def test_an_hour_of_returns_counts_in_both_directions_of_a_clock_that_was_set() -> None:
    controls = Controls(returned=(ReturnedNode("gpu-1", NOON + timedelta(minutes=30)),))

    assert returns_left(controls, RULES, NOON) == 3
