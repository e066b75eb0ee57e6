"""Every fault of the catalogue can be explained, and the explanations hold together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from konductor_like.catalog import Catalog, CatalogError, Entry, load_catalog
from konductor_like.catalog.descriptions import (
    Blame,
    Explanation,
    Words,
    explain,
    load_descriptions,
    read_descriptions,
)
from konductor_like.model import FaultKind, Severity

CATALOG = load_catalog()
WORDS = load_descriptions()
TEXT_CHARS_MOST = 330
FAMILY_IS_NOT_ENOUGH = {"xid", "sxid", "cuda", "nccl", "nvrm"}
"""Of these the family's words are for codes that nobody knows, or too general to help."""

GOOD = """
[links]
xid = "https://example.com/xid"
[[explain]]
rules = ["xid.*"]
blame = "driver"
text = "Any."
[[explain]]
rules = ["xid.10-20"]
blame = "driver"
text = "Ten to twenty."
[[explain]]
rules = ["xid.12-13"]
blame = "driver"
text = "Twelve or thirteen."
[[explain]]
rules = ["xid.13"]
blame = "hardware"
text = "Thirteen."
look_for = ["xid.12"]
"""


def entries(catalog: Catalog) -> Iterator[Entry]:
    yield from catalog.xids.values()
    yield from catalog.sxids.values()
    yield from {entry.rule: entry for entry in catalog.cuda_errors.values()}.values()
    for rule in (*catalog.kernel_rules, *catalog.pod_rules):
        if rule.entry is not None:
            yield rule.entry


ENTRIES = {entry.rule: entry for entry in entries(CATALOG)}


def explained(rule: str) -> Explanation:
    explanation = explain(CATALOG, rule)
    assert explanation is not None
    return explanation


def has_words_of_its_own(rule: str) -> bool:
    words = WORDS.find(rule)
    family = rule.partition(".")[0]
    return words.text != "" and (
        family not in FAMILY_IS_NOT_ENOUGH or words is not WORDS.families.get(family)
    )


def all_words() -> list[Words]:
    return [*WORDS.rules.values(), *WORDS.ranges.values(), *WORDS.families.values()]


def written(folder: Path, text: str) -> Path:
    (folder / "explanations.toml").write_text(text, "utf-8")
    return folder


def test_the_catalogue_is_all_looked_at() -> None:
    assert set(range(1, 177)) <= set(CATALOG.xids)
    assert len(ENTRIES) > 600


def test_no_rule_of_the_catalogue_is_without_an_explanation() -> None:
    missing = [rule for rule in ENTRIES if not has_words_of_its_own(rule)]

    assert not missing, "write an [[explain]] in explanations.toml for: " + ", ".join(missing)


def test_every_explanation_says_whose_fault_it_is_and_where_the_vendor_says_more() -> None:
    incomplete = [
        rule
        for rule in ENTRIES
        if explained(rule).blame is None or not explained(rule).link.startswith("https://")
    ]

    assert incomplete == []


def test_every_bucket_of_the_vendor_is_in_our_words() -> None:
    tables = WORDS.tables
    xids, sxids = CATALOG.xids.values(), CATALOG.sxids.values()

    assert {entry.bucket for entry in xids} - {""} == set(tables["vendor_now"])
    assert {entry.investigate for entry in xids} == set(tables["vendor_later"])
    assert {entry.guide or entry.group for entry in sxids} == set(tables["vendor_switch"])
    assert {entry.detail.value for entry in xids if entry.detail} | {"word"} == set(tables["details"])


def test_nothing_is_explained_that_is_not_in_the_catalogue() -> None:
    families = {rule.partition(".")[0] for rule in ENTRIES}
    ranges = {
        span: [rule for rule in ENTRIES if WORDS.find(rule) is words] for span, words in WORDS.ranges.items()
    }

    assert set(WORDS.rules) - set(ENTRIES) == set()
    assert set(WORDS.families) <= families
    assert set(WORDS.tables["links"]) == families
    assert [span for span, rules in ranges.items() if not rules] == []


def test_what_to_look_for_exists() -> None:
    known = set(ENTRIES) | {f"{family}.*" for family in WORDS.families}
    unknown = {rule for words in all_words() for rule in words.look_for} - known

    assert unknown == set()


def test_nothing_is_to_be_looked_for_beside_itself() -> None:
    assert [rule for rule in ENTRIES if rule in [name for name, _ in explained(rule).look_for]] == []


def test_every_text_is_short_and_says_something_of_its_own() -> None:
    titles = {entry.title.lower().rstrip(".") for entry in ENTRIES.values()}
    texts = [words.text for words in {id(words): words for words in all_words()}.values()]

    assert [text for text in texts if not 60 <= len(text) <= TEXT_CHARS_MOST] == []
    assert [text for text in texts if text.lower().rstrip(".") in titles] == []
    assert [text for text, times in Counter(texts).items() if times > 1] == []
    assert [text for text in texts if "\n" in text or "  " in text or not text.endswith(".")] == []


def test_an_applications_fault_is_never_blamed_on_the_hardware() -> None:
    application = [rule for rule, entry in ENTRIES.items() if entry.severity is Severity.APPLICATION]

    assert application
    assert {explained(rule).blame for rule in application} == {Blame.APPLICATION}


def test_an_xid_that_no_table_knows_is_explained_as_one() -> None:
    explanation = explained("xid.999")

    assert not explanation.in_catalog
    assert "NVIDIA's catalogue did not have" in explanation.text
    assert explanation.entry.severity is Severity.SUSPECT


def test_of_an_unknown_sxid_the_word_in_the_line_decides() -> None:
    explanation = explained("sxid.99999")

    assert (explanation.in_catalog, "Fatal taints" in explanation.details) == (False, True)


def test_what_fabric_manager_repeats_keeps_its_name_and_means_what_the_sxid_means() -> None:
    repeated, told = explained("fm.20034").entry, explained("sxid.20034").entry

    assert (repeated.rule, repeated.kind) == ("fm.20034", FaultKind.FM)
    assert (repeated.severity, repeated.title, repeated.advice) == (told.severity, told.title, told.advice)


@pytest.mark.parametrize("rule", ["cuda.5", "nccl.nothing", "xid.123456", "xid.0", "xid.", "", "no.such"])
def test_there_is_nothing_to_say_about_what_is_no_rule(rule: str) -> None:
    assert explain(CATALOG, rule) is None


def test_the_word_of_a_user_is_final_and_the_details_of_a_line_are_not_mentioned() -> None:
    entry = CATALOG.xid(94)
    fixed = replace(entry, severity=Severity.FATAL, fixed=frozenset({"severity"}))
    explanation = explain(replace(CATALOG, xids={**CATALOG.xids, 94: fixed}), "xid.94")

    assert explanation is not None
    assert explained("xid.94").details
    assert (explanation.entry.severity, explanation.details) == (Severity.FATAL, "")


def test_the_narrowest_words_are_taken(tmp_path: Path) -> None:
    words = read_descriptions(written(tmp_path, GOOD))
    texts = [words.find(rule).text for rule in ("xid.9", "xid.10", "xid.12", "xid.13", "nccl.socket")]

    assert texts == ["Any.", "Ten to twenty.", "Twelve or thirteen.", "Thirteen.", ""]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('rules = ["xid.13"]', 'rules = ["xid.12-13"]', "explain 4, rules: xid.12-13 stands there twice"),
        ('text = "Any."', 'texts = "Any."', "explain 1, texts: is not a known field"),
        ('text = "Any."', "", "explain 1, text: is missing"),
        ('blame = "hardware"', 'blame = "nobody"', "explain 4, blame: 'nobody' is not one of"),
        ('rules = ["xid.13"]', "rules = []", "explain 4, rules: must be a list of texts"),
        ("[links]", "[link]", "the file, link: is not a known table"),
        ("[links]", "[links", "the file, syntax:"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(old: str, new: str, error: str, tmp_path: Path) -> None:
    assert old in GOOD
    with pytest.raises(CatalogError, match=r"^explanations\.toml, ") as refused:
        read_descriptions(written(tmp_path, GOOD.replace(old, new)))

    assert error in str(refused.value)
