"""The lines of kernels and pods, and their way to Loki: at once or late, through one collector or two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konductor_like.model import Source
from konductor_like_sandbox.loki import LokiError, shipped
from tests.chaos.machines import (
    ECC_LINE,
    HANDLE_LINE,
    POD_LINE,
    KernelRecord,
    Occurrence,
    Shipment,
    found,
    xid_message,
)

if TYPE_CHECKING:
    from tests.chaos.world import World


class Lines:
    """All lines that are printed, and their way to Loki."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.collectors = dict.fromkeys(world.names, 1)
        self.files: dict[str, list[tuple[str, int, Occurrence]]] = {name: [] for name in world.names}
        """The log files of each node's kernel-log reader, which reboots do not change."""
        self.silences: dict[str, tuple[int, bool]] = {}
        """By node, the end of the silence of its kernel log, and whether its lines are lost."""
        self.nameless_ns: dict[str, int] = {}
        """By node, until when its collector ships the kernel log without the node's name."""
        self._unsignalled_ns: int | None = None

    def happen(self, name: str, code: int, gpu: str, *, delay_seconds: float = 0.0) -> Occurrence:
        """Print a line of a machine's kernel, which its reader ships, perhaps late."""
        machine = self._world.machines[name]
        number = len(self._world.occurrences)
        message = xid_message(code, gpu, number)
        sequence, stamp_us = machine.next_position(self._world.clock.true_ns)
        occurrence = Occurrence(
            *(number, name, machine, machine.boot_id, Source.KERNEL, found(message, Source.KERNEL)),
            *(sequence, stamp_us, self._world.clock.true_ns),
        )
        self._world.occurrences.append(occurrence)
        text = machine.line(message, sequence, stamp_us)
        record = KernelRecord(text, self._world.node_clock_ns(name), occurrence)
        machine.ring.append(record)
        self.files[name].append((record.text, record.timestamp_ns, occurrence))
        self.ship(name, record.text, record.timestamp_ns, occurrence, delay_seconds=delay_seconds)
        return occurrence

    def pod_prints(
        self, name: str, *, job: int = 0, delay_seconds: float = 0.0, ecc: bool = False, gpu: str = ""
    ) -> Occurrence:
        """Print a pod's NCCL error, memory error, or error about a GPU; job 0 runs on every node."""
        # A record cannot distinguish two lines of one job in one nanosecond.
        self._world.clock.true_ns += 1000
        machine, number = self._world.machines[name], len(self._world.occurrences)
        line = HANDLE_LINE if gpu else ECC_LINE if ecc else POD_LINE
        text = line.format(pod=_pod(name, job), number=number, gpu=gpu)
        occurrence = Occurrence(
            *(number, name, machine, machine.boot_id, Source.POD, found(text, Source.POD)),
            *(0, 0, self._world.clock.true_ns, job),
        )
        self._world.occurrences.append(occurrence)
        at_ns = self._world.node_clock_ns(name)
        self.ship(name, text, at_ns, occurrence, delay_seconds=delay_seconds)
        return occurrence

    def pod_floods(self, name: str, lines: int, chars: int) -> None:
        """Print long lines of a pod that Loki's line filter passes and that detection rejects."""
        at_ns = self._world.node_clock_ns(name)
        texts = [
            (at_ns + place * 100_000, f"NCCL WARN nothing {place} {'🔥' * chars}") for place in range(lines)
        ]
        self._world.clock.true_ns += lines * 100_000
        export = shipped(name, texts, namespace="default", pod=_pod(name, 0), container="train")
        try:
            self._world.loki.push_otlp(export)
        except LokiError as error:
            self._world.log(f"   Loki refuses lines of a pod on {name}: {error.message[:80]}")

    def ship(
        self,
        name: str,
        text: str,
        timestamp_ns: int,
        occurrence: Occurrence | None,
        *,
        delay_seconds: float = 0.0,
        note: str = "",
    ) -> None:
        """Ship a line to Loki, once per collector; ``note`` distinguishes a line that is shipped again."""

        def arrive() -> None:
            for collector in range(self.collectors[name]):
                self.push(name, text, timestamp_ns, occurrence, f"{note}{collector}")

        if occurrence is None or occurrence.source is Source.KERNEL:
            until_ns, lost = self.silences.get(name, (0, False))
            if (silent_ns := until_ns - self._world.clock.true_ns) > 0 and lost:
                return
            delay_seconds = max(delay_seconds, silent_ns / 1e9)
        if occurrence is None and " heartbeat " in text:
            self._world.ledger.returns.printed(name)
        if delay_seconds > 0:
            self._world.later(delay_seconds, arrive)
        else:
            arrive()

    def push(self, name: str, text: str, timestamp_ns: int, occurrence: Occurrence | None, note: str) -> None:
        """Push a line to Loki as the collector that ``note`` names."""
        job = None if occurrence is None else occurrence.job
        attributes = {"observed.by": note}
        is_nameless = job is None and self.nameless_ns.get(name, 0) > self._world.clock.true_ns
        if job is None:
            node = "" if is_nameless else name
            export = shipped(node, [(timestamp_ns, text)], pod=f"dmesg-{name}", attributes=attributes)
        else:
            # The lines of every other job name the job; the other jobs are known by the names of their pods.
            attributes |= {"k8s.job.name": JOBS[job]} if job % 2 else {}
            export = shipped(
                *(name, [(timestamp_ns, text)]),
                namespace="default",
                pod=_pod(name, job),
                container="train",
                attributes=attributes,
            )
        try:
            self._world.loki.push_otlp(export)
        except LokiError as error:
            self._world.log(f"   Loki refuses a line of {name}: {error.message[:80]}")
            return
        if is_nameless:
            self._world.ledger.happened[NAMELESS[occurrence is None]] += 1
        if job is None and any(process and process.leading for process in self._world.processes):
            self._unsignalled_ns = min(timestamp_ns, self._unsignalled_ns or timestamp_ns)
        if occurrence is None:
            self._world.ledger.returns.heartbeat(name, text, timestamp_ns)
        else:
            visible_ns = max(self._world.clock.true_ns, self._world.traffic.blind_until_ns)
            occurrence.shipments.append(Shipment(timestamp_ns, self._world.clock.true_ns, visible_ns))

    def take_nudge(self) -> int | None:
        """Return the time of the oldest new kernel line, as a tail would; 30 % of the calls lose it."""
        oldest_ns, self._unsignalled_ns = self._unsignalled_ns, None
        return None if self._world.rng.random() < 0.3 else oldest_ns


NAMELESS = ("fault without its node", "heartbeat without its node")
"""The names under which it is counted what a collector ships without the node's name."""
JOBS = ("train", "alpaca", "bison", "camel", "dingo", "eland", "ferret")
"""The names of the jobs; the first runs on every node."""


def _pod(name: str, job: int) -> str:
    """Return the name of a job's pod on a node."""
    return f"{JOBS[job]}-worker-{name[-1]}" if job else f"{JOBS[0]}-{name}"
