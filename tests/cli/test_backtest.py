"""``konductor-like backtest`` as it is typed, over the stand-in Loki."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cli import session
from konductor_like.cli.app import execute
from konductor_like.loki.client import LokiClient
from konductor_like.loki.errors import LokiUnavailable
from konductor_like.loki.response import QueryResult
from konductor_like.model.time import moment_of
from konductor_like.sandbox.kubernetes import KubernetesServer
from konductor_like.sandbox.loki import LokiServer
from konductor_like.sandbox.loki.limits import LokiLimits
from tests.backtest.histories import START_NS, xid
from tests.cli.test_docs import names
from tests.cli.transcripts import forget_settings

DOCS = Path(__file__).parents[2] / "docs"
REWRITE = bool(os.environ.get("KONDUCTOR_TEST_REWRITE"))
"""Read at once: each test forgets the settings."""
NOW = moment_of(START_NS) + timedelta(days=2)


@pytest.fixture
def loki(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LokiServer]:
    forget_settings(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "now", lambda: NOW)
    clock_ns = START_NS + 2 * 86_400 * 10**9
    limits = LokiLimits(max_query_length_seconds=3600)
    with LokiServer(limits=limits, now_ns=lambda: clock_ns) as server:
        monkeypatch.setenv("LOG_ENDPOINT", server.url)
        yield server


def tell(loki: LokiServer) -> None:
    """Three faults of which one taints, one is the job's own, and one is held back by the brake."""
    for said in (xid("gpu-1", 7200), xid("gpu-2", 7300, code=31), xid("gpu-3", 7400, code=48)):
        loki.push(said.labels, [(said.at_ns, said.text)])


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = execute(["backtest", *arguments], "konductor-like")
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_table_says_who_would_have_been_out_when_and_why(
    loki: LokiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(loki)

    status, out, err = run(capsys, "--since", "2d", "--nodes", "lines")

    assert status == 0, err
    assert "gpu-1   2026-03-01T02:00:40Z   4h" in out
    assert "GPU has fallen off the bus." in out
    assert "gpu-3   2026-03-01T02:04:00Z" in out.split("Held back:\n")[1]
    assert "cool-down" in out
    assert "2 nodes, 2 times, 8.0 node hours; most at once 1 of 3 (33.3%)" in out
    assert "a node comes back 4h after its taint" in out
    assert "gpu-2" not in out.split("Timeline")[1]


def test_the_json_has_every_field_that_the_page_describes_and_no_other(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tell(loki)
    rules = tmp_path / "rules.yaml"
    rules.write_text("overrides:\n  xid.48.mode: shadow\n")
    other = tmp_path / "other.yaml"
    other.write_text("overrides:\n  xid.31.severity: fatal\n")

    status, out, err = run(
        capsys,
        "--since",
        "2d",
        "--nodes",
        "lines",
        "-o",
        "json",
        "--rules",
        str(rules),
        "--compare",
        str(other),
    )

    document = json.loads(out)
    page = (DOCS / "backtest.md").read_text("utf-8")
    assert status == 0, err
    assert {name for name in names(document) if f"`{name}`" not in page and f".{name}`" not in page} == set()
    assert [one["node"] for one in document["verdicts"]["outages"]] == ["gpu-1"]
    assert [one["node"] for one in document["shadow"]["added"]] == ["gpu-3"]
    assert {one["node"] for one in document["difference"]["added"]} == {"gpu-2", "gpu-3"}
    assert document["complete"]


def test_the_cluster_says_which_nodes_there_are(
    loki: LokiServer,
    capsys: pytest.CaptureFixture[str],
    cluster: Callable[[str], KubernetesServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster("every state")
    monkeypatch.setenv("LOG_ENDPOINT", loki.url)
    monkeypatch.setattr(session, "now", lambda: NOW)
    tell(loki)

    status, out, err = run(capsys, "--since", "2d", "-o", "json")

    document = json.loads(out)
    assert status == 0, err
    assert document["assumed"]["nodes"] == "cluster"
    assert document["verdicts"]["gpuNodes"] > 3


def test_a_file_says_which_nodes_there_are(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tell(loki)
    (tmp_path / "nodes.txt").write_text("".join(f"node/gpu-{number}\n" for number in range(1, 101)))

    status, out, err = run(capsys, "--since", "2d", "--nodes", "nodes.txt", "-o", "json")

    verdicts = json.loads(out)["verdicts"]
    assert status == 0, err
    assert verdicts["gpuNodes"] == 100
    assert len(verdicts["outages"]) == 2
    assert verdicts["held"] == []


def test_a_second_run_asks_loki_only_for_the_last_hours(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tell(loki)
    first = json.loads(run(capsys, "--since", "2d", "--nodes", "lines", "-o", "json")[1])
    asked = len(loki.requests("/loki/api/v1/query_range"))
    (tmp_path / "rules.yaml").write_text("overrides:\n  xid.31.severity: fatal\n")

    status, out, _ = run(
        capsys,
        "--since",
        "2d",
        "--nodes",
        "lines",
        "-o",
        "json",
        "--rules",
        "rules.yaml",
        "--release-after",
        "1h",
    )

    second = json.loads(out)
    assert status == 0
    assert first["history"]["lines"] == second["history"]["lines"]
    assert (first["history"]["keptLines"], second["history"]["keptLines"]) == (0, 3)
    assert len(loki.requests("/loki/api/v1/query_range")) - asked < asked / 3
    assert len(list(tmp_path.glob(".cache/konductor-like/backtest/*/*-*"))) > 5
    assert "3 of them kept by an earlier run" in run(capsys, "--since", "2d", "--nodes", "lines")[1]


def test_nothing_is_kept_where_that_is_asked_for(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tell(loki)

    assert run(capsys, "--since", "2d", "--nodes", "lines", "--no-cache")[0] == 0

    assert not list(tmp_path.rglob("*konductor*"))


def test_a_home_where_nothing_can_be_kept_is_told_and_a_directory_that_was_named_is_an_error(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tell(loki)
    (tmp_path / ".cache").write_text("a file")

    assert run(capsys, "--since", "2d", "--nodes", "lines", "--cache", ".cache")[0] == 1
    status, out, err = run(capsys, "--since", "2d", "--nodes", "lines")

    assert status == 0
    assert "gpu-1" in out
    assert "warning: nothing is kept for another run: " in err


def test_ctrl_c_ends_with_130_a_report_up_to_there_and_how_to_go_on(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(loki)
    query_range, asked = LokiClient.query_range, 0

    def interrupted(*arguments: Any) -> QueryResult:
        nonlocal asked
        asked += 1
        if asked == 24:
            raise KeyboardInterrupt
        return query_range(*arguments)

    monkeypatch.setattr(LokiClient, "query_range", interrupted)
    status, out, err = run(capsys, "--since", "2d", "--nodes", "lines")

    assert status == 130
    assert "gpu-1" in out
    assert "warning: ended early, and the report goes up to 2026-03-01T" in err
    assert err.endswith("hint: the same command goes on from there; what was read so far is kept.\n")
    assert run(capsys, "--since", "2d", "--nodes", "lines")[0] == 0


def test_a_loki_that_fails_for_good_half_way_ends_with_3_and_says_what_failed(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(loki)
    query_range, asked = LokiClient.query_range, 0

    def failing(*arguments: Any) -> QueryResult:
        nonlocal asked
        asked += 1
        if asked >= 24:
            raise LokiUnavailable("Loki answered 502: no ingester")
        return query_range(*arguments)

    monkeypatch.setattr(LokiClient, "query_range", failing)
    monkeypatch.setattr("konductor_like.backtest.history.PATIENCE_SECONDS", 0.001)
    status, out, err = run(capsys, "--since", "2d", "--nodes", "lines")

    assert status == 3
    assert "gpu-1" in out
    assert "Loki answered 502: no ingester; asking again in " in err
    assert "the report goes up to 2026-03-01T" in err
    assert "goes on from there" in err


def test_the_example_on_the_page_is_what_is_printed(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tell(loki)
    page = (DOCS / "backtest.md").read_text("utf-8")
    example = page.split("## An example")[1]
    yaml, command, shown = re.findall(r"```(?:yaml|console|text)\n(.*?)```", example, re.DOTALL)[:3]
    (tmp_path / "fatal-31.yaml").write_text(yaml)

    status, out, err = run(capsys, *command.split()[3:])
    if REWRITE:
        (DOCS / "backtest.md").write_text(page.replace(shown, out), "utf-8")
        shown = out

    assert status == 0, err
    assert out == shown


def test_an_empty_history_is_told(loki: LokiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert loki.line_count == 0

    status, out, _ = run(capsys, "--since", "2d", "--nodes", "lines")

    assert status == 0
    assert "0 nodes" in out
    assert "Loki has no line with a fault's words in this time" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "soon"), "--since 'soon' is neither a span nor a time"),
        (("--since", "2030-01-01"), "--since is not before --until"),
        (("--release-after", "a while"), "--release-after 'a while' is no span of time"),
        (("--rules", "none.yaml"), "none.yaml: No such file or directory"),
        (("--rules", "bad.yaml"), "bad.yaml"),
        (("--compare", "bad.yaml"), "bad.yaml:2"),
        (("--nodes", "{}.json"), "is no list of nodes"),
    ],
)
def test_a_wrong_command_line_is_told_and_ends_with_2(
    loki: LokiServer,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    (tmp_path / "bad.yaml").write_text("overrides:\n  xid.79.severity: terrible\n")
    (tmp_path / "{}.json").write_text("{ not json")

    status, out, err = run(capsys, "--nodes", "lines", *arguments)

    assert (status, out) == (2, "")
    assert said in err
    assert not loki.requests("/loki/api/v1/query_range")


def test_a_loki_that_cannot_be_reached_is_an_error_and_no_empty_report(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konductor_like.loki.client.TOTAL_SECONDS", 0)
    loki.stop()

    status, out, err = run(capsys, "--since", "2d", "--nodes", "lines")

    assert (status, out) == (1, "")
    assert "cannot connect" in err
