"""What Loki's values must hold so that it fits the collector before it and the controller behind it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from konductor_like.model import TAINT_EFFECT, TAINT_KEY, TAINT_VALUE
from konductor_like.settings import Settings
from tests.manifests.manifests import byte_count, documents, seconds

[VALUES] = documents("loki-values.yaml")
LOKI = VALUES["loki"]
LIMITS = LOKI["limits_config"]
[SCHEMA] = LOKI["schemaConfig"]["configs"]
[POLICY] = VALUES["extraObjects"]
SETTINGS = Settings()

# Loki: pkg/validation/limits.go.
LOKI_STREAMS = 5000
NODES = 300
STREAMS_PER_NODE = 100


def anywhere(value: Any, key: str) -> bool:
    """Whether a key stands at any depth."""
    if isinstance(value, dict):
        return key in value or any(anywhere(item, key) for item in value.values())
    return isinstance(value, list) and any(anywhere(item, key) for item in value)


def test_one_pod_with_one_copy_on_one_volume_loses_nothing_in_a_restart() -> None:
    assert VALUES["deploymentMode"] == "Monolithic"
    assert VALUES["singleBinary"]["replicas"] == 1
    assert LOKI["commonConfig"]["replication_factor"] == 1
    assert LOKI["storage"]["type"] == SCHEMA["object_store"] == "filesystem"
    assert byte_count(VALUES["singleBinary"]["persistence"]["size"]) >= byte_count("10Gi")
    assert [VALUES[part]["replicas"] for part in ("write", "read", "backend")] == [0, 0, 0]

    write_ahead = LOKI["ingester"]["wal"]
    memory = byte_count(VALUES["singleBinary"]["resources"]["limits"]["memory"])

    assert write_ahead["flush_on_shutdown"] is True
    assert byte_count(write_ahead["replay_memory_ceiling"]) <= memory / 2
    assert VALUES["singleBinary"]["terminationGracePeriodSeconds"] >= 60

    [toleration] = VALUES["singleBinary"]["tolerations"]
    assert toleration == {"key": TAINT_KEY, "operator": "Equal", "value": TAINT_VALUE, "effect": TAINT_EFFECT}


def test_the_default_endpoint_of_the_controller_reaches_it() -> None:
    endpoint = urlsplit(SETTINGS.log_endpoint)

    assert VALUES["gateway"]["enabled"] is False, "with a gateway the address would be another"
    assert endpoint.hostname == "loki.loki.svc.cluster.local", "release loki in namespace loki"
    assert endpoint.port == 3100
    assert (LOKI["auth_enabled"], SETTINGS.loki_tenant) == (False, None)


def test_the_node_is_an_index_label_under_the_name_that_the_controller_knows() -> None:
    [promoted] = LIMITS["otlp_config"]["resource_attributes"]["attributes_config"]

    assert promoted["action"] == "index_label"
    assert [name.replace(".", "_") for name in promoted["attributes"]] == [SETTINGS.node_label]


def test_lines_with_metadata_are_kept_longer_than_the_controller_looks_back() -> None:
    assert LIMITS["allow_structured_metadata"] is True
    assert (SCHEMA["store"], SCHEMA["schema"]) == ("tsdb", "v13")

    kept = seconds(LIMITS["retention_period"])
    assert kept > 2 * max(SETTINGS.first_start_history_seconds, SETTINGS.lateness_seconds)
    assert LOKI["compactor"]["retention_enabled"] is True
    assert LOKI["compactor"]["delete_request_store"] == SCHEMA["object_store"]
    assert seconds(SCHEMA["index"]["period"]) == seconds("24h")


def test_lines_may_be_late_and_queries_are_answered_before_the_controller_gives_up() -> None:
    late = seconds(LIMITS["reject_old_samples_max_age"])

    assert SETTINGS.lateness_seconds < late <= seconds(LIMITS["retention_period"])
    assert LIMITS["max_entries_limit_per_query"] >= SETTINGS.loki_limit
    assert 30 <= seconds(LIMITS["query_timeout"]) < SETTINGS.loki_timeout_seconds
    assert seconds(LIMITS["split_queries_by_interval"]) >= SETTINGS.kernel_overlap_seconds


def test_some_hundred_nodes_may_log_at_once_and_a_long_line_is_cut_not_lost() -> None:
    assert LIMITS["max_global_streams_per_user"] >= NODES * STREAMS_PER_NODE > LOKI_STREAMS
    assert LIMITS["ingestion_burst_size_mb"] >= LIMITS["ingestion_rate_mb"] > 4
    assert byte_count(LIMITS["per_stream_rate_limit_burst"]) >= byte_count(LIMITS["per_stream_rate_limit"])
    assert LIMITS["max_line_size_truncate"] is True


def test_loki_has_nothing_on_that_a_newcomer_does_not_need() -> None:
    parts = ("chunksCache", "resultsCache", "gateway", "lokiCanary", "test")
    assert [VALUES[part] for part in parts] == [{"enabled": False}] * len(parts)
    assert LOKI["analytics"]["reporting_enabled"] is False
    assert not anywhere(VALUES, "image")
    assert not anywhere(VALUES, "tag")
    assert VALUES["sidecar"]["rules"]["enabled"] is False, "it would read ConfigMaps"
    assert VALUES["rbac"]["namespaced"] is True, "otherwise there is a ClusterRole"
    assert VALUES["defaults"]["automountServiceAccountToken"] is False
    assert VALUES["serviceAccount"]["automountServiceAccountToken"] is False
