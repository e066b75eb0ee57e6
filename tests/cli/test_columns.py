"""Columns, ages and names, as kubectl writes them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cli.columns import age, columns, count, fault_name, natural
from konductor_like.cli.durations import span_of
from konductor_like.cli.errors import CommandError
from konductor_like.model.text import printable

AGES = {
    -5: "<invalid>",
    0: "0s",
    119: "119s",
    120: "2m",
    192: "3m12s",
    600: "10m",
    3 * 3600 - 1: "179m",
    3 * 3600 + 1260: "3h21m",
    8 * 3600: "8h",
    2 * 86_400 + 7200: "2d2h",
    8 * 86_400: "8d",
    400 * 86_400: "400d",
}


@pytest.mark.parametrize(("seconds", "text"), AGES.items(), ids=map(str, AGES))
def test_an_age_reads_as_kubectl_writes_it(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_columns_are_as_wide_as_their_widest_cell_and_the_last_is_not_padded() -> None:
    lines = columns(("NODE", "STATE"), [("gpu-1", "faulty"), ("a-long-name", "")])

    assert lines == ["NODE          STATE", "gpu-1         faulty", "a-long-name   <none>"]


def test_without_headers_there_are_only_rows() -> None:
    assert columns((), [("a", "b")]) == ["a   b"]
    assert columns((), []) == []


def test_headers_alone_are_a_table_too() -> None:
    assert columns(("A", "B"), []) == ["A   B"]


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=5))
def test_whatever_the_cells_contain_every_row_is_one_printable_line(rows: list[tuple[str, str, str]]) -> None:
    lines = columns(("A", "B", "C"), rows)

    assert len(lines) == len(rows) + 1
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("é 漢", "é 漢"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x9b31m", "\\x9b31m"),
        ("\udcff", "\\udcff"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
    ],
    ids=["plain", "letters", "escape", "whitespace", "C1", "undecodable byte", "right-to-left"],
)
def test_a_log_line_cannot_drive_the_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_names_sort_as_people_count() -> None:
    assert sorted(["gpu-10", "gpu-9", "cpu-1", "7", "gpu-9a", ""], key=natural) == [
        "",
        "7",
        "cpu-1",
        "gpu-9",
        "gpu-9a",
        "gpu-10",
    ]


def test_small_words() -> None:
    assert (count(1, "node"), count(2, "node"), count(0, "node")) == ("1 node", "2 nodes", "0 nodes")
    assert (fault_name("xid.79"), fault_name("nvrm.fallen_off_bus")) == ("xid 79", "nvrm fallen off bus")


def test_a_span_longer_than_a_clock_can_represent_is_refused() -> None:
    assert span_of("1d12h", "--for") == timedelta(days=1, hours=12)
    with pytest.raises(CommandError, match="--for '999999w' is longer than 100 years"):
        span_of("999999w", "--for")
