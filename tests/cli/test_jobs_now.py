"""The jobs that run on broken nodes now, in ``status -o wide`` and in its document."""

from __future__ import annotations

import pytest

from konductor_like.cli.status import jobs_now
from konductor_like.cluster.api.errors import KubeForbidden
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import faulty, held
from tests.cli.test_status_counts import report


def answering(asked: list[str], monkeypatch: pytest.MonkeyPatch, refusal: Exception | None = None) -> None:
    """Let each node have one job, and note which nodes are asked; or refuse."""

    def answer(_: object, node: str) -> tuple[str, ...]:
        if refusal:
            raise refusal
        asked.append(node)
        return (f"ml/Job/{node}",)

    monkeypatch.setattr(jobs_now, "jobs_now", answer)


def test_only_broken_nodes_are_asked_the_worst_first_and_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(jobs_now, "NODES_ASKED", 2)
    answering(asked, monkeypatch)
    found = report([make_node("gpu-1"), held("gpu-2"), faulty("gpu-3"), held("gpu-4")])

    told = jobs_now.with_jobs(found, None, frozenset())  # type: ignore[arg-type]  # nothing asks it

    assert asked == ["gpu-3", "gpu-2"]
    assert [node.jobs for node in told.nodes] == [("ml/Job/gpu-3",), ("ml/Job/gpu-2",), None, None]
    assert told.jobs_problem == "jobs shown for the first 2 of 3 nodes only"


@pytest.mark.parametrize(
    ("nodes", "refusal", "problem"),
    [(2, None, ""), (3, KubeForbidden("no"), "jobs not shown: no")],
    ids=["as many as are asked", "more, and a refusal"],
)
def test_the_bound_is_told_only_if_it_left_out_a_node(
    monkeypatch: pytest.MonkeyPatch, nodes: int, refusal: Exception | None, problem: str
) -> None:
    monkeypatch.setattr(jobs_now, "NODES_ASKED", 2)
    answering([], monkeypatch, refusal)
    found = report([faulty(f"gpu-{each}") for each in range(nodes)])

    told = jobs_now.with_jobs(found, None, frozenset())  # type: ignore[arg-type]  # nothing asks it

    assert told.jobs_problem == problem


def test_nodes_in_other_states_than_asked_for_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answering(asked, monkeypatch)

    jobs_now.with_jobs(report([faulty("gpu-1"), held("gpu-2")]), None, {"held"})  # type: ignore[arg-type]  # nothing asks it

    assert asked == ["gpu-2"]


def test_without_the_right_to_list_pods_one_message_says_so_and_the_nodes_are_shown(
    cluster: Cluster, run: Run
) -> None:
    server = cluster("brake full")
    server.access.deny("list", "pods", "*")

    done = run("status", "-o", "wide")

    assert done.err.count("jobs not shown: ") == 1
    assert len(server.calls("list", "pods")) == 1
    assert "gpu-1   faulty" in done.out
    assert run("status", "-o", "json").document["jobsNowProblem"].startswith("jobs not shown: ")
    assert run("status").err == ""
