"""Asking for the jobs on nodes: once a minute, beside the reconcile, and not repeated if it is denied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from konductor_like.cluster.api.errors import KubeError, KubeForbidden, KubeUnavailable
from konductor_like.cluster.pods import NodeJobs
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.pod_jobs import (
    AGAIN_SECONDS,
    ANSWER_SECONDS,
    DENIED_SECONDS,
    NODES_MOST,
    PodJobs,
)
from konductor_like.controller.side.work import running

PATIENCE_SECONDS = 10.0
JOBS = NodeJobs(frozenset({"ml/Job/a"}), {"ml/a-0": "ml/Job/a"})


class Server:
    """Answers about nodes when the test allows it; the test sets the time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.asked: list[str] = []
        self.failures: list[KubeError] = []
        self.answer = JOBS
        self.done = threading.Semaphore(0)
        self.jobs = PodJobs(self.ask, Metrics(), answered=self.done.release, clock=lambda: self.seconds)

    def ask(self, node: str) -> NodeJobs:
        self.asked.append(node)
        if self.failures:
            self.done.release()
            raise self.failures.pop(0)
        return self.answer

    def wait(self, answers: int) -> None:
        for _ in range(answers):
            assert self.done.acquire(timeout=PATIENCE_SECONDS)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with running(made.jobs.queue):
        yield made


def until(condition: Callable[[], bool]) -> None:
    """Wait until another thread has made the condition true."""
    end = threading.Event()
    for _ in range(1000):
        if condition():
            return
        end.wait(0.01)
    raise AssertionError("never came true")


def test_an_answer_is_known_for_two_minutes(server: Server) -> None:
    server.jobs.want(["gpu-1"])
    server.wait(1)

    assert server.jobs.known() == {"gpu-1": JOBS}
    server.seconds = ANSWER_SECONDS + 1
    assert server.jobs.known() == {}


def test_a_node_is_asked_about_once_a_minute(server: Server) -> None:
    for _ in range(5):
        server.jobs.want(["gpu-1"])
        server.seconds += 1
    server.wait(1)
    server.seconds = AGAIN_SECONDS + 10
    server.jobs.want(["gpu-1"])
    server.wait(1)

    assert server.asked == ["gpu-1", "gpu-1"]


def test_a_denied_request_is_logged_once_with_the_missing_permission(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.failures = [KubeForbidden("cannot list pods: forbidden")] * 2
    server.jobs.want(["gpu-1", "gpu-2"])
    server.wait(1)
    until(lambda: "resources: [pods], verbs: [list]" in caplog.text)
    server.jobs.want(["gpu-3"])
    assert len(server.jobs.queue) == 0

    server.seconds = DENIED_SECONDS + 1
    server.jobs.want(["gpu-4"])
    server.wait(1)
    until(lambda: server.jobs.queue._paused_until > DENIED_SECONDS + 1)

    assert server.asked == ["gpu-1", "gpu-4"]
    assert caplog.text.count("The controller takes jobs from the labels") == 1


def test_after_a_transient_failure_the_next_node_is_asked_about(server: Server) -> None:
    server.failures = [KubeUnavailable("out of order")]
    server.jobs.want(["gpu-1", "gpu-2"])
    server.wait(2)

    assert set(server.jobs.known()) == {"gpu-2"}


def test_a_list_of_pods_that_is_too_large_is_logged_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = replace(JOBS, complete=False)
    server.jobs.want(["gpu-1", "gpu-2"])
    server.wait(2)

    assert set(server.jobs.known()) == {"gpu-1", "gpu-2"}
    assert caplog.text.count("node gpu-1: the list of running pods is too large") == 1
    assert "gpu-2 were" not in caplog.text


def test_more_nodes_than_may_wait_do_not_push_out_those_that_wait() -> None:
    server = Server()

    server.jobs.want(f"gpu-{number}" for number in range(NODES_MOST + 100))

    assert server.jobs.queue.rest() == [f"gpu-{number}" for number in range(NODES_MOST)]


def test_at_the_end_nothing_more_is_asked() -> None:
    server = Server()
    server.jobs.want(["gpu-1", "gpu-2"])

    server.jobs.queue.close()
    server.jobs.queue.start()
    server.jobs.queue.join(PATIENCE_SECONDS)

    assert server.asked == []
