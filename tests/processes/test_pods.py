"""The jobs of kernel lines, known from the API server, in the real controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konductor_like.demo.stage import RunningController, Stage
from konductor_like.demo.story import XID_79
from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.http import Request
from tests.processes.waiting import says, until

pytestmark = pytest.mark.processes

XID_43 = "NVRM: Xid (PCI:0000:4e:00): 43, pid=4711, name=python3, Ch 00000008"
JOB = "default/PyTorchJob/llama"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(gpu_nodes=5) as ready:
        yield ready


def runs(stage: Stage, node: str, pod: str, job: str) -> None:
    """A pod of a PyTorchJob has the node's GPUs."""
    stage.cluster.put_pod(
        {
            "metadata": {
                "namespace": "default",
                "name": pod,
                "labels": {"training.kubeflow.org/job-name": job},
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
            },
            "status": {"phase": "Running"},
        }
    )


def started(stage: Stage, **settings: str) -> RunningController:
    controller = stage.start_controller(KONDUCTOR_POLL_INTERVAL_SECONDS="0.2", **settings)
    until(says(controller, "Reading Loki"), "it leads", controller)
    return controller


def job_dies(stage: Stage) -> list[str]:
    """A GPU is lost under a job on three nodes, and no pod's log is read."""
    names = list(stage.gpu_nodes[:3])
    stage.kernel(names[0], XID_79)
    for name in names[1:]:
        stage.kernel(name, XID_43)
    return names


def events_of(stage: Stage, node: str) -> set[str]:
    """What the node's record says that it was part of."""
    return {
        incident["failure_group"]
        for incident in stage.node(node).record["incidents"]
        if "failure_group" in incident
    }


def test_kernel_lines_of_one_job_are_one_event_with_the_dead_gpu_as_its_origin(stage: Stage) -> None:
    names = list(stage.gpu_nodes[:3])
    for number, name in enumerate(names):
        runs(stage, name, f"pod-{number}", "llama")
    runs(stage, stage.gpu_nodes[3], "pod-3", "another")
    controller = started(stage, KONDUCTOR_CORRELATION_SECONDS="2")

    job_dies(stage)
    until(lambda: stage.node(names[0]).tainted, "the dead GPU is out", controller)
    until(lambda: all(events_of(stage, name) for name in names), "the records say it", controller)

    assert len(stage.cluster.calls("list", "pods")) == 2 * 3  # those that run, and the others
    status = stage.run("status").stdout
    assert f"{JOB}, " in status
    assert "2 collateral" in status
    assert {node.name for node in stage.nodes() if node.tainted} == {names[0]}


def test_without_the_right_to_list_pods_all_else_goes_on_and_the_log_says_what_is_missing(
    stage: Stage,
) -> None:
    def is_about_pods(request: Request) -> bool:
        return request.path == "/api/v1/pods"

    stage.cluster.mishaps.add(Mishap(403, FORBIDDEN, "application/json"), times=None, when=is_about_pods)
    controller = started(stage)

    names = job_dies(stage)

    until(lambda: stage.node(names[0]).tainted, "the dead GPU is out", controller)
    until(says(controller, "resources: [pods], verbs: [list]"), "the missing right is named", controller)


FORBIDDEN = (
    '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods is forbidden: User '
    '\\"x\\" cannot list resource \\"pods\\" in API group \\"\\" at the cluster scope","reason":"Forbidden",'
    '"details":{"kind":"pods"},"code":403}'
)


def test_where_it_is_switched_off_no_pod_is_ever_asked_for(stage: Stage) -> None:
    controller = started(stage, KONDUCTOR_ASK_FOR_PODS="false")

    names = job_dies(stage)
    until(lambda: stage.node(names[0]).tainted, "the dead GPU is out", controller)
    until(
        lambda: all(stage.node(name).recorded(43) for name in names[1:]), "the rest is recorded", controller
    )

    assert stage.cluster.calls("list", "pods") == []
