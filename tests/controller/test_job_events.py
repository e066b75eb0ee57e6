"""Events to the owners of the jobs on a tainted node: to whom, in which words, how many, and when refused.

The controller's account has the rights of the manifests only, and their admission policy is in force.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeError, KubeForbidden
from konductor_like.cluster.events import JobEvents
from konductor_like.cluster.pods import NodeJobs, Owner, jobs_on
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.job_events import (
    DENIED_SECONDS,
    OWNERS_MOST,
    JobOwners,
    message_to_jobs,
)
from konductor_like.controller.side.work import running
from konductor_like.model import OPERATOR_RULE, Change, IncidentKey, NodeState, Severity, Verb
from konductor_like_sandbox.kubernetes import KubernetesServer, Review
from tests.cluster.scenes import wait_until
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER, rules_of
from tests.policy.scenes import NOON, Cluster, fault, fleet
from tools.manifests.manifests import documents

MANIFEST = documents("job_events.yaml")
RIGHTS = rules_of([*documents("controller_deployment.yaml"), *MANIFEST])


class Silent:
    """Takes the Events about Nodes."""

    def __init__(self) -> None:
        self.announced: list[str] = []

    def announce(self, state: NodeState, _change: Change) -> None:
        self.announced.append(state.name)


def tainting() -> tuple[NodeState, Change]:
    """A node and the write that tainted it for an Xid 79."""
    cluster = Cluster(fleet(1))
    [change] = cluster.tick(fault()).changes
    return cluster.nodes["gpu-1"], change


def pod(name: str, owner: tuple[str, str, str] | None, *, gpus: int = 8) -> dict[str, Any]:
    """A running pod of the namespace ``ml``; ``owner`` is its controller as (apiVersion, kind, name)."""
    meta: dict[str, Any] = {"namespace": "ml", "name": name}
    if owner is not None:
        api_version, kind, owned_by = owner
        named = {"apiVersion": api_version, "kind": kind, "name": owned_by, "uid": f"uid-{owned_by}"}
        meta["ownerReferences"] = [{**named, "controller": True}]
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}
    return {
        "metadata": meta,
        "spec": {"nodeName": "gpu-1", "containers": [container]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer(require_token=True, admission=Policy(MANIFEST)) as started:
        started.create_namespace("ml")
        yield started


@pytest.fixture
def client(server: KubernetesServer, tmp_path: Path) -> Iterator[KubeClient]:
    """A client with the account and the rights of the manifests."""
    token = server.access.add_user(CONTROLLER, RIGHTS)
    connected = KubeClient.connect(str(server.kubeconfig(tmp_path / "config", token)), None, 5.0)
    yield connected
    connected.close()


def test_each_owner_of_pods_with_a_gpu_gets_one_event_that_names_node_and_fault(
    server: KubernetesServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    llama, batch = ("kubeflow.org/v1", "PyTorchJob", "llama"), ("batch/v1", "Job", "batch")
    server.put_pod(pod("llama-worker-0", llama))
    server.put_pod(pod("llama-worker-1", llama))
    server.put_pod(pod("batch-x", batch))
    server.put_pod(pod("notebook", None))
    server.put_pod(pod("on-cpu", ("batch/v1", "Job", "on-cpu"), gpus=0))
    server.put_pod(pod("exporter", ("apps/v1", "DaemonSet", "exporter")))
    inner, about = Silent(), tainting()
    owners = JobOwners(
        inner,
        lambda name: jobs_on(client, name, NOON),
        JobEvents(client, "konductor-like-0", lambda: NOON).send,
        Metrics(),
        between_seconds=0,
    )

    with running(owners.queue):
        owners.announce(*about)
        owners.announce(*about)  # after a crash, for example
        wait_until(lambda: caplog.text.count("3 of 3 owners of jobs there have an Event") == 2)

    events = server.objects("events", "ml")
    assert {(event["involvedObject"]["kind"], event["involvedObject"]["name"]) for event in events} == {
        ("PyTorchJob", "llama"),
        ("Job", "batch"),
        ("Pod", "notebook"),
    }
    assert {(event["reason"], event["type"]) for event in events} == {("GPUNodeFaulty", "Warning")}
    [event] = [each for each in events if each["involvedObject"]["kind"] == "PyTorchJob"]
    assert event["involvedObject"] == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "namespace": "ml",
        "name": "llama",
        "uid": "uid-llama",
    }
    assert event["message"] == (
        "Node gpu-1 failed at 2026-03-04T12:00:00Z: xid 79 on GPU 0000:4e:00, GPU lost. New pods go to other "
        "nodes. This job had pods with a GPU there. If they have failed since then, the likely cause is the "
        f"node, not the program. (audit id {about[1].act_id})"
    )
    assert inner.announced == ["gpu-1", "gpu-1"]


class Jobs:
    """Jobs on every node, and a server that takes their Events or fails."""

    def __init__(self, count: int = 1, *errors: KubeError, namespaces: int = 1) -> None:
        self.owners = tuple(
            Owner("batch/v1", "Job", f"ns-{number % namespaces}", f"job-{number}", f"uid-{number}")
            for number in range(count)
        )
        self.errors = list(errors)
        self.sent: list[str] = []
        self.seconds = 0.0
        self.metrics = Metrics()
        self.tells = JobOwners(
            Silent(),
            self.ask,
            self.send,
            self.metrics,
            clock=lambda: self.seconds,
            between_seconds=0,
        )

    def ask(self, _node: str) -> NodeJobs:
        return NodeJobs(frozenset(), {}, owners=self.owners)

    def send(self, owner: Owner, _message: str, _subject: str, _act: str) -> KubeError | None:
        self.sent.append(owner.name)
        return self.errors.pop(0) if self.errors else None

    def tell(self, change: Change | None = None) -> list[str]:
        """Taint a node, or make another change, and tell its jobs. Return the owners of all Events so far."""
        state, tainted = tainting()
        self.tells.announce(state, change or tainted)
        for node in self.tells.queue.rest():
            self.tells._handle(node)
        return self.sent


def test_at_most_twenty_owners_of_a_node_are_told() -> None:
    jobs = Jobs(OWNERS_MOST + 5)

    assert len(jobs.tell()) == OWNERS_MOST == 20


def test_a_refused_right_is_one_line_of_the_log_and_ends_the_events_of_that_namespace_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    denied = KubeForbidden("cannot create events in ns-0")
    jobs = Jobs(4, denied, namespaces=2)
    jobs.tell()
    jobs.tell()

    jobs.seconds = DENIED_SECONDS
    jobs.errors = [denied]
    sent = jobs.tell()

    assert sent == ["job-0", "job-1", "job-3", "job-1", "job-3", "job-0", "job-1", "job-3"]
    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "Apply manifests/job_events.yaml, or set KONDUCTOR_JOB_EVENTS=false" in line
    errors = {"error": "KubeForbidden"}
    assert jobs.metrics.registry.get_sample_value("konductor_like_kube_errors_total", errors) == 2


def test_jobs_are_told_of_faults_of_the_machine_only() -> None:
    _, change = tainting()
    incident = change.incident
    assert incident is not None

    def message(**fields: Any) -> str:
        return message_to_jobs(replace(change, incident=replace(incident, **fields)))

    assert message().startswith("Node gpu-1 failed at ")
    assert message(severity=Severity.SUSPECT).startswith("Node gpu-1 is probably faulty since ")
    assert message(severity=Severity.TEST) == ""
    assert message(severity=Severity.APPLICATION, escalated_because="3 jobs") == ""
    assert message(user_written=True) == ""
    assert message(key=IncidentKey(OPERATOR_RULE, None)) == ""
    assert message_to_jobs(replace(change, verb=Verb.RECORD)) == ""
    assert message_to_jobs(replace(change, incident=None)) == ""


GOOD: dict[str, Any] = {
    "metadata": {"name": "gpunodefaulty.1", "namespace": "ml"},
    "involvedObject": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ml", "name": "a", "uid": "u"},
    "type": "Warning",
    "reason": "GPUNodeFaulty",
    "message": "Node gpu-1 failed.",
    "source": {"component": "konductor-like"},
    "reportingComponent": "konductor-like",
}


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, ""),
        ({"reason": "Killing"}, "no other Event about a job"),
        ({"type": "Normal"}, "no other Event about a job"),
        ({"message": "Pay here."}, "no other Event about a job"),
        ({"metadata": {"name": "x", "namespace": "ml"}}, "no other Event about a job"),
        ({"source": {"component": "kubelet"}}, "in its own name only"),
        ({"reportingComponent": "kubelet"}, "in its own name only"),
        ({"related": {"kind": "Pod"}}, "in its own name only"),
        ({"involvedObject": {**GOOD["involvedObject"], "kind": "Node"}}, "only to the owner of a job"),
        ({"metadata": {"name": "x", "namespace": "default"}, "reason": "GPUFaultTainted"}, ""),
    ],
)
def test_the_policy_admits_no_other_event_outside_the_controllers_namespaces(
    changed: dict[str, Any], refused: str
) -> None:
    review = Review(CONTROLLER, "CREATE", "", "events", "x", "", GOOD | changed, None)
    others = replace(review, user="system:serviceaccount:kube-system:job-controller")

    answer = Policy(MANIFEST)(review)

    assert refused in str(answer)
    assert bool(answer) is bool(refused)
    assert not Policy(MANIFEST)(others)


def test_a_node_without_jobs_is_quiet() -> None:
    jobs = Jobs(0)

    assert jobs.tell() == []


def test_a_change_that_is_no_taint_is_told_to_no_job() -> None:
    assert Jobs().tell(replace(tainting()[1], verb=Verb.RECORD)) == []


def test_at_the_end_no_further_job_is_told() -> None:
    jobs = Jobs()
    jobs.tells.queue.closing.set()

    assert jobs.tell() == []
