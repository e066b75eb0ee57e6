"""The result of a backtest, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from konductor_like.model import Incident, Refusal, Source
from konductor_like.model.time import SECOND_NS


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The half-open span ``[start_ns, end_ns)`` of Loki's time."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / SECOND_NS


@dataclass(frozen=True, slots=True)
class Outage:
    """One time that a node would have been out; ``end_ns`` is None for one that is out in the end."""

    node: str
    start_ns: int
    end_ns: int | None
    incident: Incident
    """What it would have been tainted for."""
    why_longer: str = ""
    """Why it came back later than assumed, or not at all."""


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """A span in which a node would have been tainted but for ``why``; open where ``end_ns`` is None."""

    node: str
    start_ns: int
    end_ns: int | None
    why: Refusal
    incident: Incident


@dataclass(frozen=True, slots=True)
class Load:
    """How many nodes were out from one moment on."""

    at_ns: int
    out: int


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What one set of rules would have done."""

    rules: str
    """The rules' digest."""
    outages: tuple[Outage, ...]
    held: tuple[HeldSpan, ...]
    loads: tuple[Load, ...]
    """Changes of the number out, the oldest first."""
    faults: int
    """Lines that report a fault and that counted."""
    gpu_nodes: int
    """In the end."""
    dropped: int = 0
    """Outages and spans beyond the bound on what is kept; they are counted and not listed."""

    @property
    def peak(self) -> Load | None:
        """The first moment at which the most were out."""
        return max(self.loads, key=lambda load: (load.out, -load.at_ns), default=None)

    def share(self, out: int) -> float:
        """So many nodes as a share of the GPU nodes, 0 to 1."""
        return out / self.gpu_nodes if self.gpu_nodes else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """What the second set of rules does otherwise; two outages of a node that overlap are the same one."""

    added: tuple[Outage, ...]
    gone: tuple[Outage, ...]
    same: int


@dataclass(frozen=True, slots=True)
class History:
    """What was read, and what could not be."""

    asked: TimeSpan
    read: TimeSpan
    """How far it came: shorter where it was ended early."""
    lines: Mapping[Source, int]
    oldest_ns: int | None
    newest_ns: int | None
    queries: int
    bytes_processed: int
    incomplete: int = 0
    """Single nanoseconds with more lines than Loki gives out."""
    kept_lines: int = 0
    """Lines that an earlier run had read."""
    waited_seconds: float = 0.0
    """To keep within the byte budget."""
    without_boot: int = 0
    """Faults of kernel lines that name no boot."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one backtest."""

    history: History
    verdicts: Verdicts
    release_after_seconds: float | None
    """None: nobody releases."""
    nodes_from: str
    """``cluster``, ``file`` or ``lines``."""
    poll_seconds: float
    """Time between two polls."""
    shadow: Difference | None = None
    """What the rules in shadow mode would have added; None where nothing of theirs was found."""
    compared: Verdicts | None = None
    difference: Difference | None = None
    ended_by: str = ""
    """What ended it before the end of the span."""


def difference(before: Sequence[Outage], after: Sequence[Outage]) -> Difference:
    """What the outages ``after`` have that ``before`` has not, and the other way round."""
    old, new = _by_node(before), _by_node(after)
    added = [one for one in after if not _overlaps(one, old.get(one.node, ()))]
    gone = [one for one in before if not _overlaps(one, new.get(one.node, ()))]
    return Difference(tuple(added), tuple(gone), len(after) - len(added))


def _by_node(outages: Sequence[Outage]) -> dict[str, list[Outage]]:
    found: dict[str, list[Outage]] = {}
    for outage in outages:
        found.setdefault(outage.node, []).append(outage)
    return found


def _overlaps(one: Outage, others: Sequence[Outage]) -> bool:
    return any(
        (other.end_ns is None or one.start_ns <= other.end_ns)
        and (one.end_ns is None or other.start_ns <= one.end_ns)
        for other in others
    )
