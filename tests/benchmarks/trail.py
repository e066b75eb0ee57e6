"""A month of audit trail in a stand-in Loki, as a process of its own that ends with its input.

``python -m tests.benchmarks.trail MIB NODES`` prints its URL. One line in three begins or ends an outage; the
others are counts, records and refusals.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from itertools import islice

from konductor_like.controller.reporting.audit import FIELDS
from konductor_like.model.time import moment_of, text_of
from konductor_like_sandbox.loki import LokiServer
from konductor_like_sandbox.loki.limits import LokiLimits

_DAY = 86_400
_LABELS = {"k8s_namespace_name": "konductor-like", "k8s_pod_name": "konductor-like-0"}
_FAULT = {"rule": "xid.79", "gpu": "0000:4e:00", "code": 79, "severity": "fatal", "count": 1}
_FLEET = {"model": "NVIDIA-H100-80GB-HBM3", "driver": "570.172.08", "gpus": 8, "rules": "5f2c01d4a1b2"}


def trail(size: int, nodes: int, end: float) -> Iterator[tuple[int, str]]:
    """Yield time and text of lines of ``size`` bytes in all, in the order of time."""
    rng, written, number = random.Random(1), 0, 0
    steps = size // 700
    out: dict[str, str] = {}
    while written < size:
        at_ns = round((end - 30 * _DAY + 29.9 * _DAY * min(1.0, number / steps)) * 1e9)
        node = f"gpu-{rng.randrange(nodes):04}"
        kind, now = rng.randrange(6), text_of(moment_of(at_ns))
        facts = dict.fromkeys(FIELDS) | {"audit": "v1", "node": node, "outcome": "applied"} | _FAULT | _FLEET
        if kind == 0 and node not in out:
            out[node] = now
            facts |= {"verb": "taint", "why": "GPUFaultTainted", "out_since": now}
        elif kind == 1 and node in out:
            facts |= {
                "verb": "untaint",
                "how": "reset",
                "by": "kim@example.com",
                "reason": f"ticket {number}",
            }
            facts |= {"out_since": out.pop(node), "at": now}
        else:
            facts |= {"verb": "record", "why": "counts", "out_since": out.get(node)}
        facts["evidence"] = f"NVRM: Xid (PCI:0000:4e:00): 79, pid={number}, name=python3, GPU has fallen off"
        text = json.dumps({"ts": now, "level": "info", "msg": f"audit: of node {node} applied"} | facts)
        written, number = written + len(text), number + 1
        yield at_ns, text


def main(mib: int, nodes: int) -> None:
    limits = LokiLimits(reject_old_samples_max_age_seconds=60 * _DAY, ingestion_rate_bytes=0)
    with LokiServer(limits=limits) as loki:
        lines = trail(mib * 2**20, nodes, time.time())
        while batch := list(islice(lines, 2000)):  # Loki takes 4 MiB at once
            loki.push(_LABELS, batch)
        sys.stdout.write(f"{loki.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
