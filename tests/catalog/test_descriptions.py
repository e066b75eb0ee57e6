"""Every fault of the catalogue can be explained, and the explanations are consistent."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from konductor_like.catalog import Catalog, Entry, load_catalog
from konductor_like.catalog.descriptions import (
    Blame,
    Explanation,
    Words,
    descriptions_of,
    explain,
    load_descriptions,
)
from konductor_like.model import Severity

CATALOG = load_catalog()
WORDS = load_descriptions()
FILE = tomllib.loads((files("konductor_like.catalog") / "data" / "explanations.toml").read_text("utf-8"))
NAMES = [name for entry in FILE["explain"] for name in entry["rules"]]
TEXT_CHARS_MOST = 330
FAMILY_IS_NOT_ENOUGH = {"xid", "sxid", "cuda", "nccl", "nvrm"}
"""Families whose words are for unknown codes, or too general to help."""


def entries(catalog: Catalog) -> Iterator[Entry]:
    yield from catalog.xids.values()
    yield from catalog.sxids.values()
    yield from {entry.rule: entry for entry in catalog.named_entries.values()}.values()
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
        family not in FAMILY_IS_NOT_ENOUGH or words is not WORDS.rules.get(f"{family}.*")
    )


def all_words() -> list[Words]:
    return list({id(words): words for words in WORDS.rules.values()}.values())


def test_the_test_covers_the_whole_catalogue() -> None:
    assert set(range(1, 178)) <= set(CATALOG.xids)
    assert len(ENTRIES) > 600


def test_no_rule_of_the_catalogue_is_without_an_explanation() -> None:
    missing = [rule for rule in ENTRIES if not has_words_of_its_own(rule)]

    assert not missing, "write an [[explain]] in explanations.toml for: " + ", ".join(missing)


def test_every_bucket_of_the_vendor_is_in_our_words() -> None:
    tables = WORDS.tables
    xids, sxids = CATALOG.xids.values(), CATALOG.sxids.values()

    assert {entry.bucket for entry in xids} - {""} == set(tables["vendor_now"])
    assert {entry.investigate for entry in xids} == set(tables["vendor_later"])
    assert {entry.guide or entry.group for entry in sxids} == set(tables["vendor_switch"])
    assert {entry.detail.value for entry in xids if entry.detail} | {"word"} == set(tables["details"])


def test_nothing_is_explained_that_is_not_in_the_catalogue() -> None:
    families = {rule.partition(".")[0] for rule in ENTRIES}
    single = {name for name in NAMES if "-" not in name and not name.endswith(".*")}
    used = {id(WORDS.find(rule)) for rule in ENTRIES}
    of_codes = {id(words): words for name, words in WORDS.rules.items() if not name.endswith(".*")}

    assert single - set(ENTRIES) == set()
    assert {name.removesuffix(".*") for name in NAMES if name.endswith(".*")} <= families
    assert set(WORDS.tables["links"]) == families
    assert [words.text for each, words in of_codes.items() if each not in used] == []


def test_the_file_names_each_rule_once_and_has_no_other_field_or_table() -> None:
    fields = {field for entry in FILE["explain"] for field in entry}

    assert [name for name, times in Counter(NAMES).items() if times > 1] == []
    assert fields == {"rules", "text", "blame", "look_for", "link", "vendor"}
    assert set(FILE) == {"explain", "links", "vendor_now", "vendor_later", "vendor_switch", "details"}


def test_what_to_look_for_exists() -> None:
    known = set(ENTRIES) | {name for name in NAMES if name.endswith(".*")}
    unknown = {rule for words in all_words() for rule in words.look_for} - known

    assert unknown == set()


def test_every_text_is_short_and_says_something_of_its_own() -> None:
    titles = {entry.title.lower().rstrip(".") for entry in ENTRIES.values()}
    texts = [entry["text"] for entry in FILE["explain"]]

    assert [text for text in texts if not 60 <= len(text) <= TEXT_CHARS_MOST] == []
    assert [text for text in texts if text.lower().rstrip(".") in titles] == []
    assert [text for text, times in Counter(texts).items() if times > 1] == []
    assert [text for text in texts if "\n" in text or "  " in text or not text.endswith(".")] == []


def test_an_applications_fault_is_never_blamed_on_the_hardware() -> None:
    application = [rule for rule, entry in ENTRIES.items() if entry.severity is Severity.APPLICATION]

    assert application
    assert {explained(rule).blame for rule in application} == {Blame.APPLICATION}


@pytest.mark.parametrize("rule", ["cuda.5", "nccl.nothing", "xid.123456", "xid.0", "xid.", "", "no.such"])
def test_an_unknown_rule_has_no_explanation(rule: str) -> None:
    assert explain(CATALOG, rule) is None


def test_a_users_severity_is_final_and_the_details_of_a_line_are_not_mentioned() -> None:
    entry = CATALOG.xid(94)
    fixed = replace(entry, severity=Severity.FATAL, fixed=frozenset({"severity"}))
    explanation = explain(replace(CATALOG, xids={**CATALOG.xids, 94: fixed}), "xid.94")

    assert explanation is not None
    assert explained("xid.94").details
    assert (explanation.entry.severity, explanation.details) == (Severity.FATAL, "")


def test_the_narrowest_entry_counts() -> None:
    def entry(*rules: str) -> dict[str, Any]:
        return {"rules": rules, "blame": "driver", "text": f"{rules[0]}."}

    file = [entry("xid.13"), entry("xid.*"), entry("xid.12-13"), entry("xid.10-20", "xid.30")]
    words = descriptions_of({"explain": file})
    texts = [words.find(f"xid.{code}").text for code in (9, 10, 12, 13, 30)]

    assert texts == ["xid.*.", "xid.10-20.", "xid.12-13.", "xid.13.", "xid.10-20."]
    assert words.find("nccl.socket").text == ""
