"""Nodes that print more than one answer holds, told apart so that they hide nobody else's line (rule 10).

The first page of a window that is too large to be read at once is mostly theirs, so it tells who they are
without another query. The rest of the window is read without them; their own lines follow in order, page by
page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from konductor_like.loki.response import Entry
from konductor_like.loki.spans import SECOND_NS

_LOUD_SHARE = 50
"""One line in so many of a full page makes a node loud."""
_QUIET_SPAN_NS = 30 * SECOND_NS
_SETTLED_NS = 10 * SECOND_NS
"""What is older than this has come to Loki, as a rule; what has not, the sweeps find."""
MOST_NODES = 200
"""More loud nodes than this at once are no exception, and Loki parses no query that names them all."""


@dataclass(frozen=True, slots=True)
class Flood:
    """Nodes whose lines are read by themselves, in tiles: the next begins at ``upto_ns``.

    Tiles touch, but where they come to the present: its last lines are read again, because Loki takes lines
    in some seconds after their time. ``recent`` is how many lines the latest tiles held, each with its end:
    what tells when the flood is over.
    """

    nodes: frozenset[str]
    upto_ns: int
    recent: tuple[tuple[int, int], ...] = ()
    width_ns: int = 0
    """How wide the next tile may be; 0 is as wide as any."""

    @property
    def reached_ns(self) -> int:
        """How far was asked for at all."""
        return self.recent[-1][0] if self.recent else self.upto_ns

    def read(self, end_ns: int, lines: int, width_ns: int) -> Self:
        """After one more tile with so many lines; the next may be ``width_ns`` wide."""
        kept = [tile for tile in self.recent if tile[0] > end_ns - _QUIET_SPAN_NS]
        return replace(self, upto_ns=end_ns, recent=(*kept, (end_ns, lines)), width_ns=width_ns)

    def again_from(self, timestamp_ns: int) -> Self:
        """Read what is not settled yet once more, from there on where that is later."""
        return replace(self, upto_ns=max(self.upto_ns - _SETTLED_NS, timestamp_ns))

    def is_over(self, now_ns: int, limit: int) -> bool:
        """Whether it was read to the present and little came of late: the nodes are read with all others."""
        lately = sum(lines for end_ns, lines in self.recent if end_ns > now_ns - _QUIET_SPAN_NS)
        return bool(self.recent) and self.reached_ns >= now_ns and lately <= limit // 4


def loud_nodes(page: Iterable[Entry], node_label: str) -> frozenset[str]:
    """The nodes that fill a page that was not complete; ``""`` stands for lines that name none."""
    counts = Counter(entry.labels.get(node_label, "") for entry in page)
    least = max(2, counts.total() // _LOUD_SHARE)
    return frozenset(node for node, count in counts.most_common(MOST_NODES) if count >= least)
