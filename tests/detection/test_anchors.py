"""The anchors: few, short, and part of everything that can be a fault."""

from __future__ import annotations

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.detection import KERNEL_ANCHORS, POD_ANCHORS, find
from konductor_like.detection.anchors import anchors_of
from konductor_like.model import Source

from .corpus import own_cases


def test_there_are_few_of_them() -> None:
    assert len(KERNEL_ANCHORS) <= 6
    assert len(POD_ANCHORS) <= 12
    assert "NCCL" not in POD_ANCHORS


def test_every_example_of_every_rule_has_an_anchor() -> None:
    catalog = load_catalog()
    without = [
        example
        for rule in (*catalog.kernel_rules, *catalog.pod_rules)
        for example in rule.examples
        if not any(anchor in example for anchor in anchors_of(rule.source))
        or find(example, rule.source) is None
    ]
    assert without == []


@pytest.mark.parametrize("source", list(Source))
def test_every_fault_of_the_corpus_has_an_anchor_in_its_raw_line(source: Source) -> None:
    lines = [case.line for case in own_cases() if case.is_ours and case.source is source]
    assert [line for line in lines if not any(anchor in line for anchor in anchors_of(source))] == []
