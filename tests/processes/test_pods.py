"""The jobs of kernel lines, known from the API server, in the real controller."""

from __future__ import annotations

import pytest

from konductor_like.demo.stage import Stage
from konductor_like.demo.story import XID_79
from tests.processes.waiting import says, until

pytestmark = pytest.mark.processes

XID_43 = "NVRM: Xid (PCI:0000:4e:00): 43, pid=4711, name=python3, Ch 00000008"
JOB = "default/PyTorchJob/llama"


def runs(stage: Stage, node: str, pod: str, job: str) -> None:
    """A pod of a PyTorchJob has the node's GPUs."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    labels = {"training.kubeflow.org/job-name": job}
    stage.cluster.put_pod(
        {
            "metadata": {"namespace": "default", "name": pod, "labels": labels},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Running"},
        }
    )


def events_of(stage: Stage, node: str) -> set[str]:
    """What the node's record says that it was part of."""
    return {
        incident["failure_group"]
        for incident in stage.node(node).record["incidents"]
        if "failure_group" in incident
    }


def test_kernel_lines_of_one_job_are_one_event_with_the_dead_gpu_as_its_origin() -> None:
    """A GPU is lost under a job on three nodes, and no pod's log is read."""
    with Stage(gpu_nodes=5) as stage:
        names = list(stage.gpu_nodes[:3])
        for number, name in enumerate(names):
            runs(stage, name, f"pod-{number}", "llama")
        runs(stage, stage.gpu_nodes[3], "pod-3", "another")
        controller = stage.start_controller(
            KONDUCTOR_POLL_INTERVAL_SECONDS="0.2", KONDUCTOR_CORRELATION_SECONDS="2"
        )
        until(says(controller, "Reading Loki"), "it leads", controller)

        stage.kernel(names[0], XID_79)
        for name in names[1:]:
            stage.kernel(name, XID_43)
        until(lambda: stage.node(names[0]).tainted, "the dead GPU is out", controller)
        until(lambda: all(events_of(stage, name) for name in names), "the records say it", controller)

        assert len(stage.cluster.calls("list", "pods")) == 2 * 3  # those that run, and the others
        status = stage.run("status").stdout
        assert f"{JOB}, " in status
        assert "2 collateral" in status
        assert {node.name for node in stage.nodes() if node.tainted} == {names[0]}
