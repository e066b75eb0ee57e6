"""Thresholds that taint: repetition, and two kinds of evidence together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.model import (
    Escalation,
    EventReason,
    Fault,
    FaultKind,
    Same,
    Severity,
    Snapshot,
    Source,
    Threshold,
)
from konductor_like.policy.fleet.escalation import DEFAULT_ADVICE
from tests.policy.scenes import Cluster, at, fault, reset_node
from tests.policy.shared import RULES, gpu_fleet, nccl, xid

HOUR = 3600.0


def ecc(name: str = "gpu-1", *, seconds: float = 0) -> Fault:
    """A pod line about a memory error."""
    return fault(
        name,
        seconds=seconds,
        stamp=None,
        rule="cuda.214",
        kind=FaultKind.CUDA,
        gpu=None,
        severity=Severity.SUSPECT,
        source=Source.POD,
        text="CUDA error: uncorrectable ECC error encountered",
    )


def replace_severity(found: Fault, severity: Severity) -> Fault:
    """The same line with another severity."""
    return replace(found, finding=found.finding._replace(severity=severity))


def tick_each(cluster: Cluster, *faults: Fault) -> None:
    """Decide on each line at its own time."""
    for one in faults:
        seconds = (one.timestamp_ns - at(0).timestamp() * 1e9) / 1e9
        cluster.tick(one, seconds=round(seconds) + 1)


def reason_and_advice(cluster: Cluster) -> tuple[str, str]:
    """Return the reason and the advice of gpu-1's taint, which record and Event agree on."""
    [incident] = [each for each in cluster.nodes["gpu-1"].record.incidents if each.escalated_because]
    message = next(change.message for change in cluster.writes if change.event is EventReason.TAINTED)
    assert f"Reason for the taint: {incident.escalated_because}. {incident.advice}" in message
    return incident.escalated_because, incident.advice


@pytest.mark.parametrize(
    ("code", "pods", "key"), [(94, False, "memory_error"), (31, True, "diagnose"), (13, True, "diagnose")]
)
def test_a_node_tainted_by_repetition_gets_the_advice_of_its_threshold(
    code: int, pods: bool, key: str
) -> None:
    cluster = gpu_fleet(10)
    for number, name in enumerate("abc"):
        if pods:
            tick_each(cluster, nccl("gpu-1", f"ml/Job/{name}", seconds=number * HOUR))
        tick_each(cluster, xid("gpu-1", code, seconds=number * HOUR + 1))

    assert cluster.tainted == {"gpu-1"}
    assert reason_and_advice(cluster)[1] == load_catalog().advice[key].text


def test_evidence_that_was_counted_and_not_written_is_released_with_the_rest() -> None:
    """A later incident of the GPU replaces the released one, so the release itself must cover it."""
    cluster = gpu_fleet(10)
    tick_each(cluster, xid("gpu-1", 94, seconds=0), xid("gpu-1", 94, seconds=100))
    assert [each.count for each in cluster.nodes["gpu-1"].record.incidents] == [1]
    reset_node(cluster, "gpu-1", 200)

    tick_each(cluster, xid("gpu-1", 94, seconds=HOUR), xid("gpu-1", 94, seconds=2 * HOUR))
    assert cluster.tainted == set()
    tick_each(cluster, xid("gpu-1", 94, seconds=3 * HOUR))

    assert cluster.tainted == {"gpu-1"}


def test_a_node_tainted_by_two_kinds_of_evidence_gets_their_advice() -> None:
    cluster = gpu_fleet(10)

    tick_each(cluster, ecc(), xid("gpu-1", 94, seconds=60))

    assert cluster.tainted == {"gpu-1"}
    assert reason_and_advice(cluster)[1] == load_catalog().advice["confirmed_memory_error"].text


def test_every_built_in_escalation_to_a_taint_has_advice() -> None:
    advice = {
        rule: each.advice
        for rule, each in load_catalog().escalations.items()
        if each.threshold is not None or each.together_with is not None
    }

    assert all(advice.values()), advice


@pytest.mark.parametrize(
    ("kind", "advice"), [(FaultKind.XID, DEFAULT_ADVICE[0]), (FaultKind.CUSTOM, "Reboot the node.")]
)
def test_a_threshold_without_advice_uses_the_general_one_or_that_of_a_users_rule(
    kind: FaultKind, advice: str
) -> None:
    cluster = gpu_fleet(10)
    cluster.rules = replace(RULES, escalations={"site.odd": Escalation(Threshold(2, 86_400, Same.GPU))})

    tick_each(
        cluster,
        *(
            fault(rule="site.odd", kind=kind, severity=Severity.SUSPECT, stamp=100 + n, seconds=n * HOUR)
            for n in range(2)
        ),
    )

    assert reason_and_advice(cluster) == ("2 times within 24h on this GPU", advice)


@pytest.mark.parametrize("code", [13, 31])
def test_a_page_fault_that_follows_the_gpu_and_not_the_job_taints(code: int) -> None:
    same_job, many_jobs = gpu_fleet(10), gpu_fleet(10)
    for cluster, names in ((same_job, "aaa"), (many_jobs, "abc")):
        for number, name in enumerate(names):
            cluster.snapshot = replace(cluster.snapshot, jobs={"gpu-1": frozenset({f"ml/Job/{name}"})})
            tick_each(cluster, xid("gpu-1", code, seconds=number * HOUR))

    assert same_job.tainted == set()
    assert many_jobs.tainted == {"gpu-1"}


def test_page_faults_in_many_runs_of_one_program_do_not_taint() -> None:
    cluster = gpu_fleet(10)

    for number in range(4):
        run = nccl("gpu-1", f"ann/Job/debug-{number}", seconds=number * HOUR)
        cluster.tick(xid("gpu-1", 31, seconds=number * HOUR), run, seconds=number * HOUR + 1)

    assert cluster.tainted == set()


@pytest.mark.parametrize(
    ("jobs", "tainted"),
    [(("abc", "abc", "abc", "abc"), set()), (("abc", "a", "b", "c"), {"gpu-1"})],
    ids=["it counts once", "it hides no fault of a single job"],
)
def test_a_page_fault_that_may_be_of_several_jobs_counts_as_one_and_hides_no_other(
    jobs: tuple[str, ...], tainted: set[str]
) -> None:
    cluster = gpu_fleet(10)

    for number, names in enumerate(jobs):
        running = frozenset(f"ml/Job/{name}" for name in names)
        cluster.snapshot = replace(cluster.snapshot, jobs={"gpu-1": running})
        tick_each(cluster, xid("gpu-1", 31, seconds=number * HOUR))

    assert cluster.tainted == tainted


def test_a_pods_memory_error_and_a_kernel_line_together_taint() -> None:
    alone, together, elsewhere = gpu_fleet(10), gpu_fleet(10), gpu_fleet(10)

    tick_each(alone, ecc(), xid("gpu-1", 31, seconds=20), xid("gpu-1", 45, seconds=21))
    tick_each(together, ecc(), xid("gpu-1", 63, seconds=20))
    tick_each(elsewhere, ecc(), xid("gpu-2", 63, seconds=20))

    assert alone.tainted == set()
    assert together.tainted == {"gpu-1"}
    assert elsewhere.tainted == set()


@pytest.mark.parametrize("code", [48, 63, 64, 92, 94, 95, 140, 160, 168, 171, 172])
def test_every_xid_about_memory_confirms_a_pods_memory_error(code: int) -> None:
    cluster = gpu_fleet(10)

    tick_each(cluster, ecc(), replace_severity(xid("gpu-1", code, seconds=20), Severity.SUSPECT))

    assert cluster.tainted == {"gpu-1"}
    incidents = {incident.key.rule: incident for incident in cluster.nodes["gpu-1"].record.incidents}
    assert incidents["cuda.214"].escalated_because == f"together with xid.{code} on the same node within 10m"


@pytest.mark.parametrize("code", [8, 109, 68, 39, 82, 44, 38, 45])
def test_an_xid_that_a_program_can_cause_does_not_confirm_a_pods_memory_error(code: int) -> None:
    before, after = gpu_fleet(10), gpu_fleet(10)

    tick_each(before, xid("gpu-1", code), ecc(seconds=20))
    tick_each(after, ecc(), xid("gpu-1", code, seconds=20))

    assert before.tainted == set()
    assert after.tainted == set()


def test_a_release_ends_the_count() -> None:
    cluster = gpu_fleet(10)
    tick_each(cluster, xid("gpu-1", 94), xid("gpu-1", 94, seconds=HOUR))

    reset_node(cluster, "gpu-1", 1.5 * HOUR)
    tick_each(cluster, xid("gpu-1", 94, seconds=2 * HOUR), xid("gpu-1", 94, seconds=3 * HOUR))
    assert cluster.tainted == set()
    tick_each(cluster, xid("gpu-1", 94, seconds=4 * HOUR))

    assert cluster.tainted == {"gpu-1"}


def test_a_reboot_ends_the_count() -> None:
    cluster = gpu_fleet(10)
    tick_each(cluster, xid("gpu-1", 94), xid("gpu-1", 94, seconds=HOUR))

    cluster.reboot("gpu-1", "boot-b")
    tick_each(cluster, xid("gpu-1", 94, seconds=2 * HOUR))

    assert cluster.tainted == set()


def test_faults_before_a_restart_count_with_later_ones_and_do_not_taint_alone() -> None:
    cluster = gpu_fleet(10)
    before = [xid("gpu-1", 94), xid("gpu-1", 94, seconds=HOUR)]
    tick_each(cluster, *before)

    cluster.snapshot = Snapshot(cluster.nodes)
    cluster.rules = replace(RULES, escalations={"xid.94": Escalation(Threshold(2, 86_400, Same.GPU))})
    cluster.tick(seconds=3 * HOUR, past=before)
    assert cluster.tainted == set()
    tick_each(cluster, xid("gpu-1", 94, seconds=4 * HOUR))

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize("late", range(3))
def test_the_third_line_taints_in_any_order_of_arrival(late: int) -> None:
    cluster = gpu_fleet(10)
    lines = [xid("gpu-1", 94, seconds=n * 300) for n in range(3)]
    last = lines.pop(late)
    tick_each(cluster, *lines)
    assert cluster.tainted == set()

    cluster.tick(last, seconds=HOUR)

    assert cluster.tainted == {"gpu-1"}


def test_a_page_fault_does_not_count_if_a_late_pod_line_gives_it_a_second_job() -> None:
    cluster = gpu_fleet(10)
    faults = [xid("gpu-1", 31, seconds=n * HOUR) for n in range(3)]
    pods = [nccl("gpu-1", f"ml/Job/{name}", seconds=n * HOUR) for n, name in enumerate("abc")]
    tick_each(cluster, *sorted([*faults[:2], *pods[:2]], key=lambda one: one.timestamp_ns))

    cluster.tick(nccl("gpu-1", "ml/Job/b", seconds=-5), seconds=1.5 * HOUR)
    tick_each(cluster, faults[2], pods[2])

    assert cluster.tainted == set()


@pytest.mark.parametrize("order", [1, -1])
def test_kernel_and_pod_lines_confirm_each_other_even_if_one_is_read_long_after_a_restart(order: int) -> None:
    cluster = gpu_fleet(10)
    before, late = [ecc(), xid("gpu-1", 63, seconds=60)][::order]
    tick_each(cluster, before)

    cluster.snapshot = Snapshot(cluster.nodes)
    cluster.tick(seconds=HOUR, past=[before])
    assert cluster.tainted == set()
    cluster.tick(late, seconds=HOUR + 1)

    assert cluster.tainted == {"gpu-1"}


def test_a_pod_line_that_names_the_job_of_a_page_fault_after_a_restart_completes_the_threshold() -> None:
    cluster = gpu_fleet(10)
    faults = [xid("gpu-1", 31, seconds=n * HOUR) for n in range(3)]
    pods = [nccl("gpu-1", f"ml/Job/{name}", seconds=n * HOUR) for n, name in enumerate("abc")]
    tick_each(cluster, *sorted([*faults, *pods[:2]], key=lambda one: one.timestamp_ns))

    cluster.snapshot = Snapshot(cluster.nodes)
    cluster.tick(seconds=2.4 * HOUR, past=[*faults, *pods[:2]])
    assert cluster.tainted == set()
    cluster.tick(pods[2], seconds=2.5 * HOUR)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([xid("gpu-1", 94, seconds=n * HOUR) for n in range(2)], id="twice"),
        pytest.param([xid("gpu-1", 94, seconds=second) for second in range(30)], id="many lines at once"),
        pytest.param(
            [xid("gpu-1", 94, seconds=n * HOUR, gpu=f"0000:{n:02x}:00") for n in range(4)],
            id="GPUs are counted separately",
        ),
        pytest.param([xid("gpu-1", 94, seconds=n * 13 * HOUR) for n in range(5)], id="too long ago"),
    ],
)
def test_too_few_memory_errors_taint_nothing(lines: list[Fault]) -> None:
    cluster = gpu_fleet(10)

    tick_each(cluster, *lines)

    assert cluster.tainted == set()


@pytest.mark.parametrize("seconds", [(0, HOUR, 2 * HOUR), range(0, 1201, 50)], ids=["thrice", "without end"])
def test_a_contained_memory_error_taints_when_it_comes_back_for_the_third_time(
    seconds: Iterable[float],
) -> None:
    cluster = gpu_fleet(10)

    tick_each(cluster, *(xid("gpu-1", 94, seconds=second) for second in seconds))

    assert cluster.tainted == {"gpu-1"}
    [incident] = cluster.nodes["gpu-1"].record.incidents
    assert incident.escalated_because == "3 times within 24h on this GPU"
    assert any("3 times within 24h on this GPU" in change.message for change in cluster.writes)


def test_a_release_ends_the_count_even_if_the_nodes_clock_is_ahead() -> None:
    cluster = gpu_fleet(10)
    cluster.tick(xid("gpu-1", 94, seconds=500), seconds=1)
    cluster.tick(xid("gpu-1", 94, seconds=1000), seconds=400)

    reset_node(cluster, "gpu-1", 450)
    cluster.tick(xid("gpu-1", 94, seconds=1500), seconds=1000)

    assert cluster.tainted == set()
