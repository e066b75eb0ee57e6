"""A month of a fleet's kernel log in a stand-in Loki, as a process of its own that ends with its input.

``python -m tests.benchmarks.history LINES NODES DAYS`` prints its URL. 40 % of the lines are single faults of
jobs all over the fleet, 50 % are storms of one node, 10 % other lines of the driver. In addition each node
has a fatal fault about every 50 days.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator

from konductor_like_sandbox.loki import LokiServer
from konductor_like_sandbox.loki.limits import LokiLimits
from tests.benchmarks.stand_ins import kernel_labels

_DAY = 86_400
_STORM_LINES = 5000
_JOBS = ((31, "Ch 00000011, intr 00000000. MMU Fault"), (43, "Ch 00000011"), (45, "Ch 00000012"))


def history(lines: int, nodes: int, days: float, end: float) -> Iterator[tuple[int, float, str]]:
    """Yield node number, seconds since the epoch, and message."""
    rng = random.Random(1)
    begin, span = end - days * _DAY, days * _DAY - 60
    for _ in range(lines * 4 // 10):
        code, what = rng.choice(_JOBS)
        gpu = f"0000:{rng.randrange(8):02x}:00"
        text = f"NVRM: Xid (PCI:{gpu}): {code}, pid={rng.randrange(99999)}, name=python3, {what}"
        yield rng.randrange(nodes), begin + rng.random() * span, text
    for _ in range(lines * 5 // 10 // _STORM_LINES):
        node, at = rng.randrange(nodes), begin + rng.random() * (span - 600)
        for number in range(_STORM_LINES):
            text = f"NVRM: Xid (PCI:0000:4e:00): 31, pid={number}, name=python3, {_JOBS[0][1]}"
            yield node, at + number / 10, text
    for _ in range(lines // 10):
        yield rng.randrange(nodes), begin + rng.random() * span, "NVRM: GPU at PCI:0000:4e:00: GPU-0a1b"
    for _ in range(round(nodes * days / 50)):
        text = "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus."
        yield rng.randrange(nodes), begin + rng.random() * span, text


def main(lines: int, nodes: int, days: float) -> None:
    by_node: dict[int, list[tuple[float, str]]] = {}
    end = time.time()
    for node, at, text in history(lines, nodes, days, end):
        by_node.setdefault(node, []).append((at, text))
    # The lines of several weeks are pushed at once.
    limits = LokiLimits(reject_old_samples_max_age_seconds=60 * _DAY, ingestion_rate_bytes=0)
    with LokiServer(limits=limits) as loki:
        for node, found in by_node.items():
            found.sort()
            stamped = [
                (round(at * 1e9), f"[{at - end + 90 * _DAY:.6f}] {text}") for at, text in found if at < end
            ]
            loki.push(kernel_labels(f"gpu-{node + 1:04}"), stamped)
        sys.stdout.write(f"{loki.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
