"""What holds for every line, however mangled."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konductor_like.detection import find, parse_heartbeat
from konductor_like.detection.anchors import anchors_of
from konductor_like.model import EVIDENCE_CHARS, FaultKind, Finding, Severity, Source

from .corpus import Case, own_cases

CASES = own_cases()
KERNEL = [case for case in CASES if case.source is Source.KERNEL]
POD = [case for case in CASES if case.source is Source.POD]
PIECES = st.sampled_from(
    [
        *("NVRM: ", "Xid (", "SXid (", "nvidia-nvswitch0: ", "PCI:0000:c7:00", "): ", "79", "20034, Fatal, "),
        *(
            ", pid=",
            "name=",
            "154, ",
            "changed from 0x0 (None) to 0x",
            "149, NETIR Fatal XC0 i0 Link 01 (",
            "0x",
        ),
        *(
            "[12.345678] ",
            "<4>",
            "4,5,6,-;",
            "kmsg/1 boot=",
            "kernel: ",
            '{"log":"',
            '","stream":"x"}',
            "\\x0a",
        ),
        *(
            "\x1b[31m",
            "\x00",
            "\n",
            "\ud800",
            "é",
            "٣",
            "CUDA error: ",
            "out of memory",
            "NCCL WARN ",
            '"',
            "`",
        ),
        *(
            "nv_mem ",
            "peermem",
            "libnccl",
            "segfault at ",
            "fallen off the bus",
            "atchdog ",
            "Cuda failure '",
        ),
    ]
)
LINES = st.one_of(
    st.text(max_size=200),
    st.lists(st.one_of(PIECES, st.text(max_size=6)), max_size=25).map("".join),
    st.sampled_from(CASES).map(lambda case: case.line),
)


def same(a: Finding | None, b: Finding | None) -> bool:
    """Whether two findings say the same, wherever the lines stood."""
    if a is None or b is None:
        return a is b
    keep = [(f.rule, f.severity, f.code, f.gpu, f.pid, f.process, f.title, f.advice, f.text) for f in (a, b)]
    return keep[0] == keep[1]


@given(LINES, st.sampled_from(Source))
def test_no_line_raises_and_every_finding_is_sound(line: str, source: Source) -> None:
    parse_heartbeat(line)
    finding = find(line, source)
    if finding is None:
        return
    assert any(anchor in line for anchor in anchors_of(source))
    assert len(finding.text) <= EVIDENCE_CHARS
    assert finding.text.isprintable() or not finding.text.isascii()
    finding.text.encode("utf-8")
    assert source is Source.KERNEL or not finding.severity.taints
    assert source is Source.POD or finding.kind is not FaultKind.CUDA


@given(st.sampled_from(CASES), st.data())
def test_mutations_do_not_raise(case: Case, data: st.DataObject) -> None:
    line = case.line
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(line)))
        cut = data.draw(st.integers(0, 5))
        line = line[:at] + data.draw(st.one_of(PIECES, st.text(max_size=3))) + line[at + cut :]
    find(line, case.source)


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


@given(st.sampled_from(KERNEL), st.lists(st.sampled_from(PREFIXES), max_size=2).map("".join))
@settings(max_examples=300)
def test_prefixes_never_change_the_verdict_on_a_kernel_line(case: Case, prefix: str) -> None:
    finding = find(case.line, Source.KERNEL)
    bare = finding.text if finding is not None else case.line
    assert same(find(prefix + bare, Source.KERNEL), finding)


@given(
    st.sampled_from(KERNEL), st.sampled_from([docker, journal, "\x1b[33m{}\x1b[0m".format, "\x00{}\r".format])
)
@settings(max_examples=300)
def test_wrappers_never_change_the_verdict_on_a_kernel_line(case: Case, wrap: object) -> None:
    assert callable(wrap)
    assert same(find(wrap(case.line), Source.KERNEL), find(case.line, Source.KERNEL))


@given(
    st.sampled_from(POD),
    st.sampled_from(
        ["2026-03-04T11:22:33.000000001Z stderr F {}".format, docker, "{}\r".format, "\x1b[0m{}".format]
    ),
)
@settings(max_examples=300)
def test_wrappers_never_change_the_verdict_on_a_pods_line(case: Case, wrap: object) -> None:
    assert callable(wrap)
    if case.line.startswith(("{", "2026-")):
        return  # it is wrapped already
    assert same(find(wrap(case.line), Source.POD), find(case.line, Source.POD))


def may_be_fatal_when_cut(whole: Finding | None, cut: Finding) -> bool:
    """The two details that lower what stands before them.

    Xid 74 is fatal but for its registers, and the driver's word Fatal counts until the table says better.
    """
    return whole is not None and whole.rule == cut.rule and (whole.code == 74 or " Fatal" in cut.text)


@pytest.mark.parametrize("case", KERNEL, ids=lambda case: case.name)
def test_a_cut_line_never_invents_a_taint(case: Case) -> None:
    whole = find(case.line, Source.KERNEL)
    if whole is not None and whole.severity.taints:
        return
    for end in range(len(case.line)):
        cut = find(case.line[:end], Source.KERNEL)
        assert cut is None or not cut.severity.taints or may_be_fatal_when_cut(whole, cut), case.line[:end]


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
def test_a_line_of_256_kb_takes_at_most_25_ms(piece: str, source: Source) -> None:
    body = piece * (LONG // len(piece))
    for head in ("", "NVRM: ", '{"log":"NVRM: '):
        for tail in TAILS:
            line = head + body + tail
            best = min(_seconds(line, source) for _ in range(2))
            if best > 0.025:  # once more: something else may have been running
                best = min(_seconds(line, source) for _ in range(5))
            assert best <= 0.025, (head, tail)


def _seconds(line: str, source: Source) -> float:
    begun = time.perf_counter()
    find(line, source)
    return time.perf_counter() - begun


def test_the_severities_that_taint_are_the_two_that_the_corpus_counts() -> None:
    assert {severity for severity in Severity if severity.taints} == {Severity.FATAL, Severity.TEST}
