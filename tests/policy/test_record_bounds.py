"""A record has a bounded number of incidents, whatever one pod or one broken driver prints (rule 10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from konductor_like.model import Fault, FaultKind, Incident, IncidentState, KernelPosition, Severity, Source
from konductor_like.policy.node.incidents import RECORD_FULL
from konductor_like.policy.node.record_builder import (
    GPUS_OF_RULE_MOST,
    INCIDENTS_MOST,
    INCIDENTS_OF_PODS_MOST,
)
from tests.policy.scenes import Cluster, fault, fleet, ns, reset_node

LOST = "cuda.device_handle"


def kernel(number: int, *, rule: str = "xid.79", gpu: str | None = None, fatal: bool = True) -> Fault:
    """The kernel line with this sequence number; each is a second after the one before."""
    severity = Severity.FATAL if fatal else Severity.SUSPECT
    found = fault(rule=rule, gpu=gpu, severity=severity, seconds=number, text=f"line {number}")
    place = KernelPosition("boot-a", number, number * 1_000_000)
    return replace(found, finding=found.finding._replace(position=place))


def of_pod(number: int, *, rule: str = LOST, gpu: str | None = None) -> Fault:
    """A line of a pod, which names any GPU."""
    return fault(
        seconds=number,
        stamp=None,
        rule=rule,
        gpu=gpu,
        kind=FaultKind.CUDA,
        severity=Severity.SUSPECT,
        source=Source.POD,
        text=f"line {number}",
    )


def address(number: int) -> str:
    return f"{number >> 8:04x}:{number & 255:02x}:00"


def flooded(lines: Iterable[Fault], *, batch: int = 100) -> Cluster:
    """A fleet on which these lines arrived, some at a time."""
    cluster = Cluster(fleet(10))
    lines = list(lines)
    for first in range(0, len(lines), batch):
        cluster.tick(*lines[first : first + batch], seconds=first + batch)
    return cluster


def incidents(cluster: Cluster) -> tuple[Incident, ...]:
    return cluster.nodes["gpu-1"].record.incidents


@pytest.mark.parametrize("source", [Source.POD, Source.KERNEL])
def test_the_further_gpus_of_a_rule_share_one_incident_and_no_line_is_lost(source: Source) -> None:
    numbers = range(1, 1001)
    if source is Source.POD:
        cluster = flooded(of_pod(number, gpu=address(number)) for number in numbers)
    else:
        cluster = flooded(kernel(number, gpu=address(number)) for number in numbers)

    found = incidents(cluster)
    [shared] = [each for each in found if each.key.gpu is None]
    cluster.tick(seconds=10_000)  # the counts are written

    assert len(found) == GPUS_OF_RULE_MOST + 1
    assert shared.state is IncidentState.ACTIVE
    assert sum(each.count for each in incidents(cluster)) == 1000
    assert len(cluster.writes) < 10


def test_a_release_covers_all_gpus_of_a_flood_and_the_next_fault_taints() -> None:
    flood = [kernel(number, gpu=address(number)) for number in range(1, 101)]
    cluster = flooded(flood)
    reset_node(cluster, "gpu-1", 200)

    cluster.tick(*(replace(each, timestamp_ns=ns(300)) for each in flood), seconds=300)
    assert cluster.tainted == set()
    cluster.tick(kernel(101, gpu=address(7)), seconds=301)

    assert cluster.tainted == {"gpu-1"}


def test_a_fatal_fault_taints_although_a_driver_has_filled_the_record() -> None:
    cluster = flooded(kernel(number, rule=f"xid.{500 + number}", fatal=False) for number in range(1, 1001))
    assert len(incidents(cluster)) == INCIDENTS_MOST
    assert cluster.tainted == set()

    cluster.tick(kernel(1001), seconds=2000)

    assert cluster.tainted == {"gpu-1"}
    assert len(incidents(cluster)) == INCIDENTS_MOST
    assert incidents(cluster)[-1].key.rule == "xid.79"


def test_a_fault_that_does_not_fit_is_reported_and_covered_by_the_next_release() -> None:
    flood = [kernel(number, rule=f"xid.{500 + number}") for number in range(1, 201)]
    cluster = Cluster(fleet(10))

    plan = cluster.tick(*flood, seconds=200)

    assert len(incidents(cluster)) == INCIDENTS_MOST
    assert {item.reason for item in plan.ignored} == {RECORD_FULL}
    assert len(plan.ignored) == 200 - INCIDENTS_MOST
    reset_node(cluster, "gpu-1", 300)
    cluster.tick(*(replace(each, timestamp_ns=ns(400)) for each in flood), seconds=400)
    assert cluster.tainted == set()


def test_a_pod_keeps_no_kernel_line_out_of_the_record() -> None:
    cluster = flooded(of_pod(number, rule=f"site.rule_{number}") for number in range(1, 1001))
    assert len(incidents(cluster)) == INCIDENTS_OF_PODS_MOST

    cluster.tick(kernel(1001, rule="xid.63", fatal=False), seconds=2000)

    assert "xid.63" in {each.key.rule for each in incidents(cluster)}


def test_a_released_incident_gives_way_to_a_new_one() -> None:
    cluster = flooded(kernel(number, rule=f"xid.{500 + number}", fatal=False) for number in range(1, 101))
    reset_node(cluster, "gpu-1", 150)

    cluster.tick(kernel(201, rule="xid.63", fatal=False), seconds=202)

    assert len(incidents(cluster)) == INCIDENTS_MOST
    open_ones = [each.key.rule for each in incidents(cluster) if each.state is IncidentState.ACTIVE]
    assert open_ones == ["xid.63"]
