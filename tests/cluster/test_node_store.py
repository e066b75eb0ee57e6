from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from konductor_like.backoff import Backoff
from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeForbidden, KubeRejected
from konductor_like.cluster.node import patch as node_patch
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import NodeStore, list_nodes
from konductor_like.model import Change, NodeState, Verb
from konductor_like.model.time import ns_of_text
from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.kubernetes import KubernetesServer, expired_watch, matching, refusal
from konductor_like_sandbox.kubernetes.server import Call
from tests.cluster.scenes import OURS, TEAM, raw_node, wait_until

FAST = Backoff(first_seconds=0.01, most_seconds=0.02)


def put(server: KubernetesServer, name: str, **parts: Any) -> None:
    """Store a Node; the server gives it a resourceVersion."""
    node = raw_node(name, **parts)
    del node["metadata"]["resourceVersion"]
    server.put_node(node)


def labelled(server: KubernetesServer, name: str, **labels: str) -> None:
    """Change a Node's labels."""
    server.edit_node(name, lambda node: node["metadata"]["labels"].update(labels))


@pytest.fixture
def changes() -> list[None]:
    """One entry for each call of ``on_change``."""
    return []


@pytest.fixture
def store(server: KubernetesServer, client: KubeClient, changes: list[None]) -> Iterator[NodeStore]:
    """A store of two Nodes that is synced with the server."""
    put(server, "gpu-1")
    put(server, "gpu-2", taints=[TEAM])
    following = NodeStore(
        client, node_decoder(), silence_seconds=5, backoff=FAST, on_change=lambda: changes.append(None)
    )
    following.start()
    assert following.wait_synced(5.0)
    wait_until(lambda: server.watches.open)
    changes.clear()
    yield following
    following.stop()


def full_lists(server: KubernetesServer) -> list[Call]:
    """Return the lists of all Nodes, without requests for the present version."""
    return [call for call in server.calls("list", "nodes") if call.request.param("limit") != "1"]


def _with_status(status: dict[str, Any], node: dict[str, Any]) -> None:
    node["status"].update(status)


def _has_reported(store: NodeStore, at_ns: int) -> bool:
    return store.snapshot()["gpu-1"].reported_ns == at_ns


def tainted(store: NodeStore) -> set[str]:
    """Return the names of the Nodes with our taint, from the store."""
    return {name for name, state in store.snapshot().items() if state.tainted}


def _watched_more_than(server: KubernetesServer, times: int) -> bool:
    return len(server.calls("watch", "nodes")) > times


def version_of(state: NodeState) -> int:
    """Return a Node's resourceVersion."""
    return int(state.as_read.resource_version)


# Following.


def test_a_change_is_seen(server: KubernetesServer, store: NodeStore, changes: list[None]) -> None:
    put(server, "gpu-1", taints=[OURS])

    wait_until(lambda: tainted(store) == {"gpu-1"})
    assert changes


def test_nodes_come_and_go(server: KubernetesServer, store: NodeStore, changes: list[None]) -> None:
    put(server, "gpu-3")
    wait_until(lambda: "gpu-3" in store.snapshot())
    server.delete_node("gpu-1")
    wait_until(lambda: "gpu-1" not in store.snapshot())

    assert len(changes) == 2


def test_a_status_report_moves_the_version_and_wakes_nobody(
    server: KubernetesServer, store: NodeStore, changes: list[None]
) -> None:
    before = version_of(store.snapshot()["gpu-1"])
    server.edit_node("gpu-1", lambda node: node["status"].update(images=[{"sizeBytes": 1}]))

    wait_until(lambda: version_of(store.snapshot()["gpu-1"]) > before)
    assert changes == []


def test_a_reboot_that_was_watched_gives_a_time_before_the_new_boot(
    server: KubernetesServer, store: NodeStore
) -> None:
    reports = [
        *[("boot-a", "2026-03-04T12:00:00Z"), ("boot-a", "2026-03-04T12:05:00Z")],
        *[("boot-b", "2026-03-04T12:20:00Z"), ("boot-b", "2026-03-04T12:25:00Z")],
    ]
    for boot, at in reports:
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": at}
        status = {"nodeInfo": {"systemUUID": "s", "bootID": boot}, "conditions": [condition]}
        server.edit_node("gpu-1", partial(_with_status, status))
        wait_until(partial(_has_reported, store, ns_of_text(at)))

    assert store.snapshot()["gpu-1"].booted_after_ns == ns_of_text("2026-03-04T12:05:00Z")
    assert store.snapshot()["gpu-2"].booted_after_ns is None


def test_a_snapshot_stays_as_it_was(server: KubernetesServer, store: NodeStore) -> None:
    before = store.snapshot()
    put(server, "gpu-3")
    wait_until(lambda: "gpu-3" in store.snapshot())

    assert sorted(before) == ["gpu-1", "gpu-2"]


def test_without_a_change_the_snapshot_is_the_same_object(store: NodeStore) -> None:
    assert store.snapshot() is store.snapshot()


@pytest.mark.usefixtures("store")
def test_following_lists_the_nodes_once_and_never_again(server: KubernetesServer) -> None:
    for _ in range(3):
        wait_until(lambda: server.watches.open)
        seen = len(server.calls("watch", "nodes"))
        server.watches.cut()
        wait_until(partial(_watched_more_than, server, seen))

    assert len(server.calls("list", "nodes")) == 1


def test_a_watch_goes_on_from_the_last_bookmark(server: KubernetesServer, store: NodeStore) -> None:
    for n in range(5):
        server.create_namespace(f"busy-{n}")  # changes the server's version, but no Node
    newest = max(map(version_of, store.snapshot().values()))
    wait_until(lambda: int(store._version) >= newest + 5)
    seen = len(server.calls("watch", "nodes"))
    server.watches.cut()
    wait_until(lambda: len(server.calls("watch", "nodes")) > seen)

    assert int(server.calls("watch", "nodes")[-1].request.param("resourceVersion")) >= newest + 5


# Trouble.


@pytest.mark.parametrize(
    "mishap",
    [refusal(500), refusal(429, retry_after_seconds=0), Mishap(drop=Drop.RESET), Mishap(200, "<html>")],
    ids=["500", "429", "reset", "HTML"],
)
@pytest.mark.parametrize("having", ["", "watch"], ids=["list", "watch"])
def test_trouble_is_outlived(
    server: KubernetesServer, client: KubeClient, mishap: Mishap, having: str
) -> None:
    put(server, "gpu-1")
    server.mishaps.add(mishap, times=3, when=matching("GET", "nodes", having))
    store = NodeStore(client, node_decoder(), backoff=FAST)
    store.start()
    try:
        assert store.wait_synced(5.0)
        wait_until(lambda: not server.mishaps.pending)
        put(server, "gpu-2")
        wait_until(lambda: "gpu-2" in store.snapshot())
        wait_until(lambda: store.problem is None)
    finally:
        store.stop()


def test_the_error_that_keeps_it_from_following_is_the_problem(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.access.deny("list", "nodes")
    store = NodeStore(client, node_decoder(), backoff=FAST)
    store.start()
    try:
        wait_until(lambda: isinstance(store.problem, KubeForbidden))
        assert not store.wait_synced(0)
    finally:
        store.stop()


def test_a_server_that_was_away_is_followed_again(server: KubernetesServer, store: NodeStore) -> None:
    server.stop()
    wait_until(lambda: store.problem)
    assert sorted(store.snapshot()) == ["gpu-1", "gpu-2"]
    server.start()
    put(server, "gpu-3")

    wait_until(lambda: "gpu-3" in store.snapshot())
    assert store.problem is None


def test_history_that_the_server_forgot_costs_one_list(server: KubernetesServer, store: NodeStore) -> None:
    server.mishaps.add(expired_watch(), when=matching("GET", "nodes", having="watch"))
    server.watches.cut()
    server.delete_node("gpu-1")
    put(server, "gpu-3")

    wait_until(lambda: sorted(store.snapshot()) == ["gpu-2", "gpu-3"])
    assert len(server.calls("list", "nodes")) == 2


def test_a_connection_that_went_silent_is_noticed(server: KubernetesServer, client: KubeClient) -> None:
    put(server, "gpu-1")
    store = NodeStore(client, node_decoder(), silence_seconds=0.3, backoff=FAST)
    store.start()
    try:
        wait_until(lambda: server.watches.open)
        server.watches.silence()
        put(server, "gpu-2")
        wait_until(lambda: "gpu-2" in store.snapshot())
        assert store.problem is None
        assert len(full_lists(server)) == 1
    finally:
        store.stop()
        server.watches.cut()


def test_the_state_after_a_restored_backup_counts_although_its_versions_are_lower(
    server: KubernetesServer, client: KubeClient
) -> None:
    put(server, "gpu-1")
    put(server, "gpu-2")
    store = NodeStore(client, node_decoder(), silence_seconds=0.3, backoff=FAST)
    store.start()
    try:
        wait_until(lambda: server.watches.open)
        backup = server.backup()
        put(server, "gpu-1", taints=[OURS])
        put(server, "gpu-3")
        server.delete_node("gpu-2")
        wait_until(lambda: sorted(store.snapshot()) == ["gpu-1", "gpu-3"])
        known = version_of(store.snapshot()["gpu-1"])

        server.restore(backup)
        wait_until(lambda: sorted(store.snapshot()) == ["gpu-1", "gpu-2"])
        assert tainted(store) == set()
        assert len(full_lists(server)) == 2
        put(server, "gpu-2", taints=[OURS])
        wait_until(lambda: tainted(store) == {"gpu-2"})

        assert version_of(store.snapshot()["gpu-2"]) <= known
        store.apply(after(store.snapshot()["gpu-1"], known))
        assert tainted(store) == {"gpu-1", "gpu-2"}
    finally:
        store.stop()
        server.watches.cut()


def test_stopping_does_not_wait_for_the_next_event(store: NodeStore) -> None:
    thread = threading.Thread(target=store.stop)
    thread.start()
    thread.join(2.0)

    assert not thread.is_alive()


def test_stopping_before_anything_answered_works(server: KubernetesServer, client: KubeClient) -> None:
    server.mishaps.add(refusal(503), times=None)
    store = NodeStore(client, node_decoder())
    store.start()
    wait_until(lambda: store.problem)

    store.stop()
    store.stop()


# Our own writes.


def after(state: NodeState, version: int, *, tainted: bool = True) -> NodeState:
    """Return the answer to a write of ours."""
    change = Change(state.name, Verb.TAINT if tainted else Verb.UNTAINT, None, None)
    done = node_patch.applied(state, change)
    return replace(done, as_read=replace(done.as_read, resource_version=str(version)))


def test_the_answer_to_our_own_write_counts_at_once(store: NodeStore, changes: list[None]) -> None:
    state = store.snapshot()["gpu-1"]

    store.apply(after(state, version_of(state) + 1000))

    assert tainted(store) == {"gpu-1"}
    assert len(changes) == 1


def test_an_answer_that_shows_only_our_own_write_is_not_a_change(
    store: NodeStore, changes: list[None]
) -> None:
    state = store.snapshot()["gpu-1"]
    told = len(changes)
    written = after(state, version_of(state))

    store.apply(after(state, version_of(state) + 1000), written)
    assert (tainted(store), len(changes)) == ({"gpu-1"}, told)

    store.apply(replace(after(state, version_of(state) + 1001), unschedulable=True), written)
    assert len(changes) == told + 1


def test_an_answer_that_is_older_than_the_known_state_is_ignored(store: NodeStore) -> None:
    state = store.snapshot()["gpu-1"]

    store.apply(after(state, version_of(state) - 1))

    assert tainted(store) == set()


def test_the_watch_does_not_bring_back_the_state_before_our_write(
    server: KubernetesServer, store: NodeStore
) -> None:
    state = store.snapshot()["gpu-1"]
    store.apply(after(state, version_of(state) + 1000))
    labelled(server, "gpu-1", late="yes")
    put(server, "gpu-3")
    wait_until(lambda: "gpu-3" in store.snapshot())

    assert tainted(store) == {"gpu-1"}


def test_an_answer_about_a_node_that_is_gone_does_not_bring_it_back(
    server: KubernetesServer, store: NodeStore
) -> None:
    state = store.snapshot()["gpu-1"]
    server.delete_node("gpu-1")
    wait_until(lambda: "gpu-1" not in store.snapshot())

    store.apply(after(state, version_of(state) + 1))

    assert "gpu-1" not in store.snapshot()


def test_a_list_does_not_undo_an_answer_that_is_newer(server: KubernetesServer, store: NodeStore) -> None:
    state = store.snapshot()["gpu-1"]
    store.apply(after(state, version_of(state) + 1000))
    server.mishaps.add(expired_watch(), when=matching("GET", "nodes", having="watch"))
    server.watches.cut()

    wait_until(lambda: len(server.calls("list", "nodes")) == 2)
    wait_until(lambda: store.problem is None)
    assert tainted(store) == {"gpu-1"}


# The command line's list.


def test_a_list_of_nodes_takes_a_selector(server: KubernetesServer, client: KubeClient) -> None:
    put(server, "gpu-1", labels={"pool": "a"})
    put(server, "gpu-2", labels={"pool": "b"})

    assert list(list_nodes(client, node_decoder(), "pool=b")) == ["gpu-2"]
    assert list(list_nodes(client, node_decoder())) == ["gpu-1", "gpu-2"]


def test_an_invalid_selector_fails_with_the_servers_message(client: KubeClient) -> None:
    with pytest.raises(KubeRejected, match="unable to parse requirement"):
        list_nodes(client, node_decoder(), "a in")


def test_a_mistake_of_ours_is_a_problem_and_not_a_frozen_view(
    server: KubernetesServer, client: KubeClient
) -> None:
    """The store must never stop following the Nodes without reporting it."""
    put(server, "gpu-1")
    broken = threading.Event()
    broken.set()

    def decode(node: dict[str, Any]) -> NodeState:
        if broken.is_set():
            raise RuntimeError("a mistake of ours")
        return node_decoder()(node)

    store = NodeStore(client, decode, silence_seconds=5, backoff=FAST)
    store.start()
    try:
        wait_until(lambda: "a mistake of ours" in str(store.problem))
        broken.clear()
        wait_until(lambda: store.problem is None and sorted(store.snapshot()) == ["gpu-1"])
    finally:
        store.stop()
