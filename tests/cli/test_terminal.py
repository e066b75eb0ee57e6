"""The report on a terminal: fitted to its width, coloured unless unwanted, without control characters."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from konductor_like.cli.explain import fault
from konductor_like.cli.output import (
    colourful,
    console,
    is_terminal,
    paragraphs_view,
    plain_paragraphs,
    table_view,
)
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.report import StatusReport, node_reports
from konductor_like.cli.status.text import status_view
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.detection import packaged
from konductor_like.model import BrakeState, Coverage, Severity
from konductor_like.sandbox.kubernetes.fleet import make_node
from tests.cli.scenes import NOW, every_state, incident, with_record


def report(evidence: str = "") -> StatusReport:
    nodes = every_state()
    if evidence:
        nodes = [with_record(make_node("gpu-1"), incident(evidence=evidence, severity=Severity.SUSPECT))]
    coverage = Coverage(NOW, listed_are_measured=False)
    reports = node_reports(map(decode_node, nodes), coverage)
    return StatusReport(NOW, BrakeState(12, 2, 2), ControllerReport("ns/lease", exists=False), reports)


def shown(
    what: StatusReport, *, width: int = 100, wide: bool = False, headers: bool = True, colour: bool = False
) -> str:
    """Return what a terminal of this width would show."""
    out = io.StringIO()
    terminal = Console(
        file=out, width=width, force_terminal=colour, highlight=False, markup=False, _environ={}
    )
    terminal.print(status_view(what, wide=wide, headers=headers))
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 100, 200])
@pytest.mark.parametrize("wide", [False, True], ids=["table", "wide"])
def test_no_line_is_wider_than_the_terminal(width: int, wide: bool) -> None:
    assert max(map(len, shown(report(), width=width, wide=wide).splitlines())) <= width


def test_the_brake_comes_first_and_the_advice_last() -> None:
    text = shown(report())

    assert text.startswith("Brake:")
    assert text.index("NODE") < text.index("To do: Drain the node and reboot it.")
    assert shown(report(), headers=False).startswith("gpu-1")


def test_a_log_line_is_no_markup_and_cannot_drive_the_terminal() -> None:
    text = shown(report("[red]Xid[/red] [81234.567890] :smile: \x1b[2J\x1b]0;owned\x07"))

    assert "[red]Xid[/red] [81234.567890]" in text
    assert "\x1b" not in text


def test_paragraphs_are_folded_and_lose_no_word() -> None:
    paragraphs = list(fault.paragraphs(fault.explain_text("nvrm.fallen_off_bus", None, packaged())))
    out = io.StringIO()
    Console(file=out, width=60, color_system=None).print(paragraphs_view(paragraphs))

    assert max(map(len, out.getvalue().splitlines())) <= 60
    folded = re.sub(r"\s", "", out.getvalue())
    for line in plain_paragraphs(paragraphs):
        assert re.sub(r"\s", "", line.partition(": ")[2]) in folded


def test_a_plain_table_folds_long_cells() -> None:
    out = io.StringIO()
    view = table_view(("NAME", "VALUE"), [("KONDUCTOR_X", "[bold] " + "y" * 100), ("KONDUCTOR_Z", "")])
    Console(file=out, width=40, highlight=False, markup=False, _environ={}).print(view)
    text = out.getvalue()

    assert max(map(len, text.splitlines())) <= 40
    assert "[bold]" in text
    assert text.count("y") == 100
    assert "<none>" in text


def test_states_are_coloured_on_a_terminal() -> None:
    assert "\x1b[1;31mfaulty" in shown(report(), colour=True)


class Terminal(io.StringIO):
    """A stream that reports itself as a terminal."""

    def isatty(self) -> bool:
        return True


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


def test_a_pipe_is_no_terminal() -> None:
    assert not is_terminal(io.StringIO())


def test_no_color_leaves_no_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    console(out).print(status_view(report(), wide=False, headers=True))

    assert "gpu-" in out.getvalue()
    assert "\x1b" not in out.getvalue()
