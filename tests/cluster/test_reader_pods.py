"""The kernel-log reader's pod on a node, and the command that writes into the node's kernel log."""

from __future__ import annotations

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.reader_pods import (
    CONTAINER,
    DEVICE,
    NAMESPACE,
    SCRIPT_HASH,
    WRITE,
    ReaderPod,
    own_script,
    reader_on,
    reader_place,
)
from konductor_like.settings import Settings
from konductor_like_sandbox.kmsg import written_by
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_reader_pod, reader_pod_name
from tools.manifests.manifests import documents, only

NAME = reader_pod_name("gpu-1")


def test_the_command_writes_its_last_word_as_one_record_that_is_finished() -> None:
    assert written_by((*WRITE, "a 'line' é in /dev/kmsg"), DEVICE) == "a 'line' é in /dev/kmsg\n"


def test_the_manifests_reader_runs_the_program_of_the_command_and_has_these_names() -> None:
    [daemonset] = [doc for doc in documents("dmesg_daemonset.yaml") if doc["kind"] == "DaemonSet"]
    [container] = daemonset["spec"]["template"]["spec"]["containers"]

    assert (daemonset["metadata"]["namespace"], container["name"]) == (NAMESPACE, CONTAINER)
    assert container["command"][0] == WRITE[0]
    assert DEVICE in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_a_running_pod_comes_before_one_that_is_going(server: KubernetesServer, client: KubeClient) -> None:
    going = make_reader_pod("gpu-1")
    going["metadata"] |= {"name": "dmesg-going", "deletionTimestamp": "2026-03-04T12:00:00Z"}
    other = make_reader_pod("gpu-2")
    server.put_pod(going)
    server.put_pod(other)
    assert reader_on(client, Settings(), "gpu-1") == ReaderPod(
        NAMESPACE, "dmesg-going", CONTAINER, "is being deleted"
    )
    server.put_pod(make_reader_pod("gpu-1"))

    assert reader_on(client, Settings(), "gpu-1") == ReaderPod(NAMESPACE, NAME, CONTAINER)
    assert reader_on(client, Settings(), "gpu-3") is None


@pytest.mark.parametrize(
    ("selector", "place"),
    [
        ('{k8s_namespace_name="logs", k8s_container_name="kmsg"}', ("logs", "kmsg")),
        ('{k8s_namespace_name=~"logs|dmesg", job="kernel"}', (NAMESPACE, CONTAINER)),
    ],
)
def test_the_selector_of_the_stream_names_the_place(selector: str, place: tuple[str, str]) -> None:
    assert reader_place(Settings(kernel_selector=selector)) == place


def test_the_hash_of_the_own_script_is_the_one_in_the_manifest() -> None:
    template = only(documents("dmesg_daemonset.yaml"), "DaemonSet")["spec"]["template"]

    assert template["metadata"]["annotations"][SCRIPT_HASH] == own_script()
