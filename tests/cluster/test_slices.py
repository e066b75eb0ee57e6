"""GPU nodes that show it by nothing but a ResourceSlice of NVIDIA's driver."""

from __future__ import annotations

from typing import Any

import pytest

from konductor_like.cluster import paths
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.decode import settled_decoder
from konductor_like.cluster.slices import AGAIN_SECONDS, INTERVAL_SECONDS, GpuSlices
from konductor_like.cluster.store import list_nodes
from konductor_like.sandbox.fleet import make_cpu_node
from konductor_like.sandbox.kubernetes import KubernetesServer, matching, refusal
from konductor_like.settings import Settings


class Watch:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def put_slice(client: KubeClient, node: str, driver: str = "gpu.nvidia.com") -> None:
    """What a DRA driver publishes of its node; with no node, of devices that are of none."""
    spec: dict[str, Any] = {"driver": driver, "pool": {"name": node or "fabric"}}
    name = f"{node or 'fabric'}-{driver}"
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {**spec, **({"nodeName": node} if node else {})},
    }
    client.create(paths.RESOURCE_SLICES[0], body)


def looks(server: KubernetesServer) -> int:
    return len(server.calls("list", "resourceslices"))


def test_nodes_with_a_slice_of_the_gpu_driver_are_known_and_others_are_not(client: KubeClient) -> None:
    put_slice(client, "dra-1")
    put_slice(client, "nic-1", "dra.net")
    put_slice(client, "domain-1", "compute-domain.nvidia.com")
    put_slice(client, "")

    assert GpuSlices(client).nodes() == {"dra-1"}


def test_a_node_that_shows_its_gpu_nowhere_else_is_a_gpu_node_by_its_slice(
    server: KubernetesServer, client: KubeClient
) -> None:
    for name in ("dra-1", "cpu-1"):
        server.put_node(make_cpu_node(name))
    put_slice(client, "dra-1")

    nodes = list_nodes(client, settled_decoder(Settings(), client))

    assert {name: state.is_gpu_node for name, state in nodes.items()} == {"dra-1": True, "cpu-1": False}


def test_slices_are_looked_for_once_an_interval(server: KubernetesServer, client: KubeClient) -> None:
    watch = Watch()
    slices = GpuSlices(client, watch)
    for _ in range(3):
        assert slices.nodes() == set()
    assert looks(server) == 1
    put_slice(client, "dra-1")

    watch.seconds = INTERVAL_SECONDS

    assert slices.nodes() == {"dra-1"}
    assert looks(server) == 2


def test_what_is_known_outlasts_an_outage_which_is_over_soon(
    server: KubernetesServer, client: KubeClient
) -> None:
    watch = Watch()
    slices = GpuSlices(client, watch)
    put_slice(client, "dra-1")
    assert slices.nodes() == {"dra-1"}
    server.mishaps.add(refusal(500), times=None, when=matching("GET", "resourceslices"))
    put_slice(client, "dra-2")

    watch.seconds = INTERVAL_SECONDS
    assert slices.nodes() == {"dra-1"}
    server.mishaps.clear()
    watch.seconds += AGAIN_SECONDS

    assert slices.nodes() == {"dra-1", "dra-2"}


@pytest.mark.parametrize("status", [403, 404])
def test_where_there_are_none_to_see_there_are_none(
    status: int, server: KubernetesServer, client: KubeClient
) -> None:
    put_slice(client, "dra-1")
    server.mishaps.add(refusal(status), times=None, when=matching("GET", "resourceslices"))

    assert GpuSlices(client).nodes() == set()


def test_an_older_server_is_asked_in_its_older_version(
    client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_slice(client, "dra-1")
    known = paths.RESOURCE_SLICES[0]
    monkeypatch.setattr(paths, "RESOURCE_SLICES", (known.replace("/v1/", "/v7/"), known))

    assert GpuSlices(client).nodes() == {"dra-1"}
