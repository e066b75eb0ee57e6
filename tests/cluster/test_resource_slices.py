"""GPU nodes whose only sign is a ResourceSlice of NVIDIA's driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from konductor_like.cluster.api.client import RESOURCE_SLICES_PATHS, KubeClient
from konductor_like.cluster.node import store as node_store
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import (
    SLICES_AGAIN_SECONDS,
    SLICES_SECONDS,
    NodeStore,
    ResourceSlices,
    listed_slices,
    with_booted_after,
)
from konductor_like.model import NodeState
from konductor_like_sandbox.kubernetes import KubernetesServer, matching, refusal
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node
from tests.policy.scenes import node, ns


class Watch:
    """A clock in seconds that tests move."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def put_slice(client: KubeClient, node: str, driver: str = "gpu.nvidia.com") -> None:
    """Return a DRA driver's ResourceSlice of a node; without a node, of devices that belong to no node."""
    spec: dict[str, Any] = {"driver": driver, "pool": {"name": node or "fabric"}}
    name = f"{node or 'fabric'}-{driver}"
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {**spec, **({"nodeName": node} if node else {})},
    }
    client.create(RESOURCE_SLICES_PATHS[0], body)


def refreshed(slices: ResourceSlices) -> set[str]:
    slices.refresh()
    return set(slices.nodes())


def looks(server: KubernetesServer) -> int:
    return len(server.calls("list", "resourceslices"))


def test_nodes_with_a_slice_of_the_gpu_driver_are_known_and_others_are_not(client: KubeClient) -> None:
    put_slice(client, "dra-1")
    put_slice(client, "nic-1", "dra.net")
    put_slice(client, "domain-1", "compute-domain.nvidia.com")
    put_slice(client, "")

    assert set(listed_slices(client)()) == {"dra-1"}


def test_the_store_knows_a_node_by_its_slice_and_its_decoder_sends_nothing(
    server: KubernetesServer, client: KubeClient
) -> None:
    for name in ("dra-1", "cpu-1"):
        server.put_node(make_cpu_node(name))
    put_slice(client, "dra-1")
    slices = ResourceSlices(client)
    store = NodeStore(client, node_decoder(sliced=slices.nodes), slices=slices)
    store.start()
    try:
        assert store.wait_synced(10)
        nodes = store.snapshot()
    finally:
        store.stop()

    assert {name: state.is_gpu_node for name, state in nodes.items()} == {"dra-1": True, "cpu-1": False}
    assert looks(server) == 1


def test_slices_are_looked_for_once_an_interval(server: KubernetesServer, client: KubeClient) -> None:
    watch = Watch()
    slices = ResourceSlices(client, watch)
    for _ in range(3):
        assert refreshed(slices) == set()
    assert looks(server) == 1
    put_slice(client, "dra-1")

    watch.seconds = SLICES_SECONDS

    assert refreshed(slices) == {"dra-1"}
    assert looks(server) == 2


def test_the_known_slices_are_kept_during_a_short_outage(
    server: KubernetesServer, client: KubeClient
) -> None:
    watch = Watch()
    slices = ResourceSlices(client, watch)
    put_slice(client, "dra-1")
    assert refreshed(slices) == {"dra-1"}
    server.mishaps.add(refusal(500), times=None, when=matching("GET", "resourceslices"))
    put_slice(client, "dra-2")

    watch.seconds = SLICES_SECONDS
    assert refreshed(slices) == {"dra-1"}
    server.mishaps.clear()
    watch.seconds += SLICES_AGAIN_SECONDS

    assert refreshed(slices) == {"dra-1", "dra-2"}


@pytest.mark.parametrize("status", [403, 404])
def test_without_the_api_or_the_permission_there_are_no_slices(
    status: int, server: KubernetesServer, client: KubeClient
) -> None:
    put_slice(client, "dra-1")
    server.mishaps.add(refusal(status), times=None, when=matching("GET", "resourceslices"))

    assert listed_slices(client)() == {}


def test_an_older_server_is_asked_in_its_older_version(
    client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_slice(client, "dra-1")
    known = RESOURCE_SLICES_PATHS[0]
    monkeypatch.setattr(node_store, "RESOURCE_SLICES_PATHS", (known.replace("/v1/", "/v7/"), known))

    assert set(listed_slices(client)()) == {"dra-1"}


NOW = ns(100)


def booted(boot: str | None, *, reported: float | None = 0) -> NodeState:
    """Return a node in this boot, whose kubelet reported this number of seconds after noon."""
    state = node()
    at_ns = None if reported is None else ns(reported)
    return replace(state, machine=replace(state.machine, boot_id=boot), reported_ns=at_ns)


ANOTHER = replace(booted("boot-b"), machine=replace(booted("boot-b").machine, system_id="another"))


@pytest.mark.parametrize(
    ("states", "after_ns"),
    [
        pytest.param([booted("a", reported=30), booted("b")], ns(30), id="after the last report before it"),
        pytest.param([booted("a", reported=3600), booted("b")], NOW, id="a report from the future"),
        pytest.param([booted("a", reported=30), booted("b"), booted("b", reported=95)], ns(30), id="stays"),
        pytest.param([booted("a"), booted("b", reported=90), booted("c")], ns(90), id="the next is younger"),
        pytest.param([booted("b")], None, id="there when we came"),
        pytest.param([booted("b"), booted("b")], None, id="there when we came, seen again"),
        pytest.param([booted("a", reported=None), booted("b")], None, id="the old boot never reported"),
        pytest.param([booted(None), booted("b")], None, id="the old boot was never posted"),
        pytest.param([booted("a"), ANOTHER], None, id="another machine under the name"),
    ],
)
def test_when_a_boot_began_at_the_earliest(states: list[NodeState], after_ns: int | None) -> None:
    known: NodeState | None = None
    for state in states:
        known = with_booted_after(state, known, NOW)

    assert known is not None
    assert known.booted_after_ns == after_ns
