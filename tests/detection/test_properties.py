"""Properties of detection for every line, however mangled."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konductor_like.detection import find
from konductor_like.model import Finding, Severity, Source
from konductor_like.model.faults import NOWHERE
from tools.quality.corpus import Case, own_cases

CASES = own_cases()
FILES = sorted({case.name.partition(":")[0] for case in CASES})
KERNEL = [case for case in CASES if case.source is Source.KERNEL]
POD = [case for case in CASES if case.source is Source.POD]


def same(a: Finding | None, b: Finding | None) -> bool:
    """Whether two findings are equal except for the position of their lines."""
    if a is None or b is None:
        return a is b
    keep = [f._replace(position=NOWHERE, user_written=False) for f in (a, b)]
    return keep[0] == keep[1]


PREFIXES = (
    *("", "[77.000001] ", "<4>", "<6>[   77.000001] ", "[Wed Mar  4 11:22:33 2026] ", "[77.000001] [  T99] "),
    *("kern  :warn  : ", "4,88,77000001,-;", "Mar  4 11:22:33 gpu-3 kernel: ", "kernel: "),
    *("2026-03-04T11:22:33.000000001Z stdout F ", "2026-03-04T11:22:33,000000+00:00 "),
    "kmsg/1 boot=0b6f3c1e-7d52-4a8e-9a53-1f2e3d4c5b6a seq=9 facility=0 priority=4 [77.000001] ",
)


def docker(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-03-04T11:22:33Z"})


def journal(line: str) -> str:
    return json.dumps({"_TRANSPORT": "kernel", "MESSAGE": line})


def outermost_first(prefixes: list[str]) -> str:
    """Order the prefixes as logs do: a header with a date, our reader's prefix once, then the others."""
    headers = [prefix for prefix in prefixes if prefix.startswith(("Mar ", "2026-"))]
    ours = [prefix for prefix in prefixes if prefix.startswith("kmsg/1 ")]
    return "".join([*headers, *ours[:1], *(p for p in prefixes if p not in (*headers, *ours))])


@given(st.sampled_from(KERNEL), st.lists(st.sampled_from(PREFIXES), max_size=2).map(outermost_first))
@settings(max_examples=150)
def test_prefixes_never_change_the_verdict_on_a_kernel_line(case: Case, prefix: str) -> None:
    finding = find(case.line, Source.KERNEL)
    bare = finding.text if finding is not None else case.line
    assert same(find(prefix + bare, Source.KERNEL), finding)


def disguises(case: Case) -> list[str]:
    """Return the line in some of the wrappers that it may get, the same ones in every run."""
    if case.source is Source.POD:
        if case.line.startswith(("{", "2026-")):
            return []  # it is wrapped already
        wrap = POD_WRAPPERS[zlib.crc32(case.line.encode()) % len(POD_WRAPPERS)]
        return [wrap(case.line), f"2026-03-04T11:22:33.000000001Z stdout F {case.line}"]
    finding = find(case.line, Source.KERNEL)
    bare = case.line if finding is None else finding.text
    start = zlib.crc32(case.line.encode())
    prefixes = [PREFIXES[(start + step) % len(PREFIXES)] for step in range(4)]
    return [prefix + bare for prefix in prefixes] + [
        KERNEL_WRAPPERS[(start + step) % len(KERNEL_WRAPPERS)](case.line) for step in range(2)
    ]


POD_WRAPPERS: tuple[Callable[[str], str], ...] = (docker, "{}\r".format, "\x1b[0m{}".format)
KERNEL_WRAPPERS: tuple[Callable[[str], str], ...] = (
    docker,
    journal,
    "\x1b[33m{}\x1b[0m".format,
    "\x00{}\r".format,
    "2026-03-04T11:22:33Z stdout F \x1b[33m{}".format,
)


@pytest.mark.parametrize("file", FILES)
def test_no_disguise_changes_the_verdict_on_any_line_of_the_corpus(file: str) -> None:
    cases = [case for case in CASES if case.name.startswith(f"{file}:")]
    seen = [(case, line) for case in cases for line in disguises(case)]
    assert len(seen) >= len(cases)
    wrong = [line for case, line in seen if not same(find(line, case.source), find(case.line, case.source))]
    assert wrong == []


RANKS = (Severity.INFO, Severity.APPLICATION, Severity.SUSPECT, Severity.FATAL)
LOWERING = ("xid.74", "xid.149", "xid.154", "xid.45")
"""Codes whose details can lower the severity: registers, the decode table, the target, the cause."""


def rank(finding: Finding) -> int:
    return RANKS.index(Severity.FATAL if finding.severity is Severity.TEST else finding.severity)


def is_worse_when_cut(case: Case, end: int) -> bool:
    """Whether the first ``end`` characters say a fault that the whole line does not, or a graver one.

    A cut through a number or a word leaves another one, which only counts where it would taint.
    """
    cut = find(case.line[:end], case.source)
    if cut is None:
        return False
    whole = find(case.line, case.source)
    torn = case.line[end - 1].isalnum() and case.line[end].isalnum()
    if whole is None:
        quoted_behind = case.source is Source.POD and "NVRM" in case.line[end:]
        code_goes_on = torn and case.line[end - 1].isdigit()
        return not quoted_behind and not (code_goes_on if cut.severity.taints else torn)
    if rank(cut) <= rank(whole) or (torn and not cut.severity.taints):
        return False
    if cut.rule != whole.rule or cut.rule not in LOWERING:
        return True
    # The word Fatal counts until the numbers say better; Xid 74 is fatal but for its registers.
    return cut.severity.taints and cut.code != 74 and " Fatal" not in cut.text


@pytest.mark.parametrize("file", FILES)
def test_a_cut_line_never_invents_a_fault_or_makes_one_graver(file: str) -> None:
    cases = [case for case in CASES if case.name.startswith(f"{file}:")]
    worse = [
        case.line[:end] for case in cases for end in range(1, len(case.line)) if is_worse_when_cut(case, end)
    ]
    assert worse == []


LONG = 256 * 1024
HOSTILE = {
    "nothing": "a ",
    "anchor": "NVRM",
    "opening": "Xid (",
    "stamps": "[1.000001] ",
    "colours": "\x1b[3",
    "escapes": "\\x0a",
    "blanks": " ",
    "newlines": "\n",
    "words": "a.",
    "objects": '{"a":',
    "quotes": '"CUDA out of memory" ',
    "statements": ": CUDA error: ",
    "almost": ": NCCL error in: x, ",
    "completions": "NET/IB : Got completion from peer ",
    "watchdogs": ": Watchdog caught collective operation timeout ",
    "calls": "ncclSystemError: System call call failed ",
    "our log": "node `",
    "digits": "1",
    "months": "März 1 ",
}
TAILS = (
    "",
    "NVRM: Xid (PCI:0000:c7:00): 79, fallen off the bus",
    "CUDA error: unknown error",
    '","stream":1}',
)


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("source", list(Source))
def test_a_line_of_256_kb_takes_no_more_than_linear_time(piece: str, source: Source) -> None:
    body = piece * (LONG // len(piece))
    for head in ("", "NVRM: ", '{"log":"NVRM: '):
        for tail in TAILS:
            begun = time.process_time()
            find(head + body + tail, source)
            # It takes 6 ms; in quadratic time it would take minutes.
            assert time.process_time() - begun <= 1, (head, tail)


def test_the_severities_that_taint_are_the_two_that_the_corpus_counts() -> None:
    assert {severity for severity in Severity if severity.taints} == {Severity.FATAL, Severity.TEST}
