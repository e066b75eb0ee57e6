"""A detector decides by its rules: overrides, modes, and a user's own rules."""

from __future__ import annotations

import pytest

from konductor_like.detection import Detector, find, packaged
from konductor_like.model import Fault, FaultKind, Finding, LogLine, Severity, Source
from tests.catalog.user_files import OWN_RULE, POD_RULE, read

RST = "NVRM: Xid (PCI:0000:3d:00): 94, pid=1, name=x, Contained: SM (0x1). RST: Yes, D-RST: No"
XID_79 = "NVRM: Xid (PCI:0000:3d:00): 79, pid=1, GPU has fallen off the bus."
LOST = "RuntimeError: NCCL error: remote process exited or there was a network error"
NIC = "[ 9.000001] mlx5_core 0000:3D:00.1: device's health compromised - reached miss count"
FLUX = "ERROR: the flux is broken"


def found(text: str, line: str, source: Source = Source.KERNEL) -> Finding | None:
    return Detector(read(text).catalog).find(line, source)


def test_an_overridden_severity_is_final_whatever_details_the_line_has() -> None:
    before = find(RST, Source.KERNEL)
    now = found("overrides:\n  xid.94.severity: info\n", RST)

    assert before is not None
    assert now is not None
    assert (before.severity, now.severity) == (Severity.FATAL, Severity.INFO)
    assert (before.severity_by_user, now.severity_by_user) == (False, True)
    assert now._replace(severity=before.severity, severity_by_user=False) == before


def test_title_and_advice_are_final_too() -> None:
    now = found("overrides:\n  xid.94.title: Ours\n  xid.94.advice: reboot\n", RST)

    assert now is not None
    assert (now.title, now.needs, now.severity) == ("Ours", "reboot", Severity.FATAL)
    assert not now.severity_by_user


@pytest.mark.parametrize(
    ("rule", "line", "source"),
    [
        ("xid.79", XID_79, Source.KERNEL),
        ("xid", XID_79, Source.KERNEL),
        ("nccl.remote_error", LOST, Source.POD),
        ("cuda.719", "CUDA error: unspecified launch failure", Source.POD),
    ],
)
def test_a_finding_of_a_shadow_rule_is_marked_and_a_rule_that_is_off_finds_nothing(
    rule: str, line: str, source: Source
) -> None:
    shown = found(f"overrides:\n  {rule}.mode: shadow\n", line, source)

    assert find(line, source) is not None
    assert shown is not None
    assert shown.shadow
    assert shown._replace(shadow=False) == find(line, source)
    assert found(f"overrides:\n  {rule}.mode: 'off'\n", line, source) is None


def test_a_rule_on_trial_hides_nothing_from_one_that_is_enforced() -> None:
    line = "NVRM: GPU 0000:3d:00.0: RmInitAdapter failed! (0x62:0x40:2404)"
    own = f"""
rules:
  - id: site.init
    source: kernel
    severity: fatal
    title: Ours
    advice: init
    contains: [RmInitAdapter failed]
    patterns: ['NVRM: GPU .*RmInitAdapter failed']
    match: ['{line}']
    no_match: ['NVRM: RmInitAdapter failed']
"""
    trial = "overrides:\n  nvrm.init_failed.mode: shadow\n"
    names = [found(text, line) for text in (own, trial, trial + own)]

    assert [each and (each.rule, each.shadow) for each in names] == [
        ("nvrm.init_failed", False),
        ("nvrm.init_failed", True),
        ("site.init", False),
    ]


def test_a_users_rule_finds_its_fault() -> None:
    finding = found(OWN_RULE, NIC)

    assert finding is not None
    assert (finding.kind, finding.rule, finding.severity) == (
        FaultKind.CUSTOM,
        "site.nic_down",
        Severity.SUSPECT,
    )
    assert (finding.gpu, finding.needs) == ("0000:3d:00", "inspection")
    assert finding.position.stamp_us == 9_000_001


@pytest.mark.parametrize("line", [f'print("{FLUX}")', f"assistant: {FLUX}", "| " + FLUX, "the flux is fine"])
def test_a_users_rule_does_not_find_a_quotation_either(line: str) -> None:
    assert found(POD_RULE, FLUX, Source.POD) is not None
    assert found(POD_RULE, line, Source.POD) is None


@pytest.mark.parametrize(
    ("text", "line", "severity"),
    [
        ("", LOST, Severity.SUSPECT),
        ("overrides:\n  nccl.remote_error.severity: fatal\n", LOST, Severity.FATAL),
        ("overrides:\n  nccl.remote_error.title: Ours\n", LOST, Severity.SUSPECT),
        (POD_RULE, FLUX, Severity.FATAL),
    ],
)
def test_a_pod_accuses_its_node_only_where_a_users_rule_says_so(
    text: str, line: str, severity: Severity
) -> None:
    fault = Detector(read(text).catalog).detect(LogLine(Source.POD, 0, line, {}, "gpu-1"))

    assert fault is not None
    assert fault.severity is severity


def test_only_a_user_can_make_a_pods_line_more_than_suspect() -> None:
    finding = found(POD_RULE, FLUX, Source.POD) or pytest.fail("nothing found")
    finding = finding._replace(severity_by_user=False)

    assert Fault(finding, Source.POD, 0, "gpu-1").severity is Severity.SUSPECT
    assert Fault(finding._replace(severity_by_user=True), Source.POD, 0, "gpu-1").severity is Severity.FATAL
    old = Fault(finding._replace(severity_by_user=True), Source.POD, 0, "gpu-1", before_install=True)
    assert old.severity is Severity.SUSPECT


def test_the_anchors_follow_the_rules() -> None:
    detector = Detector(read(OWN_RULE + "overrides:\n  nccl.crash.mode: 'off'\n").catalog)
    before = packaged().anchors(Source.KERNEL)

    assert set(detector.anchors(Source.KERNEL)) == {*before, "health compromised"} - {"libnccl"}
