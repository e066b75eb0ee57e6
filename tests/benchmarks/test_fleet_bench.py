"""Half of 1,500 nodes fail within a second: the time until the last taint and the last Event."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from konductor_like_sandbox.demo.story import XID_79
from tests.benchmarks.stand_ins import Cluster, Loki, cpu_seconds, rss_mib, started
from tests.processes.waiting import until

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

NODES, FAILING = 1500, 750
TAINTED_SECONDS, EVENTS_SECONDS = 3.0, 15.0
_NAME = re.compile(rb'"name":"(gpu-\d{4})')


def test_750_of_1500_nodes_that_fail_within_a_second_are_tainted_in_time(tmp_path: Path) -> None:
    loki, cluster = Loki(), Cluster(tmp_path, NODES)
    tainted: dict[bytes, float] = {}
    events: dict[bytes, float] = {}

    def seen_in(found: dict[bytes, float], line: bytes, at: float) -> None:
        name = _NAME.search(line)
        if name:
            found.setdefault(name[1], at)

    controller = started(loki, cluster, KONDUCTOR_BRAKE_MAX_PERCENT="100")
    try:
        with (
            cluster.watching(
                "/api/v1/nodes",
                lambda line, at: seen_in(tainted, line, at),
                labelSelector="trainy.konduktor.ai/health=faulty",
            ),
            cluster.watching("/api/v1/namespaces/default/events", lambda line, at: seen_in(events, line, at)),
        ):
            begun, cpu = time.time(), cpu_seconds(controller.process.pid)
            server_cpu = cpu_seconds(cluster.process.pid)
            for part in range(10):
                now_ns = time.time_ns()
                loki.push_kernel(
                    (f"gpu-{number:04}", now_ns, f"[{1000 + part}.{number:06}] {XID_79}")
                    for number in range(part + 1, FAILING + 1, 10)
                )
                time.sleep(max(0.0, begun + (part + 1) / 10 - time.time()))
            until(lambda: len(tainted) >= FAILING, "all are tainted", controller)
            until(lambda: len(events) >= FAILING, "all Events are there", controller)
            cpu = cpu_seconds(controller.process.pid) - cpu
            server_cpu = cpu_seconds(cluster.process.pid) - server_cpu
            memory = rss_mib(controller.process.pid)
    finally:
        controller.stop()
        cluster.stop()
        loki.stop()

    last_taint, last_event = max(tainted.values()) - begun, max(events.values()) - begun
    sys.stdout.write(
        f"\n{FAILING} of {NODES} nodes fail within 1 s: first tainted after "
        f"{min(tainted.values()) - begun:.2f} s, all after {last_taint:.2f} s (target {TAINTED_SECONDS:g}), "
        f"all Events after {last_event:.2f} s (target {EVENTS_SECONDS:g}); CPU: controller {cpu:.1f} s, "
        f"API server {server_cpu:.1f} s; RSS {memory:.0f} MiB\n"
    )
    assert len(tainted) == len(events) == FAILING
    assert last_taint <= TAINTED_SECONDS
    assert last_event <= EVENTS_SECONDS
