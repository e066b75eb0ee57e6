"""The stand-in for ``/dev/kmsg`` shows a record when the kernel shows it."""

from __future__ import annotations

from konductor_like_sandbox.kmsg import Kmsg


def test_a_record_with_a_newline_can_be_read_at_once() -> None:
    assert Kmsg().write("one\n", "[1] {}".format) == ["[1] one"]


def test_a_record_without_a_newline_can_be_read_with_the_next_one_only_and_keeps_its_stamp() -> None:
    device = Kmsg()

    assert device.write("one", "[1] {}".format) == []
    assert device.write("two", "[2] {}".format) == ["[1] one"]
    assert device.write("three\n", "[3] {}".format) == ["[2] two", "[3] three"]


def test_only_the_newline_at_the_end_is_no_text() -> None:
    assert Kmsg().write("one\ntwo\n\n", str) == ["one\ntwo\n"]
