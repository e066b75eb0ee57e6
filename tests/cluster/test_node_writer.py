from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import (
    KubeInvalid,
)
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.record import encode
from konductor_like.cluster.node.store import list_nodes
from konductor_like.cluster.node.writer import DryRunWriter, NodeWriter, Outcome
from konductor_like.model import (
    HEALTH_LABEL,
    RECORD_ANNOTATION,
    TAINT_KEY,
    Change,
    NodeState,
    Release,
    ReleaseHow,
    Verb,
)
from konductor_like_sandbox.kubernetes import KubernetesServer, refusal
from tests.cluster.scenes import NOON, OURS, TEAM, incident, raw_node, record, taint
from tests.cluster.writer_scenes import PATCHES, READS, Waits, make_writer, taints

# Success.


def test_a_change_is_one_patch(server: KubernetesServer, writer: NodeWriter, state: NodeState) -> None:
    result = writer.write(state, taint())

    assert result.outcome is Outcome.APPLIED
    assert result.state is not None
    assert result.state.tainted
    assert result.state.record == taint().record
    assert taints(server) == [TEAM, OURS]
    assert server.node("gpu-1")["metadata"]["labels"][HEALTH_LABEL] == "faulty"
    assert [call.verb for call in server.calls()] == ["list", "patch"]


def test_a_change_that_changes_nothing_is_not_sent(
    server: KubernetesServer, writer: NodeWriter, state: NodeState
) -> None:
    done = writer.write(state, taint()).state
    assert done is not None
    server.clear_calls()

    assert writer.write(done, taint()).outcome is Outcome.APPLIED
    assert server.calls() == []


# Races.


@pytest.mark.parametrize(
    "meddle",
    [
        lambda node: node["spec"].update(taints=[]),
        lambda node: node["spec"]["taints"].append({"key": "new", "effect": "NoExecute"}),
        lambda node: node["metadata"]["annotations"].update({"trainy.konduktor.ai/record": "{}"}),
        lambda node: node["metadata"].update(uid="another"),
    ],
    ids=["taints removed", "a taint added", "another record", "another Node"],
)
def test_who_was_faster_is_not_written_over(
    server: KubernetesServer, writer: NodeWriter, state: NodeState, meddle: Callable[[dict[str, Any]], None]
) -> None:
    server.edit_node("gpu-1", meddle)
    before = server.node("gpu-1")

    result = writer.write(state, taint())

    assert result.outcome is Outcome.CONFLICT
    assert result.state is not None
    assert result.state.as_read.resource_version == before["metadata"]["resourceVersion"]
    assert server.node("gpu-1") == before


@pytest.mark.parametrize("how", [ReleaseHow.REBOOT, ReleaseHow.TEST_ENDED])
@pytest.mark.parametrize(
    "meddle",
    [
        lambda node: node["spec"].update(unschedulable=True),
        lambda node: node["status"].update(conditions=[{"type": "Ready", "status": "False"}]),
        lambda node: node["metadata"]["labels"].update({"trainy.konduktor.ai/ignore": "true"}),
    ],
    ids=["cordoned", "not ready", "opted out"],
)
def test_a_node_that_changes_after_the_decision_does_not_return_by_itself(
    server: KubernetesServer,
    client: KubeClient,
    writer: NodeWriter,
    meddle: Callable[[dict[str, Any]], None],
    how: ReleaseHow,
) -> None:
    server.put_node(raw_node(taints=[OURS], annotations={RECORD_ANNOTATION: encode(record(incident()))}))
    state = list_nodes(client, node_decoder())["gpu-1"]
    release = Release(NOON, "konductor-like", "", how)
    change = Change("gpu-1", Verb.UNTAINT, record(tainted=False, releases=(release,)), None)

    server.edit_node("gpu-1", meddle)

    assert writer.write(state, change).outcome is Outcome.CONFLICT
    assert taints(server) == [OURS]


def test_a_conflict_inside_the_server_is_a_conflict(
    server: KubernetesServer, writer: NodeWriter, state: NodeState
) -> None:
    server.mishaps.add(refusal(409), when=PATCHES)

    assert writer.write(state, taint()).outcome is Outcome.CONFLICT


def test_a_node_that_does_not_exist_is_gone(
    server: KubernetesServer, writer: NodeWriter, state: NodeState
) -> None:
    server.delete_node("gpu-1")

    assert writer.write(state, taint()).outcome is Outcome.GONE


def test_a_node_that_is_deleted_after_the_conflict_is_gone(
    server: KubernetesServer, writer: NodeWriter, state: NodeState
) -> None:
    server.mishaps.add(refusal(409), when=PATCHES)
    server.mishaps.add(refusal(404), when=READS)

    assert writer.write(state, taint()).outcome is Outcome.GONE


def test_an_invalid_change_fails_and_is_not_tried_again(
    server: KubernetesServer, client: KubeClient, writer: NodeWriter
) -> None:
    twin = {"key": TAINT_KEY, "value": "by-hand", "effect": "NoSchedule"}
    server.put_node(raw_node(taints=[twin]))
    state = list_nodes(client, node_decoder())["gpu-1"]

    result = writer.write(state, taint())

    assert result.outcome is Outcome.FAILED
    assert isinstance(result.error, KubeInvalid)
    assert "taints must be unique by key and effect" in str(result.error)
    assert not result.outcome_unknown
    assert len(server.calls("patch")) == 1


# Many at once.


@pytest.fixture
def fleet(server: KubernetesServer, client: KubeClient) -> dict[str, NodeState]:
    """Thirty healthy Nodes."""
    for n in range(30):
        server.put_node(raw_node(f"gpu-{n}"))
    return list_nodes(client, node_decoder())


def test_results_come_in_the_order_of_the_changes(
    server: KubernetesServer, client: KubeClient, waits: Waits, fleet: dict[str, NodeState]
) -> None:
    server.delete_node("gpu-4")
    server.mishaps.add(refusal(503), times=5, when=PATCHES)
    pairs = [(state, taint(name)) for name, state in fleet.items()]

    results = make_writer(client, waits).write_all(pairs)

    assert [result.change for result in results] == [change for _, change in pairs]
    outcomes = {result.change.node: result.outcome for result in results}
    assert outcomes.pop("gpu-4") is Outcome.GONE
    assert set(outcomes.values()) == {Outcome.APPLIED}


def test_as_many_writes_are_under_way_as_allowed_and_no_more(
    client: KubeClient, waits: Waits, fleet: dict[str, NodeState], monkeypatch: pytest.MonkeyPatch
) -> None:
    together, lock = threading.Barrier(4, timeout=10), threading.Lock()
    under_way: list[int] = [0]
    real = client.patch

    def patch(*args: Any, **parts: Any) -> Any:
        with lock:
            under_way.append(under_way[-1] + 1)
        together.wait()  # each waits until four are here
        try:
            return real(*args, **parts)
        finally:
            with lock:
                under_way.append(under_way[-1] - 1)

    monkeypatch.setattr(client, "patch", patch)
    pairs = [(state, taint(name)) for name, state in fleet.items()][:16]

    results = make_writer(client, waits, write_concurrency=4).write_all(pairs)

    assert {result.outcome for result in results} == {Outcome.APPLIED}
    assert max(under_way) == 4


# Dry run.


def test_a_dry_run_returns_the_results_and_writes_nothing(server: KubernetesServer, state: NodeState) -> None:
    (result,) = DryRunWriter().write_all([(state, taint())])

    assert result.outcome is Outcome.APPLIED
    assert result.state is not None
    assert result.state.tainted
    assert result.state.record == record(incident())
    assert taints(server) == [TEAM]
