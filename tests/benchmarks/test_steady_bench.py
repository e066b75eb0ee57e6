"""The cost of a quiet fleet of 5,000 nodes per minute, with heartbeats and kubelets' reports."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.benchmarks.stand_ins import BOOT, Cluster, Loki, Prometheus, cpu_seconds, rss_mib, started

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

NODES = int(os.environ.get("KONDUCTOR_BENCH_NODES", "5000"))
WARM_SECONDS = float(os.environ.get("KONDUCTOR_BENCH_WARM_SECONDS", "60"))
MINUTES = float(os.environ.get("KONDUCTOR_BENCH_MINUTES", "4"))
"""Minutes to measure, a multiple of the kernel sweep's 2 minutes."""
HISTORY_MINUTES = 60
"""Minutes of the past that a sweep reads."""
POD_LINES = 100
"""Lines a second of all pods in the watched namespace."""
POD_LINE = "step 4100 | loss 1.8831 | lr 2.9e-04 | grad norm 0.41 | 412.6 TFLOP/s/GPU | 18211 tokens/s/GPU"
LOKI_QUERIES, KUBE_REQUESTS, CPU_PERCENT, RSS_MIB = 30.0, 8.0, 2.0, 110.0
KERNEL_FACTOR, POD_FACTOR = 80.0, 4.0


def heartbeat(number: int, at: float) -> str:
    """Return the line that a node's kernel-log reader prints each minute."""
    wall = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    return f"kmsg/1 heartbeat boot={BOOT} seq={4000 + number} uptime={at % 1e6:.6f} wall={wall}"


def one_minute(loki: Loki, end: float) -> None:
    """Push all lines of one past minute."""
    for first in range(0, NODES, 500):
        numbers = range(first, min(NODES, first + 500))
        times = [end - 60 + 60 * number / NODES for number in numbers]
        loki.push_kernel(
            (f"gpu-{number + 1:04}", round(at * 1e9), heartbeat(number, at))
            for number, at in zip(numbers, times, strict=True)
        )


class Ingested:
    """Bytes of the lines of each source."""

    kernel = pods = 0


@contextmanager
def life(loki: Loki, ingested: Ingested) -> Iterator[None]:
    """Push heartbeats of all nodes each minute, and lines of pods, within the context."""
    ended = threading.Event()

    def live() -> None:
        begun, beats, lines = time.time(), 0, 0
        while not ended.wait(0.25):
            now = time.time()
            due = int((now - begun) / 60 * NODES)
            beating = [number % NODES for number in range(beats, due)]
            loki.push_kernel(
                (f"gpu-{number + 1:04}", time.time_ns(), heartbeat(number, now)) for number in beating
            )
            ingested.kernel += sum(len(heartbeat(number, now)) for number in beating)
            beats = due
            due = int((now - begun) * POD_LINES)
            talk: dict[int, list[tuple[int, str]]] = {}
            for line in range(lines, due):
                talk.setdefault(line % 64, []).append((time.time_ns(), f"{line} {POD_LINE}"))
            if talk:
                loki.push((pod_labels(pod), found) for pod, found in talk.items())
                ingested.pods += sum(len(text) for found in talk.values() for _, text in found)
            lines = due

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def pod_labels(pod: int) -> dict[str, str]:
    return {
        "k8s_namespace_name": "default",
        "k8s_container_name": "train",
        "k8s_pod_name": f"train-{pod}",
        "k8s_node_name": f"gpu-{pod + 1:04}",
    }


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def processed(port: int) -> Counter[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    prefix = 'konductor_like_loki_bytes_processed_total{source="'
    return Counter(
        {
            line.removeprefix(prefix).partition('"')[0]: int(float(line.rpartition(" ")[2]))
            for line in lines
            if line.startswith(prefix)
        }
    )


@pytest.mark.parametrize("others", [False, True], ids=["alone", "with other programs' words"])
def test_the_cost_of_a_quiet_fleet_of_5000_nodes(others: bool, tmp_path: Path) -> None:
    """``others``: node-problem-detector writes conditions, and alerts are read."""
    with ExitStack() as exits:
        prometheus = exits.enter_context(Prometheus()) if others else None
        measure(tmp_path, prometheus)


def measure(tmp_path: Path, prometheus: Prometheus | None) -> None:
    # A kubelet reports every five minutes, and node-problem-detector as often.
    loki, cluster = Loki(), Cluster(tmp_path, NODES, refresh_seconds=150 if prometheus else 300)
    more = {}
    if prometheus is not None:
        cluster.report_conditions(f"gpu-{number + 1:04}" for number in range(NODES))
        more = {"KONDUCTOR_ALERTS_ENDPOINT": prometheus.url}
    begun = time.time()
    for minute in range(HISTORY_MINUTES, 0, -1):
        one_minute(loki, begun - 60 * (minute - 1))
    port, ingested = free_port(), Ingested()
    try:
        with life(loki, ingested):
            controller = started(
                loki,
                cluster,
                KONDUCTOR_LISTEN=f"127.0.0.1:{port}",
                WATCHED_NAMESPACES="default",
                **more,
            )
            try:
                pid = controller.process.pid
                time.sleep(WARM_SECONDS)
                loki.asked(), cluster.asked()
                questions = prometheus.questions if prometheus else 0
                before, cpu, at = processed(port), cpu_seconds(pid), time.time()
                kernel_bytes, pod_bytes = ingested.kernel, ingested.pods
                time.sleep(60 * MINUTES)
                minutes = (time.time() - at) / 60
                cpu_percent = (cpu_seconds(pid) - cpu) / (60 * minutes) * 100
                queries, requests = loki.asked(), cluster.asked()
                read = processed(port) - before
                kernel_bytes, pod_bytes = ingested.kernel - kernel_bytes, ingested.pods - pod_bytes
                questions = (prometheus.questions if prometheus else 0) - questions
                memory, most = rss_mib(pid), rss_mib(pid, "VmHWM")
            finally:
                controller.stop()
    finally:
        cluster.stop()
        loki.stop()

    asked = {path: count for path, count in queries.items() if "push" not in path}
    loki_queries = sum(asked.values()) / minutes
    kube_requests = sum(requests.values()) / minutes
    kernel_factor = (read["kernel"] + read["heartbeat"]) / kernel_bytes
    pod_factor = read["pod"] / pod_bytes
    sys.stdout.write(
        f"\n{NODES:,} nodes, {minutes:.1f} minutes, per minute: "
        f"{loki_queries:.1f} Loki queries (target {LOKI_QUERIES:g}), "
        f"{kube_requests:.1f} Kubernetes requests ({KUBE_REQUESTS:g}), "
        f"{questions / minutes:.1f} questions to Prometheus, "
        f"{cpu_percent:.2f} % of a core ({CPU_PERCENT:g}); "
        f"RSS {memory:.0f} MiB, at most {most:.0f} ({RSS_MIB:g})\n"
        f"Loki read per byte ingested: kernel {kernel_factor:.1f} ({KERNEL_FACTOR:g}), of it heartbeats "
        f"{read['heartbeat'] / kernel_bytes:.1f}; pods {pod_factor:.1f} ({POD_FACTOR:g})\n"
        f"  {dict(asked)} {dict(requests)}\n"
    )
    assert loki_queries <= LOKI_QUERIES
    assert kube_requests <= KUBE_REQUESTS
    assert questions <= minutes + 1
    assert cpu_percent <= CPU_PERCENT
    assert most <= RSS_MIB
    assert kernel_factor <= KERNEL_FACTOR
    assert pod_factor <= POD_FACTOR
