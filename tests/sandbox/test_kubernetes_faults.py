"""What can be made to go wrong with the stand-in API server, and with its watches."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from konductor_like.sandbox.fault_injection import Drop, Mishap
from konductor_like.sandbox.fleet import make_node
from konductor_like.sandbox.kubernetes import KubernetesServer, expired_watch, matching, refusal
from tests.contract.kubernetes_target import MERGE_PATCH, Target, node_path

NODES = "/api/v1/nodes"


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer(nodes=[make_node("gpu-1"), make_node("gpu-2")], bookmark_seconds=0.05) as server:
        yield server


@pytest.fixture
def client(server: KubernetesServer) -> Target:
    return Target(server.url, {"Authorization": f"Bearer {server.access.admin_token}"})


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def label(value: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"seen": value}}}


# Faults


@pytest.mark.parametrize("code", [401, 403, 409, 422, 429, 500, 503])
def test_the_next_requests_that_match_are_refused(
    server: KubernetesServer, client: Target, code: int
) -> None:
    server.mishaps.add(refusal(code, retry_after_seconds=7), times=2, when=matching("PATCH", "/nodes/gpu-1$"))
    answers = [client.patch(node_path("gpu-1"), label("x"), MERGE_PATCH) for _ in range(3)]

    assert [answer.status for answer in answers] == [code, code, 200]
    assert (answers[0].headers["Retry-After"], answers[0].body["code"]) == ("7", code)
    assert answers[0].body["details"] == {"retryAfterSeconds": 7}
    assert client.patch(node_path("gpu-2"), label("x"), MERGE_PATCH).status == 200


@pytest.mark.parametrize(
    ("mishap", "stored"),
    [
        pytest.param(Mishap(drop=Drop.RESET), False, id="before the write"),
        pytest.param(Mishap(drop=Drop.RESET, after=True), True, id="after the write"),
        pytest.param(Mishap(drop=Drop.SILENTLY, after=True), True, id="closed after the write"),
    ],
)
def test_a_connection_is_lost_before_or_after_the_write_took_effect(
    server: KubernetesServer, client: Target, mishap: Mishap, stored: bool
) -> None:
    server.mishaps.add(mishap, when=matching("PATCH"))
    with pytest.raises((OSError, http.client.HTTPException)):
        client.patch(node_path("gpu-1"), label("x"), MERGE_PATCH)

    assert ("seen" in server.node("gpu-1")["metadata"]["labels"]) is stored
    assert [call.status for call in server.calls("patch")] == [0]


def test_a_5xx_can_come_after_the_write_took_effect(server: KubernetesServer, client: Target) -> None:
    server.mishaps.add(refusal(504, after=True), when=matching("PATCH"))

    assert client.patch(node_path("gpu-1"), label("x"), MERGE_PATCH).status == 504
    assert server.node("gpu-1")["metadata"]["labels"]["seen"] == "x"


def test_a_slow_answer_is_slow(server: KubernetesServer, client: Target) -> None:
    server.mishaps.add(Mishap(delay_seconds=0.2))
    started = time.monotonic()

    assert client.get(NODES).status == 200
    assert time.monotonic() - started >= 0.2


def test_later_pages_alone_can_be_refused(server: KubernetesServer, client: Target) -> None:
    server.mishaps.add(refusal(410), when=matching("GET", "/nodes$", having="continue"))
    first = client.get(NODES, limit="1")
    second = client.get(NODES, **{"limit": "1", "continue": first.meta["continue"]})

    assert (first.status, second.status, second.body["reason"]) == (200, 410, "Expired")


# Watches that break


def test_a_watch_can_be_expired_from_its_start(server: KubernetesServer, client: Target) -> None:
    server.mishaps.add(expired_watch(), when=matching("GET", having="watch"))
    with client.watch(NODES) as watch:
        events = list(watch)

    assert [(e["type"], e["object"]["code"]) for e in events] == [("ERROR", 410)]


def test_open_watches_can_be_expired(server: KubernetesServer, client: Target) -> None:
    with client.watch(NODES) as watch:
        started = list(islice(watch, 2))
        server.watches.expire()
        rest = [(e["type"], e["object"].get("code")) for e in watch if e["type"] != "BOOKMARK"]

    assert [event["type"] for event in started] == ["ADDED", "ADDED"]
    assert rest == [("ERROR", 410)]


def test_open_watches_can_be_cut(server: KubernetesServer, client: Target) -> None:
    with client.watch(NODES) as watch:
        list(islice(watch, 2))
        server.watches.cut()

        assert [e for e in watch if e["type"] != "BOOKMARK"] == []


def test_a_silent_watch_stays_open_and_tells_nothing_while_a_new_one_works(
    server: KubernetesServer, client: Target
) -> None:
    version = client.get(NODES).meta["resourceVersion"]
    with client.watch(NODES, resourceVersion=version, timeoutSeconds="1") as deaf:
        eventually(lambda: server.watches.open == 1)
        server.watches.silence()
        client.patch(node_path("gpu-1"), label("x"), MERGE_PATCH)
        with client.watch(NODES, resourceVersion=version, timeoutSeconds="30") as hearing:
            heard = next(iter(hearing))
        told = list(deaf)

    assert (heard["type"], told) == ("MODIFIED", [])


def test_many_watches_hear_of_one_change(server: KubernetesServer, client: Target) -> None:
    version = client.get(NODES).meta["resourceVersion"]

    def listen(_number: int) -> str:
        with client.watch(NODES, resourceVersion=version, timeoutSeconds="30") as watch:
            return str(next(iter(watch))["object"]["metadata"]["labels"]["seen"])

    with ThreadPoolExecutor(50) as listeners:
        heard = listeners.map(listen, range(50))
        eventually(lambda: server.watches.open == 50)
        client.patch(node_path("gpu-1"), label("x"), MERGE_PATCH)

        assert list(heard) == ["x"] * 50


def test_history_that_runs_over_makes_old_versions_too_old() -> None:
    with KubernetesServer(nodes=[make_node("gpu-1")], history_limit=4) as server:
        client = Target(server.url, {})
        version = client.get(NODES).meta["resourceVersion"]
        for number in range(20):
            client.patch(node_path("gpu-1"), label(str(number)), MERGE_PATCH)
        with client.watch(NODES, resourceVersion=version) as old:
            kinds = [event["type"] for event in old]
        recent = str(int(server.node("gpu-1")["metadata"]["resourceVersion"]) - 2)
        with client.watch(NODES, resourceVersion=recent, timeoutSeconds="30") as new:
            seen = [e["object"]["metadata"]["labels"]["seen"] for e in islice(new, 2)]

    assert (kinds, seen) == (["ERROR"], ["18", "19"])
