"""The time from a line in Loki to the taint, with the tail and without it.

Both stand-ins run in this process, the real controller in its own. The time starts when the push to Loki has
returned, and stops when the API server has stored the taint.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from konductor_like.model import TAINT_KEY
from konductor_like_sandbox.demo.stage import RunningController, Stage
from konductor_like_sandbox.demo.story import XID_79
from tests.processes.waiting import logged, until

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

NODES = 240
SEED = 5
PATIENCE_SECONDS = 30.0
INTERVAL_SECONDS = 5.0
"""Seconds between two polls, the default of KONDUCTOR_POLL_INTERVAL_SECONDS."""


class Taints:
    """When the API server stored the first taint of each node."""

    def __init__(self, stage: Stage) -> None:
        self._store = stage.cluster._store
        self.at: dict[str, float] = {}
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow)

    def wait_for(self, node: str) -> float:
        """Return the time by the performance counter."""
        with self._changed:
            assert self._changed.wait_for(lambda: node in self.at, PATIENCE_SECONDS), f"{node}: no taint"
            return self.at[node]

    def _follow(self) -> None:
        version = self._store.version
        with self._store.lock:
            while not self._over:
                self._store.lock.wait(1.0)
                now = time.perf_counter()
                for change in self._store.changes_since("nodes", version):
                    version = change.new.version
                    if TAINT_KEY.encode() in change.new.json:
                        with self._changed:
                            self.at.setdefault(change.new.key.name, now)
                            self._changed.notify_all()

    def __enter__(self) -> Taints:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over = True
        self._thread.join()


@contextmanager
def idle_cluster(**settings: str) -> Iterator[tuple[Stage, Taints, RunningController]]:
    """GPU nodes whose kubelets report regularly, and a controller with the shipped settings."""
    with Stage(gpu_nodes=NODES) as stage, Taints(stage) as taints:
        stage.cluster.kubelets.start(60.0)
        stage.heartbeats()
        controller = stage.start_controller(
            **{
                "KONDUCTOR_BRAKE_MAX_PERCENT": "100",
                "KONDUCTOR_POLL_INTERVAL_SECONDS": f"{INTERVAL_SECONDS}",
                "KONDUCTOR_LEASE_DURATION_SECONDS": "30",
            }
            | settings
        )
        until(logged(controller, "Reading Loki"), "it leads", controller)
        first = stage.gpu_nodes[-1]
        stage.kernel(first, XID_79)
        taints.wait_for(first)  # the controller has read its history then
        yield stage, taints, controller


def percentile(values: list[float], share: float) -> float:
    """Return the value that ``share`` of all values do not exceed."""
    return sorted(values)[max(0, round(share * len(values)) - 1)]


def print_percentiles(name: str, seconds: list[float], target: str) -> None:
    shares = ", ".join(
        f"{label} {percentile(seconds, share):.3f}"
        for label, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    )
    sys.stdout.write(f"\n{name:<32} {len(seconds)} faults: {shares}, max {max(seconds):.3f} s ({target})\n")


def test_the_latency_of_single_faults_with_the_tail() -> None:
    chance = random.Random(SEED)
    seconds = []
    with idle_cluster() as (stage, taints, controller):
        until(lambda: stage.loki.open_tails == 1, "the tail is open", controller)
        for node in stage.gpu_nodes[:200]:
            time.sleep(chance.uniform(0.05, 0.6))
            stage.kernel(node, XID_79)
            pushed = time.perf_counter()
            seconds.append(taints.wait_for(node) - pushed)

    print_percentiles("tail", seconds, "p50 ≤ 0.35, p99 ≤ 0.7")
    assert percentile(seconds, 0.5) <= 0.35
    assert percentile(seconds, 0.99) <= 0.7


def test_the_latency_of_faults_without_the_tail() -> None:
    chance = random.Random(SEED)
    pushed: dict[str, float] = {}
    with idle_cluster(KONDUCTOR_TAIL="false") as (stage, taints, _):
        for node in stage.gpu_nodes[:100]:
            # Faults overlap: each waits for the next poll only, and not for another fault.
            time.sleep(chance.uniform(0.1, 0.8))
            stage.kernel(node, XID_79)
            pushed[node] = time.perf_counter()
        seconds = [taints.wait_for(node) - at for node, at in pushed.items()]

    print_percentiles(f"polling every {INTERVAL_SECONDS:.0f} s", seconds, "p99 ≤ 5.5")
    assert percentile(seconds, 0.99) <= INTERVAL_SECONDS + 0.5
