"""Helpers: writers whose sleeps take no time, and deadlines that end."""

from __future__ import annotations

import math
from typing import Any

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import (
    LeadershipLost,
)
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.writer import NoDeadline, NodeWriter
from konductor_like_sandbox.kubernetes import KubernetesServer, matching

PATCHES = matching("PATCH", "nodes")
READS = matching("GET", r"nodes/gpu-1$")


class Waits:
    """A clock that only sleeping moves; it records each sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Move the clock without waiting."""
        self.slept.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


class Term:
    """A deadline at a time of the clock."""

    def __init__(self, waits: Waits, seconds: float) -> None:
        self.clock, self.until = waits, seconds

    def budget_seconds(self) -> float:
        """Return the seconds left."""
        left = self.until - self.clock()
        if left <= 0:
            raise LeadershipLost("the term is over")
        return left


class Closing:
    """A deadline that ends after a number of writes."""

    def __init__(self, writes: int) -> None:
        self.writes = writes

    def budget_seconds(self) -> float:
        """Return infinity, until the number is reached."""
        self.writes -= 1
        if self.writes < 0:
            raise LeadershipLost("the term is over")
        return math.inf


def make_writer(client: KubeClient, waits: Waits, **parts: Any) -> NodeWriter:
    """Return a writer whose sleeps take no time."""
    fence = parts.pop("fence", NoDeadline())
    parts = {"timeout_seconds": 5.0, "sleep": waits.sleep, "clock": waits, **parts}
    return NodeWriter(client, node_decoder(), fence, **parts)


def taints(server: KubernetesServer) -> list[dict[str, str]]:
    """Return the Node's taints."""
    found: list[dict[str, str]] = server.node("gpu-1")["spec"].get("taints", [])
    return found
