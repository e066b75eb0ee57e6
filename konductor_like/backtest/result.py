"""The result of a backtest, as values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from konductor_like.loki.window_query import Window
from konductor_like.model import Incident, LogLine, SkipReason, Source


@dataclass(frozen=True, slots=True)
class Outage:
    """One time that a node would have been out; ``end_ns`` is None for one that is out in the end."""

    node: str
    start_ns: int
    end_ns: int | None
    incident: Incident
    """The incident that it would have been tainted for."""
    why_longer: str = ""
    """Why it came back later than assumed, or not at all."""


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """A span in which a node would have been tainted but for ``why``; open where ``end_ns`` is None."""

    node: str
    start_ns: int
    end_ns: int | None
    why: SkipReason
    incident: Incident


@dataclass(frozen=True, slots=True)
class Peak:
    """The first moment at which the most nodes were out, and how many."""

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
    """None where no node was ever out."""
    faults: int
    """Lines that report a fault and that counted."""
    gpu_nodes: int
    """In the end."""

    def share(self, out: int) -> float:
        """So many nodes as a share of the GPU nodes, 0 to 1."""
        return out / self.gpu_nodes if self.gpu_nodes else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """The other effects of a second set of rules; two outages of a node that overlap are the same one."""

    added: tuple[Outage, ...]
    gone: tuple[Outage, ...]
    same: int


@dataclass(slots=True)
class History:
    """The extent of what was read. The readers count here."""

    asked: Window
    read_upto_ns: int = 0
    """The end of what was read: earlier than asked for where the run ended early."""
    lines: Counter[Source] = field(default_factory=Counter)
    kept_lines: int = 0
    """Lines that an earlier run had read."""
    oldest_ns: int | None = None
    newest_ns: int | None = None
    queries: int = 0
    bytes_processed: int = 0
    incomplete: int = 0
    """Single nanoseconds with more lines than Loki gives out."""
    waited_seconds: float = 0.0
    """To keep within the byte budget."""
    without_boot: int = 0
    """Faults of kernel lines that name no boot."""

    def count(self, source: Source, lines: Sequence[LogLine]) -> None:
        """Count lines, which are in the order of time."""
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
    """None where nobody releases a node."""
    nodes_from: str
    """``cluster``, ``file`` or ``lines``."""
    poll_seconds: float
    """Time between two polls."""
    shadow: Difference | None = None
    """The outages that rules in shadow mode would have added; None where they found nothing."""
    compared: Verdicts | None = None
    difference: Difference | None = None
    ended_by: str = ""
    """The reason for an early end."""


def difference(before: Sequence[Outage], after: Sequence[Outage]) -> Difference:
    """The outages that are only in ``after``, and those only in ``before``."""
    added = _without(after, before)
    return Difference(added, _without(before, after), len(after) - len(added))


def _without(outages: Sequence[Outage], others: Sequence[Outage]) -> tuple[Outage, ...]:
    """The outages that overlap none of the same node among the others."""
    by_node: defaultdict[str, list[Outage]] = defaultdict(list)
    for other in others:
        by_node[other.node].append(other)
    return tuple(one for one in outages if not any(_overlap(one, other) for other in by_node[one.node]))


def _overlap(one: Outage, other: Outage) -> bool:
    return (other.end_ns is None or one.start_ns <= other.end_ns) and (
        one.end_ns is None or other.start_ns <= one.end_ns
    )
