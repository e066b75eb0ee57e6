"""Patterns are RE2, mean the same in Python, and take linear time."""

from __future__ import annotations

import re
import time

import pytest
import re2

from konductor_like.catalog import PatternRule, load_catalog
from konductor_like.model import Source
from tools.quality.corpus import own_cases

CATALOG = load_catalog()
RULES = (*CATALOG.kernel_rules, *CATALOG.pod_rules)
NAMES = [rule.id for rule in RULES]
LINES = {source: [case.line for case in own_cases() if case.source is source] for source in Source}


@pytest.mark.parametrize("rule", CATALOG.kernel_rules, ids=lambda rule: rule.id)
def test_a_packaged_kernel_pattern_has_no_alternatives_outside_of_brackets(rule: PatternRule) -> None:
    for pattern in rule.patterns:
        rest, before = re.sub(r"\\.|\[[^\]]*\]", "", pattern.pattern), ""
        while rest != before:
            rest, before = re.sub(r"\([^()]*\)", "", rest), rest
        assert "|" not in rest, pattern.pattern


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_pattern_means_the_same_in_re2(rule: PatternRule) -> None:
    lines = [*rule.examples, *rule.counterexamples, *LINES[rule.source]]
    for pattern in rule.patterns:
        theirs = re2.compile(pattern.pattern)
        for line in lines:
            kernel = rule.source is Source.KERNEL
            ours = pattern.match(line) if kernel else pattern.search(line)
            other = theirs.match(line) if kernel else theirs.search(line)
            assert (ours is None) == (other is None), (pattern.pattern, line)
            if ours is not None:
                assert ours.span() == other.span(), (pattern.pattern, line)
                assert ours.groupdict() == other.groupdict(), (pattern.pattern, line)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_pattern_takes_linear_time_on_what_it_nearly_fits(rule: PatternRule) -> None:
    for example in rule.examples:
        for end in range(len(example)):
            # The start of a match, then every last piece of it over and over, and no end to it.
            for width in (1, 2, 5):
                hostile = example[:end] + example[max(0, end - width) : end] * (2000 // width) + "\x01"
                begun = time.process_time()
                rule.find(hostile)
                assert time.process_time() - begun < 1, hostile[:200]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_every_rule_has_examples_on_both_sides(rule: PatternRule) -> None:
    assert rule.examples
    assert rule.counterexamples
