"""The shell completes the names of rules and nodes, and is never kept waiting or written to."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from konductor_like.catalog import load_catalog
from konductor_like.cli import completion, kubectl_complete
from konductor_like.cli.completion import complete_nodes, complete_rules, complete_rules_or_nodes
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeTimeout
from tests.cli.conftest import Cluster

TITLE = load_catalog().xid(79).title


def typed(**params: Any) -> typer.Context:
    """Return the part of a command line that was typed already."""
    return SimpleNamespace(params=params)  # type: ignore[return-value]  # it has all that is read


def completed(incomplete: str, **params: Any) -> list[str]:
    return list(complete_nodes(typed(**params), incomplete))


def test_a_rule_is_completed_with_its_title() -> None:
    assert dict(complete_rules("XID.7"))["xid.79"] == TITLE
    assert [name for name, _ in complete_rules("nccl.s")] == ["nccl.socket", "nccl.system_error"]
    assert list(complete_rules("gpu-")) == []


def test_a_node_is_completed_from_the_cluster_unless_it_was_typed_before(cluster: Cluster) -> None:
    cluster("every state")

    found = completed("gpu-", nodes=["gpu-1"])

    assert "gpu-2" in found
    assert "gpu-1" not in found
    assert completed("cpu-none") == []


def test_the_cluster_is_only_asked_where_no_rule_begins_like_this(cluster: Cluster) -> None:
    server = cluster("every state")

    assert ("xid.79", TITLE) in complete_rules_or_nodes(typed(), "xid.7")
    assert server.calls() == []
    assert "gpu-2" in complete_rules_or_nodes(typed(), "gpu-")
    assert "gpu-2" in complete_rules_or_nodes(typed(), "")


@pytest.mark.parametrize("problem", ["forbidden", "no kubeconfig", "no such context"])
def test_an_error_completes_nothing_and_prints_nothing(
    problem: str, cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = cluster("every state")
    server.access.deny("list", "nodes")
    params = {
        "forbidden": {},
        "no kubeconfig": {"kubeconfig": str(tmp_path / "nowhere")},
        "no such context": {"context": "nowhere"},
    }[problem]

    assert completed("gpu-", **params) == []
    assert tuple(capfd.readouterr()) == ("", "")


def test_a_cluster_that_does_not_answer_in_time_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def connect(*_: object) -> ReadOnlyKubeClient:
        answered.wait()
        raise KubeTimeout("no answer")

    monkeypatch.setattr(completion, "NODES_SECONDS", 0.01)
    monkeypatch.setattr(ReadOnlyKubeClient, "connect", connect)

    assert completed("gpu-") == []
    answered.set()


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["st"], ["status"]),
        (["rules", "show", "nccl.s"], ["nccl.socket", "nccl.system_error"]),
        (["pause", "--reason", "two words", "--un"], ["--until"]),
        (["reset", "gpu-1", "gpu-"], ["gpu-2"]),
        (["status", ""], ["gpu-1", "gpu-2"]),
    ],
    ids=" ".join,
)
def test_kubectl_completes_the_plugin(
    words: list[str],
    completed: list[str],
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster("healthy")
    monkeypatch.setattr("sys.argv", ["kubectl_complete-konductor_like", *words])
    for name in ("_KONDUCTOR_LIKE_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")  # restores them

    assert kubectl_complete() == 0
    assert capsys.readouterr().out.splitlines() == [*completed, ":4"]


def test_a_reader_of_completions_that_ends_early_gets_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with ``| head -1``: what is left in the buffer is lost quietly."""
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr("sys.argv", ["kubectl_complete-konductor_like", "explain", "xid.7"])
    for name in ("_KONDUCTOR_LIKE_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert kubectl_complete() == 0
        stream.flush()
