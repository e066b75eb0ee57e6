"""The catalogue as shipped: complete and consistent."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from konductor_like.catalog import Catalog, Mode, Needs, load_catalog
from konductor_like.model import Severity, Source

NEVER_TAINT_ALONE = (13, 31, 43, 45)
"""Rule 16: by default, a single one of these never taints."""


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog()


def test_every_xid_of_nvidias_list_is_there(catalog: Catalog) -> None:
    assert sorted(catalog.xids) == list(range(1, 178))
    assert len(catalog.sxids) == 400


def test_every_entry_says_what_it_is_and_what_to_do(catalog: Catalog) -> None:
    entries = [*catalog.xids.values(), *catalog.sxids.values(), *catalog.recovery_actions.values()]
    entries += [rule.entry for rule in (*catalog.kernel_rules, *catalog.pod_rules) if rule.entry]
    for entry in entries:
        assert entry.title, entry.rule
        assert len(entry.title) <= 80, entry.rule
        assert entry.advice.text.endswith("."), entry.rule
        assert len(entry.advice.text) <= 120, "it has to fit into the record on the node"


def test_what_taints_needs_more_than_nothing(catalog: Catalog) -> None:
    entries = [*catalog.xids.values(), *catalog.sxids.values(), *catalog.recovery_actions.values()]
    harmless = {Needs.NONE, Needs.APPLICATION_RESTART}
    assert [
        entry.rule for entry in entries if entry.severity is Severity.FATAL and entry.advice.needs in harmless
    ] == []


def test_the_evidence_is_saved_before_a_reboot_or_a_replacement_of_nvidias_hardware_only(
    catalog: Catalog,
) -> None:
    entries = [*catalog.xids.values(), *catalog.sxids.values(), *catalog.recovery_actions.values()]
    entries += [rule.entry for rule in catalog.kernel_rules if rule.entry]
    saved = {each.rule for each in entries if "`nvidia-bug-report.sh`" in each.advice.text}
    others = {each.rule for each in entries if each.rule.partition(".")[0] == "ib"}
    jobs = {each.rule for each in entries if each.severity is Severity.APPLICATION}
    rebooted = {Needs.REBOOT, Needs.REPLACEMENT}
    needing = {e.rule for e in entries if e.severity is Severity.FATAL and e.advice.needs in rebooted}
    keys_lost = "xid.151"  # of a virtual machine; its hardware is not suspect

    assert not saved & (others | jobs | {"xid.63", keys_lost})
    assert needing - others - {keys_lost} <= saved
    assert {"xid.48", "xid.95", "xid.119"} <= saved


@pytest.mark.parametrize("code", NEVER_TAINT_ALONE)
def test_an_applications_xid_never_taints_by_default(catalog: Catalog, code: int) -> None:
    assert not catalog.xid(code).severity.taints


def test_xid_14_is_the_only_test(catalog: Catalog) -> None:
    tests = [entry.rule for entry in catalog.xids.values() if entry.severity is Severity.TEST]
    assert tests == ["xid.14"]


def test_an_unknown_code_is_recorded_under_its_number(catalog: Catalog) -> None:
    assert (catalog.xid(999).rule, catalog.xid(999).severity) == ("xid.999", Severity.SUSPECT)
    assert catalog.sxid(31999).word_decides


def test_only_a_code_that_others_begin_with_may_be_a_cut_one(catalog: Catalog) -> None:
    tainting = [
        code for code, entry in catalog.xids.items() if entry.severity.taints and catalog.may_continue(code)
    ]
    assert tainting == [14]


@pytest.mark.parametrize("rule", ["xid.999", "xid.many", "sxid.", "cuda.12345", "nothing", ""])
def test_an_unknown_rule_is_not_found(catalog: Catalog, rule: str) -> None:
    assert catalog.entry(rule) is None


def test_no_number_fits_rows_of_both_layouts(catalog: Catalog) -> None:
    for code, rules in catalog.link_rules.items():
        for before, since in product(rules, repeat=2):
            overlap = before.masks[0] & since.masks[1]
            differ = (before.values[0] ^ since.values[1]) & overlap
            assert differ or before.values == since.values, (code, before, since)


def test_rows_that_fit_the_same_numbers_agree(catalog: Catalog) -> None:
    for code, rules in catalog.link_rules.items():
        for layout, (one, other) in product((0, 1), combinations(rules, 2)):
            overlap = one.masks[layout] & other.masks[layout]
            differ = (one.values[layout] ^ other.values[layout]) & overlap or one.status != other.status
            # Before R575 the two pipes of a TLW unit share a number.
            assert differ or one.severity is other.severity, (code, one, other)


def test_the_decode_table_is_about_the_nvlink5_xids_only(catalog: Catalog) -> None:
    assert sorted(catalog.link_rules) == list(range(144, 151))
    assert sum(map(len, catalog.link_rules.values())) == 99


def test_rules_of_a_pod_that_are_not_off_are_about_cuda_and_nccl(catalog: Catalog) -> None:
    assert {rule.id.partition(".")[0] for rule in catalog.rules(Source.POD)} == {"cuda", "nccl"}


def test_no_rule_is_off(catalog: Catalog) -> None:
    assert [rule.id for rule in catalog.pattern_rules if rule.mode is Mode.OFF] == []


def test_power_smoothing_that_comes_back_clears_its_loss(catalog: Catalog) -> None:
    assert {code: each.clears for code, each in catalog.xids.items() if each.clears} == {162: 163}


def test_rule_names_are_unique(catalog: Catalog) -> None:
    names = [rule.id for rule in (*catalog.kernel_rules, *catalog.pod_rules)]
    assert len(set(names)) == len(names)
