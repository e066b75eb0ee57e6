"""``konductor-like backtest`` with the stand-in Loki, and its report on a terminal."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.backtest.result import HeldSpan, History, Outage, Peak, Result, Verdicts, difference
from konductor_like.cli import session
from konductor_like.cli.backtest.report import show
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.errors import LokiUnavailable
from konductor_like.loki.query.response import QueryResult
from konductor_like.loki.query.window_query import TimeWindow
from konductor_like.model import SkipReason
from konductor_like.model.time import moment_of
from konductor_like_sandbox.loki import LokiServer
from konductor_like_sandbox.loki.limits import LokiLimits
from tests.backtest.histories import SECOND_NS, START_NS, xid
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import incident
from tests.cli.test_docs import names
from tests.cli.transcripts import forget_settings

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "use" / "backtest.md"
REWRITE = bool(os.environ.get("KONDUCTOR_TEST_REWRITE"))
"""Read at import, because each test clears the settings."""
NOW = moment_of(START_NS) + timedelta(days=2)
BACKTEST = ("backtest", "--since", "2d", "--nodes", "lines")


@pytest.fixture
def loki(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LokiServer]:
    """Three faults: one taints, the application caused one, and the brake holds one back."""
    forget_settings(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "now", lambda: NOW)
    clock_ns = START_NS + 2 * 86_400 * 10**9
    limits = LokiLimits(max_query_length_seconds=3600)
    with LokiServer(limits=limits, now_ns=lambda: clock_ns) as server:
        monkeypatch.setenv("LOG_ENDPOINT", server.url)
        for said in (xid("gpu-1", 7200), xid("gpu-2", 7300, code=31), xid("gpu-3", 7400, code=48)):
            server.push(said.labels, [(said.at_ns, said.text)])
        yield server


@pytest.mark.usefixtures("loki")
def test_the_example_on_the_page_is_what_is_printed(run: Run, tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    example = page.split("## An example")[1]
    yaml, command, shown = re.findall(r"```(?:yaml|console|text)\n(.*?)```", example, re.DOTALL)[:3]
    (tmp_path / "fatal-31.yaml").write_text(yaml)

    done = run(*command.split()[2:])
    if REWRITE:
        PAGE.write_text(page.replace(shown, done.out), "utf-8")
        shown = done.out

    assert done.code == 0, done.err
    assert done.out == shown


@pytest.mark.usefixtures("loki")
def test_the_json_has_every_field_that_the_page_describes_and_no_other(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("overrides:\n  xid.48.mode: shadow\n")

    done = run(*BACKTEST, "-o", "json", "--rules", "rules.yaml")

    document = done.document
    page = (DOCS / "reference" / "json.md").read_text("utf-8").split("\n## Backtest\n")[1].split("\n## ")[0]
    assert done.code == 0, done.err
    assert {name for name in names(document) if f"`{name}`" not in page and f".{name}`" not in page} == set()
    assert [one["node"] for one in document["verdicts"]["outages"]] == ["gpu-1"]
    assert [one["node"] for one in document["shadow"]["added"]] == ["gpu-3"]
    assert (document["compared"], document["difference"], document["history"]["keptLines"]) == (None, None, 0)
    assert document["complete"]


def test_the_nodes_can_come_from_the_cluster(
    cluster: Cluster, loki: LokiServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("every state")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("LOG_ENDPOINT", loki.url)
    monkeypatch.setattr(session, "now", lambda: NOW)

    document = run("backtest", "--since", "2d", "-o", "json").document

    assert document["assumed"]["nodes"] == "cluster"
    assert document["verdicts"]["gpuNodes"] > 3


@pytest.mark.usefixtures("loki")
def test_the_nodes_can_come_from_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text("".join(f"node/gpu-{number}\n" for number in range(1, 101)))

    verdicts = run(*BACKTEST, "--nodes", "nodes.txt", "-o", "json").document["verdicts"]

    assert verdicts["gpuNodes"] == 100
    assert len(verdicts["outages"]) == 2
    assert verdicts["held"] == []


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (LokiUnavailable("Loki answered 502: no ingester"), 3, "no ingester; retrying in "),
    ],
    ids=["Ctrl-C", "a Loki that fails for good"],
)
@pytest.mark.usefixtures("loki")
def test_an_early_end_gives_a_partial_report(
    failure: BaseException, code: int, said: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_range, asked = LokiClient.query_range, 0

    def failing(*arguments: Any) -> QueryResult:
        nonlocal asked
        asked += 1
        if asked >= 24:
            raise failure
        return query_range(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(LokiClient, "query_range", failing)
        patched.setattr("konductor_like.loki.query.patient.PATIENCE_SECONDS", 0.001)
        done = run(*BACKTEST)

    assert done.code == code
    assert "gpu-1" in done.out
    assert said in done.err
    assert "warning: ended early, and the report goes up to 2026-03-01T" in done.err
    assert run(*BACKTEST).code == 0


@pytest.mark.usefixtures("loki")
def test_an_empty_history_is_reported(run: Run) -> None:
    done = run(*BACKTEST, "--since", "1d")

    assert done.code == 0
    assert "0 nodes" in done.out
    assert "Loki has no line with a fault's words in this time" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "soon"), "--since 'soon' is neither a span nor a time"),
        (("--since", "2030-01-01"), "--since must be before --until"),
        (("--release-after", "a while"), "--release-after 'a while' is no span of time"),
        (("--rules", "none.yaml"), "none.yaml: No such file or directory"),
        (("--rules", "bad.yaml"), "bad.yaml:2"),
        (("--nodes", "nodes.json"), "nodes.json:1: '{}' cannot be the name of a node"),
        (("--nodes", "missing.txt"), "missing.txt: No such file or directory"),
        (("--nodes", "."), ".: is a directory, not a file"),
        (("--nodes", "empty.txt"), "empty.txt has no names of nodes"),
        (("--rules", "."), "is a directory, not a file"),
        (("--rules", "\x1b[2J"), "No such file or directory"),
    ],
)
def test_a_wrong_command_line_is_an_error_with_status_2(
    loki: LokiServer, run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "bad.yaml").write_text("overrides:\n  xid.79.severity: terrible\n")
    (tmp_path / "nodes.json").write_text("{}")
    (tmp_path / "empty.txt").write_text("# no node\n")

    done = run(*BACKTEST, *arguments)

    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert not loki.requests("/loki/api/v1/query_range")


def test_a_loki_that_cannot_be_reached_is_an_error_and_no_empty_report(
    loki: LokiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konductor_like.loki.query.client.TOTAL_SECONDS", 0)
    loki.stop()

    done = run(*BACKTEST)

    assert (done.code, done.out) == (1, "")
    assert "cannot connect" in done.err


DAY_NS = 86_400 * SECOND_NS
SPAN = TimeWindow(START_NS, START_NS + 30 * DAY_NS)
EVIDENCE = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', GPU has fallen off the bus. \x1b[31m"


def out(name: str, day: int, days: int | None, rule: str = "xid.79") -> Outage:
    start_ns = START_NS + day * DAY_NS
    end_ns = None if days is None else start_ns + days * DAY_NS
    return Outage(name, start_ns, end_ns, incident(rule, "0000:4e:00", evidence=EVIDENCE))


OUT = (out("gpu-7", 1, 4), out("gpu-12", 12, None))
OTHERWISE = (OUT[0], out("gpu-1", 2, 1, "xid.31"))
HELD = HeldSpan("gpu-3", START_NS + 12 * DAY_NS, START_NS + 15 * DAY_NS, SkipReason.BRAKE, OUT[0].incident)
ALONE = Result(
    History(SPAN, read_upto_ns=SPAN.end_ns, oldest_ns=START_NS),
    Verdicts("1", OUT, (HELD,), Peak(START_NS, 1), 9, 240),
    4 * 3600.0,
    "cluster",
    600.0,
)
SHADOW = replace(ALONE, shadow=difference(OUT, OTHERWISE))


class Screen(io.StringIO):
    """Standard output: a terminal of 80 columns, or a pipe."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: terminal  # type: ignore[method-assign]  # for this one


def printed(what: Result, *, terminal: bool = True) -> str:
    with redirect_stdout(Screen(terminal=terminal)) as screen:
        show(what)
    return screen.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.usefixtures("_terminal")
def test_on_80_columns_each_outage_has_one_line_and_the_node_and_time_are_never_cut() -> None:
    lines = plain(printed(SHADOW)).splitlines()

    [row] = [line for line in lines if line.startswith("gpu-7 ")]
    assert max(map(len, lines)) <= 80
    assert row.startswith("gpu-7    2026-03-02T00:00:00Z   4d     xid 79   0000:4e:00")
    assert row.endswith("…")


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize("terminal", [True, False])
def test_what_enforced_shadow_rules_would_change_comes_last(terminal: bool) -> None:
    text = plain(printed(SHADOW, terminal=terminal))

    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles == ["Outages", "Held back", "Changes if the rules in shadow mode were enforced"]
    differing = text.split("were enforced:\n")[1]
    assert differing.startswith("1 more outage, 1 fewer, 1 unchanged.")
    assert re.search(r"^\+ .*gpu-1 .*xid 31", differing, re.MULTILINE)
    assert re.search(r"^- .*gpu-12 .*xid 79", differing, re.MULTILINE)


def test_a_shadow_rule_that_changes_nothing_is_told() -> None:
    text = printed(replace(ALONE, shadow=difference(OUT, OUT)))

    assert "0 more outages, 0 fewer, 2 unchanged." in text
    assert re.search(r"^gpu-7 .*xid 79", text, re.MULTILINE)


def test_a_pipe_gets_full_lines_without_colour() -> None:
    text = printed(SHADOW, terminal=False)

    assert "\x1b" not in text
    assert "GPU has fallen off the bus. \\x1b[31m" in text


@pytest.mark.usefixtures("_terminal")
def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[31m+" in printed(SHADOW)

    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(SHADOW)
