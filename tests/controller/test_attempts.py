"""The controller's last attempts, as the Lease shows them to `status` and `doctor`."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeForbidden, KubeUnreachable
from konductor_like.cluster.node.writer import Outcome, WriteResult
from konductor_like.cluster.preflight import all_permissions, optional_permissions
from konductor_like.controller.loop.leadership import Leadership
from konductor_like.controller.reading.poller import Delivery, Reader
from konductor_like.controller.reporting.attempts import (
    SILENT_SECONDS,
    AttemptLog,
    error_words,
    note_rights,
)
from konductor_like.loki.query.errors import LokiUnauthorized, LokiUnreachable
from konductor_like.loki.readers.poll import PollResult
from konductor_like.model import Verb
from konductor_like.model.attempts import Attempt, Attempts, Doing, Unwritten
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes import KubernetesServer, refusal
from tests.controller.reconciling import ANY, Scene, monitor, xid
from tests.controller.test_poller import ScriptedReader
from tests.policy.scenes import at

FORBIDDEN = KubeForbidden(
    'cannot patch nodes/gpu-1: nodes "gpu-1" is forbidden: User "system:serviceaccount:konductor-like:'
    'konductor-like" cannot patch resource "nodes" in API group "" at the cluster scope'
)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> datetime:
        return at(self.seconds)


def test_a_failure_says_since_when_and_when_it_last_went_well() -> None:
    clock = Clock()
    log = AttemptLog(clock)
    log.note(Doing.KERNEL)
    for clock.seconds in (5, 10):
        log.note(Doing.KERNEL, LokiUnreachable("Loki at http://loki:3100: cannot connect: refused"))

    assert log.latest() == {Doing.KERNEL: Attempt(at(0), at(5), "Loki: cannot connect: refused")}

    clock.seconds = 15
    log.note(Doing.KERNEL)
    assert log.latest() == {Doing.KERNEL: Attempt(at(15))}


def test_a_loki_that_accepts_a_query_and_is_silent_is_told_before_the_query_fails() -> None:
    clock, silent = Clock(), [SILENT_SECONDS - 1]
    log = AttemptLog(clock, lambda: silent[0])
    log.note(Doing.KERNEL)
    clock.seconds = 100
    assert log.latest() == {Doing.KERNEL: Attempt(at(0))}, "a slow query"

    silent[0] = 20.0
    assert log.latest() == {Doing.KERNEL: Attempt(at(0), at(80), "Loki has not answered yet")}

    log.note(Doing.KERNEL, "no complete answer in time")
    assert log.latest() == {Doing.KERNEL: Attempt(at(0), at(80), "no complete answer in time")}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FORBIDDEN, "patch nodes is forbidden"),
        (
            LokiUnauthorized("Loki at https://kim:secret@loki.example.com/x?token=abc answered 401: no"),
            "Loki answered 401: no",
        ),
        (
            KubeUnreachable("cannot list nodes at https://10.0.0.1:6443: cannot connect: refused"),
            "cannot list nodes: cannot connect: refused",
        ),
        (LokiUnauthorized("x" * 500), "x" * 159 + "…"),
    ],
)
def test_an_error_on_the_lease_is_short_and_has_no_address(error: Exception, words: str) -> None:
    assert error_words(error) == words


def refused(scene: Scene, *nodes: str) -> None:
    """Let the API server refuse every write of these nodes."""
    for node in nodes:
        scene.cluster.moods[node] = [replace(ANY_FAILED, error=FORBIDDEN)] * 50


ANY_FAILED = WriteResult(ANY, Outcome.FAILED)


def test_taints_that_the_api_server_refuses_are_listed_with_node_and_rule_until_they_are_written() -> None:
    scene = Scene()
    refused(scene, "gpu-1", "gpu-2")
    scene.run(xid("gpu-1", seconds=1), xid("gpu-2", seconds=1), seconds=2)

    for seconds in (2, 3, 5):
        scene.run(seconds=seconds)
        assert scene.reconciler.writes() == (
            Attempt(None, at(2), "patch nodes is forbidden"),
            (Unwritten("gpu-1", Verb.TAINT, "xid.79"), Unwritten("gpu-2", Verb.TAINT, "xid.79")),
        )

    scene.cluster.moods.clear()
    scene.run(seconds=60)

    assert scene.reconciler.writes() == (Attempt(at(60)), ())
    assert scene.cluster.tainted == {"gpu-1", "gpu-2"}


def test_a_node_that_another_write_reaches_does_not_hide_one_that_cannot_be_written() -> None:
    scene = Scene()
    refused(scene, "gpu-1")
    scene.run(xid("gpu-1", seconds=1), xid("gpu-2", seconds=1), seconds=2)

    attempt, unwritten = scene.reconciler.writes()

    assert (attempt.ok, attempt.since) == (at(2), at(2))
    assert [each.node for each in unwritten] == ["gpu-1"]


def test_a_write_that_nobody_wants_any_more_is_listed_no_longer() -> None:
    scene = Scene()
    refused(scene, "gpu-1")
    scene.run(xid("gpu-1", seconds=1), seconds=2)
    del scene.cluster.nodes["gpu-1"]

    scene.run(seconds=60)

    assert scene.reconciler.writes() == (Attempt(), ())


def leading(*polls: PollResult | LokiUnreachable) -> Leadership:
    """Return a leadership with one source, which a test polls."""
    scene = Scene(3)
    return Leadership(
        scene.reconciler,
        scene.cluster,
        {"kernel": cast("Reader", ScriptedReader(*polls))},
        scene.metrics,
        monitor(scene.metrics),
        intervals={"kernel": 5},
        stale_seconds=300,
        now_ns=lambda: 1,
        stop=threading.Event(),
        identity="pod-a",
    )


def tried(leadership: Leadership) -> Attempts:
    found = leadership.lease_content().attempts
    assert found is not None
    return found


def test_a_poll_that_fails_goes_onto_the_lease_with_the_next_renewal() -> None:
    leadership = leading(LokiUnreachable("Loki at http://loki: cannot connect: refused"))
    assert Doing.KERNEL not in tried(leadership).latest

    leadership.pollers["kernel"].poll()

    found = tried(leadership)
    assert (found.by, found.of(Doing.KERNEL).ok) == ("pod-a", None)
    assert found.of(Doing.KERNEL).error == "Loki: cannot connect: refused"
    assert found.of(Doing.NODES).ok is not None


def test_the_lease_names_the_guards_that_only_the_controller_knows() -> None:
    leadership = leading()
    leadership._reconciler._kept_out = {"gpu-1": "gap", "gpu-2": "cordoned"}

    assert tried(leadership).kept_out == {"gpu-1": "gap"}


def test_a_part_that_loki_cannot_return_is_a_failure_although_the_rest_was_read() -> None:
    failure = LokiUnreachable("Loki at http://loki: cannot connect: refused")
    leadership = leading(PollResult(upto_ns=1, queries=1, failure=failure))
    poller = leadership.pollers["kernel"]

    def accept(delivery: Delivery) -> None:
        delivery.accepted = True
        delivery.done.set()

    poller._deliver = accept
    poller.poll()

    found = tried(leadership).of(Doing.KERNEL)
    assert (found.ok, found.since is None) == (None, False)


def test_nodes_that_cannot_be_listed_are_on_the_lease() -> None:
    leadership = leading()
    leadership._nodes.problem = KubeUnreachable("cannot list nodes: broken")  # type: ignore[misc]  # the scene's cluster

    assert tried(leadership).of(Doing.NODES).error == "cannot list nodes: broken"


@pytest.mark.parametrize(
    ("denied", "missing"),
    [
        ((), ""),
        ((("patch", "nodes", ""),), "patch nodes"),
        (
            (("list", "pods", ""), ("list", "resourceslices", "resource.k8s.io")),
            "list pods, list resourceslices",
        ),
    ],
)
def test_rights_that_are_missing_are_noted(
    denied: tuple[tuple[str, str, str], ...], missing: str, tmp_path: Path
) -> None:
    log = AttemptLog()
    needed = all_permissions("konductor-like", "konductor-like", None)
    with (
        KubernetesServer() as server,
        closing(KubeClient.connect(str(server.kubeconfig(tmp_path / "kc")), None, 5.0)) as client,
    ):
        for each in denied:
            server.access.deny(*each)
        note_rights(log, client, needed)
        server.mishaps.add(refusal(403), None)
        note_rights(log, client, needed)  # a server that does not let us ask changes nothing

    assert log.latest()[Doing.RIGHTS].error == missing


@pytest.mark.parametrize(
    ("settings", "further"),
    [
        (None, {"list pods", "list resourceslices"}),
        (Settings(ask_for_pods=False), {"list resourceslices"}),
        (
            Settings(node_condition="Broken", job_events=True),
            {"list pods", "list resourceslices", "patch nodes/status", "create events"},
        ),
    ],
)
def test_a_controller_needs_the_rights_of_the_parts_that_are_on(
    settings: Settings | None, further: set[str]
) -> None:
    assert set(map(str, optional_permissions(settings))) == further
