"""The page of recognised faults describes every rule as the rule is."""

from __future__ import annotations

import re
from pathlib import Path

from konductor_like.catalog import Mode, PatternRule, load_catalog
from konductor_like.model import Source

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
ROW = re.compile(
    r"^\| `([a-z]+\.[a-z_]+)` \| (as `sxid\.N`|\w+) \| (kernel|scan only|off) \| \S", re.MULTILINE
)


def place(rule: PatternRule) -> str:
    return "off" if rule.mode is Mode.OFF else "scan only" if rule.scan_only else rule.source.value


def test_every_kernel_rule_without_a_table_is_on_the_page_as_it_is() -> None:
    catalog = load_catalog()
    rules = [
        rule
        for rule in (*catalog.kernel_rules, *catalog.pod_rules)
        if "." in rule.id and (rule.source is Source.KERNEL or rule.id.startswith("neuron."))
    ]
    wanted = {
        (rule.id, rule.entry.severity.value if rule.entry else "as `sxid.N`", place(rule)) for rule in rules
    }
    assert len(wanted) >= 30
    assert set(ROW.findall(PAGE.read_text(encoding="utf-8"))) == wanted


def test_the_page_counts_the_codes_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    catalog = load_catalog()
    assert f"Xid 1 to {max(catalog.xids)}" in text
    assert f"{len(catalog.sxids)} codes of the NVSwitch driver" in text
    fatal_though = [code for code in (11004, 12028, 19084) if catalog.sxid(code).severity.taints]
    assert len(fatal_though) == 3
