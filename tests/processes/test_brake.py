"""The brake in the real controller, without a tail and without queries for pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from konductor_like_sandbox.demo.stage import Stage
from tests.processes.waiting import logged, until

pytestmark = pytest.mark.processes

XID_31 = "NVRM: Xid (PCI:0000:4e:00): 31, pid=4711, name=python3, MMU Fault: ENGINE GRAPHICS"


@pytest.fixture
def fleet() -> Iterator[Stage]:
    with Stage(gpu_nodes=60) as ready:
        yield ready


def tainted_count(stage: Stage) -> int:
    return sum(node.tainted for node in stage.nodes())


def held_by_events(stage: Stage) -> set[str]:
    """Return the objects with an Event that the brake holds them."""
    found = stage.cluster.objects("events", "default")
    return {e["involvedObject"]["name"] for e in found if e["reason"] == "GPUFaultHeldByBrake"}


def test_a_bad_rule_taints_no_more_nodes_than_the_brake_allows_and_one_reset_releases_them(
    fleet: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("overrides:\n  xid.31.severity: fatal\n", "utf-8")
    controller = fleet.start_controller(
        KONDUCTOR_RULES_FILE=str(file),
        KONDUCTOR_POLL_INTERVAL_SECONDS="0.2",
        KONDUCTOR_TAIL="false",
        KONDUCTOR_ASK_FOR_PODS="false",
    )
    until(logged(controller, "Reading Loki"), "it leads", controller)

    for name in fleet.gpu_nodes:
        fleet.kernel(name, XID_31)
    until(
        lambda: all(fleet.node(n).health in ("faulty", "held") for n in fleet.gpu_nodes),
        "every node is tainted or held",
        controller,
    )
    assert tainted_count(fleet) == 12
    assert "holding 48 nodes; 12 out of service, at most 12 of 60 GPU nodes" in fleet.run("status").stdout
    until(lambda: bool(held_by_events(fleet) & set(fleet.gpu_nodes)), "held nodes have an Event", controller)

    done = fleet.run("reset", "--all", "--yes", "--reason", "Xid 31 is no hardware fault")

    assert done.returncode == 0
    until(logged(controller, "The brake holds back no nodes now"), "the brake is released", controller)
    assert tainted_count(fleet) == 0
    assert not fleet.loki.requests("/loki/api/v1/tail")
    assert not fleet.cluster.calls("list", "pods")
