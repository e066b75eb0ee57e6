"""The stand-in Loki's limits and its refusals.

The values are those of a single binary without a configuration file (pkg/validation/limits.go; dskit's
server.go).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SECOND_NS = 1_000_000_000
HOUR_SECONDS = 3600
MIB = 1 << 20


class LokiError(Exception):
    """A refusal: the status and the exact text that Loki sends."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class BigAnswer(Enum):
    """What happens to an answer above ``grpc_message_bytes``; it depends on Loki's version and settings."""

    SILENCE = "nothing until the query times out: 504, or a closed connection where writing times out first"
    EXHAUSTED = "500 with ResourceExhausted, at once"
    TOO_LARGE = "413, at once"


@dataclass(frozen=True, slots=True)
class LokiLimits:
    """One tenant's limits, named as in Loki's ``limits_config`` and ``server`` where Loki has them."""

    max_entries_limit_per_query: int = 5000
    max_query_length_seconds: int = 721 * HOUR_SECONDS
    max_query_lookback_seconds: int = 0
    """Shown by ``/config`` only, like ``retention_period_seconds``; 0 for no limit."""
    retention_period_seconds: int = 0
    max_line_size_bytes: int = 256 * 1024
    reject_old_samples_max_age_seconds: int = 7 * 24 * HOUR_SECONDS
    creation_grace_period_seconds: int = 600
    max_behind_stream_seconds: int = HOUR_SECONDS
    """Seconds by which a line may be older than its stream's newest line (half of ``max_chunk_age``)."""
    ingestion_rate_bytes: int = 4 * MIB
    """Bytes a second of all lines and metadata; a push is accepted as a whole or refused. 0 for no limit."""
    ingestion_burst_size_bytes: int = 6 * MIB
    grpc_message_bytes: int = 4 * MIB
    """``grpc_server_max_recv_msg_size`` and ``grpc_server_max_send_msg_size``: the largest message between
    Loki's parts, as :func:`konductor_like_sandbox.loki.messages.message_bytes` counts; 0 for no limit."""
    big_answer: BigAnswer = BigAnswer.SILENCE
    query_retries_seconds: float = 17.0
    """Seconds for which the frontend retries if an ingester's batch is above ``grpc_message_bytes``."""
    query_timeout_seconds: float = 60.0
    """Seconds after which a query is answered with 504."""
    http_server_write_timeout_seconds: float = 30.0
    """Seconds. If the answer is ready later, Loki closes the connection then, without the answer."""
    split_queries_by_interval_seconds: int = HOUR_SECONDS
    max_cache_freshness_seconds: int = 600
    promoted_attributes: frozenset[str] = frozenset()
    """OTLP resource attributes that become index labels besides the default ones: ``k8s.node.name``."""
    sharded_results_fall_short: bool = False
    """Whether a query with more matches than its limit gets fewer lines than that (grafana/loki#19133)."""
