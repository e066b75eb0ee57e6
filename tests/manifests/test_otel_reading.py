"""Which files the collector reads, and that it reads each line of them, however long it takes."""

from __future__ import annotations

from typing import Any

import pytest

from konductor_like.settings import Settings, parse_matchers
from tests.manifests.manifests import documents, only
from tests.manifests.otel import CONFIG, NEVER_GIVE_UP, VALUES, each_receiver, log_file, read_by
from tests.manifests.units import seconds

SETTINGS = Settings()


def test_the_receiver_of_the_kernel_log_reads_what_the_kernel_selector_selects() -> None:
    selected = {matcher.name: matcher.value for matcher in parse_matchers(SETTINGS.kernel_selector)}
    daemonset = only(documents("dmesg_daemonset.yaml"), "DaemonSet")
    [container] = daemonset["spec"]["template"]["spec"]["containers"]

    assert selected[SETTINGS.namespace_label] == daemonset["metadata"]["namespace"]
    assert selected[SETTINGS.container_label] == container["name"]
    assert read_by(log_file(daemonset["metadata"]["namespace"], container["name"])) == ["kernel"]


@each_receiver
def test_a_file_is_read_from_its_first_line_and_never_given_up(receiver: dict[str, Any]) -> None:
    assert receiver["start_at"] == "beginning"
    assert receiver["retry_on_failure"]["enabled"] is True
    assert seconds(receiver["retry_on_failure"]["max_elapsed_time"]) == NEVER_GIVE_UP
    assert "delete_after_read" not in receiver


@each_receiver
def test_how_far_a_file_was_read_is_kept_on_the_node(receiver: dict[str, Any]) -> None:
    directory = CONFIG["extensions"]["file_storage"]["directory"]
    [name] = [mount["name"] for mount in VALUES["extraVolumeMounts"] if mount["mountPath"] == directory]
    [volume] = [volume for volume in VALUES["extraVolumes"] if volume["name"] == name]

    assert receiver["storage"] == "file_storage"
    assert "file_storage" in CONFIG["service"]["extensions"]
    assert volume["hostPath"] == {"path": directory, "type": "DirectoryOrCreate"}


@each_receiver
def test_the_files_of_the_node_are_mounted_and_cannot_be_changed(receiver: dict[str, Any]) -> None:
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in VALUES["extraVolumes"]}
    read_only = [mount for mount in VALUES["extraVolumeMounts"] if mount.get("readOnly")]

    assert all(paths[mount["name"]] == mount["mountPath"] for mount in VALUES["extraVolumeMounts"])
    assert {mount["mountPath"] for mount in read_only} == {"/var/log/pods", "/var/lib/docker/containers"}
    assert all(glob.startswith("/var/log/pods/") for glob in receiver["include"])


@each_receiver
def test_namespace_pod_and_container_come_from_the_file_s_path(receiver: dict[str, Any]) -> None:
    [operator] = receiver["operators"]

    assert receiver["include_file_path"] is True
    assert operator["type"] == "container"


@pytest.mark.parametrize(("namespace", "container"), [("dmesg-logging", "dmesg"), ("train", "main")])
def test_a_rotated_file_is_read_to_its_end_and_a_compressed_one_is_not(
    namespace: str, container: str
) -> None:
    [reader] = read_by(log_file(namespace, container))

    assert read_by(log_file(namespace, container, "12.log")) == [reader]
    assert read_by(log_file(namespace, container, "0.log.20261121-060000")) == [reader]
    assert read_by(log_file(namespace, container, "0.log.20261121-060000.gz")) == []
    assert read_by(log_file(namespace, container, "0.log.20261121-060000.tmp")) == []


@pytest.mark.parametrize("namespace", ["otel-collector", "loki"])
@pytest.mark.parametrize("name", ["0.log", "0.log.20261121-060000"])
def test_the_logs_of_the_collector_and_of_loki_are_not_collected(namespace: str, name: str) -> None:
    assert read_by(log_file(namespace, "any", name)) == []
    assert read_by(log_file(f"{namespace}-2", "any", name)) == ["pods"]


def test_our_own_log_is_collected_into_streams_that_we_never_read() -> None:
    assert read_by(log_file(SETTINGS.namespace, "konductor-like")) == ["pods"]
    assert SETTINGS.namespace in SETTINGS.excluded_namespaces


def test_a_line_counts_as_read_only_once_it_is_in_the_queue() -> None:
    assert "--feature-gates=stanza.synchronousLogEmitter" in VALUES["command"]["extraArgs"]
