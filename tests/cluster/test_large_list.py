"""A list of any size is read in small lists, and has the same objects as its pages."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from urllib3.response import HTTPResponse

from konductor_like.cluster.api import large_list, transport
from konductor_like.cluster.api.client import NODES_PATH, KubeClient
from konductor_like.cluster.api.errors import KubeBadAnswer, KubeForbidden
from konductor_like.cluster.api.large_list import small_lists
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import list_nodes
from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.http import JSON
from konductor_like_sandbox.kubernetes import KubernetesServer, refusal
from konductor_like_sandbox.kubernetes.fleet import make_node

TRICKY = 'the text }},{"metadata":{"name":"x"}} of a message'


def written(count: int, **first: object) -> bytes:
    """Return a list of this many objects as the API server writes it; ``first`` are fields of the head."""
    items = [{"metadata": {"name": f"n{number}"}, "text": TRICKY} for number in range(count)]
    head = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, **first}
    return json.dumps({**head, "items": items}, separators=(",", ":")).encode()


def cut(data: bytes, size: int, most_bytes: int = 1 << 20) -> Iterator[bytes]:
    return small_lists((data[at : at + size] for at in range(0, len(data), size)), most_bytes)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_small_lists_have_the_objects_of_the_large_one(
    count: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_list, "LIST_BYTES", 300)
    data = written(count)

    found = [json.loads(each) for each in cut(data, size)]

    assert [item for each in found for item in each["items"]] == json.loads(data)["items"]
    assert {(each["kind"], each["metadata"]["resourceVersion"]) for each in found} == {("NodeList", "7")}
    assert len(found) > 5 or count < 20 or size > 300


def test_an_answer_of_another_form_stays_whole_and_is_read_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_list, "LIST_BYTES", 300)
    data = written(20, more={"inner": []})

    assert list(cut(data, 100)) == [data]
    with pytest.raises(ValueError, match="in one piece"):
        list(cut(data, 100, most_bytes=1000))


@pytest.fixture
def fleet(server: KubernetesServer, monkeypatch: pytest.MonkeyPatch) -> KubernetesServer:
    """Nine Nodes of 20 KB: more than the API server sends unpacked."""
    monkeypatch.setattr(large_list, "LIST_BYTES", 50_000)
    for number in range(9):
        server.put_node(make_node(f"gpu-{number}"))
    return server


def test_the_cached_nodes_are_the_listed_nodes(fleet: KubernetesServer, client: KubeClient) -> None:
    decode = node_decoder()

    assert list_nodes(client, decode, cached=True) == list_nodes(client, decode)
    cached, page = fleet.calls("list", "nodes")
    assert [call.request.param("resourceVersion") for call in (cached, page)] == ["0", ""]
    assert cached.request.headers["accept-encoding"] == page.request.headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize(
    "mishap", [Mishap(cut_body_to=1000), Mishap(200, "{}", JSON), Mishap(200, "<html>", JSON)]
)
def test_an_answer_that_is_no_whole_list_is_an_error(
    fleet: KubernetesServer, client: KubeClient, mishap: Mishap
) -> None:
    fleet.mishaps.add(mishap)

    with pytest.raises(KubeBadAnswer, match="cannot list nodes"):
        list_nodes(client, node_decoder(), cached=True)


def test_a_list_that_breaks_off_is_read_in_pages(fleet: KubernetesServer, client: KubeClient) -> None:
    fleet.mishaps.add(Mishap(drop=Drop.MIDWAY))

    assert len(list_nodes(client, node_decoder(), cached=True)) == 9


def test_a_refused_list_is_the_same_error_as_of_pages(fleet: KubernetesServer, client: KubeClient) -> None:
    fleet.mishaps.add(refusal(403))

    with pytest.raises(KubeForbidden):
        list_nodes(client, node_decoder(), cached=True)


@pytest.mark.usefixtures("fleet")
def test_a_packed_answer_is_unpacked_up_to_the_limit_only(
    client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES_MOST", 100_000)
    read, asked = HTTPResponse.read, list[int | None]()

    def noted(self: HTTPResponse, amount: int | None = None, **options: bool) -> bytes:
        asked.append(amount)
        return read(self, amount, **options)

    monkeypatch.setattr(HTTPResponse, "read", noted)

    with pytest.raises(KubeBadAnswer, match="answered with more than"):
        client.get(NODES_PATH)
    assert asked[0] == 100_001
