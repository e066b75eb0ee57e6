"""What the collector says about a line: its node above all, its cluster, and the job that ran there."""

from __future__ import annotations

from typing import Any

from konductor_like.sandbox.loki.push import INDEX_ATTRIBUTES
from konductor_like.settings import Settings
from tests.manifests.manifests import documents
from tests.manifests.otel import CONFIG, PIPELINES, VALUES, each_pipeline

[LOKI] = documents("loki-values.yaml")
SETTINGS = Settings()
LOOK_UP = CONFIG["processors"]["k8s_attributes"]
SET = {item["key"]: item for item in CONFIG["processors"]["resource"]["attributes"]}
LOKI_INDEX_LABELS = 15
"""Of a stream, and no more: max_label_names_per_series."""
FROM_THE_PATH = {
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.container.name",
    "k8s.container.restart_count",
}
"""What the container operator makes of a log file's path."""


def attributes(pipeline: dict[str, Any]) -> set[str]:
    """Every resource attribute that a pipeline may put on a line."""
    if "k8s_attributes" not in pipeline["processors"]:
        return FROM_THE_PATH | SET.keys()
    extract = LOOK_UP["extract"]
    names = {*extract["metadata"], *(label["tag_name"] for label in extract["labels"])}
    return FROM_THE_PATH | SET.keys() | names


@each_pipeline
def test_the_last_word_on_the_node_has_the_downward_api(pipeline: dict[str, Any]) -> None:
    assert pipeline["processors"][-1] == "resource"
    assert SET["k8s.node.name"]["value"] == "${env:OTEL_K8S_NODE_NAME}"
    assert SET["k8s.node.name"]["action"] == "upsert"


def test_the_name_of_the_cluster_is_one_line_to_change() -> None:
    [variable] = VALUES["extraEnvs"]

    assert variable["name"] == "CLUSTER_NAME"
    assert SET["k8s.cluster.name"]["value"] == "${env:CLUSTER_NAME}"
    assert SET["k8s.cluster.name"]["action"] == "upsert"


@each_pipeline
def test_the_labels_that_the_controller_names_are_there_and_loki_takes_all(pipeline: dict[str, Any]) -> None:
    [promoted] = LOKI["loki"]["limits_config"]["otlp_config"]["resource_attributes"]["attributes_config"]
    indexed = attributes(pipeline) & (INDEX_ATTRIBUTES | set(promoted["attributes"]))
    labels = {name.replace(".", "_") for name in indexed} | {"service_name"}
    named = {SETTINGS.node_label, SETTINGS.namespace_label, SETTINGS.pod_label, SETTINGS.container_label}

    assert named <= labels
    assert "k8s_cluster_name" in labels
    assert len(labels) <= LOKI_INDEX_LABELS


def test_pods_are_told_by_job_and_cannot_make_labels_of_their_own() -> None:
    extract = LOOK_UP["extract"]
    names = [label["tag_name"] for label in extract["labels"]]

    assert "k8s.job.name" in extract["metadata"]
    assert {"jobset.name", "kubeflow.job.name", "ray.cluster.name"} <= set(names)
    assert len(set(names)) == len(names)
    assert {label["from"] for label in extract["labels"]} == {"pod"}
    assert all("key" in label for label in extract["labels"]), "a key_regex would take any label"
    assert extract["otel_annotations"] is False


def test_pods_are_found_by_what_the_path_names_and_only_those_of_the_node() -> None:
    [association] = LOOK_UP["pod_association"]
    [source] = association["sources"]

    assert source["from"] == "resource_attribute"
    assert source["name"] in FROM_THE_PATH
    assert LOOK_UP["filter"] == {"node_from_env_var": "OTEL_K8S_NODE_NAME"}


def test_a_kernel_line_needs_no_look_up() -> None:
    assert "k8s_attributes" not in PIPELINES["logs/kernel"]["processors"]
    assert LOOK_UP["wait_for_metadata"] is False, "the start would wait for the API server"
