"""The anchors: few, short, and part of everything that can be a fault."""

from __future__ import annotations

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.detection import find, packaged
from konductor_like.model import Source
from tools.quality.corpus import own_cases


def test_anchors_are_few() -> None:
    assert 0 < len(packaged().anchors(Source.KERNEL)) <= 19
    assert 0 < len(packaged().anchors(Source.POD)) <= 15
    assert "NCCL" not in packaged().anchors(Source.POD)


def test_every_example_of_every_rule_has_an_anchor() -> None:
    without = [
        example
        for source in Source
        for rule in load_catalog().rules(source)
        for example in rule.examples
        if not (rule.scan_only or has_any(packaged().anchors(source), example))
        or not has_any(load_catalog().scan_anchors(source), example)
        or find(example, source) is None
    ]
    assert without == []


@pytest.mark.parametrize("source", list(Source))
def test_every_fault_of_the_corpus_has_an_anchor_in_its_raw_line(source: Source) -> None:
    faults = [case.line for case in own_cases() if case.is_ours and case.source is source]
    rules = {rule.id for rule in load_catalog().kernel_rules if rule.scan_only}
    only_scanned = {
        case.line
        for case in own_cases()
        if case.expect["kind"] == "fm"
        or ((finding := find(case.line, case.source)) and finding.rule in rules)
    }
    assert [line for line in faults if not has_any(load_catalog().scan_anchors(source), line)] == []
    missed = [line for line in faults if not has_any(packaged().anchors(source), line)]
    assert [line for line in missed if line not in only_scanned] == []


def test_lines_that_come_by_the_thousand_are_not_collected() -> None:
    noise = [
        "pcieport 0000:17:01.0: AER: Corrected error received: 0000:18:00.0",
        "pcieport 0000:17:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "mlx5_core 0000:5e:00.1: mlx5_cmd_out_err:806:(pid 4411): ACCESS_REG(0x805) op_mod(0x1) failed",
        "mlx5_core 0000:5e:00.0 ens7f0np0: Link up",
    ]
    assert [line for line in noise if has_any(packaged().anchors(Source.KERNEL), line)] == []


def has_any(literals: tuple[str, ...], line: str) -> bool:
    return any(literal in line for literal in literals)
