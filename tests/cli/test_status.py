"""``status`` beyond its transcripts: it only reads, and a silent node is not healthy."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from konductor_like.cli import session
from konductor_like.cluster.lease.checkpoint import (
    COVERAGE_ANNOTATION,
    CURSOR_ANNOTATION,
    encode_checkpoint,
    encode_coverage,
)
from konductor_like.model import Checkpoint, Coverage, Source
from konductor_like.model.time import unix_ns
from konductor_like_sandbox.kubernetes import matching, refusal
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import NOW, ago, note_on_the_lease

JSON = ("status", "-o", "json")


def states(run: Run) -> list[str]:
    """Return the nodes' states from ``-o json``."""
    done = run(*JSON)
    assert done.code == 0
    return [node["state"] for node in done.document["nodes"]]


def heard_but_read_up_to(folder: Path, kernel: datetime, pod: datetime = NOW) -> None:
    """Publish that all nodes' heartbeats were just heard, and that faults were read up to this time."""
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


def test_hours_after_the_controller_died_no_node_is_called_healthy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    cluster("healthy")
    assert set(states(run)) == {"healthy"}

    monkeypatch.setattr(session, "now", lambda: NOW + timedelta(hours=3))

    assert set(states(run)) == {"unknown"}
    assert run(*JSON).document["controller"]["running"] is False
    assert "the kernel logs have not been read since 2026-05-06T11:59:40Z" in run("status").err


def test_while_kernel_logs_are_not_read_no_node_is_healthy_whatever_heartbeats_are_heard(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("one faulty")
    heard_but_read_up_to(tmp_path, ago(400))

    shown = run("status", "gpu-2", "--exit-code")

    assert shown.code == 5
    assert "\nUnread:      kernel logs since 2026-05-06T11:53:20Z (6m40s ago): every node" in shown.out
    assert "kernel logs read up to 6m40s ago" in shown.out
    assert "Coverage:    not known: the controller has not read the kernel logs since 2026" in shown.out
    assert shown.err.startswith("warning: the kernel logs have not been read since 2026-05-06T11:53:20Z")
    assert run("status", "--exit-code").code == 4  # a faulty node stays faulty
    assert states(run) == ["faulty", "unknown"]
    assert run(*JSON).document["controller"]["unreadSince"] == {"kernel": "2026-05-06T11:53:20Z"}
    assert run("status").code == 0
    assert run("status").out.count("\n  unknown: check that the controller runs; its log and /readyz") == 1
    assert "unknown" not in run("status", "--state", "faulty").out.partition("To do:")[2]


def test_without_published_read_times_the_cursor_of_an_older_controller_counts(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("healthy")
    acted_upon_up_to_an_hour_ago(tmp_path)

    assert set(states(run)) == {"unknown"}


def test_lines_not_acted_upon_yet_count_as_read_and_pod_logs_change_no_node(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    """The cursor waits for a fault of an unknown node, and for a write that fails."""
    cluster("healthy")
    acted_upon_up_to_an_hour_ago(tmp_path)
    heard_but_read_up_to(tmp_path, ago(5), pod=ago(900))

    shown = run("status", "--exit-code")

    assert shown.code == 0
    assert "kernel logs read up to 5s ago and acted upon up to 60m ago" in shown.out
    assert "\nUnread:      pod logs since 2026-05-06T11:45:00Z (15m ago)" in shown.out


def test_the_exit_status_shows_that_one_node_or_all_nodes_are_unknown(
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


def test_the_exit_status_of_a_held_node_is_that_of_a_faulty_one(cluster: Cluster, run: Run) -> None:
    cluster("brake full")

    assert run("status", "gpu-2", "--exit-code").code == 4
    assert run("status", "--state", "held", "--exit-code").code == 4


def test_the_exit_status_shows_at_once_that_the_controller_does_not_run(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("one faulty")
    monkeypatch.setattr(session, "now", lambda: NOW + timedelta(seconds=27))
    said = "the controller does not run; kernel logs were read up to 2026-05-06T11:59:51Z"

    shown = run("status", "gpu-2", "--exit-code")

    assert shown.code == 5
    assert shown.err == f"warning: {said}\n"
    assert shown.out.startswith("1 of 2 GPU nodes: 1 healthy\n")
    assert run("status", "--exit-code").code == 4
    assert f"Warning:      {said}\n" in run("explain", "node", "gpu-2").out


@pytest.mark.parametrize("scene_and_words", ["healthy -l foo=bar", "no GPUs", "no GPUs cpu-1"], ids=str)
def test_the_exit_status_shows_that_no_node_was_found(
    scene_and_words: str, cluster: Cluster, run: Run
) -> None:
    scene = "healthy" if scene_and_words.startswith("healthy") else "no GPUs"
    cluster(scene)

    assert run("status", "--exit-code", *scene_and_words.removeprefix(scene).split()).code == 5


@pytest.mark.parametrize("command", [("status",), ("reset", "--yes", "--dry-run")], ids=" ".join)
def test_a_selector_that_the_server_refuses_is_wrong_use(
    command: tuple[str, ...], cluster: Cluster, run: Run
) -> None:
    cluster("healthy")

    done = run(*command, "-l", "foo in (")

    assert done.code == 2
    assert done.err.startswith("error: the selector 'foo in (' is not valid: ")


def test_a_mangled_cursor_is_reported_and_has_no_other_effect(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("healthy")
    note_on_the_lease(tmp_path, CURSOR_ANNOTATION, "oops")
    controller = run(*JSON).document["controller"]

    assert controller["running"] is True
    assert "annotation trainy.konduktor.ai/cursor" in controller["problem"]


@pytest.mark.parametrize(("code", "said"), [(401, "Unauthorized"), (500, "etcdserver"), (410, "too old")])
def test_a_refusal_is_reported_in_the_servers_words(code: int, said: str, cluster: Cluster, run: Run) -> None:
    server = cluster("healthy")
    server.mishaps.add(refusal(code), times=None, when=matching("GET", "/api/v1/nodes"))

    done = run("status")

    assert done.code == 1
    assert done.err.startswith("error: cannot list nodes: ")
    assert said in done.err
