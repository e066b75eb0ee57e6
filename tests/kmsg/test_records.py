"""One record of /dev/kmsg becomes one line; fragments of a line become one."""

from __future__ import annotations

import pytest

from konductor_like.kmsg import JOINED_BYTES, Records
from tests.kmsg.ring import BOOT

AT = f"kmsg/1 boot={BOOT} "


def printed(*records: bytes) -> list[str]:
    """The lines that these records become, each without what all of them begin with."""
    reader = Records(BOOT)
    for record in records:
        reader.feed(record)
    reader.flush()
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in reader.lines)
    return [line.decode("ascii")[:-1].removeprefix(AT) for line in reader.lines]


@pytest.mark.parametrize(
    ("record", "line"),
    [
        pytest.param(
            b"4,5512,812300441,-;NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has"
            b" fallen off the bus.\n",
            "seq=5512 facility=0 priority=4 [  812.300441] NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>',"
            " name=<unknown>, GPU has fallen off the bus.",
            id="an Xid",
        ),
        pytest.param(
            b"7,160,424069,-;pci_root PNP0A03:00: host bridge window [io  0x0000-0x0cf7] (ignored)\n"
            b" SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n",
            "seq=160 facility=0 priority=7 [    0.424069] pci_root PNP0A03:00: host bridge window"
            " [io  0x0000-0x0cf7] (ignored)",
            id="with a dictionary",
        ),
        pytest.param(
            b"30,340,5690716,-;udevd[80]: starting version 181\n",
            "seq=340 facility=3 priority=6 [    5.690716] udevd[80]: starting version 181",
            id="a daemon",
        ),
        pytest.param(
            b"12,347,6000000,-;hello\n", "seq=347 facility=1 priority=4 [    6.000000] hello", id="an echo"
        ),
        pytest.param(
            b"4,348,6000001,-,caller=T2201;nvidia-nvlink: init\n",
            "seq=348 facility=0 priority=4 [    6.000001] nvidia-nvlink: init",
            id="with a caller",
        ),
        pytest.param(
            b"4,348,6000001,-,caller=C3,cpu=3,new=a b;text\n",
            "seq=348 facility=0 priority=4 [    6.000001] text",
            id="with fields yet unknown",
        ),
        pytest.param(
            rb"4,7,8,-;The GPU 0000:c7:00.0\x0aNVRM: has\x0a\x5cx\xc3\xbc" + b"\n",
            r"seq=7 facility=0 priority=4 [    0.000008] The GPU 0000:c7:00.0\x0aNVRM: has\x0a\x5cx\xc3\xbc",
            id="escapes",
        ),
        pytest.param(
            b"6,0,0,-;\n", "seq=0 facility=0 priority=6 [    0.000000] ", id="no text, at the start"
        ),
        pytest.param(
            b"2047,9223372036854775807,18446744073709551,-;late",
            "seq=9223372036854775807 facility=255 priority=7 [18446744073.709551] late",
            id="all at its largest, without a line end",
        ),
        pytest.param(
            b"6,1,2,+;alone\n", "seq=1 facility=0 priority=6 [    0.000002] alone", id="a lone fragment"
        ),
        pytest.param(
            b"6,1,2,-;a;b,c=d;e\n", "seq=1 facility=0 priority=6 [    0.000002] a;b,c=d;e", id="semicolons"
        ),
        pytest.param(
            b"6,1,2,-;\x1b[31mred\x00\xff\x7f\r\tx\n",
            r"seq=1 facility=0 priority=6 [    0.000002] \x1b[31mred\x00\xff\x7f\x0d\x09x",
            id="noise that the kernel did not escape",
        ),
    ],
)
def test_a_record_becomes_a_line(record: bytes, line: str) -> None:
    assert printed(record) == [line]


@pytest.mark.parametrize(
    "record",
    [
        b"x",
        b"\n",
        b"6,1,2;text\n",
        b"6,1\n",
        b"-1,1,2,-;x\n",
        b"\xff\x00\x80",
        b" KEY=value\n",
        b"6,1,2,-\n;x",
    ],
)
def test_a_record_that_cannot_be_read_is_shown_as_it_is(record: bytes) -> None:
    shown = "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in record)

    assert printed(record) == [f"kmsg/1 unreadable boot={BOOT} {shown}"]


def test_a_record_that_cannot_be_read_stands_in_its_place_and_its_sequence_is_missed() -> None:
    lines = printed(b"6,1,0,-;one\n", b"??\n", b"6,3,0,-;three\n")

    assert [line.split()[-1] for line in lines] == ["one", "??\\x0a", "lost=1", "three"]


def test_a_fragment_is_joined_to_the_record_before_it() -> None:
    assert printed(
        b"4,7,1000000,-;NVRM: Xid \n KEY=v\n", b"4,8,1000001,c;(PCI:0000:4e:00)\n", b"4,9,3,+;: 79\n"
    ) == ["seq=7 facility=0 priority=4 [    1.000000] NVRM: Xid (PCI:0000:4e:00): 79"]


@pytest.mark.parametrize(
    ("head", "fragment"),
    [
        pytest.param(b"6,7,0,-,caller=T1;a\n", b"6,8,0,c,caller=T2;b\n", id="another caller"),
        pytest.param(b"12,7,0,-;a\n", b"4,8,0,c;b\n", id="the kernel after a user"),
        pytest.param(b"4,7,0,-;a\n", b"12,8,0,c;b\n", id="a user after the kernel"),
        pytest.param(b"6,7,0,c;a\n", b"6,8,0,-;b\n", id="no fragment after a fragment"),
    ],
)
def test_what_belongs_to_another_line_stands_on_its_own(head: bytes, fragment: bytes) -> None:
    first, second = printed(head, fragment)

    assert first.startswith("seq=7 ")
    assert first.endswith("] a")
    assert second.startswith("seq=8 ")
    assert second.endswith("] b")


def test_callers_that_take_turns_are_not_mixed() -> None:
    lines = printed(
        b"6,1,0,-,caller=T1;a1\n",
        b"6,2,0,-,caller=T2;b1\n",
        b"6,3,0,c,caller=T1;a2\n",
        b"6,4,0,c,caller=T1;a3\n",
        b"6,5,0,c,caller=T2;b2\n",
    )

    assert [line.split()[-1] for line in lines] == ["a1", "b1", "a2a3", "b2"]


def test_a_fragment_after_a_gap_is_not_joined() -> None:
    assert printed(b"6,7,0,-;a\n", b"6,9,0,c;b\n") == [
        "seq=7 facility=0 priority=6 [    0.000000] a",
        f"kmsg/1 gap boot={BOOT} from=8 to=8 lost=1",
        "seq=9 facility=0 priority=6 [    0.000000] b",
    ]


def test_a_joined_line_has_an_end_and_the_rest_follows_as_a_line_of_its_own() -> None:
    fragments = [b"6,%d,0,%c;%b\n" % (i, b"-c"[i > 0], b"%04d" % i * 250) for i in range(12)]

    lines = printed(*fragments)

    assert len(lines) == 2
    assert all(len(AT + line) <= JOINED_BYTES for line in lines)
    text = "".join(line.partition("] ")[2] for line in lines)
    assert text == "".join(f"{i:04}" * 250 for i in range(12))


def test_a_gap_names_the_first_and_the_last_lost_record() -> None:
    lines = printed(b"6,41,0,-;a\n", b"6,1042,0,-;b\n", b"6,1043,0,-;c\n")

    assert lines[1] == f"kmsg/1 gap boot={BOOT} from=42 to=1041 lost=1000"
    assert len(lines) == 4


def test_where_the_buffer_begins_is_no_gap() -> None:
    assert len(printed(b"6,4711,0,-;a\n")) == 1


def test_the_last_line_is_held_back_until_it_is_complete() -> None:
    reader = Records(BOOT)
    reader.feed(b"6,1,0,-;one\n")
    assert reader.holding
    assert reader.lines == []

    reader.feed(b"6,2,0,-;two\n")
    assert [line.split()[-1] for line in reader.lines] == [b"one"]
    assert reader.printed == 1


def test_a_heartbeat_claims_only_what_was_printed() -> None:
    reader = Records(BOOT)
    for record in (b"6,1,0,-;one\n", b"6,2,0,-;two\n"):
        reader.feed(record)

    reader.heartbeat(uptime_us=812_300_441, wall_ns=1_772_532_000_250_999_999)

    assert reader.lines[-1].decode() == (
        f"kmsg/1 heartbeat boot={BOOT} seq=1 uptime=812.300441 wall=2026-03-03T10:00:00.250Z\n"
    )
