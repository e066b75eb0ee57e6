"""The stand-in API server as a tool: its life, faults, broken watches, direct access, users, kubelets."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from konductor_like.sandbox.fleet import make_node
from konductor_like.sandbox.kubernetes import KubernetesServer, Rule, expired_watch, matching, refusal
from konductor_like.sandbox.kubernetes.kubectl import human_duration
from tests.contract.kubernetes_target import MERGE_PATCH, Target, node_path, put

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


# The server's life


def test_a_restart_keeps_port_objects_and_versions_and_ends_watches(
    server: KubernetesServer, client: Target
) -> None:
    url, version = server.url, client.get(NODES).meta["resourceVersion"]
    with client.watch(NODES, resourceVersion=version) as watch:
        eventually(lambda: server.watches.open == 1)
        server.stop()
        with contextlib.suppress(OSError, http.client.HTTPException):  # in order or not, it ends
            assert list(watch) == []
    with pytest.raises(OSError, match="refused"):
        client.get(NODES)
    server.start()

    assert (server.url, client.get(NODES).meta["resourceVersion"]) == (url, version)


def test_stopping_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    with KubernetesServer(nodes=[make_node("gpu-1")]) as server:
        client = Target(server.url, {})
        server.kubelets.start(period_seconds=0.05)
        with client.watch(NODES) as watch:
            next(iter(watch))

    assert set(threading.enumerate()) <= before


# Direct access


def test_a_node_can_be_put_changed_and_taken_behind_everybodys_back(
    server: KubernetesServer, client: Target
) -> None:
    version = client.get(NODES).meta["resourceVersion"]
    server.put_node({"metadata": {"name": "bare"}})
    server.edit_node("gpu-1", lambda node: node["metadata"]["labels"].update(seen="x"))
    server.delete_node("gpu-2")
    with client.watch(NODES, resourceVersion=version, timeoutSeconds="30") as watch:
        told = [(e["type"], e["object"]["metadata"]["name"]) for e in islice(watch, 3)]

    assert told == [("ADDED", "bare"), ("MODIFIED", "gpu-1"), ("DELETED", "gpu-2")]
    assert server.node("bare")["metadata"]["uid"]
    with pytest.raises(KeyError):
        server.node("gpu-2")


def test_a_mangled_node_can_be_put_past_every_check(server: KubernetesServer, client: Target) -> None:
    taint = {"key": "trainy.konduktor.ai/faulty", "effect": "Nonsense"}
    server.put_node(make_node("odd", taints=[taint, taint]))

    assert client.get(node_path("odd")).body["spec"]["taints"] == [taint, taint]


def test_the_clock_can_be_turned() -> None:
    then = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
    with KubernetesServer(nodes=[make_node("gpu-1")], clock=lambda: then) as server:
        Target(server.url, {}).patch(node_path("gpu-1"), label("x"), MERGE_PATCH, fieldManager="me")
        entries = server.node("gpu-1")["metadata"]["managedFields"]

    assert [e["time"] for e in entries if e["manager"] == "me"] == ["2031-02-03T04:05:06Z"]


# The journal


def test_the_journal_speaks_in_rbacs_terms(server: KubernetesServer, client: Target) -> None:
    client.get(NODES)
    client.patch(node_path("gpu-1"), label("x"), MERGE_PATCH)
    client.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/mine")
    client.send("GET", "/version")
    list_, patch, get = server.calls()

    assert [call.rbac for call in (list_, patch, get)] == [
        ("list", "", "nodes"),
        ("patch", "", "nodes"),
        ("get", "coordination.k8s.io", "leases"),
    ]
    assert (patch.name, patch.status, patch.body) == ("gpu-1", 200, label("x"))
    assert patch.user_agent.startswith("konductor-like-contract/")
    assert (get.namespace, get.name, get.status) == ("default", "mine", 404)
    assert (server.calls("patch"), server.calls(resource="leases"), server.calls(name="no")) == (
        [patch],
        [get],
        [],
    )
    server.clear_calls()
    assert server.calls() == []


# Users


def as_user(server: KubernetesServer, token: str) -> Target:
    return Target(server.url, {"Authorization": f"Bearer {token}"})


def test_a_user_may_do_what_their_rules_say_and_nothing_else(server: KubernetesServer) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    rules = [
        Rule(("get", "list"), ("nodes",)),
        Rule(("get",), ("leases",), ("coordination.k8s.io",), names=("mine",), namespaces=("default",)),
    ]
    user = as_user(server, server.access.add_user("reader", rules))

    assert user.get(NODES).status == 200
    assert user.patch(node_path("gpu-1"), label("x"), MERGE_PATCH).status == 403
    assert user.get(f"{leases}/mine").status == 404
    assert user.get(f"{leases}/yours").status == 403
    assert user.get(f"{leases.replace('default', 'kube-system')}/mine").status == 403


def test_a_denial_meets_everybody_in_requests_and_in_reviews(
    server: KubernetesServer, client: Target
) -> None:
    review = {"spec": {"resourceAttributes": {"verb": "patch", "resource": "nodes"}}}
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    server.access.deny("patch", "nodes")

    assert client.patch(node_path("gpu-1"), label("x"), MERGE_PATCH).status == 403
    assert client.send("POST", reviews, review).body["status"] == {"allowed": False}


def test_a_revoked_token_is_unauthorized(server: KubernetesServer) -> None:
    token = server.access.add_user("somebody")
    user = as_user(server, token)

    assert user.get(NODES).status == 200
    server.access.revoke(token)
    assert user.get(NODES).status == 401


@pytest.mark.parametrize(("require_token", "status"), [(False, 200), (True, 403)])
def test_nobody_in_particular_is_the_admin_unless_a_token_is_required(
    require_token: bool, status: int
) -> None:
    with KubernetesServer(require_token=require_token) as server:
        assert Target(server.url, {}).get(NODES).status == status


def test_a_kubeconfig_names_the_server_and_a_token(server: KubernetesServer, tmp_path: Path) -> None:
    config = json.loads(server.kubeconfig(tmp_path / "config", token="secret").read_text())

    assert config["clusters"][0]["cluster"] == {"server": server.url}
    assert config["users"][0]["user"] == {"token": "secret"}
    assert (tmp_path / "config").stat().st_mode & 0o077 == 0


# Kubelets


def test_a_refresh_moves_heartbeats_and_the_lease_and_nothing_else(server: KubernetesServer) -> None:
    before = server.node("gpu-1")
    server.kubelets.refresh("gpu-1")
    after = server.node("gpu-1")
    leases = server.objects("leases", "kube-node-lease")

    assert {c["lastHeartbeatTime"] for c in after["status"]["conditions"]} != {
        c["lastHeartbeatTime"] for c in before["status"]["conditions"]
    }
    assert [c["lastTransitionTime"] for c in after["status"]["conditions"]] == [
        c["lastTransitionTime"] for c in before["status"]["conditions"]
    ]
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert [lease["spec"]["holderIdentity"] for lease in leases] == ["gpu-1"]


def test_a_reboot_changes_the_boot_id_and_not_the_machine(server: KubernetesServer) -> None:
    before = server.node("gpu-1")["status"]["nodeInfo"]
    boot_id = server.kubelets.reboot("gpu-1")
    after = server.node("gpu-1")["status"]["nodeInfo"]

    assert after == {**before, "bootID": boot_id}
    assert boot_id != before["bootID"]


def test_kubelets_refresh_every_node_in_the_background(server: KubernetesServer) -> None:
    server.kubelets.start(period_seconds=0.02)
    eventually(lambda: len(server.objects("leases", "kube-node-lease")) == 2)
    server.kubelets.stop()


# Faults


@pytest.mark.parametrize("code", [409, 429, 503])
def test_the_next_requests_that_match_are_refused(
    server: KubernetesServer, client: Target, code: int
) -> None:
    server.mishaps.add(refusal(code, retry_after_seconds=7), times=2, when=matching("PATCH", "/nodes/gpu-1$"))
    answers = [client.patch(node_path("gpu-1"), label("x"), MERGE_PATCH) for _ in range(3)]

    assert [answer.status for answer in answers] == [code, code, 200]
    assert (answers[0].headers["Retry-After"], answers[0].body["code"]) == ("7", code)
    assert answers[0].body["details"] == {"retryAfterSeconds": 7}
    assert client.patch(node_path("gpu-2"), label("x"), MERGE_PATCH).status == 200


def test_a_refusal_can_come_after_the_write_took_effect(server: KubernetesServer, client: Target) -> None:
    server.mishaps.add(refusal(504, after=True), when=matching("PATCH"))

    assert client.patch(node_path("gpu-1"), label("x"), MERGE_PATCH).status == 504
    assert server.node("gpu-1")["metadata"]["labels"]["seen"] == "x"


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


# Details


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
        (119, "119s"),
        (120, "2m"),
        (192, "3m12s"),
        (179 * 60, "179m"),
        (7 * 3600 + 60, "7h1m"),
        (47 * 3600, "47h"),
        (3 * 86400 + 3600, "3d1h"),
        (8 * 86400, "8d"),
        (731 * 86400, "2y1d"),
    ],
)
def test_ages_are_said_as_kubectl_says_them(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text
