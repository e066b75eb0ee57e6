"""Recent evidence of the whole fleet, bounded in time and number.

It is no state of its own: after a restart it is read from Loki again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from konductor_like.model.faults import Fault


@dataclass(frozen=True, slots=True)
class Window:
    """Faults by node, the oldest first."""

    faults: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
