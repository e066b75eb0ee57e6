"""Made-up histories of a small fleet, from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from konductor_like.backtest.history import Page
from konductor_like.model import LogLine, Source

START_NS = 1_772_323_200_000_000_000
"""2026-03-01T00:00:00Z."""
SECOND_NS = 10**9
POD = {"k8s_namespace_name": "training", "k8s_container_name": "main"}
KERNEL = {"k8s_namespace_name": "dmesg-logging", "k8s_container_name": "dmesg"}
GPUS = ("0000:1b:00", "0000:4e:00", "0000:9a:00")
TEXTS = {
    79: "GPU has fallen off the bus.",
    48: "pid=77, name=python3, DBE (double bit error) detected",
    94: "pid=77, name=python3, Contained: CE User Channel (0x9)",
    63: "pid=77, Row Remapper: New row marked for remapping",
    31: "pid=77, name=python3, Ch 00000011, intr 00000000. MMU Fault",
    43: "pid=77, name=python3, Ch 00000011",
    13: "pid=77, name=python3, Graphics Exception: Shader Program Header 1 Error",
    149: "NETIR_LINK_EVT Fatal XC0 i0 Link 13 (0x00000000 0x00000000 0x0 0x0)",
    45: "pid=77, name=python3, Ch 00000012",
    14: "a test of the alarm chain",
}
_CODES = (79, 48, 94, 63, 31, 43)
WEIGHTS = (4, 4, 3, 3, 20, 20)


@dataclass(frozen=True, slots=True)
class WrittenLine:
    """One line of a node's kernel log, or of a pod on the node."""

    node: str
    at_ns: int
    text: str
    pod: str | None = None

    @property
    def source(self) -> Source:
        """The kind of log."""
        return Source.KERNEL if self.pod is None else Source.POD

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels that the log collector sets."""
        if self.pod is not None:
            return {**POD, "k8s_pod_name": self.pod, "k8s_node_name": self.node}
        return {**KERNEL, "k8s_pod_name": f"dmesg-{self.node}", "k8s_node_name": self.node}

    @property
    def line(self) -> LogLine:
        """The line as the reader returns it."""
        labels = self.labels
        return LogLine(
            self.source,
            self.at_ns,
            self.text,
            labels,
            self.node,
            labels["k8s_namespace_name"],
            labels["k8s_pod_name"],
            labels["k8s_container_name"],
        )


def xid(
    node: str, seconds: float, code: int = 79, gpu: str = GPUS[1], stamp: float | None = None
) -> WrittenLine:
    """Return a node's Xid, this number of seconds after the start."""
    stamp = 1000 + seconds if stamp is None else stamp
    text = f"[{stamp:.6f}] NVRM: Xid (PCI:{gpu}): {code}, {TEXTS[code]}"
    return WrittenLine(node, START_NS + round(seconds * SECOND_NS), text)


def nccl(node: str, seconds: float, job: str) -> WrittenLine:
    """Return the line that a rank of a job prints when another rank is gone."""
    text = f"{job}-{node}:71:88 [0] socket.cc:500 NCCL WARN socketProgress: Connection closed by remote peer"
    return WrittenLine(node, START_NS + round(seconds * SECOND_NS), text, f"{job}-{node.rpartition('-')[2]}")


def history(seed: int, *, seconds: float, nodes: int = 10, lines: int = 80) -> list[WrittenLine]:
    """Return faults of all kinds, and three kernel logs that are printed a second time."""
    rng = random.Random(seed)
    written: list[WrittenLine] = []
    for _ in range(lines):
        at = rng.uniform(1, seconds - 30)
        code = rng.choices(_CODES, WEIGHTS)[0]
        written.append(xid(f"gpu-{rng.randint(1, nodes)}", at, code, rng.choice(GPUS)))
    for node in rng.sample([f"gpu-{number}" for number in range(1, nodes + 1)], 3):
        at_ns = START_NS + round(rng.uniform(seconds / 2, seconds - 1) * SECOND_NS)
        before = sorted((one for one in written if one.node == node and one.at_ns < at_ns), key=_time)
        written += [WrittenLine(node, at_ns + place, one.text) for place, one in enumerate(before)]
    return sorted(written, key=_time)


def pages(written: list[WrittenLine], upto_ns: int) -> Iterator[Page]:
    """Yield a history as the reader returns it."""
    yield Page([one.line for one in written], upto_ns)


def _time(one: WrittenLine) -> int:
    return one.at_ns
