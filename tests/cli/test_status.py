"""``status`` beyond its transcripts: it only reads, and it does not take silence for health."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cli import session
from konductor_like.cli.app import execute
from konductor_like.cluster.checkpoint import (
    COVERAGE_ANNOTATION,
    CURSOR_ANNOTATION,
    encode_checkpoint,
    encode_coverage,
)
from konductor_like.model import Checkpoint, Coverage, Source
from konductor_like.model.time import unix_ns
from konductor_like.sandbox.kubernetes import KubernetesServer, matching, refusal
from tests.cli.scenes import NOW, ago, note_on_the_lease

Cluster = Callable[[str], KubernetesServer]


def status(*arguments: str) -> int:
    """Run the command; its exit status."""
    return execute(["status", *arguments], "konductor-like")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What ``-o json`` says."""
    assert status("-o", "json", *arguments) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_it_only_reads(cluster: Cluster) -> None:
    server = cluster("every state")
    status()

    assert {call.verb for call in server.calls()} == {"list", "get"}


def test_hours_after_the_controller_died_nobody_is_called_healthy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster("healthy")
    assert {node["state"] for node in document(capsys)["nodes"]} == {"healthy"}

    monkeypatch.setattr(session, "now", lambda: NOW + timedelta(hours=3))
    later = document(capsys)
    assert {node["state"] for node in later["nodes"]} == {"unknown"}
    assert later["controller"]["running"] is False

    status()
    assert "the kernel logs have not been read since 2026-05-06T11:59:40Z" in capsys.readouterr().err


def heard_but_read_up_to(folder: Path, kernel: datetime, pod: datetime = NOW) -> None:
    """Heartbeats of all nodes were heard a moment ago; faults were read up to here."""
    heard = Coverage(
        ago(20),
        listed_are_measured=False,
        read_ns={Source.KERNEL: unix_ns(kernel), Source.POD: unix_ns(pod)},
    )
    note_on_the_lease(folder, COVERAGE_ANNOTATION, encode_coverage(heard))


def test_a_kernel_log_that_is_not_read_makes_nobody_healthy_whatever_heartbeats_are_heard(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("one faulty")
    heard_but_read_up_to(tmp_path, ago(400))

    assert status("gpu-2", "--exit-code") == 5
    shown = capsys.readouterr()
    assert shown.out.startswith("Unread:      kernel logs since 2026-05-06T11:53:20Z (6m40s ago): every node")
    assert "kernel logs read up to 6m40s ago" in shown.out
    assert "0 of 2 kernel logs heard" in shown.out
    assert "gpu-2   unknown" in shown.out
    assert shown.err.startswith("warning: the kernel logs have not been read since 2026-05-06T11:53:20Z")

    assert status("--exit-code") == 1  # a faulty node stays faulty
    capsys.readouterr()
    found = document(capsys)
    assert [node["state"] for node in found["nodes"]] == ["faulty", "unknown"]
    assert found["controller"]["unreadSince"] == {"kernel": "2026-05-06T11:53:20Z"}
    assert status() == 0


def test_explain_says_that_a_nodes_kernel_log_is_not_read(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("healthy")
    heard_but_read_up_to(tmp_path, ago(400))

    assert execute(["explain", "node", "gpu-2"], "konductor-like") == 0

    lines = capsys.readouterr().out.splitlines()
    assert "Node:         gpu-2 is unknown" in lines
    assert "Decided:      nothing: nothing is recorded against it up to 2026-05-06T11:53:20Z" in lines
    assert (
        "Coverage:     UNKNOWN: its kernel log has not been read since 2026-05-06T11:53:20Z (6m40s ago), so "
        "silence means nothing"
    ) in lines


def test_a_log_that_was_read_within_the_stale_span_vouches_for_the_nodes(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("healthy")
    heard_but_read_up_to(tmp_path, ago(299))

    assert status("--exit-code") == 0
    shown = capsys.readouterr()
    assert "Unread" not in shown.out
    assert shown.err == ""
    assert {node["state"] for node in document(capsys)["nodes"]} == {"healthy"}


def test_an_older_controllers_cursor_counts_where_it_says_no_more(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("healthy")
    cursor = Checkpoint({Source.KERNEL: unix_ns(ago(3600))}, 0)
    note_on_the_lease(tmp_path, CURSOR_ANNOTATION, encode_checkpoint(cursor))

    assert {node["state"] for node in document(capsys)["nodes"]} == {"unknown"}


def test_what_waits_to_be_acted_upon_was_read(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A fault of a node that the cluster does not know, or a write that fails, holds the cursor."""
    cluster("healthy")
    heard_but_read_up_to(tmp_path, ago(5))
    cursor = Checkpoint({Source.KERNEL: unix_ns(ago(3600))}, 0)
    note_on_the_lease(tmp_path, CURSOR_ANNOTATION, encode_checkpoint(cursor))

    assert status("--exit-code") == 0
    assert "kernel logs read up to 5s ago and acted upon up to 60m ago" in capsys.readouterr().out


def test_pod_logs_that_are_not_read_are_told_and_leave_the_nodes_as_they_are(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("healthy")
    heard_but_read_up_to(tmp_path, ago(5), pod=ago(900))

    assert status("--exit-code") == 0
    assert capsys.readouterr().out.startswith("Unread:      pod logs since 2026-05-06T11:45:00Z (15m ago)")


def test_where_nothing_tells_that_logs_are_read_the_exit_status_says_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("healthy")
    assert status("--exit-code") == 0
    monkeypatch.setenv("KONDUCTOR_LEASE_NAME", "another")

    assert status("--exit-code") == 5
    assert "warning: no controller has said yet which kernel logs arrive" in capsys.readouterr().err


def test_a_node_whose_heartbeat_stopped_is_unknown_to_the_exit_status(cluster: Cluster) -> None:
    cluster("every state")

    assert status("gpu-11", "--exit-code") == 5
    assert status("gpu-11") == 0
    assert status("gpu-11", "gpu-99", "--exit-code") == 3


def test_a_mangled_cursor_is_told_and_costs_nothing_else(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("healthy")
    note_on_the_lease(tmp_path, CURSOR_ANNOTATION, "oops")
    controller = document(capsys)["controller"]

    assert controller["running"] is True
    assert "annotation trainy.konduktor.ai/cursor" in controller["problem"]


def test_the_leases_place_follows_the_settings(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster("healthy")
    monkeypatch.setenv("KONDUCTOR_LEASE_NAME", "another")

    assert document(capsys)["controller"]["lease"] == "konductor-like/another"


def test_nodes_come_page_by_page(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    server = cluster("healthy")
    template = server.node("gpu-1")
    for number in range(3, 520):
        node = json.loads(json.dumps(template))
        node["metadata"].update(name=f"gpu-{number}")
        node["metadata"].pop("uid")
        server.put_node(node)

    assert len(document(capsys)["nodes"]) == 519


@pytest.mark.parametrize(
    ("code", "said"),
    [(401, "Unauthorized"), (403, "forbidden by the test"), (500, "etcdserver"), (410, "too old")],
)
def test_what_the_server_refuses_is_said_in_its_words_with_a_way_out(
    code: int, said: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster("healthy")
    server.mishaps.add(refusal(code), times=None, when=matching("GET", "/api/v1/nodes"))

    assert status() == 1
    error = capsys.readouterr().err
    assert error.startswith("error: cannot list nodes: ")
    assert said in error
    assert "Traceback" not in error


def test_a_server_that_is_not_there_is_one_clear_message(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster("healthy").stop()

    assert status() == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "hint: " in error
