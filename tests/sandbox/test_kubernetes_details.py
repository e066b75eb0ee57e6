"""Details of the stand-in API server that neither the contract nor its life as a tool shows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from konductor_like.sandbox.fleet import make_node
from konductor_like.sandbox.kubernetes import KubernetesServer
from konductor_like.sandbox.kubernetes.kubectl import human_duration
from tests.contract.kubernetes_target import Target, names, node_path, put

LEASES = "/apis/coordination.k8s.io/v1/leases"


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer(nodes=[make_node("gpu-1")]) as server:
        yield server


@pytest.fixture
def client(server: KubernetesServer) -> Target:
    return Target(server.url, {})


def test_pages_of_one_namespace_and_of_all_do_not_mix(server: KubernetesServer, client: Target) -> None:
    for namespace in ("default", "kube-system"):
        for name in ("a", "b", "c"):
            path = LEASES.replace("leases", f"namespaces/{namespace}/leases")
            client.send("POST", path, {"metadata": {"name": name}})
    own = LEASES.replace("leases", "namespaces/kube-system/leases")
    all_first, own_first = client.get(LEASES, limit="2"), client.get(own, limit="2")
    all_rest = client.get(LEASES, **{"limit": "9", "continue": all_first.meta["continue"]})
    own_rest = client.get(own, **{"limit": "9", "continue": own_first.meta["continue"]})

    assert names(all_first) + names(all_rest) == ["a", "b", "c"] * 2
    assert names(own_first) + names(own_rest) == ["a", "b", "c"]
    assert len(server.objects("leases", "kube-system")) == 3


def test_writers_at_once_lose_nothing(server: KubernetesServer, client: Target) -> None:
    client.patch(node_path("gpu-1"), [put("/metadata/annotations", {"start": "1"})])

    def write(number: int) -> None:
        client.patch(node_path("gpu-1"), [put(f"/metadata/annotations/n{number}", "1")])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert server.node("gpu-1")["metadata"]["annotations"].keys() == {"start", *(f"n{n}" for n in range(20))}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (192, "3m12s"),
        (600, "10m"),
        (179 * 60, "179m"),
        (3 * 3600, "3h"),
        (7 * 3600 + 60, "7h1m"),
        (47 * 3600, "47h"),
        (2 * 86400, "2d"),
        (3 * 86400 + 3600, "3d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (731 * 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_are_said_as_kubectl_says_them(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_what_is_stored_is_json_without_spaces(client: Target) -> None:
    node = client.get(node_path("gpu-1"))

    assert len(json.dumps(node.body, separators=(",", ":"))) == int(node.headers["Content-Length"])
