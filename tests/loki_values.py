"""What ``manifests/loki-values.yaml`` raises of Loki's limits, for tests that push as a whole fleet does."""

from __future__ import annotations

from konductor_like_sandbox.loki.limits import MIB, LokiLimits
from tools.manifests.manifests import documents

[_VALUES] = documents("loki-values.yaml")
_SET = _VALUES["loki"]["limits_config"]


def _bytes(size: str) -> int:
    return int(size.removesuffix("MB")) * MIB


DEPLOYED = LokiLimits(
    max_entries_limit_per_query=_SET["max_entries_limit_per_query"],
    ingestion_rate_bytes=_SET["ingestion_rate_mb"] * MIB,
    ingestion_burst_size_bytes=_SET["ingestion_burst_size_mb"] * MIB,
    promoted_attributes=frozenset(
        attribute
        for rule in _SET["otlp_config"]["resource_attributes"]["attributes_config"]
        if rule["action"] == "index_label"
        for attribute in rule["attributes"]
    ),
)
"""A Loki installed with the shipped values. The size of a message between its parts is Loki's own default."""
