"""Other vendors' faults: off as shipped, and found once a rules file turns them on."""

from __future__ import annotations

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.catalog.user_rules import read_user_rules
from konductor_like.detection import Detector, find
from konductor_like.model import FaultKind, Severity, Source

LINES = [
    ("amd.ras", "amdgpu 0000:c5:00.0: {4}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!"),
    (
        "amd.hang",
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=71, emitted seq=73",
    ),
    ("neuron.hardware", "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR nd-id=1 nc-id=0 action=TERMINATE_INSTANCE"),
    (
        "neuron.runtime",
        "2026-Apr-02 11:20:31.100200 88:88 ERROR   NRT:nrt_close        Unexpected runtime state",
    ),
]


@pytest.mark.parametrize(("rule", "line"), LINES, ids=[rule for rule, _ in LINES])
def test_they_are_found_only_when_they_are_turned_on(rule: str, line: str) -> None:
    source = Source.POD if rule == "neuron.runtime" else Source.KERNEL
    assert find(line, source) is None
    turned_on = read_user_rules(f"overrides: {{{rule}.mode: enforce}}", "mine.yaml", load_catalog())
    finding = Detector(turned_on.catalog).find(line, source)
    assert finding is not None
    assert (finding.rule, finding.kind) == (rule, FaultKind(rule.partition(".")[0]))
    assert source is Source.KERNEL or finding.severity is Severity.SUSPECT
