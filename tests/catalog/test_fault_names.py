"""A fault may be named as people, `status`, a rules file or NVIDIA write it."""

from __future__ import annotations

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.catalog.fault_names import parse_fault_name
from tests.catalog.user_files import OWN_RULE, read


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        *((text, "xid.79") for text in ("79", "xid 79", "xid79", "XID79", "Xid-79", "xid.79", "Xid: 079")),
        *((text, "sxid.20034") for text in ("20034", "sxid 20034", "sxid.20034", "SXid20034")),
        ("175", "xid.175"),
        ("xid 99999", "xid.99999"),
        ("fm 20034", "fm.20034"),
        ("CUDA 719", "cuda.719"),
        ("cuda contained", "cuda.contained"),
        ("nvrm fallen off bus", "nvrm.fallen_off_bus"),
        ("NCCL-watchdog-timeout ", "nccl.watchdog_timeout"),
    ],
)
def test_every_spelling_of_a_fault_gives_its_rule(text: str, rule: str) -> None:
    assert parse_fault_name(text, load_catalog()).rule == rule


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("719", ["cuda 719"]),
        ("54321", ["xid 54321", "sxid 54321"]),
        ("what is xid 79?", ["xid 79"]),
        ("xid 94 RST", ["xid 94"]),
        ("nccl sockt", []),
        *(
            (text, [])
            for text in ("", " ", "xid 0", "-1", "xid -1", "0", "gpu-7", "cuda 5", "\x1b[2J", "9" * 10**6)
        ),
    ],
)
def test_any_other_text_names_no_rule_and_may_have_suggestions(text: str, meant: list[str]) -> None:
    rule, suggestions = parse_fault_name(text, load_catalog())

    assert (rule, list(suggestions)) == (None, meant)


def test_every_rule_is_named_by_its_own_name_and_by_the_form_that_people_read() -> None:
    catalog = read(OWN_RULE).catalog
    names = [rule.id for rule in catalog.pattern_rules] + [f"xid.{code}" for code in catalog.xids]

    assert "site.nic_down" in names
    for name in names:
        assert parse_fault_name(name, catalog).rule == name
        assert parse_fault_name(name.replace(".", " ").replace("_", " "), catalog).rule == name
