"""The report on a terminal: the text of a pipe, with colours unless unwanted, without control characters."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from konductor_like.cli.explain import fault
from konductor_like.cli.output import Screen, colourful, is_terminal, plain_paragraphs, say_table
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.report import StatusReport, node_reports
from konductor_like.cli.status.text import View, status_lines
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.detection import packaged
from konductor_like.model import BrakeState, Coverage, Severity
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.scenes import NOW, every_state, fleet_of_300, incident, with_record

NARROW = Screen(width=80, colours=True)


def report(nodes: list[dict[str, object]] | None = None) -> StatusReport:
    coverage, brake = Coverage(NOW, listed_are_measured=False), BrakeState(12, 2, 2)
    controller = ControllerReport("ns/lease", exists=False, coverage=coverage)
    reports = node_reports(map(decode_node, nodes or every_state()), controller, brake, NOW)
    return StatusReport(NOW, brake, replace(controller, coverage=None), reports)


def plain(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]


@pytest.mark.parametrize("view", [View(), View(wide=True), View(everything=True)], ids=["", "wide", "all"])
def test_a_terminal_shows_the_columns_of_a_pipe(view: View) -> None:
    assert plain(status_lines(report(), view, Screen(width=220, colours=True))) == status_lines(
        report(), view
    )


@pytest.mark.parametrize(("view", "lines_of_a_row"), [(View(), 2), (View(wide=True), 4)], ids=["", "wide"])
def test_no_cell_is_broken_on_a_narrow_terminal(view: View, lines_of_a_row: int) -> None:
    lines = plain(status_lines(report(fleet_of_300()), view, NARROW))
    table = lines[next(n for n, line in enumerate(lines) if line.startswith("NODE")) :]

    assert max(map(len, table)) <= 80
    assert len(table) == 12 * lines_of_a_row
    rows = [" ".join(table[at : at + lines_of_a_row]).split() for at in range(0, len(table), lines_of_a_row)]
    pipe = status_lines(report(fleet_of_300()), view)[-12:]
    assert rows == [line.split() for line in pipe]


def test_columns_move_together_before_a_row_takes_two_lines() -> None:
    ten = report(fleet_of_300()[:7])
    lines = plain(status_lines(ten, View(), NARROW))

    assert lines[-1] == "ip-10-31-0-6.eu-north-1.compute.internal held   61s   xid 95 0000:5d:00 1"


def test_the_state_is_coloured_where_a_row_takes_two_lines() -> None:
    lines = status_lines(report(fleet_of_300()), View(), NARROW)

    assert any(line.startswith("    \x1b[1;31mfaulty\x1b[0m ") for line in lines)


def test_sentences_are_folded_at_words_on_a_narrow_terminal() -> None:
    lines = plain(status_lines(report(fleet_of_300()), View(), NARROW))

    assert max(len(line) for line in lines if not line.startswith(("NODE ", "ip-"))) <= 80
    assert "  xid 63: Work may go on; reset the GPU when the node is idle, so that the new" in lines


def test_a_log_line_cannot_drive_the_terminal() -> None:
    title = incident(evidence="x\x1b[2J", severity=Severity.SUSPECT)
    node = with_record(make_node("gpu-1"), title, tainted=True)
    node["spec"]["taints"][0]["value"] = "\x1b]0;owned\x07"

    assert "\x1b" not in "".join(status_lines(report([node]), View(wide=True), Screen(width=80)))


def test_paragraphs_are_folded_at_words_and_lose_none() -> None:
    paragraphs = list(fault.paragraphs(fault.explain_text("nvrm.fallen_off_bus", None, packaged())))
    folded = plain_paragraphs(paragraphs, Screen(width=60))

    assert [line for line in folded if len(line) > 60 and " " in line[14:]] == []
    assert " ".join(folded).split() == " ".join(plain_paragraphs(paragraphs)).split()


class Terminal(io.StringIO):
    """A stream that reports itself as a terminal."""

    def isatty(self) -> bool:
        return True


def test_only_the_last_column_of_a_table_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "60", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)

    say_table(("NAME", "WHAT"), [("KONDUCTOR_" + "Y" * 20, "[bold] words of a longer sentence"), ("Z", "")])

    assert out.getvalue().splitlines() == [
        "NAME                             WHAT",
        "KONDUCTOR_YYYYYYYYYYYYYYYYYYYY   [bold] words of a longer",
        "                                 sentence",
        "Z                                <none>",
    ]


def test_states_are_coloured_on_a_terminal() -> None:
    assert any("\x1b[1;31mfaulty\x1b[0m" in line for line in status_lines(report(), View(), NARROW))


@pytest.mark.parametrize(
    ("environment", "terminal", "colours"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, False, False),
    ],
    ids=["terminal", "no colour", "empty NO_COLOR", "dumb"],
)
def test_the_environment_decides_about_colours(
    environment: dict[str, str], terminal: bool, colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert (is_terminal(Terminal()), colourful(Terminal())) == (terminal, colours)
    assert ("\x1b" in "".join(status_lines(report(), View(), Screen.of(Terminal())))) is colours


def test_a_pipe_is_no_terminal() -> None:
    assert not is_terminal(io.StringIO())
    assert Screen.of(io.StringIO()) == Screen()


def test_no_color_leaves_no_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")

    assert Screen(80, colourful(Terminal())).painted("gpu-1", "1") == "gpu-1"


def test_a_closed_output_is_written_to_nowhere() -> None:
    shell = f"{sys.executable} -m konductor_like.cli explain xid 79 >&-"
    done = subprocess.run(shell, shell=True, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S602  # only a shell closes it

    assert (done.returncode, done.stderr) == (0, "")
