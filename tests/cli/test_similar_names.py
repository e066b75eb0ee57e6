"""Commands suggest the name that a person may have meant, and act on none."""

from __future__ import annotations

import pytest

from konductor_like.cli.similar_names import did_you_mean, similar
from tests.cli.conftest import Cluster, Run

AWS = "ip-10-31-0-4.eu-north-1.compute.internal"
NODES = ["gpu-1", "gpu-2", "gpu-18", "worker-a3-07", "GPU-Big-9", AWS, AWS.replace("-0-4", "-0-5")]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ip-10-31-0-4", [AWS]),
        ("IP-10-31-0-4.EU-north-1.compute.internal", [AWS]),
        ("gpu-big-9", ["GPU-Big-9"]),
        ("gpu-18.cluster.local", ["gpu-18"]),
        ("node/gpu-18", ["gpu-18"]),
        ("gpu18", ["gpu-18"]),
        ("gpu-018", ["gpu-18"]),
        ("gpu-81", ["gpu-18"]),
        ("worker-a3-70", ["worker-a3-07"]),
        ("gup-18", ["gpu-18"]),
        ("wroker-a3-7", []),
        ("wroker-a3-07", ["worker-a3-07"]),
    ],
)
def test_a_name_in_another_case_without_its_domain_or_with_a_slip_is_meant(
    typed: str, meant: list[str]
) -> None:
    assert similar(typed, NODES) == meant


@pytest.mark.parametrize("typed", ["gpu-19", "gpu-28", "ip-10-31-0-6", "g-1", "storage-18", "", "."])
def test_another_number_or_another_word_is_another_node(typed: str) -> None:
    assert similar(typed, NODES) == []


def test_suggestions_are_few() -> None:
    assert did_you_mean(["gpu-7"], [f"gpu-7.rack{n}" for n in range(9)]) == (
        "did you mean gpu-7.rack0 or gpu-7.rack1 or gpu-7.rack2?"
    )
    assert did_you_mean(["gpu-77"], NODES) == ""


def test_every_command_that_takes_a_node_suggests_it_and_writes_nothing(cluster: Cluster, run: Run) -> None:
    server = cluster("10 nodes")
    writes = (f"{verb} --reason=x" for verb in ("reset", "taint"))

    for command in ("status", "explain", "explain node", "test", *writes):
        done = run(*command.split(), "ip-10-31-0-4")
        assert done.code in (1, 2), command
        assert f"hint: did you mean {AWS}?" in done.err, command
    assert not server.calls("patch", "nodes")


def test_without_the_right_to_list_nodes_kubectl_is_the_hint(cluster: Cluster, run: Run) -> None:
    cluster("healthy").access.deny("list", "nodes", "*")

    assert "hint: kubectl get nodes" in run("reset", "gpu1", "--reason", "x").err
