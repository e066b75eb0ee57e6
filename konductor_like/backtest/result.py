"""The result of a backtest, as values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from konductor_like.loki.query.window_query import TimeWindow
from konductor_like.model import Incident, LogLine, SkipReason, Source


@dataclass(frozen=True, slots=True)
class Outage:
    """A span in which a node would have been tainted; ``end_ns`` is None if it had no end."""

    node: str
    start_ns: int
    end_ns: int | None
    incident: Incident
    """The incident for which the node would have been tainted."""
    why_longer: str = ""
    """Why the node came back later than assumed, or not at all."""


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """A span in which ``why`` would have held a node's taint back; ``end_ns`` is None if it had no end."""

    node: str
    start_ns: int
    end_ns: int | None
    why: SkipReason
    incident: Incident


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest number of nodes that were out at once, and the first moment with this number."""

    at_ns: int
    out: int


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The effects of one set of rules."""

    rules: str
    """The rules' digest."""
    outages: tuple[Outage, ...]
    held: tuple[HeldSpan, ...]
    peak: Peak | None
    """None if no node was ever out."""
    faults: int
    """Number of lines with a fault that counted."""
    gpu_nodes: int
    """Number of GPU nodes at the end of the history."""

    def share(self, out: int) -> float:
        """Return ``out`` nodes as a share of the GPU nodes, 0 to 1."""
        return out / self.gpu_nodes if self.gpu_nodes else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """What enforced shadow rules would change; overlapping outages of a node count as the same."""

    added: tuple[Outage, ...]
    gone: tuple[Outage, ...]
    same: int


@dataclass(slots=True)
class History:
    """The extent of the history that was read; the readers count here."""

    asked: TimeWindow
    read_upto_ns: int = 0
    """The time up to which the history was read; before the end of ``asked`` if the run ended early."""
    lines: Counter[Source] = field(default_factory=Counter)
    oldest_ns: int | None = None
    newest_ns: int | None = None
    queries: int = 0
    bytes_processed: int = 0
    incomplete: int = 0
    """Number of nanoseconds with more lines than Loki returns in one answer."""
    waited_seconds: float = 0.0
    """Seconds waited to keep within the byte budget."""
    without_boot: int = 0
    """Number of faults in kernel lines that name no boot."""

    def count(self, source: Source, lines: Sequence[LogLine]) -> None:
        """Count lines, which must be sorted by time."""
        self.lines[source] += len(lines)
        if lines:
            self.oldest_ns = min(self.oldest_ns or lines[0].timestamp_ns, lines[0].timestamp_ns)
            self.newest_ns = max(self.newest_ns or 0, lines[-1].timestamp_ns)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one backtest."""

    history: History
    verdicts: Verdicts
    release_after_seconds: float | None
    """Seconds from a taint to its assumed release; None if no node is ever released."""
    nodes_from: str
    """``cluster``, ``file`` or ``lines``."""
    poll_seconds: float
    """Time between two polls."""
    shadow: Difference | None = None
    """The outages that rules in shadow mode would have added; None if they found nothing."""
    ended_by: str = ""
    """The reason for an early end; empty without one."""


def difference(before: Sequence[Outage], after: Sequence[Outage]) -> Difference:
    """Compare the outages without and with the rules in shadow mode."""
    added = _without(after, before)
    return Difference(added, _without(before, after), len(after) - len(added))


def _without(outages: Sequence[Outage], others: Sequence[Outage]) -> tuple[Outage, ...]:
    """Return the outages that overlap no outage of the same node among the others."""
    by_node: defaultdict[str, list[Outage]] = defaultdict(list)
    for other in others:
        by_node[other.node].append(other)
    return tuple(
        outage for outage in outages if not any(_overlap(outage, other) for other in by_node[outage.node])
    )


def _overlap(outage: Outage, other: Outage) -> bool:
    return (other.end_ns is None or outage.start_ns <= other.end_ns) and (
        outage.end_ns is None or other.start_ns <= outage.end_ns
    )
