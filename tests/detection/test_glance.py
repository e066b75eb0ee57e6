"""The first look at a line: it may let too much pass, and never turns a fault away."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.catalog import load_catalog
from konductor_like.detection import Detector, packaged
from konductor_like.detection.glance import either, first_look, fits_in, loosened
from konductor_like.detection.prefix import PREFIXES, Origin, strip_prefixes
from konductor_like.detection.record import BEFORE_MESSAGE, TO_BE_OPENED
from konductor_like.model import Source
from tests.detection.corpus import own_cases
from tests.fuzz.mutate import lines

PRINTABLE = string.ascii_letters + string.digits + string.punctuation + " "


@pytest.fixture(scope="module")
def unhurried() -> Detector:
    """A detector that looks closely at every line."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("kernel", "pod"):
            patch.setattr(f"konductor_like.detection.{module}.first_look", lambda *_: lambda _: True)
        return Detector(load_catalog())


def test_no_verdict_on_the_corpus_changes_by_the_first_look(unhurried: Detector) -> None:
    for case in own_cases():
        for source in Source:
            assert packaged().find(case.line, source) == unhurried.find(case.line, source), case.name


@pytest.mark.parametrize("seed", range(7001, 7004))
def test_no_verdict_on_a_mutated_line_changes_either(seed: int, unhurried: Detector) -> None:
    for line, source in lines(seed, 2000):
        assert packaged().find(line, source) == unhurried.find(line, source), line


def test_a_quotation_is_turned_away_at_once_and_a_fault_behind_prefixes_is_not() -> None:
    look = first_look(load_catalog().rules(Source.KERNEL), BEFORE_MESSAGE, TO_BE_OPENED)
    fault = "NVRM: Xid (PCI:0000:6b:00): 79, GPU has fallen off the bus."

    assert look(fault)
    assert look(f"<4>[ 12.345678] {fault}")
    assert look(f"Mar  2 09:15:41 gpu-1 kernel: [   12.345678] {fault}")
    assert look(f'{{"MESSAGE": "{fault}"}}')
    assert not look(f"Mar  2 09:15:41 gpu-1 monitor[812]: {fault}")
    assert not look(f"saw {fault}")


def test_a_rule_whose_beginning_cannot_be_told_is_looked_for_by_its_literals() -> None:
    rule = next(rule for rule in load_catalog().rules(Source.KERNEL) if rule.id == "nccl.crash")
    look = first_look([rule], "^", ())

    assert look("anything that names libnccl.so")
    assert not look("anything else")


def test_without_rules_nothing_is_worth_a_look_but_what_is_unclear() -> None:
    look = first_look([], "^x", (r"\{",))

    assert look("a {")
    assert not look("NVRM: Xid (")


@given(st.text(st.characters(max_codepoint=127), min_size=1))
def test_a_literal_of_any_ascii_characters_is_found(literal: str) -> None:
    assert fits_in(either([literal, "never there"]))(f"a {literal} b")


SHAPES = (
    r"\[ *(?P<seconds>\d{1,12})\.\d{1,9}(?: *<[^<>\]]{1,32}>)?\] ?",
    r"[\w.:-]{0,254}\w kernel \S{1,128} (?:-|\[[^\]]{0,512}\]) ",
    r"[^\W\d_]{2,12}\.? +\d{1,2}",
    r"\d{4}-\d\d,[^;\s]{1,64};",
)


@pytest.mark.parametrize("shape", SHAPES)
@given(st.data())
def test_a_loosened_pattern_fits_whatever_the_pattern_fits(shape: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(re.compile(shape, re.ASCII), fullmatch=True, alphabet=PRINTABLE))

    assert fits_in(f"^(?:{loosened(shape)})$")(text)


def test_a_loosened_pattern_looks_ahead_no_more() -> None:
    assert fits_in(f"^{loosened('a(?=b)')}$")("a")


def test_all_prefixes_of_the_corpus_are_known_to_the_first_look() -> None:
    known = fits_in(f"^{PREFIXES}$")
    texts = [case.line for case in own_cases() if case.source is Source.KERNEL and case.line.isascii()]
    stripped = 0
    for text in texts:
        rest = strip_prefixes(text, Origin())
        before = text.removesuffix(rest)
        if text.isprintable() and before != text:
            stripped += before != ""
            assert known(before), text
    assert stripped > 500
