"""What a backtest prints: the difference first, rows cut at the terminal's width, no colour in a pipe."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from konductor_like.backtest.result import HeldSpan, History, Outage, Peak, Result, Verdicts, difference
from konductor_like.cli.backtest.report import show
from konductor_like.loki.window_query import Window
from konductor_like.model import (
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Refusal,
    Severity,
    Source,
)
from tests.backtest.histories import SECOND_NS, START_NS

DAY_NS = 86_400 * SECOND_NS
SPAN = Window(START_NS, START_NS + 30 * DAY_NS)
EVIDENCE = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', GPU has fallen off the bus. \x1b[31m"


def incident(rule: str = "xid.79") -> Incident:
    return Incident(
        key=IncidentKey(rule, "0000:4e:00"),
        kind=FaultKind.XID,
        severity=Severity.FATAL,
        state=IncidentState.ACTIVE,
        count=1,
        first_ns=START_NS,
        last_ns=START_NS,
        last=KernelPosition(),
        code=79,
        evidence=EVIDENCE,
        title="GPU lost",
        advice="Reboot.",
        source=Source.KERNEL,
    )


def out(name: str, day: float, days: float | None, rule: str = "xid.79") -> Outage:
    start_ns = START_NS + round(day * DAY_NS)
    return Outage(name, start_ns, None if days is None else start_ns + round(days * DAY_NS), incident(rule))


def result(*, compared: bool) -> Result:
    outages = (out("gpu-7", 1, 4), out("gpu-12", 12, None))
    held = (HeldSpan("gpu-3", START_NS + 12 * DAY_NS, START_NS + 15 * DAY_NS, Refusal.BRAKE, incident()),)
    verdicts = Verdicts("1", outages, held, Peak(START_NS, 1), 9, 240)
    other = Verdicts("2", (outages[0], out("gpu-1", 2, 1, "xid.31")), (), None, 9, 240)
    return Result(
        History(SPAN, read_upto_ns=SPAN.end_ns, oldest_ns=START_NS),
        verdicts,
        4 * 3600.0,
        "cluster",
        600.0,
        compared=other if compared else None,
        difference=difference(outages, other.outages) if compared else None,
    )


class Screen(io.StringIO):
    """Standard output, a terminal of 80 columns or a pipe."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: terminal  # type: ignore[method-assign]  # for this one


def printed(what: Result, *, terminal: bool = True) -> str:
    with redirect_stdout(Screen(terminal=terminal)) as screen:
        show(what)
    return screen.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_on_80_columns_each_time_out_has_one_line_and_who_and_when_is_never_cut() -> None:
    lines = plain(printed(result(compared=True))).splitlines()

    [row] = [line for line in lines if line.startswith("gpu-7 ")]
    assert max(map(len, lines)) <= 80
    assert row.startswith("gpu-7    2026-03-02T00:00:00Z   4d     xid 79   0000:4e:00")
    assert row.endswith("…")


@pytest.mark.parametrize("terminal", [True, False])
def test_what_differs_comes_before_the_other_tables(terminal: bool) -> None:
    text = plain(printed(result(compared=True), terminal=terminal))

    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles == ["What the other rules would do otherwise", "Out", "Held back"]
    differing = text.split("otherwise:\n")[1].split("\n\n")[0]
    assert differing.startswith("1 time out more, 1 fewer, 1 the same.")
    assert re.search(r"^\+ .*gpu-1 .*xid 31", differing, re.MULTILINE)
    assert re.search(r"^- .*gpu-12 .*xid 79", differing, re.MULTILINE)


@pytest.mark.parametrize("asked", ["--compare", "a shadow rule"])
def test_where_nothing_differs_the_rest_of_the_report_follows(asked: str) -> None:
    alone = result(compared=False)
    same = difference(alone.verdicts.outages, alone.verdicts.outages)

    text = printed(replace(alone, difference=same) if asked == "--compare" else replace(alone, shadow=same))

    assert "0 times out more, 0 fewer, 2 the same." in text
    assert re.search(r"^gpu-7 .*xid 79", text, re.MULTILINE)


def test_a_pipe_gets_full_lines_without_colour() -> None:
    text = printed(result(compared=True), terminal=False)

    assert "\x1b" not in text
    assert "GPU has fallen off the bus. \\x1b[31m" in text


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[31m+" in printed(result(compared=True))

    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(result(compared=True))
