"""What a finding says: sub-code, MIG instance, port, cause, what the machine needs, and the evidence."""

from __future__ import annotations

import pytest

from konductor_like.catalog import Needs, load_catalog
from konductor_like.detection import find
from konductor_like.model import FaultKind, Finding, Severity, Source

XID = "NVRM: Xid (PCI:0000:c7:00): "


def found(text: str, source: Source = Source.KERNEL) -> Finding:
    finding = find(text, source)
    assert finding is not None, text
    return finding


@pytest.mark.parametrize(
    ("text", "sub_code"),
    [
        (
            "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            "Node Reboot Required",
        ),
        ("154, GPU recovery action changed from 0x1 (PF FLR) to 0x0 (None)", "None"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Rebo", None),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x026525c6 0x00000000 0x0 0x0)", "NETIR_LINK_EVT.38"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 09", "NETIR_LINK_EVT"),
        (
            "145, pid=71, name=a, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x00000004 0x00000001 0x0 0x0)",
            "RLW_REMAP",
        ),
        ("145, RLW_REM", None),
        ("13, pid=71, name=a, Graphics SM Warp Exception", None),
    ],
)
def test_the_sub_code_is_the_target_or_the_unit(text: str, sub_code: str | None) -> None:
    assert found(XID + text).sub_code == sub_code


@pytest.mark.parametrize(
    ("inside", "mig"),
    [
        ("", None),
        (" GPU-I:05", "5"),
        (" GPU-I:05 GPU-CI:01", "5/1"),
        (" GPU-I:00 GPU-CI:00", "0/0"),
    ],
)
def test_the_mig_instance_is_numbered_as_nvidia_smi_does(inside: str, mig: str | None) -> None:
    finding = found(
        f"NVRM: Xid (PCI:0000:c7:00{inside}): 94, pid=71, Contained: SM (0x1). RST: No, D-RST: No"
    )
    assert (finding.mig, finding.gpu, finding.pid) == (mig, "0000:c7:00", 71)


def test_a_mig_instance_in_the_text_behind_the_code_is_not_the_lines_own() -> None:
    assert found(XID + "31, pid=71, name=a GPU-I:05, MMU Fault").mig is None


@pytest.mark.parametrize(
    ("text", "port"),
    [
        (XID + "74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", 14),
        (XID + "74, NVLink: fatal error detected on link 7", 7),
        (XID + "145, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x00000004 0x00000001 0x0 0x0)", 2),
        (XID + "149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x0 0x0)", None),
        (XID + "149, NETIR Fatal XC0 i0 Link 0", None),
        (XID + "79, GPU has fallen off the bus.", None),
        ("nvidia-nvswitch0: SXid (PCI:0000:a4:00.0): 20034, Fatal, Link 31 LTSSM Fault Up", 31),
        ("nvidia-nvswitch0: SXid (PCI:0000:a4:00.0): 26006, SOE HALTED", None),
    ],
)
def test_the_port_is_the_links_number(text: str, port: int | None) -> None:
    assert found(text).port == port


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("79, GPU has fallen off the bus.", Needs.REBOOT),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", Needs.GPU_RESET),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", Needs.NOTHING),
        ("94, Contained: SM (0x1). RST: No, D-RST: No", Needs.APPLICATION_RESTART),
        ("94, Contained: SM (0x1). RST: No, D-RST: Yes", Needs.GPU_RESET),
    ],
)
def test_what_the_machine_needs_follows_from_the_text(text: str, needs: Needs) -> None:
    assert found(XID + text).needs == needs.value


@pytest.mark.parametrize(
    ("cause", "severity"),
    [
        (149, Severity.SUSPECT),
        (79, Severity.SUSPECT),
        (31, Severity.APPLICATION),
        (13, Severity.APPLICATION),
        (9999, Severity.SUSPECT),
    ],
)
def test_an_xid_that_names_its_cause_is_judged_by_it_and_never_taints(cause: int, severity: Severity) -> None:
    finding = found(f"{XID}45, pid=71, name=a, Ch 00000001 caused by previous Xid {cause}")
    assert (finding.code, finding.severity) == (45, severity)
    assert f"caused by Xid {cause}" in finding.title
    assert finding.advice == load_catalog().advice["root_cause"].text


def test_a_fatal_xid_stays_fatal_whatever_it_names_as_its_cause() -> None:
    assert found(XID + "119, Timeout after 6s, caused by previous Xid 31").severity is Severity.FATAL


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("48, pid=71, An uncorrectable double bit error (DBE) has been detected", Severity.FATAL),
        ("63, Row Remapper: New row (0x2b7) marked for remapping, reset gpu to activate.", Severity.SUSPECT),
        ("64, Row Remapper: Failed to record the row", Severity.FATAL),
        ("94, Contained: LTC TAG (0x2). RST: No, D-RST: No", Severity.SUSPECT),
        ("94, Contained: LTC TAG (0x2). RST: Yes, D-RST: No", Severity.FATAL),
        ("94, Contained: LTC TAG (0x2). RST: No, D-RST: Yes", Severity.SUSPECT),
        ("95, Uncontained: LTC TAG (0x2). RST: Yes, D-RST: No", Severity.FATAL),
        ("95, Uncontained: physAddr: 0x00000012 RST: No, D-RST: No", Severity.FATAL),
        ("162, PSHC re-engaged", Severity.INFO),
        ("163, PSHC disengaged", Severity.SUSPECT),
    ],
)
def test_memory_and_power_are_judged_by_code_and_reset_fields(text: str, severity: Severity) -> None:
    assert found(XID + text).severity is severity


def test_fabric_manager_repeats_an_sxid_and_means_the_same() -> None:
    head = "[Apr 02 2026 11:20:31] [ERROR] [tid 512] detected NVSwitch"
    tail = "on fid 0 on NVSwitch pci bus id 00000000:A4:00.0 physical id 2 port 12"
    fatal, acted_on, mild = (
        found(f"{head} {words} {tail}")
        for words in ("fatal error 20034", "non-fatal error 12028", "non-fatal error 54321")
    )
    assert (fatal.kind, fatal.rule, fatal.code, fatal.gpu) == (FaultKind.FM, "fm.20034", 20034, "0000:a4:00")
    assert fatal.port == 12
    assert fatal.title == load_catalog().sxid(20034).title
    assert [f.severity for f in (fatal, acted_on, mild)] == [Severity.FATAL, Severity.FATAL, Severity.SUSPECT]


@pytest.mark.parametrize("code", range(1, 177))
def test_every_xid_says_what_the_machine_needs(code: int) -> None:
    finding = found(f"{XID}{code}, pid=71, name=a, some text")
    entry = load_catalog().xid(code)
    assert (finding.rule, finding.needs) == (f"xid.{code}", entry.advice.needs.value)


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
