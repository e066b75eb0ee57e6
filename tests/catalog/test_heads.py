"""What a pattern's matches begin with: never more is claimed than is so."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.catalog import load_catalog
from konductor_like.catalog.heads import heads_of

RULES = load_catalog().kernel_rules


@pytest.mark.parametrize(
    ("pattern", "heads"),
    [
        ("NVRM: GPU", {"NVRM: GPU"}),
        (r"Xid \(PCI", {"Xid (PCI"}),
        ("(?:NVRM: )?Xid", {"Xid", "NVRM: Xid"}),
        ("(?:a|bc)d", {"ad", "bcd"}),
        ("a|b", {"a", "b"}),
        ("a(?:b|c)?d", {"ad", "abd", "acd"}),
        ("(?:a(?:b)?c|d)e", {"ace", "abce", "de"}),
        (r"NVRM: (?:GPU\d )?lost", {"NVRM: "}),
        ("ab?c", {"a"}),
        ("ab*c", {"a"}),
        ("ab{0,2}c", {"a"}),
        ("ab+c", {"ab"}),
        ("(?:ab)+c", {"ab"}),
        ("x(?:ab)*c", {"x"}),
        (r"a\dc", {"a"}),
        ("a[|)]c|b", {"a", "b"}),
        (r"a\|b", {"a|b"}),
        (r"a(?:\)|b)c", {"a)c", "abc"}),
        ("a(?P<name>b)", {"a"}),
        ("a.b", {"a"}),
        ("a??b", None),
        ("(?:a)??b", None),
        ("a|", None),
        ("(?:a|)", None),
        (".a", None),
        (r"\da", None),
        ("(?i)a", None),
        ("(?P<gpu>a)", None),
        ("^a", None),
        ("", None),
    ],
)
def test_the_heads_of_a_pattern(pattern: str, heads: set[str] | None) -> None:
    assert heads_of(pattern) == heads


def test_a_pattern_of_very_many_alternatives_is_followed_only_so_far() -> None:
    heads = heads_of("(?:a|b)" * 100 + "c")

    assert heads is not None
    assert {len(head) for head in heads} == {6}


def test_every_example_of_a_rule_begins_with_a_head_of_a_pattern_that_fits_it() -> None:
    claimed = 0
    for rule in RULES:
        for example in rule.examples:
            for pattern in rule.patterns:
                heads = heads_of(pattern.pattern)
                if heads is not None and pattern.match(example):
                    claimed += 1
                    assert example.startswith(tuple(heads)), (rule.id, example)
    assert claimed > len(RULES)


_PIECES = st.sampled_from(["a", "b", "ab", r"\.", r"\d", ".", "[a|b]", "[^]b)]", "(?:a|b)", "(?:ab|)", "(a)"])
_PATTERNS = st.recursive(
    st.lists(
        st.tuples(_PIECES, st.sampled_from(["", "", "?", "*", "+", "{0,1}", "??"])), min_size=1, max_size=4
    ).map(lambda parts: "".join(piece + times for piece, times in parts)),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("|".join),
        st.tuples(inner, st.sampled_from(["", "?", "+", "*"]), inner).map(
            lambda t: f"(?:{t[0]}){t[1]}{t[2]}"
        ),
    ),
    max_leaves=5,
)


@given(_PATTERNS, st.text("ab.1)]|", max_size=6))
def test_whatever_a_pattern_fits_begins_with_one_of_its_heads(pattern: str, text: str) -> None:
    heads = heads_of(pattern)

    if heads is not None and re.match(pattern, text):
        assert text.startswith(tuple(heads))
