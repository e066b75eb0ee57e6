"""A simulated month in both stand-ins, as a process of its own that ends with its input.

``python -m tests.benchmarks.month KUBECONFIG NODES DAYS COUNTS`` prints Loki's URL.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from konductor_like.model.time import unix_ns
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.loki import LokiServer
from konductor_like_sandbox.loki.limits import LokiLimits
from tests.history.fleet_month import simulated

OURS = {"k8s_namespace_name": "konductor-like", "k8s_container_name": "konductor-like"}


def main(kubeconfig: Path, nodes: int, days: int, counts: int) -> None:
    month = simulated(nodes, days, end=datetime.now(UTC).replace(microsecond=0))
    limits = LokiLimits(reject_old_samples_max_age_seconds=400 * 86_400, ingestion_rate_bytes=0)
    with LokiServer(limits=limits) as loki, KubernetesServer(nodes=month.objects()) as cluster:
        lines = [(unix_ns(at), text) for at, text in month.lines(counts) if at < month.end]
        for first in range(0, len(lines), 1000):
            loki.push(OURS, lines[first : first + 1000])
        cluster.kubeconfig(kubeconfig)
        sys.stdout.write(f"{loki.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
