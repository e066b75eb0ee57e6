"""Each record of /dev/kmsg becomes one line, and the fragments of a line are joined."""

from __future__ import annotations

import pytest

from konductor_like.kmsg import JOINED_BYTES, Records
from tests.kmsg.ring import BOOT

AT = f"kmsg/1 boot={BOOT} "


def printed(*records: bytes) -> list[str]:
    """Return the lines for these records, without their common beginning and without the gap before them."""
    reader = Records(BOOT)
    for record in records:
        reader.feed(record)
    reader.flush()
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in reader.lines)
    lines = [line.decode("ascii")[:-1].removeprefix(AT) for line in reader.lines]
    return lines[1:] if lines[0].startswith("kmsg/1 gap") else lines


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            b"4,5512,812300441,-;NVRM: Xid (PCI:0000:4e:00): 79, GPU is lost.\n",
            "seq=5512 facility=0 priority=4 [  812.300441] NVRM: Xid (PCI:0000:4e:00): 79, GPU is lost.",
        ),
        (
            b"7,160,424069,-;pci_root: window [io  0x0000] (ignored)\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP\n",
            "seq=160 facility=0 priority=7 [    0.424069] pci_root: window [io  0x0000] (ignored)",
        ),
        (
            b"30,340,5690716,-;udevd[80]: starting version 181\n",
            "seq=340 facility=3 priority=6 [    5.690716] udevd[80]: starting version 181",
        ),
        (b"12,347,6000000,-;hello\n", "seq=347 facility=1 priority=4 [    6.000000] hello"),
        (
            b"4,348,6000001,-,caller=T2201;nvidia-nvlink: init\n",
            "seq=348 facility=0 priority=4 [    6.000001] nvidia-nvlink: init",
        ),
        (
            b"4,348,6000001,-,caller=C3,cpu=3,new=a b;text\n",
            "seq=348 facility=0 priority=4 [    6.000001] text",
        ),
        (
            rb"4,7,8,-;The GPU 0000:c7:00.0\x0aNVRM: has\x0a\x5cx\xc3\xbc" + b"\n",
            r"seq=7 facility=0 priority=4 [    0.000008] The GPU 0000:c7:00.0\x0aNVRM: has\x0a\x5cx\xc3\xbc",
        ),
        (b"6,0,0,-;\n", "seq=0 facility=0 priority=6 [    0.000000] "),
        (
            b"2047,9223372036854775807,18446744073709551,-;late",
            "seq=9223372036854775807 facility=255 priority=7 [18446744073.709551] late",
        ),
        (b"6,1,2,+;alone\n", "seq=1 facility=0 priority=6 [    0.000002] alone"),
        (b"6,1,2,-;a;b,c=d;e\n", "seq=1 facility=0 priority=6 [    0.000002] a;b,c=d;e"),
        (
            b"6,1,2,-;\x1b[31mred\x00\xff\x7f\r\tx\n",
            r"seq=1 facility=0 priority=6 [    0.000002] \x1b[31mred\x00\xff\x7f\x0d\x09x",
        ),
    ],
)
def test_a_record_becomes_a_line(record: bytes, line: str) -> None:
    assert printed(record) == [line]


def test_fragments_of_old_and_new_kernels_are_joined_and_broken_records_keep_their_place() -> None:
    lines = printed(
        b"4,7,1,-;Xid \n KEY=v\n", b"4,8,2,c;(PCI)\n", b"4,9,3,+;: 79\n", b"??\n", b"4,11,4,-;z\n"
    )

    assert [line.partition("] ")[2] or line.split()[-1] for line in lines] == [
        "Xid (PCI): 79",
        "??\\x0a",
        "lost=1",
        "z",
    ]


def test_a_joined_line_has_a_maximum_length_and_the_rest_is_a_new_line() -> None:
    fragments = [b"6,%d,0,%c;%b\n" % (i, b"-c"[i > 0], b"%04d" % i * 250) for i in range(12)]

    lines = printed(*fragments)

    assert len(lines) == 2
    assert all(len(AT + line) <= JOINED_BYTES for line in lines)
    text = "".join(line.partition("] ")[2] for line in lines)
    assert text == "".join(f"{i:04}" * 250 for i in range(12))


def test_the_last_line_is_not_printed_until_it_is_complete() -> None:
    reader = Records(BOOT)
    reader.feed(b"6,0,0,-;one\n")
    assert reader.holding
    assert reader.lines == []

    reader.feed(b"6,1,0,-;two\n")
    assert [line.split()[-1] for line in reader.lines] == [b"one"]
    assert reader.printed == 0


def test_a_ring_buffer_without_the_beginning_of_the_boot_begins_with_a_gap_and_any_other_without() -> None:
    """Only the reader knows where the ring buffer begins."""
    whole, cut = Records(BOOT), Records(BOOT)

    whole.feed(b"6,0,0,-;Linux version\n")
    cut.feed(b"6,40000,1,-;late\n")

    assert whole.lines == []
    assert cut.lines == [f"kmsg/1 gap boot={BOOT} from=0 to=39999 lost=40000\n".encode()]
    cut.heartbeat(1, 0)
    assert len(cut.lines) == 1  # nothing was printed yet, so a heartbeat would say too much


def test_a_broken_first_record_is_in_a_gap_as_any_other() -> None:
    reader = Records(BOOT)
    reader.feed(b"??\n")
    reader.feed(b"6,1,0,-;one\n")

    assert reader.lines[1] == f"kmsg/1 gap boot={BOOT} from=0 to=0 lost=1\n".encode()


def test_a_heartbeat_has_the_sequence_of_the_last_printed_record() -> None:
    reader = Records(BOOT)
    for record in (b"6,1,0,-;one\n", b"6,2,0,-;two\n"):
        reader.feed(record)

    reader.heartbeat(uptime_us=812_300_441, wall_ns=1_772_532_000_250_999_999)

    assert reader.lines[-1].decode() == (
        f"kmsg/1 heartbeat boot={BOOT} seq=1 uptime=812.300441 wall=2026-03-03T10:00:00.250Z\n"
    )
