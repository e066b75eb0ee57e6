"""The controller's memory under a hostile tenant: long lines, large pods and a storm at once.

The controller runs in a memory cgroup if this machine allows it, and is killed above the bound as in a
cluster. Otherwise only its peak is measured.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from konductor_like_sandbox.demo.story import XID_79
from tests.benchmarks.stand_ins import Cluster, Loki, kernel_labels, rss_mib, started
from tests.processes.waiting import until

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

MEMORY_MIB, TAINT_SECONDS = 192, 5.0
SECONDS, LINES_A_SECOND, LINE_BYTES = 300, 40, 100_000
LARGE_PODS, STORM_LINES_A_SECOND = 1_000, 200
EVERY_SECONDS = 30
_GROUPS = Path("/sys/fs/cgroup/memory")
TENANT = {"k8s_namespace_name": "default", "k8s_container_name": "main"}
ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered 🔥 "
STORM = "NVRM: Xid (PCI:0000:4e:00): 31, pid={number}, name=python3, Ch 00000008, MMU Fault"


@contextmanager
def memory_bound(pid: int, mib: int) -> Iterator[bool]:
    """Limit the memory of a process; yield False if this machine does not allow it."""
    group = _GROUPS / f"konductor-like-bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(mib * 2**20))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        yield False
        return
    yield True
    group.rmdir()


def test_a_hostile_tenant_neither_kills_the_controller_nor_delays_a_taint(tmp_path: Path) -> None:
    nodes = [f"gpu-{number:04}" for number in range(2, 2 + SECONDS // EVERY_SECONDS)]
    loki, cluster = Loki(), Cluster(tmp_path, 40, large_pods=LARGE_PODS)
    visible: dict[str, float] = {}
    tainted: dict[str, float] = {}

    def seen(line: bytes, at: float) -> None:
        for name in visible.keys() - tainted.keys():
            if f'"name":"{name}"'.encode() in line and b"trainy.konduktor.ai/faulty" in line:
                tainted[name] = at

    controller = started(loki, cluster, KONDUCTOR_BRAKE_MAX_PERCENT="100")
    try:
        pid = controller.process.pid
        with memory_bound(pid, MEMORY_MIB) as bound, cluster.watching("/api/v1/nodes", seen):
            begun, pushed, stormed = time.time(), 0, 0
            while (now := time.time()) < begun + SECONDS:
                if now - begun > EVERY_SECONDS * (len(visible) + 1) - EVERY_SECONDS / 2:
                    name = nodes[len(visible)]
                    loki.push_kernel([(name, time.time_ns(), f"[77.000001] {XID_79}")])
                    visible[name] = time.time()
                pushed = _pod_lines(loki, pushed, int((now - begun) * LINES_A_SECOND))
                stormed = _storm(loki, stormed, int((now - begun) * STORM_LINES_A_SECOND))
                time.sleep(0.1)
                assert controller.process.poll() is None, "killed\n" + "\n".join(list(controller.log)[-20:])
            until(lambda: visible.keys() == tainted.keys(), "all are tainted", controller)
            high = rss_mib(pid, "VmHWM")
            listed = cluster.asked().get("list pods", 0)
            controller.stop()
    finally:
        controller.stop()
        cluster.stop()
        loki.stop()

    waited = max(tainted[name] - visible[name] for name in visible)
    sys.stdout.write(
        f"\n{pushed * LINE_BYTES / 1e6 / SECONDS:.1f} MB/s of pod lines of {LINE_BYTES:,} bytes, "
        f"{LARGE_PODS:,} pods of 1.4 MB listed {listed} times, a storm of {stormed / SECONDS:.0f} kernel "
        f"lines a second, for {SECONDS} s: high water {high:.0f} MiB "
        f"({'in a cgroup of' if bound else 'target'} {MEMORY_MIB}); "
        f"{len(tainted)} faults of other nodes tainted at most {waited:.2f} s after they were "
        f"visible (target {TAINT_SECONDS:g})\n"
    )
    assert high <= MEMORY_MIB
    assert listed > 0
    assert waited <= TAINT_SECONDS


def _pod_lines(loki: Loki, first: int, end: int) -> int:
    """Push lines of two pods, so that each stays below Loki's limit for one stream."""
    end = min(end, first + 3 * LINES_A_SECOND)
    for pod in (0, 1):
        labels = {**TENANT, "k8s_pod_name": f"evil-{pod}", "k8s_node_name": "gpu-0001"}
        texts = (f"{number} {ERROR}".ljust(LINE_BYTES - 10, "x") for number in range(first + pod, end, 2))
        lines = [(time.time_ns() + place, f"{text}") for place, text in enumerate(texts)]
        if lines:
            loki.push([(labels, lines)])
    return end


def _storm(loki: Loki, first: int, end: int) -> int:
    """Push kernel lines of the node that the large pods run on."""
    now_ns = time.time_ns()
    lines = [
        (now_ns + number, f"[{5000 + number / 1e6:.6f}] {STORM.format(number=number)}")
        for number in range(first, end)
    ]
    if lines:
        loki.push([(kernel_labels("gpu-0001"), lines)])
    return end
