"""What a finding says to people, and what keeps apart what looks alike."""

from __future__ import annotations

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.detection import find
from konductor_like.model import FaultKind, Finding, Severity, Source


def found(text: str, source: Source = Source.KERNEL) -> Finding:
    finding = find(text, source)
    assert finding is not None, text
    return finding


def test_an_xid_carries_title_and_advice_of_the_catalogue() -> None:
    finding = found("NVRM: Xid (PCI:0000:c7:00): 79, GPU has fallen off the bus.")
    entry = load_catalog().xid(79)
    assert (finding.rule, finding.title, finding.advice) == ("xid.79", entry.title, entry.advice.text)


def test_a_recovery_action_is_told_in_the_title_and_the_advice() -> None:
    line = "NVRM: Xid (PCI:0000:c7:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
    finding = found(line)
    assert finding.severity is Severity.FATAL
    assert "reboot" in finding.title
    assert "reboot" in finding.advice


def test_a_recovered_gpu_has_nothing_to_do() -> None:
    line = "NVRM: Xid (PCI:0000:c7:00): 154, GPU recovery action changed from 0x2 (OS Reboot) to 0x0 (None)"
    finding = found(line)
    assert finding.severity is Severity.INFO
    assert "The driver asks for nothing any more" in finding.advice
    assert "`konductor-like reset`" in finding.advice


def test_the_reason_why_a_link_went_down_is_told() -> None:
    finding = found(
        "NVRM: Xid (PCI:0000:c7:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 02"
        " (0x025001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
    )
    assert finding.title.endswith("NETIR_LINK_DOWN, reason 37")


def test_a_contained_error_that_wants_a_drain_is_not_fatal_but_says_so() -> None:
    finding = found("NVRM: Xid (PCI:0000:c7:00): 94, Contained: MMU. RST: No, D-RST: Yes")
    assert finding.severity is Severity.SUSPECT
    assert "then reset" in finding.advice


def test_the_three_lines_of_one_sxid_are_one_incident() -> None:
    lines = [
        "nvidia-nvswitch0: SXid (PCI:0000:a4:00.0): 20034, Fatal, Link 03 LTSSM Fault Up",
        "nvidia-nvswitch0: SXid (PCI:0000:a4:00.0): 20034, Severity 1 Engine instance 03",
        "nvidia-nvswitch0: SXid (PCI:0000:a4:00.0): 20034, Data {0x00000001}",
    ]
    assert {(found(line).rule, found(line).gpu, found(line).severity) for line in lines} == {
        ("sxid.20034", "0000:a4:00", Severity.FATAL)
    }


def test_the_data_of_an_sxid_says_nothing_about_containment() -> None:
    line = "nvidia-nvswitch0: SXid (PCI:0000:a4:00.0): {}"
    assert found(line.format("11013, Fatal, Link 03 ingress header DBE (First)")).severity is Severity.FATAL
    assert found(line.format("11013, Data {0x00000001}")).severity is Severity.SUSPECT


def test_a_code_that_ends_the_line_is_no_proof_where_it_may_be_cut() -> None:
    line = "NVRM: Xid (PCI:0000:c7:00): "
    assert found(line + "79").severity is Severity.FATAL
    assert found(line + "14").severity is Severity.SUSPECT
    assert found(line + "14, Channel 00000001").severity is Severity.TEST


@pytest.mark.parametrize(
    "text", ["NVRM: Xid (PCI:0000:c7:00): 79", "RuntimeError: CUDA error: unknown error"]
)
def test_only_the_stream_decides_what_a_line_is(text: str) -> None:
    findings = [find(text, source) for source in Source]
    assert [finding is None for finding in findings].count(True) == 1


def test_a_pod_is_never_more_than_suspect() -> None:
    rules = load_catalog().rules(Source.POD)
    findings = [found(example, Source.POD) for rule in rules for example in rule.examples]
    assert {finding.severity for finding in findings} <= {
        Severity.SUSPECT,
        Severity.APPLICATION,
        Severity.INFO,
    }
    assert {finding.kind for finding in findings} == {FaultKind.NCCL, FaultKind.CUDA}


def test_the_fault_is_taken_from_the_line_of_an_entry_that_states_it() -> None:
    entry = "Traceback:\n  File 'a.py'\nRuntimeError: CUDA error: misaligned address\nmore"
    assert found(entry, Source.POD).text == "RuntimeError: CUDA error: misaligned address"


def test_evidence_of_a_very_long_pod_line_shows_the_fault() -> None:
    finding = found("x" * 5000 + " step 1: CUDA error: misaligned address " + "y" * 5000, Source.POD)
    assert "CUDA error: misaligned address" in finding.text


def test_a_quotation_does_not_hide_the_statement_behind_it() -> None:
    text = 'pattern "CUDA error: unknown error" is watched\nRuntimeError: CUDA error: unknown error'
    assert found(text, Source.POD).text == "RuntimeError: CUDA error: unknown error"
