"""The collector and Loki: the files that are read, the labels of a line, and how it is sent and kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from konductor_like.controller.leaderships import FIRST_START_HISTORY_SECONDS
from konductor_like.loki.readers.read_state import KERNEL_OVERLAP_SECONDS
from konductor_like.selectors import parse_matchers
from konductor_like.settings import Settings
from konductor_like_sandbox.loki.push import INDEX_ATTRIBUTES
from tools.generate_docs import DOCS
from tools.manifests.manifests import MANIFESTS, byte_count, documents, helm_values, only, seconds

[VALUES] = documents("otel-values.yaml")
CONFIG = VALUES["config"]
KERNEL = CONFIG["receivers"]["file_log/kernel"]
PODS = CONFIG["receivers"]["file_log/pods"]
RECEIVERS: dict[str, dict[str, Any]] = {"kernel": KERNEL, "pods": PODS}
EXPORTERS = {name: exporter for name, exporter in CONFIG["exporters"].items() if exporter is not None}
PIPELINES = {
    name: pipeline for name, pipeline in CONFIG["service"]["pipelines"].items() if pipeline is not None
}
NEVER_GIVE_UP = 0.0
"""The retry time that stands for no limit."""

each_receiver = pytest.mark.parametrize("receiver", RECEIVERS.values(), ids=list(RECEIVERS))
each_exporter = pytest.mark.parametrize("exporter", EXPORTERS.values(), ids=list(EXPORTERS))
each_pipeline = pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=list(PIPELINES))


def log_file(namespace: str, container: str, name: str = "0.log") -> str:
    """The path that the kubelet gives to a container's log."""
    return f"/var/log/pods/{namespace}_some-pod_0a1b2c3d-0000-1111-2222-333344445555/{container}/{name}"


def read_by(path: str, receivers: dict[str, dict[str, Any]] = RECEIVERS) -> list[str]:
    """Return the receivers that read a file."""
    return [
        name
        for name, receiver in receivers.items()
        if _matches(path, receiver["include"]) and not _matches(path, receiver.get("exclude", ()))
    ]


def _matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a path matches a glob, segment by segment: no wildcard stands for a slash."""
    parts = path.split("/")
    return any(
        len(parts) == len(glob.split("/")) and all(map(fnmatchcase, parts, glob.split("/"))) for glob in globs
    )


# Deployment and sending

SETTINGS = Settings()
LOKI_LINE_BYTES = 256 * 1024
"""Loki's max_line_size."""


def test_kernel_lines_never_wait_for_pod_lines_or_a_look_up() -> None:
    kernel, pods = PIPELINES["logs/kernel"], PIPELINES["logs"]

    assert (kernel["receivers"], pods["receivers"]) == (["file_log/kernel"], ["file_log/pods"])
    assert not set(kernel["exporters"]) & set(pods["exporters"])
    assert kernel["processors"] == ["resource"]
    assert "k8s_attributes" not in PIPELINES["logs/kernel"]["processors"]
    assert LOOK_UP["wait_for_metadata"] is False, "the start would wait for the API server"


@each_exporter
def test_the_queue_is_on_disk_and_blocks_instead_of_dropping_and_batches_there(
    exporter: dict[str, Any],
) -> None:
    queue = exporter["sending_queue"]

    assert queue["storage"] == "file_storage"
    assert queue["block_on_overflow"] is True
    assert (queue["sizer"], queue["queue_size"]) == ("bytes", byte_count("256Mi"))
    assert seconds(exporter["retry_on_failure"]["max_elapsed_time"]) == NEVER_GIVE_UP
    assert seconds(exporter["retry_on_failure"]["max_interval"]) <= 60
    assert 1 <= exporter["sending_queue"]["num_consumers"] <= 16
    assert exporter["compression"] in ("gzip", "zstd", "snappy")

    batch = exporter["sending_queue"]["batch"]
    assert CONFIG["processors"]["batch"] is None
    assert seconds(batch["flush_timeout"]) <= 1
    assert batch["min_size"] <= LOKI_LINE_BYTES < batch["max_size"] <= byte_count("4Mi")
    assert exporter["endpoint"] == f"{SETTINGS.log_endpoint}/otlp"


# Files


def test_the_receiver_of_the_kernel_log_reads_what_the_kernel_selector_selects() -> None:
    selected = {matcher.name: matcher.value for matcher in parse_matchers(SETTINGS.kernel_selector)}
    daemonset = only(documents("dmesg_daemonset.yaml"), "DaemonSet")
    [container] = daemonset["spec"]["template"]["spec"]["containers"]

    assert selected[SETTINGS.namespace_label] == daemonset["metadata"]["namespace"]
    assert selected[SETTINGS.container_label] == container["name"]
    assert read_by(log_file(daemonset["metadata"]["namespace"], container["name"])) == ["kernel"]


@each_receiver
def test_a_file_is_read_on_from_its_last_position_and_retried_without_limit(receiver: dict[str, Any]) -> None:
    assert receiver["start_at"] == "beginning"
    assert receiver["retry_on_failure"]["enabled"] is True
    assert seconds(receiver["retry_on_failure"]["max_elapsed_time"]) == NEVER_GIVE_UP
    assert "delete_after_read" not in receiver

    directory = CONFIG["extensions"]["file_storage"]["directory"]
    [name] = [mount["name"] for mount in VALUES["extraVolumeMounts"] if mount["mountPath"] == directory]
    [volume] = [volume for volume in VALUES["extraVolumes"] if volume["name"] == name]

    assert receiver["storage"] == "file_storage"
    assert "file_storage" in CONFIG["service"]["extensions"]
    assert volume["hostPath"] == {"path": directory, "type": "DirectoryOrCreate"}


OURS = "konductor-like"
"""The namespace of the controller, whose log has the audit trail."""
NOT_COLLECTED = ("kube-system", "team-a", "default-2", "loki", "otel-collector")


def test_the_pod_logs_of_the_watched_namespaces_and_the_controllers_go_to_loki_and_no_others() -> None:
    data = only(documents("controller_deployment.yaml"), "ConfigMap", OURS)["data"]
    watched = data["WATCHED_NAMESPACES"].split(",")

    assert tuple(watched) == SETTINGS.watched_namespaces
    for namespace in (*watched, OURS):
        for name in ("0.log", "0.log.20261121-060000"):
            assert read_by(log_file(namespace, "any", name)) == ["pods"]
        for name in ("0.log.20261121-060000.gz", "0.log.20261121-060000.tmp"):
            assert read_by(log_file(namespace, "any", name)) == []
    assert [namespace for namespace in NOT_COLLECTED if read_by(log_file(namespace, "any"))] == []


INSTALL = (DOCS / "start" / "cluster.md").read_text(encoding="utf-8")
STEPS = INSTALL.partition("## 3. ")[2]
[MINE] = [
    yaml.safe_load(block)
    for block in re.findall(r"^```yaml\n(# otel-mine.*?)^```", STEPS, re.DOTALL | re.MULTILINE)
]
"""The second values file of the guide."""


def with_includes(*include: str) -> dict[str, dict[str, Any]]:
    """Return the receivers if the second values file has these globs for the pods' logs."""
    mine = {"config": {"receivers": {"file_log/pods": {"include": list(include)}}}}
    receivers = helm_values(VALUES, mine)["config"]["receivers"]
    return {name.removeprefix("file_log/"): receiver for name, receiver in receivers.items() if receiver}


def test_the_second_values_file_of_the_guide_names_the_namespaces_of_step_1() -> None:
    include = MINE["config"]["receivers"]["file_log/pods"]["include"]
    receivers = with_includes(*include)
    namespaces = [path.removeprefix("/var/log/pods/").partition("_")[0] for path in include]

    assert ",".join(name for name in namespaces if name != OURS) == "team-a,team-b"
    assert "WATCHED_NAMESPACES: team-a,team-b" in INSTALL
    for namespace in namespaces:
        assert read_by(log_file(namespace, "any"), receivers) == ["pods"]
    assert read_by(log_file("dmesg-logging", "dmesg"), receivers) == ["kernel"]


def test_a_glob_of_the_guides_table_collects_what_the_entry_of_the_setting_selects() -> None:
    rows = re.findall(r"^\| `([^`!]+)` \| `(/var/log/pods/[^`]+)` \|$", STEPS, re.MULTILINE)
    names = ("team-a", "team-ab", "team", "other", "a-team-a", "loki", "otel-collector")

    assert [entry for entry, _ in rows] == ["team-a", "team-*", "*"]
    for entry, glob in rows:
        receivers = with_includes(glob)
        collected = [name for name in names if read_by(log_file(name, "any"), receivers)]
        never = ("loki", "otel-collector")  # their own lines would come back in an endless loop
        assert collected == [name for name in names if fnmatchcase(name, entry) and name not in never]
        assert read_by(log_file("dmesg-logging", "dmesg"), receivers) == ["kernel"]


def test_a_line_counts_as_read_only_once_it_is_in_the_queue_and_kernel_lines_keep_their_order() -> None:
    assert "--feature-gates=stanza.synchronousLogEmitter" in VALUES["command"]["extraArgs"]

    """With more than one request under way lines overtake each other, and a reset hides the late one."""
    queue = VALUES["config"]["exporters"]["otlp_http/kernel"]["sending_queue"]

    assert queue["num_consumers"] == 1
    assert queue["batch"]["min_size"] >= byte_count("256Ki")


# Labels

[LOKI] = documents("loki-values.yaml")
LIMITS = LOKI["loki"]["limits_config"]
[SCHEMA] = LOKI["loki"]["schemaConfig"]["configs"]
LOOK_UP = CONFIG["processors"]["k8s_attributes"]
SET = {item["key"]: item for item in CONFIG["processors"]["resource"]["attributes"]}
LOKI_INDEX_LABELS = 15
"""Loki's maximum number of labels of a stream (max_label_names_per_series)."""
FROM_THE_PATH = {
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.container.name",
    "k8s.container.restart_count",
}
"""The attributes that the container operator makes from the path of a log file."""


def attributes(pipeline: dict[str, Any]) -> set[str]:
    """Every resource attribute that a pipeline may put on a line."""
    if "k8s_attributes" not in pipeline["processors"]:
        return FROM_THE_PATH | SET.keys()
    extract = LOOK_UP["extract"]
    names = {*extract["metadata"], *(label["tag_name"] for label in extract["labels"])}
    return FROM_THE_PATH | SET.keys() | names


@each_pipeline
def test_the_node_and_the_cluster_are_set_last_and_here(pipeline: dict[str, Any]) -> None:
    assert pipeline["processors"][-1] == "resource"
    assert SET["k8s.node.name"]["value"] == "${env:OTEL_K8S_NODE_NAME}"
    assert SET["k8s.node.name"]["action"] == "upsert"

    [variable] = VALUES["extraEnvs"]
    assert variable["name"] == "CLUSTER_NAME"
    assert SET["k8s.cluster.name"]["value"] == "${env:CLUSTER_NAME}"
    assert SET["k8s.cluster.name"]["action"] == "upsert"


@each_pipeline
def test_the_labels_that_the_controller_names_are_there_and_loki_takes_all(pipeline: dict[str, Any]) -> None:
    [promoted] = LIMITS["otlp_config"]["resource_attributes"]["attributes_config"]
    indexed = attributes(pipeline) & (INDEX_ATTRIBUTES | set(promoted["attributes"]))
    labels = {name.replace(".", "_") for name in indexed} | {"service_name"}
    named = {SETTINGS.node_label, SETTINGS.namespace_label, SETTINGS.pod_label, SETTINGS.container_label}

    assert named <= labels
    assert "k8s_cluster_name" in labels
    assert len(labels) <= LOKI_INDEX_LABELS


def test_a_pods_job_is_an_attribute_and_the_pod_is_found_by_the_path_alone() -> None:
    extract = LOOK_UP["extract"]
    names = [label["tag_name"] for label in extract["labels"]]

    assert "k8s.job.name" in extract["metadata"]
    assert {"jobset.name", "kubeflow.job.name", "ray.cluster.name"} <= set(names)
    assert len(set(names)) == len(names)
    assert {label["from"] for label in extract["labels"]} == {"pod"}
    assert all("key" in label for label in extract["labels"]), "a key_regex would take any label"
    assert extract["otel_annotations"] is False

    [association] = LOOK_UP["pod_association"]
    [source] = association["sources"]

    assert source["from"] == "resource_attribute"
    assert source["name"] in FROM_THE_PATH
    assert LOOK_UP["filter"] == {"node_from_env_var": "OTEL_K8S_NODE_NAME"}


# Loki


def test_the_default_endpoint_of_the_controller_reaches_it() -> None:
    endpoint = urlsplit(SETTINGS.log_endpoint)

    assert LOKI["gateway"]["enabled"] is False, "with a gateway the address would be another"
    assert endpoint.hostname == "loki.loki.svc.cluster.local", "release loki in namespace loki"
    assert endpoint.port == 3100
    assert (LOKI["loki"]["auth_enabled"], SETTINGS.loki_tenant) == (False, None)


def test_the_node_is_an_index_label_under_the_name_that_the_controller_knows() -> None:
    [promoted] = LIMITS["otlp_config"]["resource_attributes"]["attributes_config"]

    assert promoted["action"] == "index_label"
    assert [name.replace(".", "_") for name in promoted["attributes"]] == [SETTINGS.node_label]


def test_lines_with_metadata_are_kept_longer_than_the_controller_looks_back() -> None:
    assert LIMITS["allow_structured_metadata"] is True
    assert (SCHEMA["store"], SCHEMA["schema"]) == ("tsdb", "v13")

    kept = seconds(LIMITS["retention_period"])
    assert kept > 2 * max(FIRST_START_HISTORY_SECONDS, SETTINGS.lateness_seconds)
    assert LOKI["loki"]["compactor"]["retention_enabled"] is True
    assert LOKI["loki"]["compactor"]["delete_request_store"] == SCHEMA["object_store"]
    assert seconds(SCHEMA["index"]["period"]) == seconds("24h")


def test_lines_may_be_late_and_queries_are_answered_before_the_controller_gives_up() -> None:
    late = seconds(LIMITS["reject_old_samples_max_age"])

    assert SETTINGS.lateness_seconds < late <= seconds(LIMITS["retention_period"])
    assert LIMITS["max_entries_limit_per_query"] >= SETTINGS.loki_limit
    assert 30 <= seconds(LIMITS["query_timeout"]) < SETTINGS.loki_timeout_seconds
    assert seconds(LIMITS["split_queries_by_interval"]) >= KERNEL_OVERLAP_SECONDS


# The large Loki

[ON_TOP] = documents("loki-values-large.yaml")
LARGE = helm_values(LOKI, ON_TOP)


def test_the_large_loki_keeps_the_limits_and_has_an_ingester_for_each_copy() -> None:
    [schema] = LARGE["loki"]["schemaConfig"]["configs"]

    assert LARGE["loki"]["limits_config"] == LIMITS
    assert LARGE["extraObjects"] == LOKI["extraObjects"]
    assert (schema["store"], schema["schema"]) == (SCHEMA["store"], SCHEMA["schema"])
    assert {
        LARGE["loki"]["storage"]["type"],
        schema["object_store"],
        LARGE["loki"]["compactor"]["delete_request_store"],
    } == {"s3"}
    assert LARGE["loki"]["commonConfig"]["replication_factor"] == LARGE["ingester"]["replicas"] == 3
    assert LARGE["ingester"]["persistence"]["enabled"] is True
    memory = byte_count(LARGE["ingester"]["resources"]["limits"]["memory"])
    assert byte_count(LARGE["loki"]["ingester"]["wal"]["replay_memory_ceiling"]) <= memory / 2


def test_every_component_of_the_large_loki_runs_and_the_small_one_does_not() -> None:
    components = [name for name, value in ON_TOP.items() if "affinity" in value]

    assert [LARGE[name]["replicas"] for name in ("singleBinary", "write", "read", "backend")] == [0, 0, 0, 0]
    assert len(components) == 7
    for name in components:
        assert LARGE[name]["replicas"] >= 1
        assert LARGE[name]["affinity"]["nodeAffinity"] == LOKI["singleBinary"]["affinity"]["nodeAffinity"]
    assert LARGE["defaults"]["tolerations"] == LOKI["singleBinary"]["tolerations"]


def test_the_guide_names_the_addresses_and_the_three_values_of_the_large_loki() -> None:
    text = (MANIFESTS / "loki-values-large.yaml").read_text(encoding="utf-8")
    [mine] = [
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(# loki-mine.*?)^```", STEPS, re.DOTALL | re.MULTILINE)
    ]
    urls = set(re.findall(r"http://loki-[\w./:-]+\w", STEPS))

    assert mine["loki"]["storage"].keys() == {"bucketNames", "s3"}
    assert all(
        name in text for name in ("chunks: my-loki", "region: eu-central-1", "eks.amazonaws.com/role-arn")
    )
    assert "bucketNames" not in ON_TOP["loki"]["storage"], "without it the chart refuses to install"
    assert urls == set(re.findall(r"http://loki-[\w./:-]+\w", text))
