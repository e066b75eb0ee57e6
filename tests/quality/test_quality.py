"""The targets of detection, and the page that reports them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from konductor_like.detection import find
from tools.quality.corpus import read_cases
from tools.quality.peers import PEERS
from tools.quality.report import PUBLIC_LINES
from tools.quality.score import OURS, Result, exact, mistakes, results, share

VARIABLE = "KONDUCTOR_TEST_CORPUS"


def test_no_line_taints_that_should_not() -> None:
    assert [result.case.name for result in results() if result.taints and not result.case.taints] == []


def test_no_fatal_line_is_missed() -> None:
    must = [result for result in results() if result.case.taints]
    assert len(must) >= 300
    assert [result.case.name for result in must if not result.taints] == []


@pytest.mark.parametrize("label", ["kind", "code", "pci"])
def test_kind_code_and_gpu_are_exact(label: str) -> None:
    right, whole = exact(results(), label)
    assert right >= 0.995 * whole


def test_we_make_fewer_mistakes_of_each_sort_than_every_peer() -> None:
    ours = mistakes(OURS)
    for peer in PEERS.values():
        theirs = mistakes(peer)
        assert ours.missed < theirs.missed
        assert ours.overrated.total() < theirs.overrated.total()


def test_a_share_is_never_rounded_up_to_all() -> None:
    assert [share(1, 1), share(0, 3), share(99_999, 100_000), share(0, 0)] == [
        "100 %",
        "0.00 %",
        "99.99 %",
        "-",
    ]


def test_the_results_on_the_public_corpus_are_those_of_the_page() -> None:
    path = os.environ.get(VARIABLE)
    if not path:
        pytest.skip(f"{VARIABLE} names no file")
    cases = read_cases(Path(path))
    assert len(cases) == PUBLIC_LINES
    found = [Result(case, find(case.line, case.source)) for case in cases]
    assert [result.case.name for result in found if result.taints != result.case.taints] == []
    for label in ("kind", "code", "pci"):
        right, whole = exact(found, label)
        assert right == whole > 0
