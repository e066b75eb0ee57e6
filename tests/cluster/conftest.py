"""Fixtures of the cluster edge's tests: the stand-in API server, and a client of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.lease.election import LeaderLease
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import list_nodes
from konductor_like.cluster.node.writer import NodeWriter
from konductor_like.model import NodeState
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cluster.lease_scenes import NAMESPACE, Clock, candidate
from tests.cluster.scenes import TEAM, raw_node
from tests.cluster.writer_scenes import Waits, make_writer


@pytest.fixture(autouse=True)
def _no_cluster_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the caller's kubeconfig and proxies out of these tests."""
    for name in list(os.environ):
        if name.startswith(("KUBE", "POD_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    """An API server without Nodes, whose watches send a bookmark often."""
    with KubernetesServer(bookmark_seconds=0.1) as started:
        yield started


@pytest.fixture
def client(server: KubernetesServer, tmp_path: Path) -> Iterator[KubeClient]:
    """An administrator's client."""
    connected = KubeClient.connect(str(server.kubeconfig(tmp_path / "config")), None, 5.0)
    yield connected
    connected.close()


@pytest.fixture
def clock(server: KubernetesServer) -> Clock:
    """A clock that tests move; the Lease's namespace exists."""
    server.create_namespace(NAMESPACE)
    return Clock()


@pytest.fixture
def lease(client: KubeClient, clock: Clock) -> LeaderLease:
    """A LeaderLease that has taken the Lease."""
    held = candidate(client, clock)
    assert held.try_acquire().is_ours
    return held


@pytest.fixture
def waits() -> Waits:
    """A clock that only sleeping moves."""
    return Waits()


@pytest.fixture
def writer(client: KubeClient, waits: Waits) -> NodeWriter:
    """A writer without a deadline, as the command line has it."""
    return make_writer(client, waits)


@pytest.fixture
def state(server: KubernetesServer, client: KubeClient) -> NodeState:
    """The state of a healthy Node with a taint of somebody else."""
    server.put_node(raw_node(taints=[TEAM]))
    return list_nodes(client, node_decoder())["gpu-1"]
