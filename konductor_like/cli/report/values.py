"""What the page shows, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from konductor_like.history.outages import Outage


@dataclass(frozen=True, slots=True)
class Link:
    """Outages that one number is about. The table of outages shows them alone if the link is followed."""

    number: int
    title: str
    outages: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top."""

    name: str
    value: str
    note: str
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a table, or a column of a plot."""

    name: str
    value: str
    percent: float
    """Length, of the longest bar."""
    outages: int
    """Outages that began in the span."""
    hours: str
    link: Link | None = None
    """All outages of which hours are in the value."""
    begun: Link | None = None
    what: str = ""
    """What a fault means; empty if the rules of this program do not have it."""
    label: str = ""
    """The text below a column; empty for most of many columns."""


@dataclass(frozen=True, slots=True)
class Bars:
    """A table of bars."""

    title: str
    name: str
    """What the first column has."""
    bars: Sequence[Bar]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """An outage in the table at the end."""

    number: int
    groups: Sequence[int]
    """The links that lead to it."""
    outage: Outage
    since: str
    until: str
    fault: str
    out: str
    gpu_hours: str
    end: str


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the template shows."""

    title: str
    span: str
    unknown_part: str
    """For which part of the time the trail tells no outages; empty if it tells them all."""
    is_whole: bool
    gaps: Sequence[str]
    coverage: Sequence[str]
    unit: str
    """``GPU hours``, or ``node hours`` if no number of GPUs is known."""
    unit_title: str
    tiles: Sequence[Tile]
    short: Sequence[str]
    course_title: str
    course_note: str
    """What the highest column is."""
    course: Sequence[Bar]
    weeks: Bars
    by: Sequence[Bars]
    often: Sequence[Bars]
    """Nodes and GPUs that failed more than once."""
    repair_steps: Sequence[Bar]
    repairs: Sequence[Bar]
    nothing: Bars
    nothing_means: str
    links: Sequence[Link]
    rows: Sequence[Row]
    known: bool = True
    """Whether there is anything to show: an outage, or a node."""
