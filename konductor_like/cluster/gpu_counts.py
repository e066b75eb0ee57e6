"""The GPUs of a Node, as its status, its labels and its ResourceSlices tell them.

Whole GPUs are counted. The device plugin multiplies them when it shares GPUs by time-slicing; the labels of
GPU feature discovery, or of GKE, tell the factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from konductor_like.cluster.transport import json_object
from konductor_like.model import GpuCount

_PLUGIN = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
"""The device plugin's resources; the second one has shared GPUs, if the plugin renames them."""
_MIG = "nvidia.com/mig-"
_INSTANCE = "node.kubernetes.io/instance-type"
_ACCELERATORS = "cloud.google.com/gke-accelerator-count"
_REPLICAS = "nvidia.com/gpu.replicas"
_GKE_REPLICAS = "cloud.google.com/gke-max-shared-clients-per-gpu"
_PRODUCT = "nvidia.com/gpu.product"
_MIG_CONFIG = "nvidia.com/mig.config"
_MIG_STATE = "nvidia.com/mig.config.state"
_GKE_MIG = "cloud.google.com/gke-gpu-partition-size"
_UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
_DEPLOY = "nvidia.com/gpu.deploy.device-plugin"
COUNT_LABELS = (
    *(_INSTANCE, _ACCELERATORS, _REPLICAS, _GKE_REPLICAS, _PRODUCT),
    *(_MIG_CONFIG, _MIG_STATE, _GKE_MIG, _UPGRADE, _DEPLOY),
)
"""The labels that counting reads. ``nvidia.com/mig.strategy`` is not one of them: the GPU operator sets it on
every node, also where MIG is off."""
_NO_TYPES = ("", "k3s", "rke2")
"""Instance types that name no hardware: distributions set their own name on each node."""
_NO_MIG = ("", "all-disabled")
_IDLE_UPGRADES = ("", "upgrade-done", "upgrade-required", "upgrade-failed")
"""States of the GPU operator's driver upgrade in which it does not work on the node."""


def gpu_count(labels: Mapping[str, str], status: Mapping[str, Any], sliced: int) -> GpuCount | None:
    """Return the GPUs of a Node; None for a Node with neither a GPU resource nor a ResourceSlice of GPUs.

    ``sliced`` is the number of GPUs in its ResourceSlices. They count if the device plugin offers no whole
    GPU, or if the GPUs are split by MIG.
    """
    capacity, allocatable = json_object(status, "capacity"), json_object(status, "allocatable")
    there = tuple([(name, _number(capacity[name])) for name in capacity if name[:11] == "nvidia.com/"])
    if not there and not sliced:
        return None
    usable = sum([_number(allocatable[name]) for name in _PLUGIN if name in allocatable])
    return _counted(tuple(map(labels.get, COUNT_LABELS)), there, usable, sliced)


@lru_cache(maxsize=1024)  # a fleet has few combinations, and identical objects are compared fast
def _counted(
    labels: tuple[str | None, ...], capacity: tuple[tuple[str, int], ...], usable: int, sliced: int
) -> GpuCount:
    known = {name: value or "" for name, value in zip(COUNT_LABELS, labels, strict=True)}
    there = sum(number for name, number in capacity if name in _PLUGIN)
    is_mig = (
        any(name.startswith(_MIG) and number for name, number in capacity)
        or "-MIG-" in known[_PRODUCT]
        or known[_MIG_CONFIG] not in _NO_MIG
        or bool(known[_GKE_MIG])
    )
    by_slices = bool(sliced) and (is_mig or not there)
    replicas = 1 if by_slices else max(_number(known[_REPLICAS]), _number(known[_GKE_REPLICAS]), 1)
    kind = known[_INSTANCE]
    return GpuCount(
        allocatable=sliced if by_slices else -(-usable // replicas),
        capacity=sliced if by_slices else -(-there // replicas),
        kind="" if kind in _NO_TYPES else f"{kind}/{known[_ACCELERATORS]}",
        replicas=replicas,
        mig=is_mig,
        by_slices=by_slices,
        in_upgrade=known[_UPGRADE] not in _IDLE_UPGRADES
        or known[_MIG_STATE] in ("pending", "rebooting")
        or known[_DEPLOY] not in ("", "true"),  # the operator pauses it for a new driver
    )


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 7 else 0


def gpus_of_slice(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield an identity of each GPU in a ResourceSlice; a MIG device is a part of such a GPU."""
    devices = spec.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if not isinstance(device, dict):
            continue
        basic = device.get("basic")  # where v1beta1 of the API has the attributes
        attributes = (basic if isinstance(basic, dict) else device).get("attributes")
        texts = {
            name: value.get("string")
            for name, value in (attributes if isinstance(attributes, dict) else {}).items()
            if isinstance(value, dict)
        }
        identity = texts.get("parentUUID") or texts.get("uuid")
        if texts.get("type") in ("gpu", "mig") and isinstance(identity, str):
            yield identity
