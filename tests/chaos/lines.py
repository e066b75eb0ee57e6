"""What kernels and pods say, and how it reaches Loki: at once or late, once or through two collectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konductor_like.model import Source
from konductor_like.sandbox.loki import LokiError, shipped
from tests.chaos.machines import (
    ECC_LINE,
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
    """Everything that is said, and its way to Loki."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.collectors = dict.fromkeys(world.names, 1)
        self.files: dict[str, list[tuple[str, int, Occurrence]]] = {name: [] for name in world.names}
        """What stands in the log files of each node's kernel-log reader; reboots leave them as they are."""
        self._untold_ns: int | None = None

    def happen(self, name: str, code: int, gpu: str, *, delay_seconds: float = 0.0) -> Occurrence:
        """The kernel of a machine says something, and its reader ships it, perhaps late."""
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
        self, name: str, *, job: int = 0, delay_seconds: float = 0.0, ecc: bool = False
    ) -> Occurrence:
        """A pod on the node prints an error of its job, NCCL's or of its memory; job 0 runs everywhere."""
        # Two lines of one job in one nanosecond are told apart by nothing that a record could hold.
        self._world.clock.true_ns += 1000
        machine, number = self._world.machines[name], len(self._world.occurrences)
        text = (ECC_LINE if ecc else POD_LINE).format(pod=_pod(name, job), number=number)
        occurrence = Occurrence(
            *(number, name, machine, machine.boot_id, Source.POD, found(text, Source.POD)),
            *(0, 0, self._world.clock.true_ns, job),
        )
        self._world.occurrences.append(occurrence)
        at_ns = self._world.node_clock_ns(name)
        self.ship(name, text, at_ns, occurrence, delay_seconds=delay_seconds)
        return occurrence

    def pod_floods(self, name: str, lines: int, chars: int) -> None:
        """A pod prints long lines that Loki's line filter lets through and detection turns away."""
        at_ns = self._world.node_clock_ns(name)
        texts = [
            (at_ns + place * 100_000, f"NCCL WARN nothing {place} {'🔥' * chars}") for place in range(lines)
        ]
        self._world.clock.true_ns += lines * 100_000
        export = shipped(name, texts, namespace="default", pod=_pod(name, 0), container="train")
        try:
            self._world.loki.push_otlp(export)
        except LokiError as error:
            self._world.tell(f"   Loki refuses lines of a pod on {name}: {error.message[:80]}")

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
        """A line goes to Loki, once per collector; ``note`` sets apart what is shipped again."""

        def arrive() -> None:
            for collector in range(self.collectors[name]):
                self.push(name, text, timestamp_ns, occurrence, f"{note}{collector}")

        if delay_seconds > 0:
            self._world.later(delay_seconds, arrive)
        else:
            arrive()

    def push(self, name: str, text: str, timestamp_ns: int, occurrence: Occurrence | None, note: str) -> None:
        """A line is in Loki, as from the collector that ``note`` names."""
        job = None if occurrence is None else occurrence.job
        attributes = {"observed.by": note}
        if job is None:
            export = shipped(name, [(timestamp_ns, text)], attributes=attributes)
        else:
            # Of every other job the lines name it, else its pods' names do.
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
            self._world.tell(f"   Loki refuses a line of {name}: {error.message[:80]}")
            return
        if job is None and any(process and process.leading for process in self._world.processes):
            self._untold_ns = min(timestamp_ns, self._untold_ns or timestamp_ns)
        if occurrence is not None:
            visible_ns = max(self._world.clock.true_ns, self._world.traffic.blind_until_ns)
            occurrence.shipments.append(Shipment(timestamp_ns, self._world.clock.true_ns, visible_ns))

    def take_nudge(self) -> int | None:
        """The oldest kernel line since the last time, as a tail tells of it; tails lose lines."""
        oldest_ns, self._untold_ns = self._untold_ns, None
        return None if self._world.rng.random() < 0.3 else oldest_ns


JOBS = ("train", "alpaca", "bison", "camel", "dingo", "eland", "ferret")
"""The first runs on every node."""


def _pod(name: str, job: int) -> str:
    """The rank of a job that runs on a node."""
    return f"{JOBS[job]}-worker-{name[-1]}" if job else f"{JOBS[0]}-{name}"
