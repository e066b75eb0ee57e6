"""kubectl takes the stand-in for an API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_node
from tests.sandbox.kubectl import kubectl as run_kubectl
from tests.sandbox.kubectl import needs_kubectl

pytestmark = needs_kubectl

Kubectl = Callable[..., str]


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer(nodes=[make_node("gpu-1"), make_node("gpu-2"), make_cpu_node("cpu-1")]) as server:
        yield server


@pytest.fixture
def kubectl(server: KubernetesServer, tmp_path: Path) -> Kubectl:
    """Runs kubectl against the server."""
    return partial(run_kubectl, server, tmp_path)


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


def test_get_nodes_prints_names_and_a_label(kubectl: Kubectl) -> None:
    header, *nodes = rows(kubectl("get", "nodes", "-L", "nvidia.com/gpu.present"))

    assert header == ["NAME", "GPU.PRESENT"]
    assert nodes == [["cpu-1"], ["gpu-1", "true"], ["gpu-2", "true"]]


def test_get_nodes_selects_pages_and_shapes(kubectl: Kubectl) -> None:
    assert kubectl(
        "get", "nodes", "-l", "nvidia.com/gpu.present=true", "-o", "name", "--chunk-size=1"
    ).split() == [
        "node/gpu-1",
        "node/gpu-2",
    ]
    assert kubectl("get", "node", "gpu-1", "-o", "jsonpath={.status.capacity.nvidia\\.com/gpu}") == "8"
    assert kubectl("get", "node", "nobody") == 'Error from server (NotFound): nodes "nobody" not found\n'


def test_nodes_are_tainted_and_untainted(kubectl: Kubectl, server: KubernetesServer) -> None:
    taint, other = "trainy.konduktor.ai/faulty=true:NoSchedule", "team=a:NoExecute"

    assert kubectl("taint", "node", "gpu-1", taint, other) == "node/gpu-1 tainted\n"
    assert {t["key"] for t in server.node("gpu-1")["spec"]["taints"]} == {
        "trainy.konduktor.ai/faulty",
        "team",
    }
    assert kubectl("taint", "node", "gpu-1", "trainy.konduktor.ai/faulty-") == "node/gpu-1 untainted\n"
    assert [t["key"] for t in server.node("gpu-1")["spec"]["taints"]] == ["team"]
    assert kubectl("taint", "node", "gpu-2", taint, "--dry-run=server") == "node/gpu-2 tainted\n"
    assert "taints" not in server.node("gpu-2")["spec"]


def test_describe_shows_taints_conditions_and_events(
    kubectl: Kubectl, server: KubernetesServer, tmp_path: Path
) -> None:
    kubectl("taint", "node", "gpu-1", "team=a:NoSchedule")
    server.kubelets.refresh("gpu-1")
    uid = server.node("gpu-1")["metadata"]["uid"]
    manifest = tmp_path / "event.yaml"
    manifest.write_text(EVENT.format(uid=uid))
    assert kubectl("create", "-f", str(manifest)) == "event/gpu-1.fault created\n"
    text = kubectl("describe", "node", "gpu-1")

    assert "Taints:             team=a:NoSchedule" in text
    assert "HolderIdentity:  gpu-1" in text
    assert "kubelet is posting ready status" in text
    assert "GPUFaultTainted" in text.partition("\nEvents:")[2]
    assert rows(kubectl("events", "--for", "node/gpu-1"))[1][1:] == [
        *("Warning", "GPUFaultTainted", "Node/gpu-1", "Xid", "79")
    ]


EVENT = """
apiVersion: v1
kind: Event
metadata: {{name: gpu-1.fault, namespace: default}}
involvedObject: {{apiVersion: v1, kind: Node, name: gpu-1, uid: {uid}}}
reason: GPUFaultTainted
message: Xid 79
type: Warning
source: {{component: konductor-like}}
firstTimestamp: 2026-02-03T04:05:06Z
lastTimestamp: 2026-02-03T04:05:06Z
count: 1
"""
