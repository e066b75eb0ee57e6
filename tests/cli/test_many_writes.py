"""``reset`` of many nodes: several at once, results in order, Ctrl-C, a closed output."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from konductor_like.cli.nodes import writes
from konductor_like.cluster.api.client import KubeClient, ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeOverloaded
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.exits import Exit
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import faulty

NAMES = [f"gpu-{number}" for number in range(1, 9)]


class AtOnce:
    """Counts the requests for single nodes that are under way; each waits until there are ``expected``."""

    def __init__(self, expected: int) -> None:
        self.most, self._now = 0, 0
        self._barrier = threading.Barrier(expected, timeout=20)
        self._lock = threading.Lock()

    def around(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def counted(client: KubeClient, path: str, *arguments: object, **options: object) -> Any:
            if "/nodes/" not in path:
                return request(client, path, *arguments, **options)
            with self._lock:
                self._now += 1
                self.most = max(self.most, self._now)
            self._barrier.wait()
            with self._lock:
                self._now -= 1
            return request(client, path, *arguments, **options)

        return counted


def eight_faulty(cluster: Cluster) -> KubernetesServer:
    """Start the stand-in with eight tainted nodes."""
    server = cluster("healthy")
    for name in NAMES:
        server.put_node(faulty(name))
    return server


def tainted(server: KubernetesServer) -> list[str]:
    """Return the names of the nodes with our taint."""
    return [name for name in NAMES if decode_node(server.node(name)).tainted]


def test_four_nodes_are_read_and_written_at_once_and_told_in_order(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = eight_faulty(cluster)
    monkeypatch.setenv("KONDUCTOR_WRITE_CONCURRENCY", "4")
    reads, patches = AtOnce(4), AtOnce(4)
    monkeypatch.setattr(ReadOnlyKubeClient, "get", reads.around(ReadOnlyKubeClient.get))
    monkeypatch.setattr(KubeClient, "patch", patches.around(KubeClient.patch))

    done = run("reset", *NAMES, "--yes")

    assert (reads.most, patches.most) == (4, 4)
    assert done.out.splitlines() == [f"node/{name} untainted" for name in NAMES]
    assert len(server.objects("events", "default")) == len(NAMES)


def test_after_ctrl_c_no_further_node_is_begun_and_the_results_so_far_are_told(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = eight_faulty(cluster)
    monkeypatch.setenv("KONDUCTOR_WRITE_CONCURRENCY", "1")
    patch = KubeClient.patch

    def interrupted(self: KubeClient, path: str, *arguments: Any, **options: Any) -> object:
        if not path.endswith(NAMES[1]):
            return patch(self, path, *arguments, **options)
        os.kill(os.getpid(), signal.SIGINT)
        raise KubeOverloaded("too many requests", retry_after_seconds=20.0)

    monkeypatch.setattr(KubeClient, "patch", interrupted)

    done = run("reset", *NAMES, "--yes", "-o", "json")

    assert done.code == Exit.INTERRUPTED
    assert [(each["name"], each["message"]) for each in done.document["nodes"]] == [
        (NAMES[0], "untainted"),
        (NAMES[1], "was not released: too many requests"),
        *((name, "was not released: interrupted") for name in NAMES[2:]),
    ]
    assert tainted(server) == NAMES[1:]
    assert "interrupted: 6 of 8 nodes not released" in done.err


def test_a_closed_output_does_not_stop_the_release(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = eight_faulty(cluster)

    def closed(_lines: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(writes, "say", closed)

    run("reset", "--all", "--yes")

    assert tainted(server) == []
    assert len(server.objects("events", "default")) == len(NAMES)
