"""Detection agrees with every label of our corpus, and of another corpus when one is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.detection import find
from konductor_like.model import FaultKind, Source
from tools.quality.corpus import Case, labels_of, own_cases, read_cases

VARIABLE = "KONDUCTOR_TEST_CORPUS"
OWN = own_cases()


def problem_of(case: Case) -> str | None:
    """Return what is wrong with the finding of a case."""
    finding = find(case.line, case.source)
    if not case.is_ours:
        return None if finding is None else f"{case.name}: found {finding.rule} in {case.line!r}"
    if finding is None:
        return f"{case.name}: found nothing in {case.line!r}"
    wrong = {
        label: (wanted, labels_of(finding)[label])
        for label, wanted in case.expect.items()
        if labels_of(finding)[label] != wanted
    }
    if wrong or (finding.severity.taints and case.source is Source.KERNEL) != case.taints:
        return f"{case.name}: (wanted, found) {wrong} in {case.line!r}"
    return None


def codes_of(kind: str) -> set[int]:
    return {case.expect["code"] for case in OWN if case.expect["kind"] == kind and case.expect["code"]}


def test_our_corpus_is_large_enough_to_mean_something() -> None:
    negatives = [case for case in OWN if not case.is_ours]
    assert len(OWN) >= 1200
    assert len(negatives) >= 400
    assert len({(case.source, case.line) for case in OWN}) == len(OWN)


def test_our_corpus_has_a_line_of_every_code_and_of_every_family() -> None:
    catalog = load_catalog()
    assert codes_of("xid") >= set(catalog.xids)
    assert codes_of("sxid") >= set(catalog.sxids)
    assert codes_of("cuda") >= {
        entry.code for entry in catalog.named_entries.values() if entry.code is not None
    }
    assert {case.expect["kind"] for case in OWN} >= {
        kind
        for kind in FaultKind
        if kind.has_line and kind not in (FaultKind.CUSTOM, FaultKind.AMD, FaultKind.NEURON)
    }


def test_every_line_says_where_its_format_is_documented_and_every_negative_why_it_tempts() -> None:
    assert [case.name for case in OWN if case.reference in ("", "composed")] == []
    assert [case.name for case in OWN if not case.is_ours and not case.trap] == []
    assert [case.name for case in OWN if case.is_ours and case.trap] == []


@pytest.mark.parametrize("file", sorted({case.name.partition(":")[0] for case in OWN}))
def test_every_line_of_our_corpus_comes_out_as_labelled(file: str) -> None:
    problems = [problem_of(case) for case in OWN if case.name.startswith(f"{file}:")]
    assert [problem for problem in problems if problem] == []


def test_every_line_of_the_named_corpus_comes_out_as_labelled() -> None:
    path = os.environ.get(VARIABLE)
    if not path:
        pytest.skip(f"{VARIABLE} names no file")
    problems = [problem_of(case) for case in read_cases(Path(path))]
    assert problems
    assert [problem for problem in problems if problem] == []


WALK_THROUGH = (
    (
        "[1235733.431527] NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>,"
        " GPU has fallen off the bus."
    ),
    "NVRM: Xid (0000:03:00): 14, Channel 00000001",
)


@pytest.mark.parametrize("line", WALK_THROUGH)
@pytest.mark.parametrize("stamp", ["", "[2000000.000001] "], ids=["as it is", "echoed into /dev/kmsg"])
def test_the_lines_in_konduktors_walkthrough_taint(line: str, stamp: str) -> None:
    finding = find(stamp + line, Source.KERNEL)
    assert finding is not None
    assert finding.severity.taints
