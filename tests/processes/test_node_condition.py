"""The real controller writes Node conditions under the rights and the policies of the manifests (rule 40)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from konductor_like_sandbox.demo.stage import RunningController, Stage
from konductor_like_sandbox.demo.story import XID_79
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.kubernetes import KubernetesServer, Review, matching
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER, rules_of
from tests.manifests.schema import problems
from tests.processes.waiting import logged, until
from tools.manifests.manifests import documents

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

KIND = "TrainyGPUFaulty"
MANIFESTS = ("controller_deployment.yaml", "node_condition.yaml")


def admission(review: Review) -> str:
    return next(filter(None, (Policy(documents(name))(review) for name in MANIFESTS)), "")


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage(gpu_nodes=4)
    stage.cluster = KubernetesServer(require_token=True, schema=problems, admission=admission)
    with stage:
        stage.cluster.create_namespace("konductor-like")
        yield stage


def log_in(stage: Stage, *manifests: str) -> None:
    """Give the controller's account the rights of these manifests."""
    rules = tuple(rule for name in manifests for rule in rules_of(documents(name)))
    stage.cluster.kubeconfig(stage.kubeconfig, stage.cluster.access.add_user(CONTROLLER, rules))


def condition(stage: Stage, name: str, kind: str = KIND) -> dict[str, Any]:
    found = stage.cluster.node(name)["status"]["conditions"]
    return next((each for each in found if each["type"] == kind), {})


def statuses(stage: Stage, kind: str = KIND) -> list[str]:
    return [condition(stage, name, kind).get("status", "") for name in stage.gpu_nodes]


def refused(stage: Stage) -> list[str]:
    return [call.resource for call in stage.cluster.calls() if call.status in (403, 422)]


def start(stage: Stage, kind: str) -> RunningController:
    controller = stage.start_controller(KONDUCTOR_NODE_CONDITION=kind, KONDUCTOR_ASK_FOR_PODS="false")
    until(logged(controller, "Reading Loki"), "it leads", controller)
    return controller


def test_a_fault_a_reset_and_switching_off_with_the_shipped_rights(stage: Stage) -> None:
    log_in(stage, *MANIFESTS)
    controller = start(stage, KIND)
    until(lambda: statuses(stage) == ["False"] * 4, "every GPU node has the condition", controller)
    types = [each["type"] for each in stage.cluster.node("gpu-01")["status"]["conditions"]]

    stage.kernel("gpu-02", XID_79)
    until(lambda: statuses(stage)[1] == "True", "the faulty node's is True", controller)
    found = condition(stage, "gpu-02")
    assert found["reason"] == "XidFault"
    assert found["message"].startswith("konductor-like: Xid 79 on GPU 0000:4e:00 since 2")
    assert stage.node("gpu-02").tainted

    assert stage.run("reset", "gpu-02", "--yes", "--reason", "swapped").returncode == 0
    until(lambda: statuses(stage)[1] == "False", "it is False again", controller)
    assert condition(stage, "cpu-01") == {}
    assert controller.stop() == 0

    switched_off = start(stage, "")
    until(lambda: statuses(stage) == [""] * 4, "the condition is gone from every node", switched_off)
    assert logged(switched_off, "the controller removes the Node condition TrainyGPUFaulty of before")()
    assert [each["type"] for each in stage.cluster.node("gpu-01")["status"]["conditions"]] == types[1:]
    assert refused(stage) == []


def test_without_the_manifest_nodes_are_tainted_as_before_and_the_log_names_it(stage: Stage) -> None:
    log_in(stage, MANIFESTS[0])
    controller = start(stage, KIND)
    until(logged(controller, "apply manifests/node_condition.yaml"), "the log names it", controller)

    stage.kernel("gpu-03", XID_79)
    until(lambda: stage.node("gpu-03").tainted, "the node is tainted", controller)

    assert statuses(stage) == [""] * 4
    assert refused(stage) == ["nodes/status"]


def test_slow_writes_of_conditions_delay_no_taint(stage: Stage) -> None:
    """With five seconds each, four conditions take 20 s; the taint comes while they are written."""
    log_in(stage, *MANIFESTS)
    stage.cluster.mishaps.add(Mishap(delay_seconds=5), times=None, when=matching("PATCH", "/status$"))
    controller = start(stage, KIND)

    stage.kernel("gpu-04", XID_79)
    until(lambda: stage.node("gpu-04").tainted, "the node is tainted", controller)

    assert "" in statuses(stage)
    stage.cluster.mishaps.clear()
