"""The jobs of kernel lines, known from the API server, in the real controller."""

from __future__ import annotations

import pytest

from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.story import XID_79
from tests.processes.waiting import logged, until

pytestmark = pytest.mark.processes

XID_43 = "NVRM: Xid (PCI:0000:4e:00): 43, pid=4711, name=python3, Ch 00000008"
JOB = "default/PyTorchJob/llama"


def put_job_pod(stage: Stage, node: str, pod: str, job: str) -> None:
    """Put a pod of a PyTorchJob on the node's GPUs."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    labels = {"training.kubeflow.org/job-name": job}
    stage.cluster.put_pod(
        {
            "metadata": {"namespace": "default", "name": pod, "labels": labels},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Running"},
        }
    )


def failure_groups_of(stage: Stage, node: str) -> set[str]:
    """Return the failure groups in the node's record."""
    return {
        incident["failure_group"]
        for incident in stage.node(node).record["incidents"]
        if "failure_group" in incident
    }


def test_kernel_lines_of_one_job_are_one_failure_group_with_the_dead_gpu_as_root_cause() -> None:
    """A job on three nodes loses a GPU, and no pod's log is read."""
    with Stage(gpu_nodes=5) as stage:
        names = list(stage.gpu_nodes[:3])
        for number, name in enumerate(names):
            put_job_pod(stage, name, f"pod-{number}", "llama")
        put_job_pod(stage, stage.gpu_nodes[3], "pod-3", "another")
        controller = stage.start_controller(
            KONDUCTOR_POLL_INTERVAL_SECONDS="0.2", KONDUCTOR_CORRELATION_SECONDS="2"
        )
        until(logged(controller, "Reading Loki"), "it leads", controller)

        stage.kernel(names[0], XID_79)
        for name in names[1:]:
            stage.kernel(name, XID_43)
        until(lambda: stage.node(names[0]).tainted, "the node of the dead GPU is tainted", controller)
        until(
            lambda: all(failure_groups_of(stage, name) for name in names),
            "the records have the failure group",
            controller,
        )

        assert len(stage.cluster.calls("list", "pods")) == 2 * 3  # those that run, and the others
        status = stage.run("status").stdout
        assert f"{JOB}, " in status
        assert "2 collateral" in status
        assert {node.name for node in stage.nodes() if node.tainted} == {names[0]}
