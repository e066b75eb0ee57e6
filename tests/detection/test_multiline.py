"""Faults that several lines of one kernel log show together, and lines that must not be joined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.catalog import load_catalog
from konductor_like.catalog.user_rules import read_user_rules
from konductor_like.detection import Detector
from konductor_like.detection.multiline import LOGS_MOST, MultilineDetector
from konductor_like.model import Finding, LogLine, Severity, Source

SWITCH = "nvidia-nvswitch2: SXid (PCI:0000:a4:00.0): "
FATAL = f"{SWITCH}11013, Fatal, Link 07 ingress header DBE (First)"
ENGINE = f"{SWITCH}11013, Severity 1 Engine instance 07 Sub-engine instance 00"
DATA = f"{SWITCH}11013, Data {{0x00000010, 0x00000000}}"
GPU, PORT = "0000:3d:00", "0000:17:01"
PORT_FATAL = "pcieport 0000:17:01.0: AER: Uncorrected (Fatal) error received: 0000:17:01.0"
PORT_MILD = "pcieport 0000:17:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:3d:00.0"
PORT_LOST = "pcieport 0000:17:01.0: AER: device recovery failed"
GPU_MILD = "nvidia 0000:3d:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer"
DISK = "pcieport 0000:20:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:81:00.0"
LOST = (
    "NVRM: The NVIDIA GPU 0000:c7:00.0",
    "NVRM: (PCI ID: 10de:2335) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


def said(*lines: str) -> list[Finding | None]:
    """Return the finding of each line, in order."""
    logs = MultilineDetector()
    return [logs.find(line) for line in lines]


def last(*lines: str) -> Finding:
    finding = said(*lines)[-1]
    assert finding is not None
    return finding


def stamped(*lines: tuple[float, str]) -> list[str]:
    return [f"[{stamp:.6f}] {line}" for stamp, line in lines]


def test_a_gpu_lost_in_three_lines_has_the_address_of_the_first() -> None:
    first, second, third = said(*stamped((9.000001, LOST[0]), (9.000003, LOST[1]), (9.000004, LOST[2])))
    assert (first, second) == (None, None)
    assert third is not None
    assert (third.rule, third.gpu, third.severity) == ("nvrm.fallen_off_bus", "0000:c7:00", Severity.FATAL)


def test_an_address_without_a_domain_is_kept_as_the_first_line_has_it() -> None:
    assert last(LOST[0].replace("0000:", ""), *LOST[1:]).gpu == "c7:00"


def test_without_stamps_the_lines_between_are_counted() -> None:
    assert last(*LOST).gpu == "0000:c7:00"
    assert last(LOST[0], *["NVRM: GPU Board Serial Number: 1320000000001"] * 8, LOST[2]).gpu is None


def test_an_address_that_was_named_long_before_is_not_taken() -> None:
    assert last(*stamped((9.0, LOST[0]), (10.5, LOST[2]))).gpu is None
    assert last(*stamped((9.0, LOST[0]), (8.0, LOST[2]))).gpu is None


def test_a_quoted_address_is_not_taken() -> None:
    assert last(f"note: {LOST[0]}", LOST[2]).gpu is None


def test_one_sxid_is_one_fault_however_many_lines_it_prints() -> None:
    lines = stamped((5.000001, FATAL), (5.000002, ENGINE), (5.000003, DATA), (5.000004, DATA))
    first, *others = said(*lines)
    assert first is not None
    assert (first.severity, first.rule, first.gpu, first.port) == (
        Severity.FATAL,
        "sxid.11013",
        "0000:a4:00",
        7,
    )
    assert first.needs == "fabric-reset"
    assert others == [None, None, None]


def test_two_sxids_at_once_are_two_faults() -> None:
    other = FATAL.replace("Link 07", "Link 12")
    assert [f is not None for f in said(FATAL, ENGINE, DATA, other, ENGINE, DATA)] == [True, False, False] * 2


def test_an_sxid_whose_first_line_is_lost_counts_once() -> None:
    first, second, third = said(*stamped((5.000002, ENGINE), (5.000003, DATA), (5.000004, DATA)))
    assert first is not None
    assert (first.severity, second, third) == (Severity.FATAL, None, None)
    assert last(DATA).severity is Severity.SUSPECT


@pytest.mark.parametrize(
    "other",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:a5:00.0): 11013, Data {0x00000010}",
        f"{SWITCH}11012, Data {{0x00000010}}",
    ],
    ids=["another switch", "another code"],
)
def test_the_data_of_something_else_is_a_fault_of_its_own(other: str) -> None:
    assert last(*stamped((5.000001, FATAL), (5.000002, other))).severity is not Severity.FATAL


def test_data_that_come_later_than_a_second_are_not_joined() -> None:
    assert last(*stamped((5.0, FATAL), (6.5, DATA))).severity is Severity.SUSPECT


def test_a_line_that_says_fatal_by_its_own_number_stays_fatal() -> None:
    mild = f"{SWITCH}11013, Non-fatal, Link 07 ingress header DBE"
    number = f"{SWITCH}11013, Severity 1 Engine instance 07 Sub-engine instance 00"
    first, second, third = said(mild, number, DATA)
    assert first is not None
    assert second is not None
    assert (first.severity, second.severity, second.port) == (Severity.SUSPECT, Severity.FATAL, 7)
    assert third is None
    assert said(mild, DATA)[1] is None


def test_a_ports_error_alone_is_suspect() -> None:
    assert [f.severity for f in said(PORT_FATAL, PORT_LOST) if f] == [Severity.SUSPECT] * 2


def test_a_fatal_error_of_the_port_is_the_gpus_once_that_is_named() -> None:
    finding = last(*stamped((7.0, PORT_FATAL), (7.2, GPU_MILD)))
    assert (finding.severity, finding.gpu, finding.needs) == (Severity.FATAL, GPU, "reboot")


def test_a_recovery_that_fails_under_a_gpu_is_fatal_for_that_gpu() -> None:
    finding = last(*stamped((7.0, PORT_MILD), (7.1, GPU_MILD), (7.9, PORT_LOST)))
    assert (finding.severity, finding.gpu) == (Severity.FATAL, GPU)


def test_an_error_that_the_gpu_got_over_stays_suspect() -> None:
    findings = said(*stamped((7.0, PORT_MILD), (7.1, GPU_MILD)))
    assert [f.severity for f in findings if f] == [Severity.SUSPECT] * 2


@pytest.mark.parametrize(
    "lines",
    [
        stamped((7.0, PORT_MILD), (7.1, GPU_MILD), (18.0, PORT_LOST)),
        stamped((7.0, PORT_MILD), (7.1, GPU_MILD), (7.5, DISK), (7.9, PORT_LOST)),
        stamped((7.0, DISK.replace("Non-Fatal", "Fatal")), (7.5, GPU_MILD)),
    ],
    ids=["too late", "another device between", "another device before"],
)
def test_lines_of_another_error_never_count_against_the_gpu(lines: list[str]) -> None:
    assert last(*lines).severity is Severity.SUSPECT


def test_one_failed_recovery_is_counted_once() -> None:
    lines = stamped((7.0, PORT_MILD), (7.1, GPU_MILD), (7.2, PORT_LOST), (7.9, PORT_LOST))
    assert [f.severity for f in said(*lines) if f][-2:] == [Severity.FATAL, Severity.SUSPECT]


def test_logs_are_not_mixed_up() -> None:
    logs = MultilineDetector()
    logs.find(LOST[0], "gpu-1")
    finding = logs.find(LOST[2], "gpu-2")
    assert finding is not None
    assert finding.gpu is None


def test_lines_of_two_boots_are_not_joined() -> None:
    boots = ("0b6f3c1e-7d52-4a8e-9a53-1f2e3d4c5b6a", "1b6f3c1e-7d52-4a8e-9a53-1f2e3d4c5b6a")
    head = "kmsg/1 boot={} seq={} facility=0 priority=4 [9.000001] "
    lines = [head.format(boots[0], 7) + LOST[0], head.format(boots[1], 8) + LOST[2]]
    assert last(*lines).gpu is None
    assert last(lines[0], head.format(boots[0], 9) + LOST[2]).gpu == "0000:c7:00"


def test_a_line_that_a_user_wrote_does_not_complete_a_kernel_line() -> None:
    assert last(f"<12>{PORT_FATAL}", f"<4>{GPU_MILD}").severity is Severity.SUSPECT
    assert last(f"<12>{LOST[0]}", f"<4>{LOST[2]}").gpu is None
    assert last(f"<12>{PORT_FATAL}", f"<12>{GPU_MILD}").severity is Severity.FATAL


def test_lines_of_loki_are_joined_by_node_and_pods_are_left_alone() -> None:
    logs = MultilineDetector()

    def line(text: str, node: str | None, source: Source = Source.KERNEL) -> LogLine:
        return LogLine(source, 42, text, {}, node, "dmesg-logging", "dmesg-x", "dmesg")

    assert logs.detect(line(LOST[0], "gpu-1")) is None
    fault = logs.detect(line(LOST[2], "gpu-1"))
    assert fault is not None
    assert (fault.finding.gpu, fault.node, fault.timestamp_ns) == ("0000:c7:00", "gpu-1", 42)
    nobodys = logs.detect(line(LOST[2], None))
    assert nobodys is not None
    assert nobodys.finding.gpu is None
    assert logs.detect(line("RuntimeError: CUDA error: unknown error", "gpu-1", Source.POD)) is not None
    assert logs.detect(line("nothing", "gpu-1")) is None


def test_a_users_severity_is_final() -> None:
    rules = read_user_rules("overrides: {aer.uncorrected.severity: info}", "mine.yaml", load_catalog())
    detector = Detector(rules.catalog)
    logs = MultilineDetector(detector)
    findings = [logs.find(line) for line in (PORT_FATAL, GPU_MILD)]
    assert [f.severity for f in findings if f] == [Severity.INFO] * 2


@pytest.mark.parametrize(
    ("mode", "severity", "shadow"), [("off", "suspect", False), ("shadow", "fatal", True)]
)
def test_the_mode_of_the_gpus_rule_applies_to_a_ports_error(mode: str, severity: str, shadow: bool) -> None:
    rules = read_user_rules(f"overrides: {{aer.gpu_error.mode: '{mode}'}}", "mine.yaml", load_catalog())
    detector = Detector(rules.catalog)
    logs = MultilineDetector(detector)
    logs.find(PORT_FATAL)
    finding = logs.find(GPU_MILD)
    assert finding is not None
    assert (finding.severity.value, finding.shadow) == (severity, shadow)


def test_the_memory_is_bounded() -> None:
    logs = MultilineDetector()
    for number in range(LOGS_MOST + 10):
        logs.find(LOST[0], number)
    assert len(logs._logs) == LOGS_MOST
    for _ in range(100):
        logs.find(FATAL, "gpu-1")
    assert len(logs._logs["gpu-1"].switches) <= 8


@given(
    st.lists(
        st.sampled_from([*LOST, FATAL, DATA, PORT_FATAL, PORT_MILD, PORT_LOST, GPU_MILD, DISK]), max_size=12
    )
)
def test_a_port_is_never_fatal_unless_an_nvidia_function_was_named(lines: list[str]) -> None:
    findings = said(*lines)
    for at, finding in enumerate(findings):
        if finding is not None and finding.kind == "aer" and finding.severity.taints:
            assert GPU_MILD in lines[: at + 1]
            assert finding.gpu == GPU


RECORD = (
    "{7}[Hardware Error]: event severity: recoverable",
    "{7}[Hardware Error]:  Error 0, type: recoverable",
    "{7}[Hardware Error]:   device_id: 0000:3d:00.0",
    "{7}[Hardware Error]:   vendor_id: 0x10de, device_id: 0x2330",
)


def test_an_error_that_firmware_reports_has_the_address_of_its_record() -> None:
    finding = last(*RECORD)

    assert (finding.rule, finding.gpu, finding.severity) == ("aer.firmware_record", GPU, Severity.SUSPECT)


@pytest.mark.parametrize("word", ["corrected", "info"])
@pytest.mark.parametrize("line", [0, 1])
def test_an_error_that_the_hardware_corrected_is_no_fault(word: str, line: int) -> None:
    lines = [text.replace("recoverable", word) for text in RECORD[line : line + 1]]

    assert said(*RECORD[:line], *lines, RECORD[2], RECORD[3])[-1] is None


def test_a_record_of_firmware_is_not_completed_by_one_long_before() -> None:
    corrected = RECORD[0].replace("recoverable", "corrected")
    finding = last(*stamped((5.0, corrected), (5.0, RECORD[2]), (9.0, RECORD[3])))

    assert (finding.rule, finding.gpu) == ("aer.firmware_record", None)


def downs(*at: tuple[float, str]) -> list[Finding | None]:
    return said(*stamped(*((stamp, f"mlx5_core 0000:5e:00.0 {port}: Link down") for stamp, port in at)))


def test_a_port_that_loses_its_link_three_times_within_ten_minutes_is_suspect() -> None:
    found = downs((9.0, "ens7f0np0"), (300.0, "ens7f0np0"), (608.0, "ens7f0np0"), (609.0, "ens7f0np0"))

    assert [finding and finding.severity for finding in found] == [None, None, *[Severity.SUSPECT] * 2]
    assert found[2] is not None
    assert (found[2].rule, found[2].gpu) == ("ib.link_down", "0000:5e:00")


@pytest.mark.parametrize(
    "at",
    [
        [(9.0, "ens7f0np0"), (300.0, "ens7f0np0"), (610.0, "ens7f0np0")],
        [(9.0, "ens7f0np0"), (10.0, "ens7f1np1"), (11.0, "ens7f0np0"), (12.0, "ens7f1np1")],
        [(9.0, f"rep{port}") for port in range(200)],
    ],
    ids=["too seldom", "different ports", "a boot"],
)
def test_single_losses_of_links_are_not_reported(at: list[tuple[float, str]]) -> None:
    assert downs(*at) == [None] * len(at)


def test_the_ports_that_are_followed_are_bounded() -> None:
    first = (9.0, "ens7f0np0")
    many = [(10.0, f"rep{port}") for port in range(64)]

    assert downs(first, first, *many, first)[-1] is None
    assert downs(first, first, *many[1:], first)[-1] is not None


@pytest.mark.parametrize(
    ("override", "severity", "title"),
    [
        ("severity: application", Severity.APPLICATION, "Link of a network adapter went down"),
        ("title: Ours", Severity.SUSPECT, "Ours"),
    ],
)
def test_what_a_user_says_of_lost_links_is_final(override: str, severity: Severity, title: str) -> None:
    catalog = read_user_rules(f"overrides:\n  ib.link_down.{override}\n", "x", load_catalog()).catalog
    detector = Detector(catalog)
    logs = MultilineDetector(detector)
    finding = [logs.find("mlx5_core 0000:5e:00.0 ens7f0np0: Link down") for _ in range(3)][-1]

    assert finding is not None
    assert (finding.severity, finding.title) == (severity, title)
