"""A dry run decides on the nodes as it would have written them."""

from __future__ import annotations

from konductor_like.cluster.node.writer import DryRunWriter
from konductor_like.controller.ports import DryRunNodes
from konductor_like.model import Severity, Snapshot
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from tests.controller.reconciling import Cluster
from tests.policy.scenes import at, fault, fleet


def test_a_taint_of_a_dry_run_stays_when_a_later_record_is_written() -> None:
    nodes, writer = DryRunNodes(Cluster(fleet(1))), DryRunWriter()
    faults = [
        fault(),
        fault(seconds=10, stamp=110, rule="xid.31", severity=Severity.APPLICATION),
        fault(seconds=20, stamp=120, rule="xid.43", severity=Severity.APPLICATION),
    ]

    for one in faults:
        states = nodes.snapshot()
        for change in decide(Snapshot(states), [one], PolicyConfig(), at(30)).changes:
            applied = writer.write(states[change.node], change).state
            assert applied is not None
            nodes.apply(applied)

    state = nodes.snapshot()["gpu-1"]
    assert state.tainted
    assert len(state.record.incidents) == 3
    assert not state.record.releases
    assert state.as_read.needs == "reboot"
    assert decide(Snapshot(nodes.snapshot()), (), PolicyConfig(), at(60)).changes == ()
