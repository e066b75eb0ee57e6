"""``status`` beyond its transcripts: it only reads, and it does not take silence for health."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from konductor_like.cli import session
from konductor_like.cluster.checkpoint import (
    COVERAGE_ANNOTATION,
    CURSOR_ANNOTATION,
    encode_checkpoint,
    encode_coverage,
)
from konductor_like.model import Checkpoint, Coverage, Source
from konductor_like.model.time import unix_ns
from konductor_like.sandbox.kubernetes import matching, refusal
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import NOW, ago, note_on_the_lease

JSON = ("status", "-o", "json")


def states(run: Run) -> list[str]:
    """The nodes' states as ``-o json`` has them."""
    done = run(*JSON)
    assert done.code == 0
    return [node["state"] for node in done.document["nodes"]]


def heard_but_read_up_to(folder: Path, kernel: datetime, pod: datetime = NOW) -> None:
    """Heartbeats of all nodes were heard a moment ago; faults were read up to here."""
    read_ns = {Source.KERNEL: unix_ns(kernel), Source.POD: unix_ns(pod)}
    heard = Coverage(ago(20), listed_are_measured=False, read_ns=read_ns)
    note_on_the_lease(folder, COVERAGE_ANNOTATION, encode_coverage(heard))


def acted_upon_up_to_an_hour_ago(folder: Path) -> None:
    cursor = Checkpoint({Source.KERNEL: unix_ns(ago(3600))}, 0)
    note_on_the_lease(folder, CURSOR_ANNOTATION, encode_checkpoint(cursor))


def test_it_only_reads(cluster: Cluster, run: Run) -> None:
    server = cluster("every state")
    run("status")

    assert {call.verb for call in server.calls()} == {"list", "get"}


def test_hours_after_the_controller_died_nobody_is_called_healthy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    cluster("healthy")
    assert set(states(run)) == {"healthy"}

    monkeypatch.setattr(session, "now", lambda: NOW + timedelta(hours=3))

    assert set(states(run)) == {"unknown"}
    assert run(*JSON).document["controller"]["running"] is False
    assert "the kernel logs have not been read since 2026-05-06T11:59:40Z" in run("status").err


def test_a_kernel_log_that_is_not_read_makes_nobody_healthy_whatever_heartbeats_are_heard(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("one faulty")
    heard_but_read_up_to(tmp_path, ago(400))

    shown = run("status", "gpu-2", "--exit-code")

    assert shown.code == 5
    assert shown.out.startswith("Unread:      kernel logs since 2026-05-06T11:53:20Z (6m40s ago): every node")
    assert "kernel logs read up to 6m40s ago" in shown.out
    assert "0 of 2 kernel logs heard" in shown.out
    assert shown.err.startswith("warning: the kernel logs have not been read since 2026-05-06T11:53:20Z")
    assert run("status", "--exit-code").code == 1  # a faulty node stays faulty
    assert states(run) == ["faulty", "unknown"]
    assert run(*JSON).document["controller"]["unreadSince"] == {"kernel": "2026-05-06T11:53:20Z"}
    assert run("status").code == 0


def test_an_older_controllers_cursor_counts_where_it_says_no_more(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("healthy")
    acted_upon_up_to_an_hour_ago(tmp_path)

    assert set(states(run)) == {"unknown"}


def test_what_waits_to_be_acted_upon_was_read_and_pod_logs_leave_the_nodes_as_they_are(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    """A fault of a node that the cluster does not know, or a write that fails, holds the cursor."""
    cluster("healthy")
    acted_upon_up_to_an_hour_ago(tmp_path)
    heard_but_read_up_to(tmp_path, ago(5), pod=ago(900))

    shown = run("status", "--exit-code")

    assert shown.code == 0
    assert "kernel logs read up to 5s ago and acted upon up to 60m ago" in shown.out
    assert shown.out.startswith("Unread:      pod logs since 2026-05-06T11:45:00Z (15m ago)")


def test_the_exit_status_says_that_a_node_is_unknown_or_that_nothing_tells_of_any(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("every state")
    assert run("status", "gpu-4", "--exit-code").code == 0
    assert run("status", "gpu-11", "--exit-code").code == 5
    assert run("status", "gpu-11").code == 0
    assert run("status", "gpu-11", "gpu-99", "--exit-code").code == 3

    monkeypatch.setenv("KONDUCTOR_LEASE_NAME", "another")

    assert run("status", "gpu-4", "--exit-code").code == 5
    assert run(*JSON).document["controller"]["lease"] == "konductor-like/another"


def test_a_mangled_cursor_is_told_and_costs_nothing_else(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    cluster("healthy")
    note_on_the_lease(tmp_path, CURSOR_ANNOTATION, "oops")
    controller = run(*JSON).document["controller"]

    assert controller["running"] is True
    assert "annotation trainy.konduktor.ai/cursor" in controller["problem"]


@pytest.mark.parametrize(("code", "said"), [(401, "Unauthorized"), (500, "etcdserver"), (410, "too old")])
def test_what_the_server_refuses_is_said_in_its_words(
    code: int, said: str, cluster: Cluster, run: Run
) -> None:
    server = cluster("healthy")
    server.mishaps.add(refusal(code), times=None, when=matching("GET", "/api/v1/nodes"))

    done = run("status")

    assert done.code == 1
    assert done.err.startswith("error: cannot list nodes: ")
    assert said in done.err
