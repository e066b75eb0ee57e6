"""How late things come, as far as it can be known: kernel to Loki, Loki to us, and us to the taint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from konductor_like.controller.metrics import Metrics
from konductor_like.model import Fault, IncidentKey, Source

REPLAY_SECONDS = 600.0
"""A line that is older than this when it is shipped was most likely read out of the kernel's ring again."""
OBSERVED_PER_TURN = 200
"""Of a flood a sample will do."""
REMEMBERED = 10_000


class Latency:
    """Measures what detection found. ``began_ns`` says when a node's boot began, by the node's clock."""

    def __init__(
        self,
        metrics: Metrics,
        began_ns: Callable[[str, str | None], int | None],
        now_ns: Callable[[], int],
    ) -> None:
        self._metrics = metrics
        self._began_ns = began_ns
        self._now_ns = now_ns
        self._open: dict[tuple[str, IncidentKey], int] = {}

    def found(self, faults: Iterable[Fault], received_ns: Mapping[Source, int]) -> None:
        """Faults of lines that Loki answered with at these times."""
        timed = (fault for fault in faults if fault.source in received_ns)
        for fault in islice(timed, OBSERVED_PER_TURN):
            self._found(fault, received_ns[fault.source])

    def tainted(self, fault: Fault) -> None:
        """A node was tainted for this fault just now."""
        if fault.node is None:
            return
        read_ns = self._open.pop((fault.node, fault.key), None)
        if read_ns is not None:
            self._metrics.read_to_taint.observe(max(0, self._now_ns() - read_ns) / 1e9)

    def _found(self, fault: Fault, read_ns: int) -> None:
        self._metrics.entry_to_read.labels(fault.source.value).observe(
            max(0, read_ns - fault.timestamp_ns) / 1e9
        )
        if fault.node is None:
            return
        if fault.severity.taints:
            if len(self._open) >= REMEMBERED:
                self._open.clear()
            self._open[fault.node, fault.key] = read_ns
        position = fault.finding.position
        began_ns = self._began_ns(fault.node, position.boot_id)
        if position.stamp_us is None or began_ns is None:
            return
        seconds = (fault.timestamp_ns - began_ns - position.stamp_us * 1000) / 1e9
        if seconds <= REPLAY_SECONDS:
            self._metrics.kernel_to_entry.observe(max(0.0, seconds))
