"""Kernel lines that name an Xid in a form that detection does not understand.

A driver or a collector may change its form from one day to the next. Without a word about it the whole fleet
would look healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from konductor_like.catalog import Catalog
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.detection.kernel_record import evidence, one_line
from konductor_like.detection.why_not import is_unparsed, why_no_fault
from konductor_like.model import LogLine, Source, Unparsed

REMEMBERED = 10_000
"""How many names are known at once; beyond that the one known longest goes, and may be said again."""


class UnparsedLines:
    """Counts them, and says the first of each node."""

    def __init__(
        self, metrics: Metrics, before: Mapping[str, Unparsed], catalog: Callable[[], Catalog]
    ) -> None:
        """``before`` is what the last controller left, ``catalog`` gives the rules in force."""
        self._metrics = metrics
        self._catalog = catalog
        self._known: dict[str, Unparsed] = dict(before)

    def count(self, lines: Iterable[LogLine]) -> None:
        """Count those of the lines without a fault that name an Xid all the same."""
        catalog = self._catalog()
        for line in lines:
            if line.source is Source.KERNEL and is_unparsed(catalog, line.text):
                self._note(line, catalog)

    def lately(self, nodes: Collection[str], oldest_ns: int) -> Mapping[str, Unparsed]:
        """By Node that there is, those of this time and later; what is older is forgotten."""
        self._known = {name: seen for name, seen in self._known.items() if seen.at_ns > oldest_ns}
        return {name: seen for name, seen in self._known.items() if name in nodes}

    def _note(self, line: LogLine, catalog: Catalog) -> None:
        self._metrics.unparsed.inc()
        name = line.node or ""
        before = self._known.get(name)
        if before is None:
            self._say(line, catalog)
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[name] = Unparsed(1, line.timestamp_ns)
        elif line.timestamp_ns > before.at_ns:  # what is read again is no further line
            self._known[name] = Unparsed(before.lines + 1, line.timestamp_ns)

    @staticmethod
    def _say(line: LogLine, catalog: Catalog) -> None:
        why = why_no_fault(catalog, line.text, line.source) or ""
        logs.warning(
            f"node {line.node or '(no node)'}: a line of the kernel log names an Xid and is not understood: "
            f"no fault is made of it. {why} Further ones of this node are only counted. "
            f'Line: "{evidence(one_line(line.text))}"',
            node=line.node,
        )
