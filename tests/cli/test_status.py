"""``status`` beyond its transcripts: it only reads, and it does not take silence for health."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cli import clock
from konductor_like.cli.app import execute
from konductor_like.cluster import paths
from konductor_like.cluster.checkpoint import CURSOR_ANNOTATION
from konductor_like.cluster.client import KubeClient
from konductor_like.sandbox.kubernetes import KubernetesServer, matching, refusal
from tests.cli.scenes import NOW

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

    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(hours=3))
    later = document(capsys)
    assert {node["state"] for node in later["nodes"]} == {"unknown"}
    assert later["controller"]["running"] is False

    status()
    assert "no controller has looked at the kernel logs for 3h" in capsys.readouterr().err


def test_a_mangled_cursor_is_told_and_costs_nothing_else(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("healthy")
    with closing(KubeClient.connect(str(tmp_path / "kubeconfig"), None, 10)) as client:
        client.patch(
            paths.lease("konductor-like", "konductor-like"),
            {"metadata": {"annotations": {CURSOR_ANNOTATION: "oops"}}},
            "application/merge-patch+json",
        )
    controller = document(capsys)["controller"]

    assert controller["running"] is True
    assert "annotation trainy.konduktor.ai/cursor" in controller["problem"]


def test_the_brakes_bound_follows_the_settings(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster("every state")
    assert document(capsys)["brake"]["bound"] == 2

    monkeypatch.setenv("KONDUCTOR_BRAKE_MAX_PERCENT", "50")
    assert document(capsys)["brake"]["bound"] == 6


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
