"""An outage has the failure group that the trail tells, or else the one that the Node's record names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.history.outages import Ledger, Outage
from konductor_like.history.trail import TrailLine
from konductor_like.model import (
    FaultKind,
    Hardware,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    NodeRecord,
    NodeState,
    Quarantine,
    ReleaseHow,
    Severity,
)
from konductor_like.model.time import unix_ns
from tests.history.values import MODEL, day
from tests.policy.scenes import OURS, node

GROUP, DRIVER = "rack r1@2026-04-07T12:00:00Z", "550"
SINCE, UNTIL = day(1), day(1.2)


def failed(name: str, *, first: float = 1, is_out: bool = False) -> NodeState:
    """Return a node whose record names the group for a fault of this day, and one time out of service."""
    at_ns = unix_ns(day(first))
    incident = Incident(
        IncidentKey("xid.79", None),
        *(FaultKind.XID, Severity.FATAL, IncidentState.ACTIVE, 1, at_ns, at_ns, KernelPosition("", None, 1)),
        failure_group=GROUP,
    )
    past = Quarantine(SINCE, UNTIL, "xid.79", ReleaseHow.RESET, model=MODEL, driver=DRIVER)
    life = Life(SINCE, MODEL, DRIVER) if is_out else Life(quarantines=(past,))
    record = NodeRecord(life=life, incidents=(incident,))
    hardware = Hardware(MODEL, DRIVER)
    return replace(node(name), record=record, taints=(OURS,) if is_out else (), hardware=hardware)


def line(name: str, group: str | None = None) -> TrailLine:
    return TrailLine(SINCE, "taint", "applied", name, rule="xid.79", failure_group=group, out_since=SINCE)


def known(state: NodeState, *lines: TrailLine) -> Outage:
    ledger = Ledger()
    for each in lines:
        ledger.add(each)
    ledger.add_node(state)
    [found] = ledger.outages()
    return found


@pytest.mark.parametrize("is_out", [False, True])
@pytest.mark.parametrize("is_told", [False, True])
def test_the_record_names_a_group_that_the_trail_does_not_tell(*, is_out: bool, is_told: bool) -> None:
    lines = [line("gpu-1")] if is_told else []

    assert known(failed("gpu-1", is_out=is_out), *lines).failure_group == GROUP


def test_the_group_in_the_trail_comes_first() -> None:
    assert known(failed("gpu-1"), line("gpu-1", "job a@2026-04-07T12:00:00Z")).failure_group.startswith("job")


def test_a_group_of_a_later_fault_is_not_that_of_the_outage() -> None:
    assert known(failed("gpu-1", first=5)).failure_group == ""
