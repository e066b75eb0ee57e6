"""How far and how often a source is read, from the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from konductor_like.model import Source
from konductor_like.settings import Settings

SECOND_NS = 1_000_000_000

_WIDEST_NS = 3600 * SECOND_NS
"""A catch-up is read in windows of this width, unless a steady poll needs a wider one."""


@dataclass(frozen=True, slots=True)
class Spans:
    """How far and how often a source is read, in nanoseconds."""

    overlap_ns: int
    """How far each poll looks back behind the cursor."""
    lateness_ns: int
    """How late a line may come and still be found: by a sweep, and after a restart."""
    skew_ns: int
    """How far beyond our own clock lines are read already."""
    widest_ns: int
    """The widest single query; a steady poll fits into one."""
    interval_ns: int = 5 * SECOND_NS
    """Time between two polls that look back over the whole overlap."""
    sweep_every_ns: int = 120 * SECOND_NS
    """Time between two sweeps."""
    revisit_every_ns: int = 600 * SECOND_NS
    """Time between two readings of an open gap."""
    give_up_ns: int = 86_400 * SECOND_NS
    """How old a span gets that Loki cannot give, before it is let go of."""

    @classmethod
    def of(cls, settings: Settings, source: Source) -> Self:
        """The spans that the settings give for a source."""
        kernel = source is Source.KERNEL
        overlap_ns = _ns(settings.kernel_overlap_seconds if kernel else settings.pod_overlap_seconds)
        lateness_ns = _ns(settings.lateness_seconds if kernel else settings.pod_lateness_seconds)
        interval_ns = _ns(settings.poll_interval_seconds if kernel else settings.pod_poll_interval_seconds)
        sweep_ns = _ns(settings.sweep_interval_seconds if kernel else settings.pod_sweep_interval_seconds)
        skew_ns = _ns(settings.future_skew_seconds)
        return cls(
            overlap_ns=overlap_ns,
            lateness_ns=max(overlap_ns, lateness_ns),
            skew_ns=skew_ns,
            widest_ns=max(_WIDEST_NS, overlap_ns + skew_ns + 2 * interval_ns),
            interval_ns=interval_ns,
            sweep_every_ns=sweep_ns,
            revisit_every_ns=_ns(settings.gap_revisit_seconds),
            give_up_ns=_ns(settings.gap_max_age_seconds),
        )


def _ns(seconds: float) -> int:
    return int(seconds * SECOND_NS)
