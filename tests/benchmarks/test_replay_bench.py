"""The time in which a restart reads the day before again, and the latency of a new fault meanwhile."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from konductor_like.cluster.lease.checkpoint import CURSOR_ANNOTATION
from konductor_like.model.time import ns_of_text
from konductor_like_sandbox.demo.story import XID_79
from tests.benchmarks.history import history
from tests.benchmarks.stand_ins import Cluster, Loki, rss_mib, started
from tests.processes.waiting import until

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1200)]

LINES, NODES, PUSHED = 70_000, 500, 2_000
REPLAY_SECONDS, FAULT_SECONDS, PEAK_MIB = 180.0, 5.0, 160.0
DAY = 86_400.0
BETWEEN_SECONDS = 0.7


def cursor_age(cluster: Cluster) -> float:
    lease = cluster.get("/apis/coordination.k8s.io/v1/namespaces/konductor-like/leases/konductor-like")
    cursor = json.loads(lease["metadata"].get("annotations", {}).get(CURSOR_ANNOTATION, "null"))
    return time.time() - min(map(moment, cursor["read"].values())) if cursor else DAY


def moment(text: str) -> float:
    return ns_of_text(text) / 1e9


def test_a_day_is_read_again_while_faults_are_acted_upon(tmp_path: Path) -> None:
    loki, cluster = Loki(), Cluster(tmp_path, NODES)
    settings = {"KONDUCTOR_BRAKE_MAX_PERCENT": "100", "KONDUCTOR_FIRST_START_ACT_SECONDS": f"{DAY:.0f}"}
    try:
        before = started(loki, cluster, **settings)
        until(lambda: cursor_age(cluster) < DAY / 24, "it has read to the present", before)
        before.stop()
        end = time.time() - 7200  # other readers also find lines that are younger than the lateness
        days = 1 - 7200 / DAY
        found = sorted(history(LINES, NODES, days, end), key=lambda line: line[1])
        lines = [
            (f"gpu-{n + 1:04}", round(at * 1e9), f"[{at - end + DAY:.6f}] {text}") for n, at, text in found
        ]
        for first in range(0, len(lines), PUSHED):
            loki.push_kernel(lines[first : first + PUSHED])

        begun = time.monotonic()
        controller = started(loki, cluster, **settings)
        waited: list[float] = []
        number = NODES
        while not any("Older lines are read" in line for line in list(controller.log)):
            node, number = f"gpu-{number:04}", number - 1
            pushed = time.monotonic()
            loki.push_kernel([(node, time.time_ns(), f"[{2 * DAY:.6f}] {XID_79}")])
            text = f"Node {node} tainted."
            until(lambda text=text: any(text in line for line in list(controller.log)), text, controller)  # type: ignore[misc]  # mypy cannot type a default in a lambda
            waited.append(time.monotonic() - pushed)
            time.sleep(BETWEEN_SECONDS)
        seconds, peak = time.monotonic() - begun, rss_mib(controller.process.pid, "VmHWM")
        [summary] = [line for line in controller.log if "Older lines are read" in line]
        controller.stop()
    finally:
        cluster.stop()
        loki.stop()

    waited.sort()
    sys.stdout.write(
        f"\na day of {len(lines):,} lines of {NODES} nodes: {seconds:.0f} s (target {REPLAY_SECONDS:g}), "
        f"{summary.partition('again: ')[2]} {len(waited)} faults meanwhile: tainted after "
        f"{waited[len(waited) // 2]:.2f} s, at most {waited[-1]:.2f} s (target {FAULT_SECONDS:g}); "
        f"{peak:.0f} MiB at most (target {PEAK_MIB:g})\n"
    )
    assert seconds <= REPLAY_SECONDS
    assert waited[-1] <= FAULT_SECONDS
    assert peak <= PEAK_MIB
