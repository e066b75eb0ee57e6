"""Scanning files: every hit with its number, whatever the blocks, in constant memory."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.detection import find
from konductor_like.detection import scan as scanning
from konductor_like.detection.scan import LINE_BYTES, Hit, scan
from konductor_like.model import Source

XID = b"[5.000001] NVRM: Xid (PCI:0000:c7:00): 79, GPU has fallen off the bus."
TALK = b"[5.000002] NVRM: GPU Board Serial Number: 1650000000001"
OTHER = b"[5.000003] usb 1-1: new high-speed USB device number 4"


def hits(data: bytes, source: Source = Source.KERNEL) -> list[Hit]:
    return list(scan(io.BytesIO(data), source))


def test_hits_come_in_order_with_their_numbers() -> None:
    found = hits(b"\n".join([OTHER, XID, TALK, b"", XID, OTHER, XID]))
    assert [hit.line_number for hit in found] == [2, 5, 7]
    assert {hit.line for hit in found} == {XID}
    assert {hit.finding.code for hit in found} == {79}


def test_windows_line_ends_and_bad_bytes_do_no_harm() -> None:
    (hit,) = hits(XID + b" \xff\xfe\r\n")
    assert hit.line == XID + b" \xff\xfe"
    assert hit.finding.code == 79


def test_pods_are_scanned_as_pods() -> None:
    (hit,) = hits(b"ok\nRuntimeError: CUDA error: misaligned address\n" + XID, Source.POD)
    assert (hit.line_number, hit.finding.rule) == (2, "cuda.716")


def test_nothing_is_found_in_nothing() -> None:
    assert hits(b"") == []
    assert hits(b"\n\n\n") == []


def test_progress_counts_the_bytes() -> None:
    read: list[int] = []
    data = (OTHER + b"\n") * 40_000
    assert list(scan(io.BytesIO(data), Source.KERNEL, read.append)) == []
    assert sum(read) == len(data)
    assert len(read) > 1


@pytest.mark.parametrize("length", [LINE_BYTES - 1, LINE_BYTES, LINE_BYTES + 1, 3 * LINE_BYTES + 7])
def test_an_overlong_line_is_cut_and_the_count_goes_on(length: int) -> None:
    long_line = XID + b"x" * (length - len(XID))
    found = hits(b"\n".join([OTHER, long_line, XID, b"y" * length, XID]))
    assert [hit.line_number for hit in found] == [2, 3, 5]
    assert found[0].line == long_line[:LINE_BYTES]


def test_the_part_that_was_cut_off_is_not_read() -> None:
    assert hits(b"x" * LINE_BYTES + b" NVRM: Xid (PCI:0000:c7:00): 79\n") == []


class Trickle(io.RawIOBase):
    """A pipe that returns a few bytes at a time."""

    def __init__(self, data: bytes, sizes: Iterator[int]) -> None:
        self._data = data
        self._sizes = sizes
        self._at = 0

    def read(self, size: int = -1, /) -> bytes:
        step = min(size, next(self._sizes, 3))
        piece = self._data[self._at : self._at + step]
        self._at += len(piece)
        return piece


@given(
    st.lists(st.sampled_from([XID, TALK, OTHER, b"", b"\r", b"\xff" * 400, b"NVRM"]), max_size=30),
    st.booleans(),
    st.lists(st.integers(1, 400), max_size=40),
)
def test_the_size_of_the_blocks_changes_nothing(lines: list[bytes], ended: bool, sizes: list[int]) -> None:
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    expected = [
        number
        for number, line in enumerate(data.split(b"\n"), 1)
        if find(line.decode("utf-8", "replace"), Source.KERNEL) is not None
    ]
    assert [hit.line_number for hit in scan(Trickle(data, iter(sizes)), Source.KERNEL)] == expected


def test_memory_stays_constant_on_a_line_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "LINE_BYTES", 1000)
    assert max(map(len, scanning._blocks((b"z" * 700 for _ in range(500)), progress=None))) <= 1000


PREFIXES = (
    "/var/log/kern.log:",
    "kern.log:12:",
    "12:",
    "gpu-07: ",
    "node12.example: ",
    "\ufeff",
    "\ufeffkern.log:12:",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("line", [XID, b"Mar  3 10:00:00 gpu-9 kernel: " + XID], ids=["dmesg", "syslog"])
def test_what_grep_pdsh_or_an_editor_put_before_a_line_is_left_out(prefix: str, line: bytes) -> None:
    (hit,) = hits(prefix.encode() + line)

    assert (hit.finding.code, hit.finding.gpu) == (79, "0000:c7:00")
    assert hit.line == prefix.encode() + line
    assert find(prefix + line.decode(), Source.KERNEL) is None or prefix == "\ufeff"


@pytest.mark.parametrize(
    "said", ["gpud: ", "monitor: [5.0] monitor: ", "xid.go:88: ", "gpud:", "gpu-07: gpud: ", "gpu-07: "]
)
def test_what_a_program_puts_before_the_words_of_the_kernel_is_a_quotation(said: str) -> None:
    assert hits(said.encode() + XID.partition(b"] ")[2]) == []
    assert hits(b"monitor: " + XID) == [], "a program's name has no digit, a node's has one"


def test_the_parts_of_a_record_are_found_together_behind_prefixes() -> None:
    lines = (
        "{7}[Hardware Error]: event severity: corrected",
        "{7}[Hardware Error]:   vendor_id: 0x10de, device_id: 0x2330",
    )

    assert hits("\n".join(f"gpu-07: [5.000001] {line}" for line in lines).encode()) == []
    assert len(hits(f"gpu-07: [5.000001] {lines[1]}".encode())) == 1
