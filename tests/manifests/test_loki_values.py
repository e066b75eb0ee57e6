"""What Loki's values must hold so that it fits the collector before it and the controller behind it."""

from __future__ import annotations

from urllib.parse import urlsplit

from konductor_like.settings import Settings
from tests.manifests.manifests import documents, seconds

[VALUES] = documents("loki-values.yaml")
LOKI = VALUES["loki"]
LIMITS = LOKI["limits_config"]
[SCHEMA] = LOKI["schemaConfig"]["configs"]
SETTINGS = Settings()


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
