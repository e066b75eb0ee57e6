"""A user's rules are tried in detection itself, on whole lines."""

from __future__ import annotations

import pytest

from konductor_like.catalog import RulesError, UserRules
from konductor_like.detection.validate_rules import validated
from tests.catalog.user_files import OWN_RULE, POD_RULE, read

PATTERN = "'mlx5_core {pci}: .{0,80}health compromised'"


def validate(text: str) -> UserRules:
    """Return the rules of a file."""
    return validated(read(text))


def refused(text: str) -> str:
    with pytest.raises(RulesError) as caught:
        validate(text)
    [problem] = caught.value.problems
    return str(problem)


@pytest.mark.parametrize("text", [OWN_RULE, POD_RULE, "overrides:\n  xid.63.mode: 'off'\n"])
def test_rules_that_find_their_examples_are_good(text: str) -> None:
    checked, given = validate(text), read(text)

    assert checked.digest == given.digest
    assert checked.warnings == given.warnings


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
        "match: xid.63 comes first and matches 'NVRM: Xid (PCI" in each for each in validate(text).warnings
    )


def test_a_rule_that_is_off_need_not_find_anything() -> None:
    off = POD_RULE.replace("ERROR: the flux", "> the flux").replace(
        "source: pod", "source: pod\n    mode: 'off'"
    )

    assert validate(off).own
