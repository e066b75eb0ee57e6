"""``konductor-like history`` over a trail in the stand-in Loki and records in the stand-in cluster."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from konductor_like.cli import session
from konductor_like.model import Life, Quarantine, Release, ReleaseHow
from konductor_like.model.time import text_of, unix_ns
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.loki import LokiServer
from konductor_like_sandbox.loki.limits import LokiLimits
from tests.cli.conftest import Cluster, Run
from tests.cli.kinds import kinds, recorded
from tests.cli.scenes import NOW, OUR_TAINT, SCENES, ago, incident
from tests.cli.test_docs import names

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "use" / "history.md"
REWRITE = bool(os.environ.get("KONDUCTOR_TEST_REWRITE"))
"""Read at import, because each test clears the settings."""
DAY = 86_400.0
OURS = {"k8s_namespace_name": "konductor-like", "k8s_pod_name": "konductor-like-0"}
LATER = {**OURS, "k8s_pod_name": "konductor-like-1"}
"""Another stream: one stream takes no line that is much older than its last."""
H100 = {"model": "NVIDIA-H100-80GB-HBM3", "driver": "570.172.08", "rack": "r2", "gpus": 8}
KIM = {"by": "kim@example.com", "reason": "riser swapped"}
FAULT = {"rule": "xid.79", "gpu": "0000:9b:00", "severity": "fatal"}


def line(days_ago: float, node: str | None, verb: str, **more: Any) -> tuple[int, str]:
    """A line of the trail, that many days before the command runs."""
    fields = {"audit": "v1", "node": node, "verb": verb, "outcome": "applied", "out_since": None, **more}
    return unix_ns(ago(days_ago * DAY)), json.dumps({"ts": "", "level": "info", "msg": "", **fields})


def since(days_ago: float) -> str:
    return text_of(ago(days_ago * DAY))


def month() -> list[tuple[int, str]]:
    """Four outages: one by now deleted node, one that a person tainted, and two of one GPU."""
    taint, reset = {"why": "GPUFaultTainted"}, {"why": "GPUFaultReleased", "how": "reset"}
    return [
        line(29.5, None, "resume", by="ann"),
        line(20, "gpu-40", "taint", out_since=since(20), **FAULT, **H100, **taint),
        line(19, "gpu-40", "delete", out_since=since(20), at=since(19), how="deleted", reason="xid 79"),
        line(9, "gpu-1", "taint", out_since=since(9), **FAULT, **H100, **taint),
        line(8, "gpu-1", "untaint", out_since=since(9), at=since(8), **FAULT, **H100, **reset, **KIM),
        line(5, "gpu-3", "taint", out_since=since(5), by="ann", rule="operator", severity="fatal", **H100),
        line(4.5, "gpu-3", "untaint", out_since=since(5), at=since(4.5), by="ann", rule="operator", **reset),
        line(3, None, "pause", by="ann", why="driver roll-out"),
        line(2, "gpu-2", "taint", outcome="refused", why="brake", **FAULT),
        line(0.25, "gpu-1", "taint", out_since=since(0.25), **FAULT, **H100, **taint),
    ]


def nodes() -> list[dict[str, Any]]:
    past = Quarantine(ago(9 * DAY), ago(8 * DAY), "xid.79", ReleaseHow.RESET, gpu="0000:9b:00")
    mark = Release(ago(8 * DAY), "kim@example.com", "riser swapped", ReleaseHow.RESET)
    life = Life(ago(0.25 * DAY), quarantines=(past,))
    out = recorded("gpu-1", incident(), life=life, tainted=True, releases=(mark,), gpus=8)
    return [out, recorded("gpu-2"), recorded("gpu-3")]


@pytest.fixture
def loki() -> Iterator[LokiServer]:
    limits = LokiLimits(reject_old_samples_max_age_seconds=30 * 86_400)
    with LokiServer(limits=limits, now_ns=lambda: unix_ns(NOW)) as server:
        server.push(OURS, month())
        yield server


@pytest.fixture
def site(cluster: Cluster, loki: LokiServer, monkeypatch: pytest.MonkeyPatch) -> KubernetesServer:
    monkeypatch.setitem(SCENES, "month", nodes)
    server = cluster("month")
    monkeypatch.setenv("LOG_ENDPOINT", loki.url)
    monkeypatch.setenv("KONDUCTOR_LOKI_LIMIT", "4")
    return server


@pytest.mark.usefixtures("site")
def test_the_example_on_the_page_is_what_is_printed(run: Run) -> None:
    page = PAGE.read_text("utf-8")
    example = page.split("## An example")[1]
    command, shown = re.findall(r"```(?:console|text)\n(.*?)```", example, re.DOTALL)[:2]

    done = run(*command.split()[2:])
    if REWRITE:
        PAGE.write_text(page.replace(shown, done.out), "utf-8")
        shown = done.out

    assert (done.code, done.err) == (0, "")
    assert done.out == shown


@pytest.mark.usefixtures("site")
def test_the_json_has_every_field_that_the_page_describes_and_no_other(run: Run) -> None:
    document = run("history", "-o", "json").document

    page = (DOCS / "reference" / "json.md").read_text("utf-8").split("\n## History\n")[1].split("\n## ")[0]
    assert {name for name in names(document) if f"`{name}`" not in page and f".{name}`" not in page} == set()
    told = [(each["node"], each["kind"], each["end"], each["how"]) for each in document["outages"]]
    assert told == [
        ("gpu-40", "failure", "ended", "deleted"),
        ("gpu-1", "failure", "ended", "reset"),
        ("gpu-3", "person", "ended", "reset"),
        ("gpu-1", "failure", "out", ""),
    ]
    numbers = document["numbers"]
    assert (numbers["outages"], numbers["outNow"], numbers["byPersons"]) == (3, 1, 1)
    assert numbers["gpuHours"] == 8 * numbers["hours"] == 8 * 24 * 2.25


@pytest.mark.usefixtures("site")
def test_the_timeline_tells_everything_in_the_order_of_time(run: Run) -> None:
    done = run("history", "--timeline", "--since", "4d")

    assert done.out.splitlines() == [
        f"{since(3)}   (fleet)   pause by ann (driver roll-out)",
        f"{since(2)}   gpu-2   not tainted: xid 79 on GPU 0000:9b:00 (brake)",
        f"{since(0.25)}   gpu-1   tainted: xid 79 on GPU 0000:9b:00",
    ]
    entries = run("history", "--timeline", "--since", "4d", "-o", "json").document["entries"]
    assert [each["verb"] for each in entries] == ["pause", "taint", "taint"]
    assert len(run("history", "--timeline", "gpu-1", "-o", "csv").out.splitlines()) == 1 + 3


@pytest.mark.usefixtures("site")
def test_an_act_that_two_controllers_logged_is_told_once(loki: LokiServer, run: Run) -> None:
    *_, act = [each for each in month() if "kim@example.com" in each[1]]
    loki.push(LATER, [(act[0] + 10**9, act[1])])

    assert run("history", "--timeline", "gpu-1").out.count("riser swapped") == 1
    assert run("history", "-o", "name").out == "node/gpu-40\nnode/gpu-1\nnode/gpu-3\n"


@pytest.mark.usefixtures("site")
def test_a_line_of_another_namespace_or_of_a_kernel_log_is_no_line_of_the_trail(
    loki: LokiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = line(1, "gpu-2", "taint", out_since=since(1), **FAULT)
    loki.push({"k8s_namespace_name": "default", "k8s_pod_name": "evil"}, [forged])
    loki.push({**LATER, "k8s_daemonset_name": "dmesg", "k8s_namespace_name": "dmesg-logging"}, [forged])
    kernel = '{k8s_daemonset_name="reader"}'  # a reader in the controller's namespace
    monkeypatch.setenv("KONDUCTOR_KERNEL_SELECTOR", kernel)
    loki.push({**LATER, "k8s_daemonset_name": "reader"}, [forged])

    assert "gpu-2" not in run("history").out


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    "text",
    [
        '{"audit": "v1", "node": "gpu-2"}',
        '{"audit": "v1", "node": 5, "verb": "taint", "outcome": "applied"}',
        '{"audit": "v1", "node": "gpu-2", "verb": "taint", "outcome": "applied", "out_since": "yesterday"}',
        'kmsg {"audit": "v1", "node": "gpu-2", "verb": "taint", "outcome": "applied"}',
        '["audit": "v1"',
        "[" * 100_000 + '"audit": "v1"',
    ],
)
def test_a_line_of_a_wrong_shape_is_no_outage(loki: LokiServer, run: Run, text: str) -> None:
    loki.push(LATER, [(unix_ns(ago(DAY)), text)])

    done = run("history")

    assert done.code == 0
    assert "gpu-2" not in done.out


@pytest.mark.usefixtures("site")
def test_words_of_a_spreadsheet_and_of_a_terminal_are_harmless(loki: LokiServer, run: Run) -> None:
    hostile = {
        "by": "=cmd|' /C calc'!A0",
        "reason": "\x1b[2J@SUM(1)",
        "how": "reset",
        "rule": "+xid",
        "gpu": "-1",
    }
    loki.push(LATER, [line(1, "gpu-2", "untaint", out_since=since(1.5), at=since(1), **hostile)])

    rows = list(csv.DictReader(io.StringIO(run("history", "-o", "csv").out)))
    assert not [cell for row in rows for cell in row.values() if cell[:1] in ("=", "+", "-", "@", "\t")]
    assert {row["rule"] for row in rows} >= {"'+xid"}
    shown = [run("history", *words).out for words in (("-o", "wide"), ("-o", "csv"), ("--timeline",))]
    assert "\x1b" not in "".join(shown)


@pytest.mark.usefixtures("site")
def test_without_loki_the_records_tell_what_they_know(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("KONDUCTOR_LOKI_RETRY_SECONDS", "1")

    done = run("history", "-o", "name")

    assert done.code == 3
    assert done.out == "node/gpu-1\n"
    assert "the audit trail cannot be read" in done.err


@pytest.mark.usefixtures("site")
def test_an_empty_loki_is_told(loki: LokiServer, run: Run) -> None:
    loki.forget(unix_ns(NOW))

    done = run("history")

    assert done.code == 0
    assert "Loki has no line of the audit trail of this time" in done.err
    assert "gpu-40" not in done.out


@pytest.mark.usefixtures("site")
def test_what_is_past_the_retention_is_known_from_records_alone(loki: LokiServer, run: Run) -> None:
    loki.forget(unix_ns(ago(6 * DAY)))

    done = run("history")

    assert f"the first line of the audit trail in this time is of {since(5)[:19]}" in done.err
    assert "1 outage known from the nodes' records alone: gpu-1" in done.err


@pytest.mark.usefixtures("site")
def test_a_difference_between_trail_and_record_is_told(loki: LokiServer, run: Run) -> None:
    other = line(8.5, "gpu-1", "untaint", out_since=since(9), at=since(8.5), how="reboot", **FAULT)
    loki.forget(unix_ns(ago(7 * DAY)))
    loki.push(LATER, [other])

    assert "trail and record tell different ends of 1 outage: gpu-1" in run("history").err


@pytest.mark.usefixtures("site")
def test_an_outage_without_an_end_of_a_node_in_service_has_an_unknown_end(loki: LokiServer, run: Run) -> None:
    loki.push(LATER, [line(1, "gpu-2", "taint", out_since=since(1), **FAULT)])

    done = run("history")

    assert "the end of 1 outage is not known: gpu-2" in done.err
    assert re.search(r"gpu-2 .*at least 0s .*end not known", done.out)


@pytest.mark.usefixtures("site")
def test_lines_of_an_earlier_build_are_counted(loki: LokiServer, run: Run) -> None:
    fields = {"audit": "v1", "node": "gpu-2", "verb": "taint", "outcome": "applied"}
    loki.push(LATER, [(unix_ns(ago(DAY)), json.dumps(fields))])

    assert "1 line of a controller of an earlier build were left out" in run("history").err


def test_without_a_cluster_the_trail_alone_is_told(
    loki: LokiServer, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("LOG_ENDPOINT", loki.url)
    monkeypatch.setattr(session, "now", lambda: NOW)

    done = run("history", "-o", "name")

    assert done.code == 3
    assert done.out == "node/gpu-40\nnode/gpu-1\nnode/gpu-3\n"
    assert "the Nodes cannot be read" in done.err


@pytest.mark.parametrize(
    ("typed", "days_ago"), [("12:00", 0.0), ("11:30", 0.5 / 24), ("12:01", 1 - 1 / 1440), ("0:00", 0.5)]
)
def test_a_time_of_day_is_the_latest_one_that_is_past(typed: str, days_ago: float) -> None:
    from konductor_like.cli.durations import typed_moment

    noon = NOW.replace(hour=12, minute=0, second=0, microsecond=0)
    assert typed_moment(typed, "--since", noon) == noon - timedelta(days=days_ago)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("typed", ["24:00", "12:60", "1:2", "12:00:00", "-1:00"])
def test_what_is_no_time_of_day_is_refused(run: Run, typed: str) -> None:
    done = run("history", f"--since={typed}")

    assert done.code == 2
    assert "is neither a span nor a time" in done.err


def test_the_history_of_nodes_of_every_odd_kind_is_printed_in_every_format(
    cluster: Cluster, loki: LokiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCENES, "every kind", lambda: [each.node for each in kinds().values()])
    cluster("every kind")
    monkeypatch.setenv("LOG_ENDPOINT", loki.url)
    shown = {each: run("history", "-o", each) for each in ("table", "wide", "csv", "name", "json", "yaml")}

    assert {done.code for done in shown.values()} == {0}
    assert yaml.safe_load(shown["yaml"].out) == shown["json"].document
    assert not re.search(r"\b(None|NaN)\b|<[a-z_.]+ object", shown["table"].out + shown["wide"].out)
    out = {each["node"] for each in shown["json"].document["outages"] if each["end"] == "out"}
    tainted = {name for name, kind in kinds().items() if kind.state == "faulty"}
    assert tainted - out == {"unexplained"}  # no record says since when; a controller would claim the taint


@pytest.mark.usefixtures("site")
def test_a_timeline_has_no_format_of_names(run: Run) -> None:
    assert run("history", "--timeline", "-o", "name").code == 2


@pytest.mark.usefixtures("site")
def test_a_name_that_neither_a_node_nor_an_outage_has_is_told(run: Run) -> None:
    done = run("history", "gpu-1", "gpu-40", "gpu-11")

    assert done.code == 3
    assert "node/gpu-11 not found, and no outage of it" in done.err
    assert run("history", "gpu-11").code == 1
    assert run("history", "gpu-40").code == 0


@pytest.mark.usefixtures("site")
def test_a_span_of_the_past_tells_what_was_out_at_its_end(run: Run) -> None:
    assert "1 of 3 GPU nodes out of service at the end" in run("history", "--until", "8d12h").out
    assert "0 of 3 GPU nodes out of service at the end" in run("history", "--until", "7d").out


@pytest.mark.usefixtures("site")
def test_each_outage_has_its_hours(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("history", "-o", "csv").out)))

    assert [row["hours"] for row in rows] == ["24.0", "24.0", "12.0", "6.0"]


@pytest.mark.usefixtures("site")
def test_an_act_of_before_the_span_that_is_told_again_is_not_in_the_timeline(
    loki: LokiServer, run: Run
) -> None:
    again = {"out_since": None, "at": since(8), "by": "kim@example.com", "why": "GPUFaultReleased"}
    loki.push(LATER, [line(1, "gpu-1", "record", **again)])

    assert "kim" not in run("history", "--timeline", "--since", "2d").out


MOVED = {"uuid": "GPU-509665ad-b600-ac93-3616-d754b23d636d", "serial": "1650124014249"}
STAYED = {"uuid": "GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b"}


@pytest.fixture
def moved(loki: LokiServer) -> None:
    """Let one GPU fail on gpu-50 and, in another place, on gpu-51; its place on gpu-50 fails with another."""
    taint = {"why": "GPUFaultTainted", **FAULT}
    lines = [
        line(7, "gpu-50", "taint", out_since=since(7), **taint, **MOVED),
        line(6, "gpu-50", "untaint", out_since=since(7), at=since(6), how="reset", **FAULT, **STAYED),
        line(3, "gpu-51", "taint", out_since=since(3), **{**taint, "gpu": "0000:1b:00"}, **MOVED),
        line(2, "gpu-50", "taint", out_since=since(2), **taint, **STAYED),
    ]
    loki.push(LATER, lines)


@pytest.mark.usefixtures("site", "moved")
@pytest.mark.parametrize("name", ["GPU-509665ad", MOVED["uuid"].upper(), MOVED["serial"]])
def test_one_gpu_is_followed_from_node_to_node(run: Run, name: str) -> None:
    done = run("history", "--gpu", name, "-o", "json")

    assert done.code == 0
    told = [(each["node"], each["gpu"], each["uuid"], each["serial"]) for each in done.document["outages"]]
    assert told == [("gpu-50", "0000:9b:00", *MOVED.values()), ("gpu-51", "0000:1b:00", *MOVED.values())]
    assert done.document["numbers"]["availability"] is None  # of one GPU, nobody knows it


@pytest.mark.usefixtures("site", "moved")
@pytest.mark.parametrize("name", ["165012401424", "GPU-00000000", "0000"])
def test_a_gpu_that_never_failed_has_no_outage(run: Run, name: str) -> None:
    done = run("history", "--gpu", name, "-o", "name")

    assert (done.code, done.out) == (0, "")


@pytest.mark.parametrize("name", ["GPU-", "GPU-509", "0000:9b:00", "MIG-509665ad"])
def test_what_is_no_name_of_a_gpu_is_refused(run: Run, name: str) -> None:
    done = run("history", "--gpu", name)

    assert done.code == 2
    assert "--gpu must be a GPU's UUID" in done.err


@pytest.mark.usefixtures("site", "moved")
def test_every_format_names_the_gpu(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("history", "gpu-50", "-o", "csv").out)))
    lines = list(csv.DictReader(io.StringIO(run("history", "gpu-50", "--timeline", "-o", "csv").out)))

    assert [(row["uuid"], row["serial"]) for row in rows] == [(*MOVED.values(),), (STAYED["uuid"], "")]
    assert (lines[0]["uuid"], lines[0]["serial"]) == (*MOVED.values(),)
    assert all(value in run("history", "gpu-50", "-o", "wide").out for value in MOVED.values())


@pytest.mark.usefixtures("site")
def test_a_timeline_of_one_gpu_is_refused(run: Run) -> None:
    assert "--timeline and --gpu do not go together" in run("history", "--timeline", "--gpu", "1").err


def test_a_node_whose_record_somebody_removed_is_still_out(
    cluster: Cluster, loki: LokiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare, other = recorded("gpu-1"), recorded("gpu-2")
    for node in (bare, other):
        node["spec"]["taints"] = [dict(OUR_TAINT)]
    monkeypatch.setitem(SCENES, "month", lambda: [bare, other])
    cluster("month")
    monkeypatch.setenv("LOG_ENDPOINT", loki.url)

    done = run("history", "-o", "json")

    assert [each["end"] for each in done.document["outages"] if each["node"] == "gpu-1"] == ["ended", "out"]
    assert "nothing tells since when 1 node had the taint: gpu-2" in done.err
