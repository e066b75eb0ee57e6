"""What tests lean on in the stand-in API server, and a broken one would hide: journal, users, watches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from konductor_like_sandbox.kubernetes import KubernetesServer, Rule
from konductor_like_sandbox.kubernetes.fleet import make_fleet, make_node
from tests.contract.kubernetes_target import MERGE_PATCH, Target, node_path

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LABEL: dict[str, Any] = {"metadata": {"labels": {"seen": "x"}}}


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer(nodes=[make_node("gpu-1"), make_node("gpu-2")]) as server:
        yield server


@pytest.fixture
def client(server: KubernetesServer) -> Target:
    return Target(server.url, {"Authorization": f"Bearer {server.access.admin_token}"})


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def test_the_journal_speaks_in_rbacs_terms(server: KubernetesServer, client: Target) -> None:
    client.get(NODES)
    client.patch(node_path("gpu-1"), LABEL, MERGE_PATCH)
    client.get(f"{LEASES}/mine")
    client.send("GET", "/version")
    list_, patch, get = server.calls()

    assert [call.rbac for call in (list_, patch, get)] == [
        ("list", "", "nodes"),
        ("patch", "", "nodes"),
        ("get", "coordination.k8s.io", "leases"),
    ]
    assert (patch.name, patch.status, patch.body) == ("gpu-1", 200, LABEL)
    assert (get.namespace, get.name, get.status) == ("default", "mine", 404)
    assert (server.calls("patch"), server.calls(resource="leases"), server.calls(name="no")) == (
        [patch],
        [get],
        [],
    )


def test_a_user_may_do_what_their_rules_say_and_nothing_else(server: KubernetesServer) -> None:
    rules = [
        Rule(("get", "list"), ("nodes",)),
        Rule(("get",), ("leases",), ("coordination.k8s.io",), names=("mine",), namespaces=("default",)),
    ]
    token = server.access.add_user("reader", rules)
    user = Target(server.url, {"Authorization": f"Bearer {token}"})

    assert user.get(NODES).status == 200
    assert user.patch(node_path("gpu-1"), LABEL, MERGE_PATCH).status == 403
    assert user.get(f"{LEASES}/mine").status == 404
    assert user.get(f"{LEASES}/yours").status == 403
    assert user.get(f"{LEASES.replace('default', 'kube-system')}/mine").status == 403


def test_a_refresh_moves_heartbeats_and_the_lease_and_nothing_else(server: KubernetesServer) -> None:
    def without_heartbeats() -> dict[str, Any]:
        node = server.node("gpu-1")
        for condition in node["status"]["conditions"]:
            beats.add(condition.pop("lastHeartbeatTime"))
        for field in ("resourceVersion", "managedFields"):
            del node["metadata"][field]
        return node

    beats: set[str] = set()
    before = without_heartbeats()
    server.kubelets.refresh("gpu-1")

    assert without_heartbeats() == before
    assert len(beats) == 2
    [lease] = server.objects("leases", "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == "gpu-1"


def test_a_silent_watch_stays_open_and_tells_nothing_while_a_new_one_works(
    server: KubernetesServer, client: Target
) -> None:
    version = client.get(NODES).meta["resourceVersion"]
    with client.watch(NODES, resourceVersion=version, timeoutSeconds="1") as deaf:
        eventually(lambda: server.watches.open == 1)
        server.watches.silence()
        client.patch(node_path("gpu-1"), LABEL, MERGE_PATCH)
        with client.watch(NODES, resourceVersion=version, timeoutSeconds="30") as hearing:
            heard = next(iter(hearing))
        told = list(deaf)

    assert (heard["type"], told) == ("MODIFIED", [])


def test_a_new_list_has_a_new_token_although_nothing_changed(
    client: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(seconds=0.0)
    clock.monotonic = lambda: clock.seconds
    monkeypatch.setattr("konductor_like_sandbox.kubernetes.lists.time", clock)
    clock.seconds = 1.0
    client.get(NODES, limit="1")
    clock.seconds = 400.0
    token = client.get(NODES, limit="1").body["metadata"]["continue"]

    assert client.get(NODES, limit="1", **{"continue": token}).status == 200


def test_a_made_up_node_weighs_what_a_real_one_does_and_is_the_same_in_every_run() -> None:
    fleet = make_fleet(20, 5)

    assert 15_000 < len(json.dumps(fleet[0], separators=(",", ":"))) < 40_000
    assert fleet == make_fleet(20, 5)
    assert len({node["status"]["nodeInfo"]["bootID"] for node in fleet}) == 25
