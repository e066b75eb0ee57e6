"""How the collector is deployed and how it sends: on every node, with the least rights, losing nothing."""

from __future__ import annotations

from typing import Any

from konductor_like.settings import Settings
from tests.manifests.otel import CONFIG, NEVER_GIVE_UP, PIPELINES, VALUES, each_exporter, each_receiver
from tests.manifests.units import byte_count, seconds

SETTINGS = Settings()
BY_THE_CHART = {"memory_limiter"}
"""Configured by the chart itself, out of the memory limit."""
LOKI_LINE_BYTES = 256 * 1024
"""Loki's max_line_size."""


def test_a_collector_runs_on_every_node_whatever_its_taints() -> None:
    assert VALUES["mode"] == "daemonset"
    assert VALUES["tolerations"] == [{"operator": "Exists"}]
    assert not {"nodeSelector", "affinity"} & VALUES.keys()


def test_the_image_is_the_distribution_for_kubernetes_in_the_release_of_the_chart() -> None:
    repository = "ghcr.io/open-telemetry/opentelemetry-collector-releases/opentelemetry-collector-k8s"

    assert VALUES["image"] == {"repository": repository}


def test_every_component_that_is_configured_is_used_and_the_other_way_round() -> None:
    for kind in ("receivers", "processors", "exporters"):
        configured = {name for name, component in CONFIG[kind].items() if component is not None}
        used = {name for pipeline in PIPELINES.values() for name in pipeline[kind]}

        assert used - BY_THE_CHART == configured, kind


def test_kernel_lines_never_wait_for_pod_lines() -> None:
    kernel, pods = PIPELINES["logs/kernel"], PIPELINES["logs"]

    assert (kernel["receivers"], pods["receivers"]) == (["file_log/kernel"], ["file_log/pods"])
    assert not set(kernel["exporters"]) & set(pods["exporters"])
    assert kernel["processors"] == ["resource"]


@each_exporter
def test_the_queue_is_on_disk_and_blocks_instead_of_dropping(exporter: dict[str, Any]) -> None:
    queue = exporter["sending_queue"]

    assert queue["storage"] == "file_storage"
    assert queue["block_on_overflow"] is True
    assert (queue["sizer"], queue["queue_size"]) == ("bytes", byte_count("256Mi"))
    assert seconds(exporter["retry_on_failure"]["max_elapsed_time"]) == NEVER_GIVE_UP


def test_a_damaged_store_does_not_keep_the_collector_down() -> None:
    assert CONFIG["extensions"]["file_storage"]["recreate"] is True


@each_exporter
def test_batches_are_made_in_the_queue_and_hold_the_longest_line(exporter: dict[str, Any]) -> None:
    batch = exporter["sending_queue"]["batch"]

    assert CONFIG["processors"]["batch"] is None
    assert seconds(batch["flush_timeout"]) <= 1
    assert batch["min_size"] <= LOKI_LINE_BYTES < batch["max_size"] <= byte_count("4Mi")


@each_receiver
def test_a_line_that_the_collector_puts_together_is_short_enough_for_loki(receiver: dict[str, Any]) -> None:
    [operator] = receiver["operators"]

    assert operator["max_log_size"] < LOKI_LINE_BYTES


@each_exporter
def test_lines_go_where_the_controller_reads_them(exporter: dict[str, Any]) -> None:
    assert exporter["endpoint"] == f"{SETTINGS.log_endpoint}/otlp"


def test_the_collector_may_read_pods_and_nothing_else() -> None:
    assert VALUES["clusterRole"]["create"] is True
    assert VALUES["clusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    assert "presets" not in VALUES, "a preset would add rights of its own"


def test_no_port_of_the_node_is_taken() -> None:
    assert {name for name, port in VALUES["ports"].items() if port["enabled"]} == {"metrics"}
    assert not any("hostPort" in port for port in VALUES["ports"].values())


def test_pod_lines_are_limited_by_memory_first() -> None:
    assert PIPELINES["logs"]["processors"][0] == "memory_limiter"
    assert byte_count(VALUES["resources"]["limits"]["memory"]) >= byte_count("256Mi")


def test_root_is_left_with_nothing_but_its_files() -> None:
    context = VALUES["securityContext"]

    assert context["runAsUser"] == 0
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True


@each_exporter
def test_what_waits_is_sent_soon_after_loki_is_back(exporter: dict[str, Any]) -> None:
    assert seconds(exporter["retry_on_failure"]["max_interval"]) <= 60
    assert 1 <= exporter["sending_queue"]["num_consumers"] <= 16
    assert exporter["compression"] in ("gzip", "zstd", "snappy")


def test_the_kernel_log_is_sent_in_its_order() -> None:
    """With more than one request under way lines overtake each other, and a reset hides the late one."""
    queue = VALUES["config"]["exporters"]["otlp_http/kernel"]["sending_queue"]

    assert queue["num_consumers"] == 1
    assert queue["batch"]["min_size"] >= byte_count("256Ki")


def test_the_collector_is_never_short_of_room_for_the_sake_of_a_job() -> None:
    [quota] = VALUES["extraManifests"]
    [scope] = quota["spec"]["scopeSelector"]["matchExpressions"]

    assert VALUES["priorityClassName"] == "system-node-critical"
    assert quota["metadata"]["namespace"] == "otel-collector"
    assert scope["values"] == [VALUES["priorityClassName"]]
