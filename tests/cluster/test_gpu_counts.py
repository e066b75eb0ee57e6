"""The GPUs of a Node, from its status, its labels and its ResourceSlices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.api.client import RESOURCE_SLICES_PATHS, KubeClient
from konductor_like.cluster.api.transport import JsonObject
from konductor_like.cluster.node.decoder import Reading, decode_node, node_decoder
from konductor_like.cluster.node.gpu_counts import COUNT_LABELS, SlicedGpus, gpus_of_slice
from konductor_like.cluster.node.store import list_nodes, listed_slices
from konductor_like.model import NO_GPUS, Gpu, GpuCount, GpuSource, SeenGpu
from konductor_like.model.time import ns_of_text
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_node


def gpus_of(node: JsonObject, sliced: int = 0) -> GpuCount:
    name = node["metadata"]["name"]
    return decode_node(node, Reading(sliced=lambda: {name: SlicedGpus(sliced)} if sliced else {})).gpus


def resources(node: JsonObject, capacity: dict[str, str], allocatable: dict[str, str] | None = None) -> None:
    """Replace the node's GPU resources."""
    for field, found in (("capacity", capacity), ("allocatable", allocatable or capacity)):
        kept = {k: v for k, v in node["status"][field].items() if not k.startswith("nvidia.com/")}
        node["status"][field] = {**kept, **found}


def test_allocatable_and_capacity_are_counted() -> None:
    node = make_node("gpu-1")
    node["status"]["allocatable"]["nvidia.com/gpu"] = "7"

    assert gpus_of(node) == GpuCount(7, 8, "h100-80gb-sxm-ib.8x/", "replicas=1")


def test_a_node_without_gpus_has_no_count() -> None:
    assert decode_node(make_cpu_node("cpu-1")).gpus == NO_GPUS


def test_the_gpu_operators_usual_mig_labels_mean_no_mig() -> None:
    node = make_node("gpu-1")
    assert node["metadata"]["labels"]["nvidia.com/mig.strategy"] == "single"

    assert gpus_of(node).comparable


@pytest.mark.parametrize(
    ("labels", "capacity"),
    [
        ({"nvidia.com/mig.config": "all-1g.10gb"}, {"nvidia.com/gpu": "56"}),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}, {"nvidia.com/gpu": "56"}),
        ({"cloud.google.com/gke-gpu-partition-size": "1g.10gb"}, {"nvidia.com/gpu": "56"}),
        ({}, {"nvidia.com/gpu": "7", "nvidia.com/mig-1g.10gb": "7"}),
    ],
)
def test_parts_of_gpus_cannot_be_compared(labels: dict[str, str], capacity: dict[str, str]) -> None:
    node = make_node("gpu-1", labels=labels)
    resources(node, capacity)

    assert not gpus_of(node).comparable
    assert gpus_of(node, sliced=8) == GpuCount(8, 8, "h100-80gb-sxm-ib.8x/", "replicas=1", by_slices=True)


def test_a_mig_resource_of_a_layout_that_is_gone_is_no_mig() -> None:
    node = make_node("gpu-1")
    resources(node, {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "0"})

    assert gpus_of(node).comparable


@pytest.mark.parametrize(
    "label", ["nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu"]
)
@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_shared_gpus_are_counted_once(label: str, name: str) -> None:
    node = make_node("gpu-1", labels={label: "4"})
    resources(node, {name: "32"}, {name: "28"})

    assert (gpus_of(node).allocatable, gpus_of(node).capacity, gpus_of(node).layout) == (7, 8, "replicas=4")


@pytest.mark.parametrize(
    ("label", "value", "paused"),
    [
        ("nvidia.com/gpu-driver-upgrade-state", "upgrade-done", False),
        ("nvidia.com/gpu-driver-upgrade-state", "upgrade-required", False),
        ("nvidia.com/gpu-driver-upgrade-state", "pod-restart-required", True),
        ("nvidia.com/gpu-driver-upgrade-state", "validation-required", True),
        ("nvidia.com/mig.config.state", "success", False),
        ("nvidia.com/mig.config.state", "pending", True),
        ("nvidia.com/mig.config.state", "rebooting", True),
        ("nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade", True),
        ("nvidia.com/gpu.deploy.device-plugin", "true", False),
    ],
)
def test_the_gpu_operators_work_on_a_node_is_seen(label: str, value: str, paused: bool) -> None:
    assert gpus_of(make_node("gpu-1", labels={label: value})).paused is paused


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({"node.kubernetes.io/instance-type": "p5.48xlarge"}, "p5.48xlarge/"),
        (
            {
                "node.kubernetes.io/instance-type": "n1-standard-8",
                "cloud.google.com/gke-accelerator-count": "4",
            },
            "n1-standard-8/4",
        ),
        ({"node.kubernetes.io/instance-type": "k3s"}, ""),
        ({"node.kubernetes.io/instance-type": ""}, ""),
    ],
)
def test_the_kind_of_a_node_is_its_instance_type(labels: dict[str, str], kind: str) -> None:
    assert gpus_of(make_node("gpu-1", labels=labels)).kind == kind


def test_a_page_of_nodes_has_the_fields_that_counting_reads(
    server: KubernetesServer, client: KubeClient
) -> None:
    node = make_node(
        "gpu-1", labels={"nvidia.com/gpu.replicas": "2", "nvidia.com/mig.config.state": "pending"}
    )
    node["status"]["allocatable"]["nvidia.com/gpu"] = "6"
    server.put_node(node)

    assert list_nodes(client, node_decoder())["gpu-1"].gpus == gpus_of(node)


def device(name: str, **attributes: str) -> dict[str, Any]:
    return {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}}


def test_the_slices_of_a_node_name_its_gpus(server: KubernetesServer, client: KubeClient) -> None:
    node = make_cpu_node("dra-1")
    server.put_node(node)
    devices = [
        device("gpu-0", type="gpu", uuid="GPU-0"),
        device("gpu-1-mig-1g", type="mig", uuid="MIG-1", parentUUID="GPU-1"),
        device("gpu-1-mig-2g", type="mig", uuid="MIG-2", parentUUID="GPU-1"),
        device("other", type="vfio", uuid="X"),
        {"name": "v1beta1", "basic": device("", type="gpu", uuid="GPU-2")},
        {"name": "bad", "attributes": []},
    ]
    for number, part in enumerate((devices[:2], devices[2:])):
        spec = {"driver": "gpu.nvidia.com", "pool": {"name": "dra-1"}, "nodeName": "dra-1", "devices": part}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": spec}
        client.create(RESOURCE_SLICES_PATHS[0], {**body, "metadata": {"name": f"dra-1-{number}"}})
    found = list_nodes(client, node_decoder(sliced=listed_slices(client)))["dra-1"].gpus

    assert (found.allocatable, found.capacity, found.comparable) == (3, 3, True)


UUID = "GPU-f1906b9b-557a-e961-045c-9fe4be3ce012"
MADE = "2026-05-06T11:58:00Z"
STANDARD, EARLIER = "resource.kubernetes.io/pciBusID", "pcieBusID"


def gpu_device(**attributes: str) -> dict[str, Any]:
    """Return a device as deviceinfo.go of NVIDIA/k8s-dra-driver-gpu writes it; no recorded one is at hand."""
    named = {"type": "gpu", "uuid": UUID, "productName": "NVIDIA H100 80GB HBM3", "brand": "Nvidia"}
    return device("gpu-0", **{**named, **attributes})


def sliced(*devices: Any, made: object = MADE) -> list[SeenGpu | None]:
    spec = {"driver": "gpu.nvidia.com", "nodeName": "dra-1", "devices": [*devices]}
    return [*gpus_of_slice({"metadata": {"creationTimestamp": made}, "spec": spec})[1].values()]


@pytest.mark.parametrize(
    "written",
    [
        gpu_device(**{STANDARD: "0000:4e:00.0"}),  # 25.12 and later
        gpu_device(**{EARLIER: "0000:4e:00.0"}),  # 25.3 and 25.8
        {"name": "gpu-0", "basic": gpu_device(**{EARLIER: "0000:4E:00.0"})},  # on a server with v1beta1
        device("mig", type="mig", uuid="MIG-1", parentUUID=UUID, pcieBusID="0000:4e:00.0"),
    ],
    ids=["standard attribute", "the driver's own", "v1beta1", "a MIG device's parent"],
)
def test_a_slice_says_which_gpu_is_in_which_place_since_it_was_made(written: dict[str, Any]) -> None:
    [seen] = sliced(written)

    assert seen == SeenGpu(Gpu("0000:4e:00", UUID), GpuSource.SLICE, ns_of_text(MADE))


@pytest.mark.parametrize(
    ("written", "made"),
    [
        (gpu_device(), MADE),
        (gpu_device(**{STANDARD: "slot 3"}), MADE),
        (gpu_device(uuid="GPU-1", **{STANDARD: "0000:4e:00.0"}), MADE),
        (gpu_device(**{STANDARD: "0000:4e:00.0"}), None),
        (gpu_device(**{STANDARD: "0000:4e:00.0"}), "today"),
    ],
    ids=["no bus id", "another bus id", "another uuid", "no time", "a wrong time"],
)
def test_a_gpu_whose_place_or_time_is_not_told_is_counted_and_not_named(
    written: dict[str, Any], made: object
) -> None:
    assert sliced(written, made=made) == [None]


def test_the_store_gives_each_node_the_gpus_of_its_slices(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.put_node(make_cpu_node("dra-1"))
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "dra-1"}, "nodeName": "dra-1"}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "dra-1-0"},
        "spec": {**spec, "devices": [gpu_device(**{STANDARD: "0000:4e:00.0"})]},
    }
    client.create(RESOURCE_SLICES_PATHS[0], body)

    state = list_nodes(client, node_decoder(sliced=listed_slices(client)))["dra-1"]

    assert [each.gpu for each in state.seen_gpus] == [Gpu("0000:4e:00", UUID)]
    assert state.gpus.capacity == 1


def test_the_device_plugin_counts_where_it_offers_whole_gpus() -> None:
    node = make_node("gpu-1")
    node["status"]["allocatable"]["nvidia.com/gpu"] = "7"

    assert gpus_of(node, sliced=8).allocatable == 7


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
NUMBERS = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "cpu"]), JSON)


@given(
    capacity=NUMBERS | JSON,
    allocatable=NUMBERS | JSON,
    labels=st.dictionaries(st.sampled_from(COUNT_LABELS), JSON),
)
def test_malformed_numbers_raise_nothing(capacity: Any, allocatable: Any, labels: Any) -> None:
    node = make_node("gpu-1")
    node["status"] |= {"capacity": capacity, "allocatable": allocatable}
    node["metadata"]["labels"] = labels

    decode_node(node)


@given(st.dictionaries(st.sampled_from(["devices"]), JSON))
def test_malformed_slices_raise_nothing(spec: dict[str, Any]) -> None:
    assert gpus_of_slice({"spec": spec})[1] == {}
