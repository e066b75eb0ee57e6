"""What the stand-in Loki allows, and how it says no.

The values are Loki's own defaults (pkg/validation/limits.go), but for the split interval, which is the one of
the Helm chart.
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000
HOUR_SECONDS = 3600


class LokiError(Exception):
    """A refusal: the status and the very text that Loki would send."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class LokiLimits:
    """One tenant's limits, under the names of Loki's ``limits_config`` where it has one."""

    max_entries_limit_per_query: int = 5000
    max_query_series: int = 500
    max_query_length_seconds: int = 721 * HOUR_SECONDS
    max_line_size_bytes: int = 256 * 1024
    max_label_names_per_series: int = 15
    max_structured_metadata_entries_count: int = 128
    max_structured_metadata_size_bytes: int = 64 * 1024
    reject_old_samples_max_age_seconds: int = 7 * 24 * HOUR_SECONDS
    creation_grace_period_seconds: int = 600
    max_behind_stream_seconds: int = HOUR_SECONDS
    """A line further behind its stream's newest is refused (half of the ingester's ``max_chunk_age``)."""
    split_queries_by_interval_seconds: int = 900
    max_cache_freshness_seconds: int = 600
    caches_empty_results: bool = True
    promoted_attributes: frozenset[str] = frozenset()
    """OTLP resource attributes that become index labels besides the default ones: ``k8s.node.name``."""
    sharded_results_fall_short: bool = False
    """Queries with more matches than their limit answer with fewer lines than it (grafana/loki#19133)."""
