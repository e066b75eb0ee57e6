"""Lines that go on the record before them, and several records in one entry.

dmesg and journalctl print a record with a newline in it as several lines. The lines behind the first have no
stamp and are indented. The driver prints such records, and so does the kernel where a tenant chose the name
of a file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.detection import find, packaged
from konductor_like.detection.continuation import STREAMS_MOST, Continuations
from konductor_like.detection.entry import kernel_lines
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.detection.scan import _CHUNK_BYTES, scan
from konductor_like.detection.why_not import goes_on, is_unparsed, why_no_fault
from konductor_like.model import Finding, LogLine, Severity, Source

XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
XID_31 = "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, Ch 00000010, intr 00000000. MMU Fault"
PROCESS = "process '/tmp/x"
CUT_149 = "NVRM: Xid (PCI:0000:3b:00): 149, pid=7, name=a"
REST_149 = f"b, NETIR_LINK_EVT Fatal XC0 i0 Link 05 (0x00000004{' 0x00000000' * 5})"
LOST = (
    "The NVIDIA GPU 0000:c7:00.0 (PCI ID: 10de:2335)",
    "installed in this system has",
    "fallen off the bus",
)
LOST_REST = " and is not responding to commands."
INDENT = " " * 15
PREFIXES = {
    "dmesg": "[    5.100000] ",
    "dmesg -T": "[Mon May  4 10:00:00 2026] ",
    "dmesg --time-format iso": "2026-05-04T10:00:00,123456+00:00 ",
    "dmesg -x": "kern  :warn  : [    5.100000] ",
    "journalctl": "May 04 10:00:00 gpu-7 kernel: ",
}
OUTPUTS = {
    "the collector's line": "{}",
    "CRI": "2026-05-04T10:00:00.123456789Z stdout F {}",
    "kubectl logs --timestamps": "2026-05-04T10:00:00.123456789Z {}",
    "kubectl logs --prefix": "[pod/dmesg-x2x4k/dmesg] {}",
}


def said(*lines: str, seconds: Sequence[float] | None = None) -> list[tuple[str, Severity] | None]:
    """Return rule and severity of each line of one stream, read from Loki at these times."""
    logs, found = MultilineDetector(), []
    for number, line in enumerate(lines):
        at_ns = round((seconds[number] if seconds else 0.0) * 1e9)
        fault = logs.detect(LogLine(Source.KERNEL, at_ns, line, {}, "gpu-7", "dmesg-logging", "dmesg-x2x4k"))
        found.append(None if fault is None else (fault.finding.rule, fault.finding.severity))
    return found


def scanned(text: str) -> list[tuple[str, Severity]]:
    return [
        (hit.finding.rule, hit.finding.severity) for hit in scan(io.BytesIO(text.encode()), Source.KERNEL)
    ]


FATAL_79 = ("xid.79", Severity.FATAL)
FATAL_149 = ("xid.149", Severity.FATAL)
SUSPECT_149 = ("xid.149", Severity.SUSPECT)


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("forged", [XID_79, f"[    5.100000] {XID_79}"], ids=["plain", "with a stamp"])
def test_a_file_name_with_a_newline_makes_no_fault(output: str, prefix: str, forged: str) -> None:
    record, rest = output.format(prefix + PROCESS), output.format(INDENT + forged)

    assert said(record, rest) == [None, None]
    assert said(output.format(prefix + XID_31), record, rest)[1:] == [None, None]
    assert scanned(f"{record}\n{rest}\n") == []


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_a_line_whose_record_loki_did_not_return_is_no_fault_and_is_counted(output: str) -> None:
    line = output.format(INDENT + XID_79)

    assert said(line) == [None]
    assert goes_on(packaged().find_in_kernel_log, line)
    assert "goes on the record before it" in str(why_no_fault(packaged().catalog, line, Source.KERNEL))


def test_an_xid_of_the_same_moment_does_not_vouch_for_another_records_line() -> None:
    stamp = PREFIXES["dmesg"]

    assert said(stamp + XID_31, INDENT + XID_79)[1] is None, "Loki did not return the record between them"
    assert said(stamp + CUT_149, INDENT + XID_79)[1] is None


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_a_record_of_the_driver_in_several_lines_is_a_fault(prefix: str) -> None:
    record = [prefix + "NVRM: " + LOST[0], *(f"{INDENT}NVRM: {text}" for text in LOST[1:])]
    record[-1] += LOST_REST
    expected = ("nvrm.fallen_off_bus", Severity.FATAL)

    assert said(*record) == [None, None, expected]
    assert scanned("\n".join(record)) == [expected]
    assert said("\n".join(record)) == [expected]
    assert said(*record, seconds=(0.0, 0.0, 2.0)) == [None] * 3, "another record's line"
    assert said(*record, seconds=(2.0, 2.0, 1.9)) == [None] * 3, "a line before the record"


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("indent", [INDENT, ""], ids=["indented", "a collector trims it"])
def test_a_fault_that_a_processs_name_cuts_is_joined(prefix: str, indent: str) -> None:
    record, rest = prefix + CUT_149, indent + REST_149

    assert said(record, rest) == [SUSPECT_149, FATAL_149]
    assert said(f"{record}\n{rest}") == [FATAL_149]
    assert any(anchor in rest for anchor in packaged().anchors(Source.KERNEL)), "Loki returns the line"


def test_a_cut_fault_is_joined_in_a_file_also_where_the_file_goes_on() -> None:
    text = f"{PREFIXES['dmesg']}{CUT_149}\n{INDENT}{REST_149}\n"

    assert scanned(text) == [SUSPECT_149, FATAL_149]
    assert scanned(f"{text}{INDENT}more\n{PREFIXES['dmesg']}{XID_79}\n") == [SUSPECT_149, FATAL_149, FATAL_79]


def test_a_contained_error_that_wants_a_reset_is_joined() -> None:
    cut = "NVRM: Xid (PCI:0000:3b:00): 94, pid=7, name=a"
    rest = "b, Contained: SM (0x2). RST: Yes, D-RST: No"

    assert said(PREFIXES["dmesg"] + cut, INDENT + rest)[1] == ("xid.94", Severity.FATAL)
    assert any(anchor in rest for anchor in packaged().anchors(Source.KERNEL))


def test_a_line_that_is_read_again_is_the_same_fault_again() -> None:
    lines = (PREFIXES["dmesg"] + CUT_149, INDENT + REST_149)

    assert said(*lines, lines[1]) == [SUSPECT_149, FATAL_149, FATAL_149]
    assert said(*lines, *lines) == [SUSPECT_149, FATAL_149] * 2
    assert said(*lines, *[lines[1]] * 100)[1:] == [FATAL_149] * 101


def test_only_a_record_that_begins_as_the_drivers_own_goes_on() -> None:
    journal = CUT_149.removeprefix("NVRM: ").replace("name=a", "name=NVRM: a")

    assert said(PREFIXES["dmesg"] + journal, INDENT + REST_149) == [SUSPECT_149, None]


def test_streams_are_not_mixed_up() -> None:
    logs = MultilineDetector()
    lines = (("a", PREFIXES["dmesg"] + CUT_149), ("b", INDENT + REST_149))
    first, second = (
        logs.detect(LogLine(Source.KERNEL, 5, text, {}, "gpu-7", "dmesg-logging", pod)) for pod, text in lines
    )
    assert first is not None
    assert second is None


def test_a_stream_without_stamps_is_judged_line_by_line() -> None:
    assert said(XID_31, XID_79, f"{INDENT}{XID_79}") == [("xid.31", Severity.APPLICATION), FATAL_79, FATAL_79]
    assert scanned(f"{INDENT}{XID_79}\n") == [FATAL_79], "a file of one indented line"
    assert scanned(f"the node says:\n{INDENT}{XID_79}\n") == [FATAL_79]
    assert scanned(f"{INDENT}[    5.1] {XID_31}\n{INDENT}[    5.2] {XID_79}\n")[1:] == [FATAL_79]


def test_a_line_without_a_stamp_is_no_fault_in_a_stream_with_stamps() -> None:
    """An old dmesg does not indent, and some collectors take blanks away."""
    assert said(PREFIXES["dmesg"] + XID_31, XID_79)[1] is None


def test_the_record_before_a_line_is_found_across_blocks() -> None:
    record, rest = f"{PREFIXES['dmesg']}{PROCESS}\n", f"{INDENT}{XID_79}\n"
    for before in (record, f"{record}{INDENT}more\n"):
        for moved in (-1, 0, 1, len(rest)):
            fill = "x" * (_CHUNK_BYTES - len(before) - 1 + moved) + "\n"

            assert scanned(f"{fill}{before}{rest}{PREFIXES['dmesg']}{XID_79}\n") == [FATAL_79]


def test_a_header_without_a_stamp_makes_no_file_one_without_stamps() -> None:
    record = f"{PREFIXES['dmesg']}{PROCESS}\n{INDENT}{XID_79}\n"

    assert scanned(f"NVRM: a note\n{record}") == []


def test_scan_counts_a_line_that_goes_on_another_programs_record() -> None:
    text = f"{PREFIXES['dmesg']}{PROCESS}\n{INDENT}{XID_79}\n"
    strange: list[int] = []

    assert list(scan(io.BytesIO(text.encode()), Source.KERNEL, unparsed=strange.append)) == []
    assert strange == [2]


def test_the_stream_that_was_silent_longest_is_forgotten() -> None:
    streams = Continuations()
    for number in range(STREAMS_MOST + 1):
        streams.judged(packaged().find_in_kernel_log, PREFIXES["dmesg"] + CUT_149, number, 5)

    assert not streams.goes_on(0)
    assert streams.goes_on(1)


# Several records in one entry.

STAMPED = (f"[    1.5] {XID_31}", f"[    1.6] {XID_79}")
DOCKER = {"stream": "stdout", "time": "2026-05-06T11:56:48Z"}
JOURNAL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "_SOURCE_MONOTONIC_TIMESTAMP": "1500000"}


@pytest.mark.parametrize(
    "entry",
    [
        "\n".join(STAMPED),
        "\r\n".join(STAMPED),
        f"{XID_31}\n{XID_79}",
        json.dumps({"log": "\n".join(STAMPED) + "\n", **DOCKER}),
        json.dumps({"body": "\n".join(STAMPED)}),
        "2026-05-06T11:56:48.1Z stdout F " + json.dumps({"log": "\n".join(STAMPED) + "\n", **DOCKER}),
        json.dumps({"MESSAGE": "\n".join((XID_31, XID_79)), **JOURNAL}),
        json.dumps({"MESSAGE": "\n".join((XID_31, STAMPED[1])), **JOURNAL}),
    ],
    ids=[
        "text",
        "Windows",
        "no stamps",
        "docker",
        "lokiexporter",
        "docker in CRI",
        "journal",
        "stamp in journal",
    ],
)
def test_two_records_in_one_entry_are_judged_each(entry: str) -> None:
    first, second = [find(each, Source.KERNEL) for each in kernel_lines(entry)]

    assert first is not None
    assert second is not None
    assert (first.rule, second.rule) == ("xid.31", "xid.79")
    assert (first.position.stamp_us is None) == (second.position.stamp_us is None)
    gravest = find(entry, Source.KERNEL)
    assert gravest is not None
    assert gravest.rule == "xid.79"
    assert said(entry) == [FATAL_79]


FILE = f"[4711]: segfault at 0 ip 0 sp 0 error 4 in x\n[    5.1] {XID_79}"


@pytest.mark.parametrize(
    "entry",
    [
        f"{PROCESS}\n{XID_79}",
        f"{PROCESS}\n[    5.1] {XID_79}",
        f"{INDENT}x\n[    5.1] {XID_79}",
        f"[    5.1] {PROCESS}\n{INDENT}{XID_79}",
        f"[    5.1] {PROCESS}\n{INDENT}[    5.1] {XID_79}",
        f"[    5.1] {PROCESS}\n{XID_79}",
        f"[    5.1] a{FILE}",
        f"NVRM: Xid (3d0){FILE}",
        json.dumps({"MESSAGE": f"{PROCESS}\n[    5.1] {XID_79}", **JOURNAL}),
        json.dumps({"MESSAGE": f"NVRM: Xid (3d0){FILE}", **JOURNAL}),
        json.dumps({"log": f"[    5.1] {PROCESS}\n{INDENT}{XID_79}\n", **DOCKER}),
    ],
)
def test_the_rest_of_a_file_name_in_an_entry_is_no_record(entry: str) -> None:
    assert len(kernel_lines(entry)) == 1
    assert find(entry, Source.KERNEL) is None


@given(
    st.sampled_from(
        [XID_79, f"[    5.100000] {XID_79}", f"\n{XID_79}\n", REST_149, "NVRM: fallen off the bus"]
    ),
    st.sampled_from(["{}{}", "a\n{}{}", "{} in x\n{}"]),
    st.sampled_from(["", "NVRM: a", "NVRM: Xid (3d0)", "[    5.1] NVRM:", "\nNVRM: Xid (PC"]),
)
def test_no_name_of_a_process_or_file_makes_a_fault(forged: str, shape: str, name: str) -> None:
    message = shape.format(name, f"[4711]: segfault at 0 ip 0 sp 0 error 4 in {forged}")
    lines = message.split("\n")
    printed = [PREFIXES["dmesg"] + lines[0], *(INDENT + line for line in lines[1:])]

    assert said(*printed) == [None] * len(lines)
    assert scanned("\n".join(printed)) == []
    for entry in ("\n".join(printed), message, json.dumps({"MESSAGE": message, **JOURNAL})):
        assert not any(find(each, Source.KERNEL) for each in kernel_lines(entry))


@given(st.text(alphabet="a\nNVRMXid:(0)7,\\ []{}\"'", max_size=200))
def test_an_entry_is_split_into_something_for_any_text(text: str) -> None:
    assert len(kernel_lines(text)) >= 1
    assert len(kernel_lines(json.dumps({"log": text, **DOCKER}))) >= 1


# Journal entries as bytes.


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["compact", "with blanks"])
def test_a_journal_entry_of_bytes_is_decoded(separators: tuple[str, str]) -> None:
    message = XID_31.replace("python", "a\x1bb\nc").encode()
    line = json.dumps({"MESSAGE": list(message), **JOURNAL}, separators=separators)

    found = find(line, Source.KERNEL)
    assert found is not None
    assert found.rule == "xid.31"
    assert any(anchor in line for anchor in packaged().anchors(Source.KERNEL))
    assert scanned(line) == [("xid.31", Severity.APPLICATION)]


@pytest.mark.parametrize("message", ["[78, 86, 300]", "[78, 86, …", "[78, -1]"])
def test_a_journal_entry_of_bytes_that_cannot_be_read_is_counted(message: str) -> None:
    line = json.dumps(JOURNAL)[:-1] + f', "MESSAGE": {message}}}'

    assert find(line, Source.KERNEL) is None
    assert is_unparsed(packaged().catalog, line)
    assert not is_unparsed(packaged().catalog, line.replace('"kernel"', '"stdout"'))


def test_a_rule_that_is_off_makes_no_line_that_is_not_understood() -> None:
    def off(_text: str) -> Finding | None:
        return None

    assert not goes_on(off, INDENT + XID_79)
