"""The prefixes of a kernel line show the record's position and its writer."""

from __future__ import annotations

import io
import json

import pytest

from konductor_like.detection import detect, find, packaged
from konductor_like.detection.scan import scan
from konductor_like.detection.why_not import is_unparsed, why_no_fault
from konductor_like.model import EVIDENCE_CHARS, Finding, KernelPosition, LogLine, Source

BOOT = "0b6f3c1e-7d52-4a8e-9a53-1f2e3d4c5b6a"
MESSAGE = "NVRM: Xid (PCI:0000:c7:00): 79, GPU has fallen off the bus."
JOURNAL = {
    "_TRANSPORT": "kernel",
    "_BOOT_ID": BOOT.replace("-", ""),
    "_SOURCE_MONOTONIC_TIMESTAMP": "812300441",
    "SYSLOG_FACILITY": "0",
    "MESSAGE": MESSAGE,
}


def found(text: str) -> Finding:
    finding = find(text, Source.KERNEL)
    assert finding is not None, text
    return finding


AT = KernelPosition(stamp_us=812_300_441)
IN_KMSG = KernelPosition(None, 5512, 812_300_441)
OURS = f"kmsg/1 boot={BOOT} seq=5512 facility=0 priority=4 [812.300441] "
POSITIONS = {
    "nothing": ("", KernelPosition()),
    "a stamp": ("[812.300441] ", AT),
    "a padded stamp": ("[    0.000007] ", KernelPosition(stamp_us=7)),
    "a short stamp": ("[812.3] ", KernelPosition(stamp_us=812_300_000)),
    "the outermost stamp": ("[812.300441] [99.000001] ", AT),
    "stamp and caller": ("[812.300441] [T4711] ", AT),
    "dmesg -d": ("[812.300441 <    0.000002>] ", AT),
    "a wall time": ("[Tue Mar  3 10:00:00 2026] ", KernelPosition()),
    "an echo under dmesg -T": ("[Tue Mar  3 10:00:00 2026] [99.000001] ", KernelPosition()),
    "an echo under dmesg iso": ("2026-03-03T10:00:00,000000+00:00 [99.000001] ", KernelPosition()),
    "/dev/kmsg": ("4,5512,812300441,-;", IN_KMSG),
    "an echo there": ("4,5512,812300441,-;[99.000001] ", IN_KMSG),
    "with a caller": ("4,5512,812300441,c,caller=T9;", IN_KMSG),
    "our reader": (OURS, KernelPosition(BOOT, 5512, 812_300_441)),
    "an echo through our reader, in CRI": (
        f"2026-03-03T10:00:00.000000001Z stdout F {OURS}[99.000001] ",
        KernelPosition(BOOT, 5512, 812_300_441),
    ),
    "syslog": ("Mar  3 10:00:00 gpu-9 kernel: [812.300441] ", AT),
    "syslog with an ISO time": ("2026-03-03T10:00:00.1+00:00 gpu-9 kernel: [812.300441] ", AT),
    "the journal": ("Mar 03 10:00:00 gpu-9 kernel: ", KernelPosition()),
}


@pytest.mark.parametrize(("prefix", "position"), POSITIONS.values(), ids=POSITIONS)
def test_the_position_is_the_records_own(prefix: str, position: KernelPosition) -> None:
    assert found(prefix + MESSAGE).position == position


def test_a_journal_export_gives_boot_and_stamp() -> None:
    assert found(json.dumps(JOURNAL)).position == KernelPosition(BOOT, None, 812_300_441)


@pytest.mark.parametrize(
    ("prefix", "user_written"),
    [
        ("", False),
        ("[812.300441] ", False),
        ("<4>", False),
        ("<12>", True),
        ("4,1,1,-;", False),
        ("12,1,1,-;", True),
        (f"kmsg/1 boot={BOOT} seq=1 facility=0 priority=4 [1.000000] ", False),
        (f"kmsg/1 boot={BOOT} seq=1 facility=1 priority=4 [1.000000] ", True),
        (f"kmsg/1 boot={BOOT} seq=1 facility=1 priority=4 [1.000000] <4>", True),
        ("kern  :warn  : [1.000000] ", False),
        ("user  :notice: [1.000000] ", True),
        ("10.0.0.7: kern: warning: [2026-03-03T10:00:00Z]: ", False),
        ("10.0.0.7: user: warning: [2026-03-03T10:00:00Z]: ", True),
    ],
)
def test_a_record_from_user_space_is_marked(prefix: str, user_written: bool) -> None:
    assert found(prefix + MESSAGE).user_written is user_written


def test_the_journal_says_who_wrote_a_record() -> None:
    assert found(json.dumps({**JOURNAL, "SYSLOG_FACILITY": "1"})).user_written
    assert not found(json.dumps(JOURNAL)).user_written


@pytest.mark.parametrize(
    "wrapped",
    [
        MESSAGE,
        f"[812.300441] {MESSAGE}",
        f"  {MESSAGE}\r\n",
        f"\x1b[32m[812.300441] \x1b[0m\x1b[33mNVRM\x1b[0m{MESSAGE[4:]}",
        f"\x00{MESSAGE}\x00",
        f"4,5512,812300441,-;{MESSAGE}",
        json.dumps({"log": f"[812.300441] {MESSAGE}\n", "stream": "stdout", "time": ""}),
        json.dumps(JOURNAL),
    ],
)
def test_the_evidence_is_the_message_alone_whatever_was_around_it(wrapped: str) -> None:
    assert found(wrapped).text == MESSAGE


@pytest.mark.parametrize(
    ("printed", "gpu"),
    [
        ("PCI:0000:C7:00", "0000:c7:00"),
        ("PCI:00000018:01:00", "0018:01:00"),
        ("3d:00", "3d:00"),
        ("PCI:3D:00.0", "3d:00"),
        ("PCI:10000:01:00", "10000:01:00"),
        ("PCI:00010000:01:00.0", "10000:01:00"),
        ("PCI:abcdef01:01:00", "abcdef01:01:00"),
    ],
)
def test_a_bus_id_keeps_its_domain_and_gets_none_where_it_was_left_out(printed: str, gpu: str) -> None:
    assert found(f"NVRM: Xid ({printed}): 79, GPU has fallen off the bus.").gpu == gpu
    assert found(f"nvidia-nvswitch3: SXid ({printed}): 20034, Fatal, Link 30 LTSSM Fault Up").gpu == gpu


def test_an_xid_may_name_the_gpus_number_in_front() -> None:
    finding = found("NVRM: GPU0 Xid (PCI:0000:c7:00): 79, pid=7, name=a, GPU has fallen off the bus.")

    assert (finding.rule, finding.gpu, finding.pid) == ("xid.79", "0000:c7:00", 7)
    assert find("NVRM: GPU0: monitor saw Xid (PCI:0000:c7:00): 79", Source.KERNEL) is None


def test_a_record_of_three_lines_becomes_one_line_with_the_address() -> None:
    finding = found(
        r"4,7,8,-;NVRM: The NVIDIA GPU 0000:c7:00.0\x0aNVRM: (PCI ID: 10de:2335) installed in this system has"
        r"\x0aNVRM: fallen off the bus and is not responding to commands."
    )
    assert finding.rule == "nvrm.fallen_off_bus"
    assert finding.gpu == "0000:c7:00"
    assert "\n" not in finding.text
    assert finding.text.endswith("has NVRM: fallen off the bus and is not responding to commands.")


def test_a_newline_inside_a_record_starts_no_new_record() -> None:
    assert find(rf"12,7,8,-;some text\x0a{MESSAGE}", Source.KERNEL) is None
    assert find(f"some text\n{MESSAGE}", Source.KERNEL) is None


def test_long_evidence_is_cut_and_says_so() -> None:
    finding = found(MESSAGE + " tail" * 2000)
    assert len(finding.text) == EVIDENCE_CHARS
    assert finding.text.endswith("…")


def test_a_lone_surrogate_does_not_get_into_the_evidence() -> None:
    found(f"{MESSAGE} \ud800").text.encode("utf-8")


INVISIBLE = "\u202a\u202e\u2066\u2069\u200e\u200f\u061c\u200b\ufeff\u00ad\U000e0041"


@pytest.mark.parametrize("char", INVISIBLE, ids=lambda char: f"U+{ord(char):04X}")
@pytest.mark.parametrize(
    ("text", "source"), [(MESSAGE, Source.KERNEL), ("CUDA error: unspecified launch failure", Source.POD)]
)
def test_a_character_that_nobody_sees_is_spelt_out_in_the_evidence(
    text: str, source: Source, char: str
) -> None:
    finding = find(f"{text} at {char}rank 3", source)

    assert finding is not None
    assert finding.text.isprintable()
    assert finding.text.endswith(f" at {char.encode('unicode_escape').decode()}rank 3")


def test_evidence_that_is_spelt_out_is_no_longer_than_other_evidence() -> None:
    finding = found(MESSAGE + "\u202e" * 500)

    assert len(finding.text) == EVIDENCE_CHARS
    assert finding.text.endswith("…")


def test_a_fault_keeps_the_lines_place_and_time() -> None:
    line = LogLine(
        Source.KERNEL, 42, f"[1.000002] {MESSAGE}", {}, "gpu-9", "dmesg-logging", "dmesg-x", "dmesg"
    )
    fault = detect(line)
    assert fault is not None
    assert (fault.node, fault.namespace, fault.pod, fault.container) == (
        "gpu-9",
        "dmesg-logging",
        "dmesg-x",
        "dmesg",
    )
    assert (fault.source, fault.timestamp_ns) == (Source.KERNEL, 42)
    assert (fault.key.rule, fault.key.gpu) == ("xid.79", "0000:c7:00")


def test_a_line_without_a_fault_is_none() -> None:
    assert detect(LogLine(Source.KERNEL, 42, "[1.000002] usb 1-1: new device", {}, "gpu-9")) is None


NAMED = "NVRM: Xid (PCI:0000:c7:00): 43, pid=7, name=a\x01\xffb, Ch 00000008"
"""The Xid of a process whose name has a byte that is not printable, and one that is not UTF-8."""
AS_BYTES = json.dumps({**JOURNAL, "MESSAGE": list(NAMED.encode("latin-1"))}, separators=(",", ":"))


@pytest.mark.parametrize(
    "line",
    [
        AS_BYTES,
        f"2026-03-03T10:00:00.000000001Z stdout F {AS_BYTES}",
        f'{{"body":{AS_BYTES},"severity":"info"}}',
    ],
    ids=["journalctl -o json, or the journald receiver", "in CRI", "in lokiexporter"],
)
def test_a_journal_entry_of_bytes_is_read_and_loki_is_asked_for_it(line: str) -> None:
    finding = found(line)

    assert (finding.rule, finding.gpu) == ("xid.43", "0000:c7:00")
    assert finding.position == KernelPosition(BOOT, None, 812_300_441)
    assert [hit.finding for hit in scan(io.BytesIO(line.encode()), Source.KERNEL)] == [finding]
    assert any(anchor in line for anchor in packaged().anchors(Source.KERNEL))


def test_a_journal_entry_of_bytes_is_no_fault_if_a_program_wrote_it() -> None:
    assert find(AS_BYTES.replace("{", '{"_PID":"7",', 1), Source.KERNEL) is None


@pytest.mark.parametrize("numbers", ["300", "78,,86", "1" * 5000, "", '"a"'])
def test_numbers_that_are_no_bytes_are_no_message(numbers: str) -> None:
    assert find(f'{{"_TRANSPORT":"kernel","MESSAGE":[{numbers}]}}', Source.KERNEL) is None


def test_a_journal_entry_of_bytes_with_an_xid_that_is_not_understood_is_counted() -> None:
    strange = NAMED.replace("PCI", "the board at PCI").encode("latin-1")
    line = json.dumps({**JOURNAL, "MESSAGE": list(strange)}, separators=(",", ":"))

    assert find(line, Source.KERNEL) is None
    assert is_unparsed(packaged().catalog, line)
    assert "form of any known fault" in (why_no_fault(packaged().catalog, line, Source.KERNEL) or "")
