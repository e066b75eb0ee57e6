"""Detection reads the reader's lines exactly: position, writer and text."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.detection import HEARTBEAT_ANCHOR, find, parse_heartbeat
from konductor_like.detection.kernel_record import open_record, origin
from konductor_like.kmsg import Records
from konductor_like.model import KernelPosition, Source
from tests.kmsg.ring import BOOT, Message

XID = b"NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def printed(*records: bytes) -> list[str]:
    reader = Records(BOOT)
    for record in records:
        reader.feed(record)
    reader.flush()
    lines = [line.decode("ascii") for line in reader.lines]
    return lines[1:] if lines[0].startswith("kmsg/1 gap") else lines  # of the records before these


def carried(line: str) -> list[str]:
    """Return the forms of a line in Loki, which depend on what unwrapped it before."""
    docker = json.dumps({"log": line, "stream": "stdout", "time": "2026-03-03T10:00:00Z"})
    return [line, line.rstrip("\n"), f"2026-03-03T10:00:00.000000001Z stdout F {line}", docker]


@pytest.mark.parametrize("facility", [0, 1, 3, 23, 255])
@pytest.mark.parametrize("sequence", [0, 5512, 2**32, 2**63 - 1])
@pytest.mark.parametrize("stamp_us", [0, 7, 812_300_441, 2**64 // 1000])
def test_an_xid_is_found_with_its_position_and_its_writer(
    facility: int, sequence: int, stamp_us: int
) -> None:
    message = Message(XID, writer=(facility, "T4711"), dictionary=[b"DEVICE=+pci:0000:4e:00.0"])
    (line,) = printed(message.record(sequence, stamp_us))

    for text in carried(line):
        finding = find(text, Source.KERNEL)
        assert finding is not None, text
        assert (finding.rule, finding.gpu, finding.text) == ("xid.79", "0000:4e:00", XID.decode())
        assert finding.position == KernelPosition(BOOT, sequence, stamp_us)
        assert finding.user_written is (facility != 0)


def test_an_xid_in_fragments_has_the_position_of_its_first_fragment() -> None:
    parts = [Message(XID[:40]), Message(XID[40:70], fragment=True), Message(XID[70:], fragment=True)]
    (line,) = printed(*(part.record(8 + i, 1_000_000 + i) for i, part in enumerate(parts)))

    finding = find(line, Source.KERNEL)
    assert finding is not None
    assert finding.text == XID.decode()
    assert finding.position == KernelPosition(BOOT, 8, 1_000_000)


def test_a_users_record_joined_by_a_kernel_fragment_stays_user_written() -> None:
    echo, kernel = Message(XID, writer=(1, "")), Message(b"eth0: link up", fragment=True)

    first, second = printed(echo.record(1, 0), kernel.record(2, 0))

    finding = find(first, Source.KERNEL)
    assert finding is not None
    assert finding.user_written
    assert find(second, Source.KERNEL) is None


@given(
    text=st.text(st.characters(min_codepoint=32, exclude_categories=["C", "Z"]), min_size=1, max_size=60),
    sequence=st.integers(0, 2**63 - 1),
    stamp_us=st.integers(0, 2**64 // 1000),
    facility=st.integers(0, 255),
)
def test_any_record_is_read_back_complete(text: str, sequence: int, stamp_us: int, facility: int) -> None:
    words = f"NVRM: {text}"  # no further prefix comes before the driver's text
    (line,) = printed(Message(words.encode(), writer=(facility, "")).record(sequence, stamp_us))

    record = open_record(line)
    assert record is not None
    message, around = record
    assert message == words
    assert origin(around) == (KernelPosition(BOOT, sequence, stamp_us), facility != 0)


@pytest.mark.parametrize(
    "quoted",
    [XID, b"kmsg/1 heartbeat boot=%b seq=1 uptime=1.000000 wall=2026-03-03T10:00:00.000Z" % BOOT.encode()],
    ids=["an Xid", "a heartbeat"],
)
def test_a_record_that_cannot_be_read_is_neither_a_fault_nor_a_heartbeat(quoted: bytes) -> None:
    for record in (quoted, b";" + quoted, b"\n" + quoted, b"6,1,2;" + quoted):
        (line,) = printed(record)
        for text in carried(line):
            assert find(text, Source.KERNEL) is None
            assert parse_heartbeat(text) is None


@pytest.mark.parametrize("wall_ns", [1_772_532_000_250_000_000, 0, -1_000_000, 4_102_444_800_999_999_999])
def test_a_heartbeat_is_read_back_and_is_no_fault(wall_ns: int) -> None:
    reader = Records(BOOT)
    reader.feed(Message(XID).record(5512, 0))
    reader.flush()
    reader.heartbeat(812_300_441, wall_ns)
    line = reader.lines[-1].decode()

    for text in carried(line):
        heartbeat = parse_heartbeat(text)
        assert heartbeat is not None
        assert (heartbeat.boot_id, heartbeat.sequence, heartbeat.uptime_us) == (BOOT, 5512, 812_300_441)
        assert heartbeat.wall == datetime.fromtimestamp(wall_ns // 1_000_000 / 1000, UTC)
        assert find(text, Source.KERNEL) is None
    assert HEARTBEAT_ANCHOR in line


def test_a_user_written_heartbeat_is_no_heartbeat() -> None:
    text = b"kmsg/1 heartbeat boot=%b seq=1 uptime=1.000000 wall=2026-03-03T10:00:00.000Z" % BOOT.encode()
    for message in (text, b"\n" + text, b"\r" + text, b"\x00" + text):
        (line,) = printed(Message(message, writer=(1, "")).record(1, 0))
        assert all(parse_heartbeat(carried_text) is None for carried_text in carried(line))
