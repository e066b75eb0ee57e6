"""A user's rules prove themselves in detection itself: on whole lines, and in time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from konductor_like.catalog import RulesError, UserRules
from konductor_like.detection.proving import proved
from tests.catalog.user_files import OWN_RULE, POD_RULE, read

PATTERN = "'mlx5_core {pci}: .{0,80}health compromised'"


def prove(text: str) -> UserRules:
    """The rules of a file, by a clock that stands still."""
    return proved(read(text), lambda: 0.0)


def refused(text: str) -> str:
    with pytest.raises(RulesError) as caught:
        prove(text)
    [problem] = caught.value.problems
    return str(problem)


def ticks(seconds: list[float]) -> Iterator[float]:
    """A clock by which the attempts take these seconds each, and all further ones none."""
    for each in seconds:
        yield 0.0
        yield each
    while True:
        yield 0.0


def twice(text: str) -> str:
    """A file with a second rule like the first."""
    rules = OWN_RULE.removeprefix("\nrules:\n").replace("nic_down", "nic_two").replace("health", "wealth")
    return text + rules


@pytest.mark.parametrize("text", [OWN_RULE, POD_RULE, "overrides:\n  xid.63.mode: 'off'\n"])
def test_rules_that_find_their_examples_are_good(text: str) -> None:
    proven, given = prove(text), read(text)

    assert proven.digest == given.digest
    assert proven.warnings == given.warnings


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("ERROR: the flux", "> the flux", "It is a quotation"),
        ("ERROR: the flux", "we saw that the flux", "It is a quotation"),
        ("ERROR: the flux", "NVRM: the flux", ""),
    ],
)
def test_an_example_that_detection_takes_for_a_quotation_is_refused(old: str, new: str, why: str) -> None:
    problem = refused(POD_RULE.replace(old, new))

    assert problem.startswith("rules.yaml:10, rule 1 (site.flux), match: detection passes over ")
    assert why in problem


def test_an_example_of_a_built_in_rule_that_is_off_is_refused_with_the_reason() -> None:
    line = "NVRM: Xid (PCI:0000:3d:00): 63, pid=1, Row Remapper"
    text = OWN_RULE.replace("mlx5_core 0000:3d:00.0: device''s health compromised", line)
    text = text.replace(PATTERN, "'NVRM: Xid .*Row'").replace("[health compromised]", "['NVRM: Xid']")

    assert "Its rule xid.63 is off." in refused(text + "overrides:\n  xid.63.mode: 'off'\n")
    assert any(
        "match: xid.63 comes first and decides on 'NVRM: Xid (PCI" in each for each in prove(text).warnings
    )


def test_a_rule_that_is_off_need_not_find_anything() -> None:
    off = POD_RULE.replace("ERROR: the flux", "> the flux").replace(
        "source: pod", "source: pod\n    mode: 'off'"
    )

    assert prove(off).own


def test_a_rule_is_refused_that_is_slow_three_times_in_a_row() -> None:
    with pytest.raises(RulesError, match=r"rules\.yaml:9, .*patterns: takes 2\.5 ms for a line of 4096 char"):
        proved(read(OWN_RULE), ticks([0.004, 0.0025, 0.003]).__next__)

    assert proved(read(OWN_RULE), ticks([0.004, 0.003, 0.002]).__next__).own


def test_rules_that_are_slow_only_together_are_refused() -> None:
    rules = read(twice(OWN_RULE))
    counted = 0

    def count() -> float:
        nonlocal counted
        counted += 1
        return 0.0

    for text in (OWN_RULE, OWN_RULE.replace("nic_down", "nic_two").replace("health", "wealth")):
        proved(read(text), count)
    alone = [0.002] * (counted // 4)  # a clock call before and after, each rule alone and as a file

    with pytest.raises(
        RulesError, match=r"rules, patterns: those for kernel lines take 11\.0 ms .*; 10 ms at"
    ):
        proved(rules, ticks([*alone, 0.011, 0.011, 0.011]).__next__)


@pytest.mark.parametrize(
    "pattern", ["'mlx5_core .*(?:a?){900}x|mlx5_core .*health'", "'mlx5_core .*a.{200}b|mlx5_core .*health'"]
)
def test_a_really_slow_pattern_is_found_out(pattern: str) -> None:
    with pytest.raises(RulesError, match=r"patterns: takes \d+\.\d ms"):
        proved(read(OWN_RULE.replace(PATTERN, pattern)), time.thread_time)


def test_a_hundred_ordinary_rules_are_quick_enough() -> None:
    rule = OWN_RULE.removeprefix("\nrules:\n").replace(
        "    patterns:", "    anchor: mlx5_core\n    patterns:"
    )
    text = "rules:\n" + "".join(
        rule.replace("nic_down", f"nic_{i}").replace("health", f"health{i:03}") for i in range(100)
    )

    assert len(proved(read(text), time.thread_time).own) == 100
