"""docs/use/own-rules.md: its example is valid, and its lists name every field."""

from __future__ import annotations

import re
from pathlib import Path

from konductor_like.catalog import Mode, Needs, load_catalog, patterns, user_rules
from konductor_like.detection import Detector
from konductor_like.model import Severity, Source
from tests.catalog.user_files import read

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "own-rules.md").read_text("utf-8")

EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_the_example_can_be_used() -> None:
    rules = read(EXAMPLES[0])

    assert set(rules.overrides) == {"xid.94.severity", "nccl.socket.mode"}
    assert rules.catalog.kernel_rules[-1].mode is Mode.SHADOW
    [line] = rules.catalog.kernel_rules[-1].examples
    finding = Detector(rules.catalog).find(f"[9.000001] {line}", Source.KERNEL)
    assert finding is not None, "a built-in rule has such a line first"
    assert finding.rule == "site.nic_down"


def test_every_field_and_value_is_described() -> None:
    overrides, own = section("Overrides"), section("Rules of your own")

    assert all(f"- `{field}`: " in overrides for field in user_rules.OVERRIDABLE)
    assert all(f"`{value}`" in overrides for value in (*Severity, *Mode))
    assert all(f"`{field}`" in own for field in user_rules._FIELDS)
    assert all(f"`{need}`" in own for need in Needs)


def test_every_limit_is_as_described() -> None:
    for phrase in (
        f"most {user_rules.TITLE_CHARS_MOST} characters",
        f"most {user_rules.ADVICE_CHARS_MOST} characters",
        f"Literals of {user_rules.LITERAL_CHARS_LEAST} to {user_rules.LITERAL_CHARS_MOST} characters",
        f"at most {user_rules.PATTERNS_MOST}.",
        f"asked for {user_rules.ANCHORS_MOST} per source at most",
        f"at most {user_rules.RULES_MOST} rules",
        f"the built-in rules take {len(load_catalog().anchors(Source.KERNEL))} of\n  each",
        f"at most {patterns._MEMORY_BYTES // 1024} KiB of memory",
    ):
        assert phrase in PAGE
    assert len({len(load_catalog().anchors(source)) for source in Source}) == 1, "the page says one number"
