"""The literals of what our kernel-log reader says about itself, and the anchors of the packaged rules.

An anchor is a short literal that Loki looks for; every line that can be a fault has at least one of its
source's. They follow from the rules that are not off (:meth:`Catalog.anchors`).
"""

from __future__ import annotations

from konductor_like.catalog import load_catalog
from konductor_like.model import Source

HEARTBEAT_ANCHOR = "kmsg/1 heartbeat"
OVERRUN_ANCHOR = "kmsg/1 gap"


def anchors_of(source: Source) -> tuple[str, ...]:
    """The anchors that the packaged rules have for one source."""
    return load_catalog().anchors(source)
