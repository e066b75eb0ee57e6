from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.api import client as module
from konductor_like.cluster.api.client import (
    FRAME_BYTES_MOST,
    NODES_PATH,
    KubeClient,
    Objects,
    ReadOnlyKubeClient,
    events_path,
    lease_path,
    leases_path,
    namespace_path,
    node_path,
    path_words,
)
from konductor_like.cluster.api.errors import (
    KubeBadAnswer,
    KubeConflict,
    KubeForbidden,
    KubeGone,
    KubeNotFound,
)
from konductor_like.cluster.api.transport import STRATEGIC_MERGE_PATCH
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import JSON
from konductor_like_sandbox.kubernetes import KubernetesServer, Rule, matching, refusal
from tests.cluster.scenes import raw_node

LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "x", "namespace": "default"},
    "spec": {},
}


def names(client: ReadOnlyKubeClient, **params: str) -> list[str]:
    """List the names of all Nodes."""
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
    client.patch(path, [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])

    assert changed["spec"]["holderIdentity"] == "me"
    assert client.get(path)["metadata"]["labels"] == {"a": "b"}
    with pytest.raises(KubeNotFound, match="cannot get leases/y in namespace default"):
        client.get(lease_path("default", "y"))


def test_a_reader_has_no_means_to_write(server: KubernetesServer, tmp_path: Path) -> None:
    reader = ReadOnlyKubeClient.connect(str(server.kubeconfig(tmp_path / "c")), None, 5.0)

    assert reader.server == server.url
    assert not reader.in_cluster
    assert reader.namespace is None
    assert [name for name in ("create", "patch", "replace") if hasattr(reader, name)] == []
    reader.close()


def test_a_dry_run_in_an_accounts_name_has_its_rights_and_stores_nothing(
    server: KubernetesServer, client: KubeClient
) -> None:
    account = "system:serviceaccount:gpu-ops:konductor-like"
    server.access.add_user(account, [Rule(("get", "patch"), ("nodes",))])
    server.put_node(raw_node("gpu-1"))
    as_account, cordon = client.dry_run_as(account), {"spec": {"unschedulable": True}}

    answer = as_account.patch(node_path("gpu-1"), cordon, content_type=STRATEGIC_MERGE_PATCH)

    assert answer["spec"]["unschedulable"]
    assert "unschedulable" not in client.get(node_path("gpu-1"))["spec"]
    with pytest.raises(KubeForbidden) as caught:
        as_account.list(NODES_PATH)
    assert f'User "{account}" cannot list resource "nodes"' in str(caught.value)


@pytest.mark.parametrize(
    ("user", "resource"),
    [("kim", "users"), ("system:serviceaccount:gpu-ops:konductor-like", "serviceaccounts")],
)
def test_a_person_without_the_right_acts_in_nobodys_name(
    user: str, resource: str, server: KubernetesServer, tmp_path: Path
) -> None:
    """A ServiceAccount is not a user here: its right has the account's namespace."""
    token = server.access.add_user("viewer", [Rule(("get",), ("nodes",))])
    kubeconfig = str(server.kubeconfig(tmp_path / "kc", token))
    with closing(KubeClient.connect(kubeconfig, None, 5.0)) as viewer, pytest.raises(KubeForbidden) as caught:
        viewer.dry_run_as(user).get(node_path("gpu-1"))

    assert f'User "viewer" cannot impersonate resource "{resource}"' in str(caught.value)
    assert ('in the namespace "gpu-ops"' in str(caught.value)) == (resource == "serviceaccounts")


def test_the_official_client_is_not_imported_before_it_is_needed() -> None:
    names = "api.client events lease.election node.decoder node.store node.writer preflight"
    modules = ", ".join(f"konductor_like.cluster.{name}" for name in names.split())
    program = f"import {modules}; import sys; print('kubernetes' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (NODES_PATH, "nodes"),
        (node_path("gpu-1"), "nodes/gpu-1"),
        (node_path("../x"), "nodes/..%2Fx"),
        (node_path(".."), "nodes/%2E%2E"),
        (namespace_path("a"), "namespaces/a"),
        (events_path("default"), "events in namespace default"),
        (lease_path("a", "b"), "leases/b in namespace a"),
    ],
)
def test_a_path_in_words(path: str, words: str) -> None:
    assert path_words(path) == words


def test_a_node_name_cannot_leave_its_place_in_the_path() -> None:
    assert node_path("a/../../b?c") == "/api/v1/nodes/a%2F..%2F..%2Fb%3Fc"


MIB = 1 << 20

_TEXT = st.text(alphabet='ab"\\\n{}[],:0é😀', max_size=12)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_OBJECT = st.dictionaries(_TEXT, _VALUE, max_size=4)


def pieces(text: bytes, size: int) -> Iterator[bytes]:
    """Return the text in pieces of this size, as the network may bring it."""
    return (text[start : start + size] for start in range(0, len(text), size))


def objects(text: bytes, size: int = 1000, *, most: int = MIB, total: int = 64 * MIB) -> Objects:
    return Objects(pieces(text, size), object_bytes=most, total_bytes=total)


def pod_list(items: list[Any], **more: Any) -> bytes:
    return json.dumps(
        {"kind": "PodList", "metadata": {"x": ["]", {"}": "{"}]}, **more, "items": items}
    ).encode()


@given(items=st.lists(_OBJECT, max_size=6), size=st.integers(1, 40), escaped=st.booleans())
def test_the_objects_are_the_same_for_pieces_of_any_size(
    items: list[dict[str, Any]], size: int, *, escaped: bool
) -> None:
    listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
    found = objects(json.dumps(listed, ensure_ascii=escaped).encode(), size)

    assert list(found) == items
    assert found.complete


@pytest.mark.parametrize("items", [[], None, [1, "a", [{}]]], ids=str)
def test_items_that_are_not_objects_are_left_out(items: Any) -> None:
    found = objects(pod_list(items))

    assert list(found) == []
    assert found.complete


@pytest.mark.parametrize("size", [7, 65_536])
def test_nothing_is_read_after_an_object_that_is_too_large(size: int) -> None:
    small, large = {"name": "a"}, {"name": "b", "env": "x" * 200_000}
    found = objects(pod_list([small, large, small]), size, most=3000)

    assert list(found) == [small]
    assert not found.complete


def test_no_more_is_read_than_was_asked_for() -> None:
    pulled = 0

    def endless() -> Iterator[bytes]:
        nonlocal pulled
        yield b'{"kind":"PodList","items":['
        while True:
            pulled += 1
            yield b'{"name":"a"},'

    found = Objects(endless(), object_bytes=100, total_bytes=1300)

    assert 95 < len(list(found)) <= 101
    assert (pulled <= 101, found.complete) == (True, False)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>[{}]</html>", id="another page"),
        pytest.param(b'{"kind":"Pod","items":[{}]}', id="no list"),
        pytest.param(b'{"kind":"PodList","items":[{"a":1}', id="cut off between objects"),
        pytest.param(b'{"kind":"PodList","items":[{"a":"1', id="cut off in an object"),
        pytest.param(b'{"kind":"PodList","items":[{"a":1]}', id="brackets that do not match"),
        pytest.param(b'{"kind":"PodList","items":[{"a" 1}]}', id="an object that is no JSON"),
        pytest.param(b"]", id="a bracket too many"),
        pytest.param(b"x" * (FRAME_BYTES_MOST + 1), id="more than a list has around its objects"),
    ],
)
def test_an_answer_that_is_not_a_list_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(objects(text))
