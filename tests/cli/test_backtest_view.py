"""What a backtest prints: the difference first, nothing wider than the terminal, no colour in a pipe."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from konductor_like.backtest.result import (
    HeldSpan,
    History,
    Load,
    Outage,
    Result,
    TimeSpan,
    Verdicts,
    difference,
)
from konductor_like.cli.backtest.report import show, text
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
from konductor_like.model.time import moment_of
from tests.backtest.histories import SECOND_NS, START_NS

DAY_NS = 86_400 * SECOND_NS
SPAN = TimeSpan(START_NS, START_NS + 30 * DAY_NS)
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
    verdicts = Verdicts("1", outages, held, (Load(START_NS, 1),), 9, 240)
    other = Verdicts("2", (outages[0], out("gpu-1", 2, 1, "xid.31")), (), (), 9, 240)
    return Result(
        History(SPAN, SPAN, {Source.KERNEL: 9, Source.POD: 0}, START_NS, SPAN.end_ns, 7, 8),
        verdicts,
        4 * 3600.0,
        "cluster",
        600.0,
        compared=other if compared else None,
        difference=difference(outages, other.outages) if compared else None,
    )


def shown(
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    terminal: bool = True,
    compared: bool = True,
    of: Result | None = None,
) -> str:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Screen()
    show(of or result(compared=compared), stream)
    return stream.getvalue()


def plain(printed: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", printed)


@pytest.mark.parametrize("width", [60, 80, 132, 200])
def test_nothing_is_wider_than_the_terminal_and_the_timeline_fills_it(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = plain(shown(width, monkeypatch)).splitlines()

    assert max(map(len, lines)) <= width
    bars = [line for line in lines if re.fullmatch(r"gpu-\d+ +[.#/]+", line)]
    assert {len(bar) for bar in bars} == {width}
    assert [bar.split()[0] for bar in bars] == ["gpu-12", "gpu-7", "gpu-3"]


def test_who_and_when_is_never_cut_on_80_columns_and_each_time_out_has_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = plain(shown(80, monkeypatch, compared=False)).splitlines()

    (row,) = [line for line in lines if line.startswith("gpu-7 ") and "T" in line]
    assert row.startswith("gpu-7    2026-03-02T00:00:00Z   4d     xid 79   0000:4e:00")
    assert row.endswith("…")


def test_what_differs_comes_before_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for printed in ("\n".join(text(result(compared=True))), plain(shown(120, monkeypatch))):
        titles = re.findall(r"^(\S.*):$", printed, re.MULTILINE)
        assert titles[0] == "What the other rules would do otherwise"
        assert "1 time out more, 1 fewer, 1 the same." in printed
        differing = printed.split("otherwise:\n")[1].split("\n\n")[0]
        assert re.search(r"^\+ .*gpu-1 .*xid 31", differing, re.MULTILINE)
        assert re.search(r"^- .*gpu-12 .*xid 79", differing, re.MULTILINE)


@pytest.mark.parametrize("asked", ["--compare", "a shadow rule"])
def test_where_nothing_differs_the_rest_of_the_report_follows(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = result(compared=False)
    same = difference(alone.verdicts.outages, alone.verdicts.outages)
    both = replace(alone, difference=same) if asked == "--compare" else replace(alone, shadow=same)

    printed = plain(shown(120, monkeypatch, of=both))

    assert "0 times out more, 0 fewer, 2 the same." in printed
    assert re.search(r"^gpu-7 .*xid 79", printed, re.MULTILINE)
    assert re.search(r"^gpu-12 +[.#/]+$", printed, re.MULTILINE)


def test_a_pipe_gets_full_lines_without_colour_and_a_timeline_of_80_columns() -> None:
    lines = text(result(compared=False))

    assert not any("\x1b" in line for line in lines)
    assert any("GPU has fallen off the bus. \\x1b[31m" in line for line in lines)
    bars = [line for line in lines if re.fullmatch(r"gpu-\d+ +[.#/]+", line)]
    assert {len(bar) for bar in bars} == {80}
    start, end = (f"{moment_of(ns):%Y-%m-%d %H:%M}" for ns in (SPAN.start_ns, SPAN.end_ns))
    assert any(start in line and line.endswith(end) and len(line) == 80 for line in lines)
    assert moment_of(SPAN.end_ns) - moment_of(SPAN.start_ns) == timedelta(days=30)


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in shown(100, monkeypatch)
    assert "\x1b[" not in shown(100, monkeypatch, terminal=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in shown(100, monkeypatch)
