"""``reset`` of 2,000 nodes over the stand-in API server, as a process of its own: time and CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks.stand_ins import Cluster

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

NODES = 2000
WALL_SECONDS = 15.0


def measured(kubeconfig: Path, *arguments: str) -> tuple[float, float]:
    """Return seconds and CPU seconds of one command."""
    begun = time.monotonic()
    command = subprocess.Popen(
        [sys.executable, "-m", "konductor_like.cli", *arguments, "--reason", "bench"],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(command.pid, 0)
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == 0
    return time.monotonic() - begun, used.ru_utime + used.ru_stime


def test_reset_of_2000_nodes(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, NODES)
    try:
        measured(cluster.kubeconfig, "taint", *(f"gpu-{number:04}" for number in range(1, NODES + 1)))
        wall, cpu = measured(cluster.kubeconfig, "reset", "--all", "--yes")
    finally:
        cluster.stop()

    sys.stdout.write(
        f"\nreset of {NODES} nodes of 20 KB: {wall:.1f} s (target {WALL_SECONDS:g}), CPU {cpu:.1f} s\n"
    )
    assert wall <= WALL_SECONDS
