"""The metrics of single nodes: their words, their bound, and the end of a series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.node import node_report
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.node_metrics import View
from konductor_like.model import BrakeState, Coverage, Life, NodeRecord, NodeState
from konductor_like.policy.node.health import Health
from tests.controller.reconciling import Scene, xid
from tests.policy.scenes import GPU, OURS, fleet, node

HEARD = Coverage(datetime(2026, 3, 4, tzinfo=UTC), listed_are_measured=False)
"""Every kernel log arrives."""


def series(metrics: Metrics, name: str) -> list[dict[str, str]]:
    """Return the labels of all series of a metric, as one scrape shows them."""
    [family] = [each for each in metrics.registry.collect() if each.name == f"konductor_like_{name}"]
    return [sample.labels for sample in family.samples if sample.value]


def states(metrics: Metrics) -> dict[str, str]:
    return {labels["node"]: labels["state"] for labels in series(metrics, "node_state")}


def showing(
    nodes: Mapping[str, NodeState], coverage: Coverage = HEARD, *, most: int = 2000, unread: bool = False
) -> Metrics:
    """Return the metrics of a leader with these nodes."""
    metrics = Metrics()
    metrics.nodes.most = most
    metrics.nodes.view = lambda: View(nodes, coverage, unread)
    return metrics


def test_a_node_has_its_series_from_the_taint_until_the_taint_is_gone() -> None:
    scene = Scene(3)
    scene.metrics.nodes.most = 10
    scene.metrics.nodes.view = lambda: View(scene.cluster.snapshot(), HEARD, unread=False)
    scene.run(xid(), seconds=2)

    assert states(scene.metrics) == {"gpu-1": "faulty"}
    assert series(scene.metrics, "node_fault_info") == [
        {"node": "gpu-1", "rule": "xid.79", "gpu": GPU, "severity": "fatal", "needs": "reboot"}
    ]

    scene.cluster.apply(node("gpu-1"))
    assert states(scene.metrics) == {}
    assert series(scene.metrics, "node_fault_info") == []


def needs(metrics: Metrics) -> dict[tuple[str, str], float]:
    """By node and need, the Unix time since when the node needs it."""
    [family] = [
        each for each in metrics.registry.collect() if each.name.endswith("node_need_since_timestamp_seconds")
    ]
    return {(each.labels["node"], each.labels["needs"]): each.value for each in family.samples}


def test_a_node_shows_since_when_it_needs_what_its_label_says() -> None:
    scene = Scene(3)
    scene.run(xid(), seconds=2)
    nodes = scene.cluster.snapshot()
    [incident] = nodes["gpu-1"].record.incidents

    assert needs(showing(nodes)) == {("gpu-1", "reboot"): incident.first_ns / 1e9}
    assert needs(showing(nodes, most=0)) == {}


def test_an_ignored_node_needs_nothing_as_it_has_no_label() -> None:
    scene = Scene(3)
    scene.run(xid(), seconds=2)
    ignored = replace(scene.cluster.nodes["gpu-1"], opted_out=True)

    assert [*needs(showing({"gpu-1": ignored}))] == [("gpu-1", "reboot")]
    assert needs(showing({"gpu-1": replace(ignored, taints=())})) == {}


@pytest.mark.parametrize("unread", [False, True], ids=["read", "unread"])
@pytest.mark.parametrize(
    "one",
    [
        pytest.param(node(), id="healthy"),
        pytest.param(node("silent"), id="silent"),
        pytest.param(replace(node(), taints=(OURS,)), id="tainted without a record"),
        pytest.param(replace(node(), record_problem="no JSON"), id="unreadable record"),
        pytest.param(replace(node(), record=NodeRecord(life=Life(probation_until=HEARD.at))), id="probation"),
    ],
)
def test_a_node_has_the_state_that_status_shows(one: NodeState, unread: bool) -> None:
    coverage = replace(HEARD, unknown=frozenset({"silent"}))
    now = HEARD.at + timedelta(seconds=1000 if unread else 0)
    controller = ControllerReport("ns/lease", coverage=coverage)
    shown = node_report(one, controller, BrakeState(1, 0, 1), now).health

    found = states(showing({one.name: one}, coverage, unread=unread))

    assert found == ({} if shown is Health.HEALTHY else {one.name: shown})


def test_a_node_without_a_gpu_is_never_unknown() -> None:
    assert states(showing({"gpu-1": node(gpu=False)}, unread=True)) == {}


def test_the_bound_keeps_the_gravest_nodes() -> None:
    nodes = fleet(4)  # unknown, as their kernel logs are unread
    nodes["gpu-4"] = replace(nodes["gpu-4"], taints=(OURS,))
    nodes["gpu-3"] = replace(nodes["gpu-3"], record=NodeRecord(life=Life(probation_until=HEARD.at)))
    metrics = showing(nodes, most=2, unread=True)

    assert states(metrics) == {"gpu-4": "faulty", "gpu-3": "probation"}


def test_a_bound_of_zero_and_a_process_that_does_not_lead_show_no_node() -> None:
    tainted = {"gpu-1": replace(node(), taints=(OURS,))}
    standby = showing(tainted)
    standby.nodes.view = None

    assert states(showing(tainted, most=0)) == states(standby) == {}
