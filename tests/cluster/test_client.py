from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from konductor_like.cluster import client as module
from konductor_like.cluster.client import (
    NODES_PATH,
    KubeClient,
    ReadOnlyKubeClient,
    lease_path,
    leases_path,
    node_path,
)
from konductor_like.cluster.errors import KubeBadAnswer, KubeConflict, KubeForbidden, KubeGone, KubeNotFound
from konductor_like.sandbox.kubernetes import KubernetesServer, matching, refusal
from konductor_like.sandbox.mishaps import Mishap
from konductor_like.sandbox.wire import JSON
from tests.cluster.scenes import raw_node

LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "x", "namespace": "default"},
    "spec": {},
}


def names(client: ReadOnlyKubeClient, **params: str) -> list[str]:
    """The names of all Nodes."""
    return client.list_pages(NODES_PATH, lambda node: str(node["metadata"]["name"]), params).items


@pytest.fixture
def fleet(server: KubernetesServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Seven Nodes on pages of three."""
    monkeypatch.setattr(module, "PAGE_SIZE", 3)
    fleet = [f"gpu-{n}" for n in range(7)]
    for name in fleet:
        server.put_node(raw_node(name))
    return fleet


def test_a_list_is_read_page_by_page(server: KubernetesServer, client: KubeClient, fleet: list[str]) -> None:
    assert names(client) == fleet
    assert len(server.calls("list", "nodes")) == 3


@pytest.mark.usefixtures("fleet")
def test_a_list_says_of_which_moment_it_is(client: KubeClient) -> None:
    listing = client.list_pages(NODES_PATH, lambda node: node)

    newest = max(int(node["metadata"]["resourceVersion"]) for node in listing.items)
    assert int(listing.resource_version) >= newest


def test_a_selector_goes_with_every_page(client: KubeClient, fleet: list[str]) -> None:
    assert names(client, labelSelector="nvidia.com/gpu.present=false") == []
    assert names(client, labelSelector="nvidia.com/gpu.present") == fleet


def test_a_continue_token_that_expired_starts_the_list_again(
    server: KubernetesServer, client: KubeClient, fleet: list[str]
) -> None:
    server.mishaps.add(refusal(410), when=matching("GET", "nodes", having="continue"))

    assert names(client) == fleet


@pytest.mark.usefixtures("fleet")
def test_a_list_that_always_expires_is_given_up(server: KubernetesServer, client: KubeClient) -> None:
    server.mishaps.add(refusal(410), times=None, when=matching("GET", "nodes", having="continue"))

    with pytest.raises(KubeGone):
        names(client)


@pytest.mark.parametrize(
    "body",
    [
        '{"kind":"Node","metadata":{}}',
        '{"items":[]}',
        '{"kind":"NodeList"}',
        '{"kind":"NodeList","metadata":{},"items":{}}',
    ],
)
def test_an_answer_that_is_no_list_is_not_taken_for_an_empty_one(
    server: KubernetesServer, client: KubeClient, body: str
) -> None:
    server.mishaps.add(Mishap(200, body, JSON))

    with pytest.raises(KubeBadAnswer, match="cannot list nodes"):
        names(client)


def test_a_list_of_null_is_empty_as_go_writes_it(server: KubernetesServer, client: KubeClient) -> None:
    server.mishaps.add(Mishap(200, '{"kind":"NodeList","metadata":{},"items":null}', JSON))

    assert names(client) == []


def test_an_object_goes_through_its_life(client: KubeClient) -> None:
    path = lease_path("default", "x")
    made = client.create(leases_path("default"), LEASE)

    changed = client.replace(path, {**made, "spec": {"holderIdentity": "me"}})
    with pytest.raises(KubeConflict, match="cannot update leases/x in namespace default"):
        client.replace(path, made)
    client.patch(path, {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")

    assert changed["spec"]["holderIdentity"] == "me"
    assert client.get(path)["metadata"]["labels"] == {"a": "b"}
    with pytest.raises(KubeNotFound, match="cannot get leases/y in namespace default"):
        client.get(lease_path("default", "y"))


def test_a_patch_may_be_rehearsed_by_the_server(server: KubernetesServer, client: KubeClient) -> None:
    server.put_node(raw_node())

    client.patch(
        node_path("gpu-1"),
        [{"op": "add", "path": "/metadata/labels/a", "value": "b"}],
        params={"dryRun": "All"},
    )

    assert "a" not in server.node("gpu-1")["metadata"]["labels"]


def test_a_refusal_names_verb_and_resource(server: KubernetesServer, client: KubeClient) -> None:
    server.access.deny("list", "nodes")

    with pytest.raises(KubeForbidden, match='cannot list resource "nodes"'):
        names(client)


def test_a_reader_has_no_means_to_write(server: KubernetesServer, tmp_path: Path) -> None:
    reader = ReadOnlyKubeClient.connect(str(server.kubeconfig(tmp_path / "c")), None, 5.0)

    assert reader.server == server.url
    assert not reader.in_cluster
    assert reader.namespace is None
    assert [name for name in ("create", "patch", "replace") if hasattr(reader, name)] == []
    reader.close()


def test_the_official_client_is_not_imported_before_it_is_needed() -> None:
    modules = "client, events, lease, node_decoder, node_store, node_writer, preflight"
    program = f"from konductor_like.cluster import {modules}; import sys; print('kubernetes' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
