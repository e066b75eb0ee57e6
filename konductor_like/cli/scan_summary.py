"""The summary of ``scan``: the faults of a file by fault and GPU, the gravest first, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from konductor_like.cli.columns import Layout, cells_of, columns, fault_name, widths_of
from konductor_like.detection.line_time import time_text
from konductor_like.detection.scan import Hit
from konductor_like.model import Finding, Severity

HEADERS = ("SEVERITY", "FAULT", "GPU", "COUNT", "FIRST", "LAST", "WHAT")
NARROW_HEADERS = (*HEADERS[:4], "WHAT AND WHEN")
ROWS_MOST = 200
"""Rows of one severity. The lines of further faults and GPUs are only counted."""
_GRAVEST_FIRST = tuple(Severity)
_HEAD_BYTES = 2048
"""Bytes of a line that are kept, to find its time."""


@dataclass(slots=True)
class _Group:
    """The lines of one fault on one GPU."""

    finding: Finding
    first: str
    last_line: bytes = b""
    last: Finding | None = None
    count: int = 0


@dataclass(slots=True)
class Summary:
    """The faults of one file."""

    _groups: dict[tuple[object, ...], _Group] = field(default_factory=dict)
    _rows: Counter[Severity] = field(default_factory=Counter)
    _others: Counter[Severity] = field(default_factory=Counter)

    def add(self, hit: Hit) -> None:
        """Count one line with a fault."""
        finding = hit.finding
        key = (finding.severity, finding.rule, finding.gpu, finding.title, finding.user_written)
        group = self._groups.get(key)
        if group is None:
            if self._rows[finding.severity] == ROWS_MOST:
                self._others[finding.severity] += 1
                return
            self._rows[finding.severity] += 1
            group = self._groups[key] = _Group(finding, time_of(hit.line, finding))
        group.count += 1
        group.last_line, group.last = hit.line[:_HEAD_BYTES], finding

    def findings(self) -> list[Finding]:
        """Return the first finding of each fault on each GPU, the gravest first."""
        return [group.finding for group in self._gravest_first()]

    def rows(self) -> Iterator[tuple[Severity, tuple[str, ...]]]:
        """Yield the cells under ``HEADERS`` with their severity, the gravest first."""
        rows = [(group.finding.severity, _row(group)) for group in self._gravest_first()]
        for severity, more in self._others.items():
            what = f"on more than {ROWS_MOST} faults and GPUs; --lines shows each line"
            rows.append((severity, (severity.value, "others", "", str(more), "", "", what)))
        yield from sorted(rows, key=lambda row: _GRAVEST_FIRST.index(row[0]))

    def is_whole(self) -> bool:
        """Whether each fault and GPU has its row."""
        return not self._others

    def _gravest_first(self) -> list[_Group]:
        return sorted(self._groups.values(), key=lambda group: _GRAVEST_FIRST.index(group.finding.severity))


def lines_of(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return the rows under their headers. Too narrow a terminal has the times in the last cell."""
    if Layout.of(widths_of(cells_of(HEADERS, rows)), width).is_plain:
        return columns(HEADERS, rows, width)
    return columns(NARROW_HEADERS, [(*row[:4], _what_and_when(*row[4:])) for row in rows], width)


def time_of(line: bytes, finding: Finding) -> str:
    """Return the time of a line, as :func:`time_text` writes it."""
    return time_text(line[:_HEAD_BYTES].decode("utf-8", "replace"), finding.position)


def what_of(finding: Finding) -> str:
    """Return the fault in words."""
    return finding.title + (" (written by a user)" if finding.user_written else "")


def _what_and_when(first: str, last: str, what: str) -> str:
    times = dict.fromkeys(time for time in (first, last) if time)
    return f"{what}, {' to '.join(times)}" if times else what


def _row(group: _Group) -> tuple[str, ...]:
    finding, last = group.finding, group.last or group.finding
    times = (group.first, time_of(group.last_line, last))
    return (
        *(finding.severity.value, fault_name(finding.rule), finding.gpu or "", str(group.count)),
        *times,
        what_of(finding),
    )
