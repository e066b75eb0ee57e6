from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import (
    KubeForbidden,
    KubeOverloaded,
    KubeUnavailable,
    LeadershipLost,
)
from konductor_like.cluster.api.transport import JsonObject
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import list_nodes
from konductor_like.cluster.node.writer import NodeWriter, Outcome
from konductor_like.model import NodeState
from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.kubernetes import KubernetesServer, refusal
from tests.cluster.scenes import OURS, TEAM, raw_node, taint
from tests.cluster.writer_scenes import PATCHES, READS, Closing, Term, Waits, make_writer, taints

# Errors.


@pytest.mark.parametrize(
    "mishap",
    [refusal(429), refusal(500), refusal(503), Mishap(drop=Drop.RESET), Mishap(drop=Drop.SILENTLY)],
    ids=["429", "500", "503", "reset", "closed"],
)
def test_trouble_that_passes_is_waited_out(
    server: KubernetesServer, writer: NodeWriter, state: NodeState, waits: Waits, mishap: Mishap
) -> None:
    server.mishaps.add(mishap, times=3, when=PATCHES)

    assert writer.write(state, taint()).outcome is Outcome.APPLIED
    assert len(waits.slept) == 3
    assert taints(server) == [TEAM, OURS]


def test_the_server_is_given_the_time_it_asks_for(
    server: KubernetesServer, writer: NodeWriter, state: NodeState, waits: Waits
) -> None:
    server.mishaps.add(refusal(429, retry_after_seconds=7), when=PATCHES)

    writer.write(state, taint())

    assert waits.slept == [7.0]


@pytest.mark.parametrize(
    "mishap",
    [
        refusal(500, after=True),
        refusal(504, after=True),
        Mishap(drop=Drop.RESET, after=True),
        Mishap(drop=Drop.MIDWAY),
        Mishap(200, "<html>", after=True),
    ],
    ids=["500", "504", "reset", "cut off", "HTML"],
)
def test_a_write_that_took_effect_without_an_answer_is_found_applied(
    server: KubernetesServer, writer: NodeWriter, state: NodeState, mishap: Mishap
) -> None:
    server.mishaps.add(mishap, when=PATCHES)

    result = writer.write(state, taint())

    assert result.outcome is Outcome.APPLIED
    assert result.state is not None
    assert result.state.tainted
    assert taints(server) == [TEAM, OURS]


def test_a_write_that_took_effect_and_was_then_undone_is_not_forced(
    server: KubernetesServer, client: KubeClient, waits: Waits, state: NodeState
) -> None:
    server.mishaps.add(Mishap(drop=Drop.RESET, after=True), when=PATCHES)

    def meanwhile(seconds: float) -> None:
        waits.sleep(seconds)
        server.edit_node("gpu-1", lambda node: node["spec"].update(taints=[]))

    result = make_writer(client, waits, sleep=meanwhile).write(state, taint())

    assert result.outcome is Outcome.CONFLICT
    assert taints(server) == []


def test_patience_ends(server: KubernetesServer, client: KubeClient, waits: Waits, state: NodeState) -> None:
    server.mishaps.add(refusal(503), times=None, when=PATCHES)

    result = make_writer(client, waits, patience_seconds=20).write(state, taint())

    assert result.outcome is Outcome.FAILED
    assert isinstance(result.error, KubeUnavailable)
    assert result.outcome_unknown
    assert sum(waits.slept) <= 20
    assert len(server.calls("patch")) > 4


def test_a_stop_ends_the_waiting(
    server: KubernetesServer, client: KubeClient, waits: Waits, state: NodeState
) -> None:
    server.mishaps.add(refusal(503), times=None, when=PATCHES)
    stop = threading.Event()
    stop.set()

    result = make_writer(client, waits, sleep=stop.wait).write(state, taint())

    assert isinstance(result.error, KubeUnavailable)
    assert len(server.calls("patch")) == 1


def test_a_denial_is_not_tried_again(server: KubernetesServer, writer: NodeWriter, state: NodeState) -> None:
    server.access.deny("patch", "nodes")

    result = writer.write(state, taint())

    assert isinstance(result.error, KubeForbidden)
    assert len(server.calls("patch")) == 1


def test_a_conflict_that_cannot_be_looked_into_is_a_failure(
    server: KubernetesServer, writer: NodeWriter, state: NodeState
) -> None:
    server.mishaps.add(refusal(409), when=PATCHES)
    server.mishaps.add(refusal(403), when=READS)

    assert isinstance(writer.write(state, taint()).error, KubeForbidden)


# The deadline.


def test_no_write_starts_outside_the_term(
    server: KubernetesServer, client: KubeClient, waits: Waits, state: NodeState
) -> None:
    result = make_writer(client, waits, fence=Closing(0)).write(state, taint())

    assert isinstance(result.error, LeadershipLost)
    assert server.calls("patch") == []


def test_a_request_gets_no_more_time_than_the_term_has_left(
    client: KubeClient, waits: Waits, state: NodeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    send = client.patch

    def patch(path: str, body: object, *, timeout_seconds: float) -> JsonObject:
        given.append(timeout_seconds)
        return send(path, body, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(client, "patch", patch)

    make_writer(client, waits, fence=Term(waits, 2.0), timeout_seconds=5.0).write(state, taint())
    make_writer(client, waits, fence=Term(waits, 60.0), timeout_seconds=5.0).write(state, taint())

    assert given == [2.0, 5.0]


def test_no_wait_reaches_beyond_the_term(
    server: KubernetesServer, client: KubeClient, waits: Waits, state: NodeState
) -> None:
    server.mishaps.add(refusal(429, retry_after_seconds=12), times=None, when=PATCHES)

    result = make_writer(client, waits, fence=Term(waits, 10)).write(state, taint())

    assert isinstance(result.error, KubeOverloaded)
    assert waits.slept == []


def test_a_term_that_ends_while_waiting_ends_the_write(
    server: KubernetesServer, client: KubeClient, waits: Waits, state: NodeState
) -> None:
    server.mishaps.add(refusal(503), times=None, when=PATCHES)

    result = make_writer(client, waits, fence=Closing(2)).write(state, taint())

    assert isinstance(result.error, LeadershipLost)
    assert result.outcome_unknown  # after a 503 the write may have been done
    assert len(server.calls("patch")) == 1


# Slow servers.


@pytest.mark.usefixtures("state")
def test_a_slow_write_delays_no_other_node(
    server: KubernetesServer, client: KubeClient, waits: Waits
) -> None:
    """Its write continues, is not sent again, and is found to have happened."""
    for name in ("gpu-2", "gpu-3"):
        server.put_node(raw_node(name))
    nodes = list_nodes(client, node_decoder())
    pairs = [(nodes[name], taint(name)) for name in ("gpu-1", "gpu-2", "gpu-3")]
    answer, asked = threading.Event(), threading.Event()
    real = client.patch

    def patch(path: str, *args: Any, **parts: Any) -> Any:
        if path.endswith("gpu-1"):
            asked.set()
            assert answer.wait(10)
        return real(path, *args, **parts)

    client.patch = patch  # type: ignore[method-assign]  # one node is slow
    writer = make_writer(client, waits, linger_seconds=0.05)

    first = writer.write_all(pairs)
    again = writer.write_all(pairs[:1])

    assert [result.outcome for result in first] == [Outcome.UNDER_WAY, Outcome.APPLIED, Outcome.APPLIED]
    assert first[0].outcome_unknown
    assert again[0].outcome is Outcome.UNDER_WAY
    assert asked.is_set()
    assert not writer.finish(0)
    answer.set()
    assert writer.finish(10)
    assert [result.outcome for result in writer.write_all(pairs)] == [Outcome.APPLIED] * 3
    assert len([call for call in server.calls("patch") if call.status == 200]) == 3


def test_the_failure_of_a_late_write_is_the_result_of_the_next_write(
    client: KubeClient, waits: Waits, state: NodeState
) -> None:
    failing = threading.Event()

    def patch(*_args: Any, **_parts: Any) -> Any:
        assert failing.wait(10)
        raise KubeForbidden("cannot patch nodes/gpu-1")

    real, client.patch = client.patch, patch  # type: ignore[method-assign]  # one node is slow
    writer = make_writer(client, waits, linger_seconds=0.05)
    assert writer.write_all([(state, taint())])[0].outcome is Outcome.UNDER_WAY
    failing.set()
    assert writer.finish(10)
    client.patch = real  # type: ignore[method-assign]  # and is fast again

    told, done = (writer.write_all([(state, taint())])[0] for _ in range(2))

    assert isinstance(told.error, KubeForbidden)
    assert told.outcome is Outcome.FAILED
    assert done.outcome is Outcome.APPLIED


def test_the_state_in_an_answer_is_passed_on_at_once(
    client: KubeClient, waits: Waits, state: NodeState
) -> None:
    heard: list[tuple[NodeState, NodeState | None]] = []

    make_writer(client, waits, on_state=lambda *told: heard.append(told)).write(state, taint())

    [(told, written)] = heard
    assert written is not None
    assert (told.name, told.tainted) == ("gpu-1", True)
    same_version = replace(told.as_read, resource_version=state.as_read.resource_version)
    assert replace(told, as_read=same_version) == written
