"""The details of a finding: sub-code, MIG instance, port, cause, what the machine needs, evidence."""

from __future__ import annotations

import pytest

from konductor_like.catalog import Needs, load_catalog
from konductor_like.detection import find
from konductor_like.model import Finding, Severity, Source

XID = "NVRM: Xid (PCI:0000:c7:00): "


def found(text: str, source: Source = Source.KERNEL) -> Finding:
    finding = find(text, source)
    assert finding is not None, text
    return finding


def test_a_mig_instance_behind_the_code_is_not_that_of_the_line() -> None:
    assert found(XID + "31, pid=71, name=a GPU-I:05, MMU Fault").mig is None


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("79, GPU has fallen off the bus.", Needs.REBOOT),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", Needs.GPU_RESET),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", Needs.NONE),
        ("94, Contained: SM (0x1). RST: No, D-RST: No", Needs.APPLICATION_RESTART),
        ("94, Contained: SM (0x1). RST: No, D-RST: Yes", Needs.GPU_RESET),
    ],
)
def test_what_the_machine_needs_follows_from_the_text(text: str, needs: Needs) -> None:
    assert found(XID + text).needs == needs.value


def test_a_link_number_that_may_be_cut_is_not_read() -> None:
    assert found(XID + "149, NETIR Fatal XC0 i0 Link 0").port is None
    assert found(XID + "149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x0 0x0)").port is None


def test_what_fabric_manager_repeats_means_what_the_sxid_means() -> None:
    head, tail = (
        "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id",
        "physical id 2 port 12",
    )
    finding = found(f"[Apr 02 2026 11:20:31] [ERROR] [tid 512] {head} 00000000:A4:00.0 {tail}")
    assert (finding.rule, finding.title) == ("fm.20034", load_catalog().sxid(20034).title)


def test_an_xid_that_names_its_cause_says_so() -> None:
    finding = found(f"{XID}45, pid=71, name=a, Ch 00000001 caused by previous Xid 9999")
    assert (finding.code, finding.severity) == (45, Severity.SUSPECT)
    assert "caused by Xid 9999" in finding.title
    assert finding.advice == load_catalog().advice["root_cause"].text


def test_a_fatal_xid_stays_fatal_whatever_it_names_as_its_cause() -> None:
    assert found(XID + "119, Timeout after 6s, caused by previous Xid 31").severity is Severity.FATAL


def test_an_xid_carries_title_and_advice_of_the_catalogue() -> None:
    finding = found("NVRM: Xid (PCI:0000:c7:00): 79, GPU has fallen off the bus.")
    entry = load_catalog().xid(79)
    assert (finding.rule, finding.title, finding.advice) == ("xid.79", entry.title, entry.advice.text)


def test_a_recovery_action_is_in_the_title_and_the_advice() -> None:
    line = "NVRM: Xid (PCI:0000:c7:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
    finding = found(line)
    assert finding.severity is Severity.FATAL
    assert "reboot" in finding.title
    assert "reboot" in finding.advice


def test_a_recovered_gpu_has_nothing_to_do() -> None:
    line = "NVRM: Xid (PCI:0000:c7:00): 154, GPU recovery action changed from 0x2 (OS Reboot) to 0x0 (None)"
    finding = found(line)
    assert finding.severity is Severity.INFO
    assert "The driver needs no further action" in finding.advice
    assert "until this node is released" in finding.advice


def test_the_reason_why_a_link_went_down_is_reported() -> None:
    finding = found(
        "NVRM: Xid (PCI:0000:c7:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 02"
        " (0x025001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
    )
    assert finding.title.endswith("NETIR_LINK_DOWN, reason 37")


@pytest.mark.parametrize(
    "text", ["NVRM: Xid (PCI:0000:c7:00): 79", "RuntimeError: CUDA error: unknown error"]
)
def test_only_the_stream_decides_what_a_line_is(text: str) -> None:
    findings = [find(text, source) for source in Source]
    assert [finding is None for finding in findings].count(True) == 1


def test_the_fault_is_taken_from_the_line_of_an_entry_that_states_it() -> None:
    entry = "Traceback:\n  File 'a.py'\nRuntimeError: CUDA error: misaligned address\nmore"
    assert found(entry, Source.POD).text == "RuntimeError: CUDA error: misaligned address"


def test_evidence_of_a_very_long_pod_line_shows_the_fault() -> None:
    finding = found("x" * 5000 + " step 1: CUDA error: misaligned address " + "y" * 5000, Source.POD)
    assert "CUDA error: misaligned address" in finding.text


def test_a_quotation_does_not_hide_the_statement_behind_it() -> None:
    text = 'pattern "CUDA error: unknown error" is watched\nRuntimeError: CUDA error: unknown error'
    assert found(text, Source.POD).text == "RuntimeError: CUDA error: unknown error"


@pytest.mark.parametrize("unit", ["MSE_WATCHDOG", "MSE degraded"])
def test_an_nvlink_error_has_the_unit_of_its_line_where_the_numbers_fit_several(unit: str) -> None:
    finding = found(f"{XID}150, {unit}  Fatal   XC0 i0 Link -1 (0x00000000 0x00000000 0x00000000)")

    assert (finding.severity, finding.sub_code, finding.title.rpartition(": ")[2]) == (
        Severity.FATAL,
        unit,
        unit,
    )
