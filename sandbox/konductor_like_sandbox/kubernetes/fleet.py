"""Made-up fleets: Nodes like those of a cluster of eight-GPU H100 machines, and plain CPU nodes.

A Node's content follows from its name, so that two runs are alike. A GPU node has 15 KB or more, like a real
one, most of it images, labels and managedFields.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from konductor_like_sandbox.kubernetes.managed_fields import record_write

KUBELET_VERSION = "v1.32.4"
_CREATED = "2025-03-05T08:00:00Z"
_NAMESPACE = uuid.UUID("5f3c9d0a-52a1-4f0e-9f0b-3f6f3f1c7a11")

_REPOSITORIES = (
    "nvcr.io/nvidia/pytorch:25.09-py3",
    "nvcr.io/nvidia/k8s-device-plugin:v0.17.4",
    "nvcr.io/nvidia/gpu-feature-discovery:v0.17.4",
    "nvcr.io/nvidia/cloud-native/dcgm:4.4.1-2-ubuntu22.04",
    "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.1-4.5.2-ubuntu22.04",
    "nvcr.io/nvidia/driver:570.172.08-ubuntu22.04",
    "nvcr.io/nvidia/k8s/container-toolkit:v1.17.8-ubuntu20.04",
    "nvcr.io/nvidia/cloud-native/gpu-operator-validator:v25.3.2",
    "registry.k8s.io/nfd/node-feature-discovery:v0.17.3",
    "registry.k8s.io/kube-proxy:v1.32.4",
    "registry.k8s.io/pause:3.10",
    "registry.k8s.io/coredns/coredns:v1.12.1",
    "registry.k8s.io/kueue/kueue:v0.13.1",
    "quay.io/cilium/cilium:v1.17.5",
    "quay.io/prometheus/node-exporter:v1.9.1",
    "ghcr.io/k8snetworkplumbingwg/multus-cni:v4.2.1-thick",
    "docker.io/otel/opentelemetry-collector-contrib:0.130.0",
    "docker.io/grafana/grafana:12.0.2",
    "docker.io/library/busybox:1.37",
    "docker.io/library/ubuntu:22.04",
)
_IMAGES = 40  # half of the images that a kubelet reports at most

_NFD = "feature.node.kubernetes.io/"
_GPU_LABELS = {
    "nvidia.com/cuda.driver-version.full": "570.172.08",
    "nvidia.com/cuda.driver-version.major": "570",
    "nvidia.com/cuda.driver-version.minor": "172",
    "nvidia.com/cuda.driver-version.revision": "08",
    "nvidia.com/cuda.runtime-version.full": "12.8",
    "nvidia.com/gfd.timestamp": "1767600000",
    "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.deploy.container-toolkit": "true",
    "nvidia.com/gpu.deploy.dcgm": "true",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/gpu.deploy.driver": "true",
    "nvidia.com/gpu.deploy.gpu-feature-discovery": "true",
    "nvidia.com/gpu.deploy.mig-manager": "true",
    "nvidia.com/gpu.deploy.node-status-exporter": "true",
    "nvidia.com/gpu.deploy.operator-validator": "true",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/mig.config.state": "success",
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/mps.capable": "false",
}
_CPU_FEATURES = (
    "ADX AESNI AMXBF16 AMXINT8 AMXTILE AVX AVX2 AVX512BF16 AVX512BW AVX512CD AVX512DQ AVX512F AVX512FP16 "
    "AVX512VL AVX512VNNI CLDEMOTE CMPXCHG8 FMA3 FSRM FXSR GFNI IBPB MOVBE MOVDIR64B OSXSAVE SERIALIZE SHA "
    "STIBP SYSCALL TSXLDTRK VAES VPCLMULQDQ WAITPKG X87 XSAVE"
)
_CONDITIONS = {
    "NetworkUnavailable": ("False", "CiliumIsUp", "Cilium is running on this node"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}


def make_node(
    name: str,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    boot_id: str = "",
    ready: bool = True,
    unschedulable: bool = False,
) -> dict[str, Any]:
    """Make a Node with this number of H100s; 0 makes a GPU node whose GPUs are all missing in its capacity.

    Further labels and annotations are added to the usual ones. Each call makes a new object.
    """
    node = _machine(name, {**_gpu_labels(gpus), **(labels or {})}, annotations or {}, ready)
    capacity = {"cpu": "224", "memory": "2113421108Ki", "nvidia.com/gpu": str(gpus), "rdma/hca": "8"}
    _set_capacity(node, capacity)
    node["spec"].update(_spec(taints, unschedulable))
    node["status"]["nodeInfo"]["bootID"] = boot_id or _uuid(name, "boot")
    return _signed(node)


def make_cpu_node(
    name: str, labels: Mapping[str, str] | None = None, ready: bool = True, unschedulable: bool = False
) -> dict[str, Any]:
    """Make a Node without a GPU and without GPU labels."""
    node = _machine(name, labels or {}, {}, ready)
    _set_capacity(node, {"cpu": "64", "memory": "527980184Ki"})
    node["spec"].update(_spec((), unschedulable))
    return _signed(node)


def make_fleet(gpu_nodes: int, cpu_nodes: int = 0) -> list[dict[str, Any]]:
    """Make the Nodes ``gpu-0001`` and so on, then ``cpu-0001`` and so on."""
    gpu = [make_node(f"gpu-{number:04}") for number in range(1, gpu_nodes + 1)]
    return gpu + [make_cpu_node(f"cpu-{number:04}") for number in range(1, cpu_nodes + 1)]


def _signed(node: dict[str, Any]) -> dict[str, Any]:
    """Add the managedFields of a kubelet that registered the Node and writes its status."""
    registered = {part: node[part] for part in ("kind", "apiVersion", "metadata", "spec")}
    record_write({"metadata": {}, "spec": {}}, registered, "kubelet", "", _CREATED)
    record_write({**registered, "status": {}}, node, "kubelet", "status", _CREATED)
    return node


def _uuid(name: str, what: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{what} of {name}"))


def _spec(taints: Sequence[Mapping[str, str]], unschedulable: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if taints:
        spec["taints"] = [dict(taint) for taint in taints]
    if unschedulable:
        spec["unschedulable"] = True
    return spec


def _gpu_labels(gpus: int) -> dict[str, str]:
    features = {f"{_NFD}cpu-cpuid.{name}": "true" for name in _CPU_FEATURES.split()}
    return {
        **_GPU_LABELS,
        **features,
        f"{_NFD}pci-10de.present": "true",
        f"{_NFD}pci-15b3.present": "true",
        f"{_NFD}system-os_release.ID": "ubuntu",
        f"{_NFD}system-os_release.VERSION_ID": "22.04",
        "node.kubernetes.io/instance-type": "h100-80gb-sxm-ib.8x",
        "nvidia.com/gpu.count": str(gpus),
    }


def _machine(
    name: str, labels: Mapping[str, str], annotations: Mapping[str, str], ready: bool
) -> dict[str, Any]:
    digest = hashlib.sha256(name.encode()).digest()
    address = f"10.{digest[0] % 64}.{digest[1]}.{digest[2] % 254 + 1}"
    base_labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "eu-north1",
        "topology.kubernetes.io/zone": f"eu-north1-{'abc'[digest[3] % 3]}",
    }
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": _uuid(name, "node"),
            "creationTimestamp": _CREATED,
            "labels": dict(sorted({**base_labels, **labels}.items())),
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": f'{{"nfs.csi.k8s.io":"{name}"}}',
                "nfd.node.kubernetes.io/feature-labels": ",".join(
                    sorted(label.removeprefix(_NFD) for label in labels if label.startswith(_NFD))
                ),
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                **annotations,
            },
        },
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"], "providerID": f"metal:///{name}"},
        "status": {
            "conditions": _conditions(ready),
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(),
                "systemUUID": _uuid(name, "system"),
                "bootID": _uuid(name, "boot"),
                "kernelVersion": "5.15.0-151-generic",
                "osImage": "Ubuntu 22.04.5 LTS",
                "containerRuntimeVersion": "containerd://1.7.27",
                "kubeletVersion": KUBELET_VERSION,
                "kubeProxyVersion": KUBELET_VERSION,
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": _images(),
        },
    }


def _set_capacity(node: dict[str, Any], capacity: Mapping[str, str]) -> None:
    everything = {
        "ephemeral-storage": "7441183616Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": "110",
    }
    node["status"]["capacity"] = dict(sorted({**everything, **capacity}.items()))
    node["status"]["allocatable"] = dict(node["status"]["capacity"])


def _conditions(ready: bool) -> list[dict[str, str]]:
    conditions = []
    for kind, (status, reason, message) in _CONDITIONS.items():
        if kind == "Ready" and not ready:
            status, reason, message = "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."
        times = {"lastHeartbeatTime": _CREATED, "lastTransitionTime": _CREATED}
        conditions.append({"type": kind, "status": status, **times, "reason": reason, "message": message})
    return conditions


def _images() -> list[dict[str, Any]]:
    images = []
    for number in range(_IMAGES):
        name, _, tag = _REPOSITORIES[number % len(_REPOSITORIES)].rpartition(":")
        build = number // len(_REPOSITORIES)
        tag = f"{tag}-{build}" if build else tag
        digest = hashlib.sha256(f"{name}:{tag}".encode()).hexdigest()
        images.append(
            {
                "names": [f"{name}@sha256:{digest}", f"{name}:{tag}"],
                "sizeBytes": 9_800_000_000 // (number + 1),
            }
        )
    return images


def reader_pod_name(node: str) -> str:
    """Return the name of the pod that the DaemonSet ``dmesg`` runs on this node."""
    return f"dmesg-{hashlib.sha256(node.encode()).hexdigest()[:5]}"


def make_reader_pod(node: str, phase: str = "Running") -> dict[str, Any]:
    """Return the pod that the DaemonSet ``dmesg`` runs on this node."""
    state = {"running": {}} if phase == "Running" else {"waiting": {"reason": "ImagePullBackOff"}}
    ready = {"ready": phase == "Running", "restartCount": 0}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "dmesg", "uid": "u", "controller": True}
    return {
        "metadata": {
            "namespace": "dmesg-logging",
            "name": reader_pod_name(node),
            "labels": {"app.kubernetes.io/name": "dmesg"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, "containers": [{"name": "dmesg"}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "dmesg", "state": state, **ready}]},
    }


def make_reader_daemonset(nodes: int) -> dict[str, Any]:
    """Return the DaemonSet ``dmesg`` with a ready pod on each of these nodes."""
    container = {"name": "dmesg", "image": "docker.io/library/python:3.13-slim"}
    return {
        "metadata": {"namespace": "dmesg-logging", "name": "dmesg"},
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"desiredNumberScheduled": nodes, "numberReady": nodes},
    }
