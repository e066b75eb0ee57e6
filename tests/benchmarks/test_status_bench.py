"""``status`` of 8,000 nodes over the stand-in API server, as a process of its own: time, CPU, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks.stand_ins import Cluster

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

NODES = 8000
WALL_SECONDS, CPU_SECONDS, RSS_MIB = 4.0, 1.5, 120


def measured(kubeconfig: Path) -> tuple[float, float, float]:
    """Return seconds, CPU seconds and MiB of one command."""
    begun = time.monotonic()
    command = subprocess.Popen(
        [sys.executable, "-m", "konductor_like.cli", "status"],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(command.pid, 0)
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == 0
    return time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def test_status_of_8000_nodes(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, NODES)
    try:
        found = [measured(cluster.kubeconfig) for _ in range(5)]
    finally:
        cluster.stop()
    wall, cpu, rss = (sorted(each)[2] for each in zip(*found, strict=True))

    sys.stdout.write(
        f"\nstatus of {NODES} nodes of 20 KB, median of 5: {wall:.2f} s (target {WALL_SECONDS:g}), "
        f"CPU {cpu:.2f} s (target {CPU_SECONDS:g}), {rss:.0f} MiB (target {RSS_MIB})\n"
    )
    assert wall <= WALL_SECONDS
    assert cpu <= CPU_SECONDS
    assert rss <= RSS_MIB
