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

COUNT_LABELS = (
    *("node.kubernetes.io/instance-type", "cloud.google.com/gke-accelerator-count"),
    *("nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu"),
    *("nvidia.com/gpu.product", "nvidia.com/mig.config", "cloud.google.com/gke-gpu-partition-size"),
    *("nvidia.com/mig.config.state", "nvidia.com/gpu-driver-upgrade-state"),
    "nvidia.com/gpu.deploy.device-plugin",
)
"""The labels that counting reads. ``nvidia.com/mig.strategy`` is not one of them: the GPU operator sets it on
every node, also where MIG is off."""
PLUGIN_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
"""The device plugin's resources; the second one has shared GPUs, if the plugin renames them."""
_MIG = "nvidia.com/mig-"
_NO_TYPES = ("", "k3s", "rke2")
"""Instance types that name no hardware: distributions set their own name on each node."""
_IDLE_UPGRADES = ("", "upgrade-done", "upgrade-required", "upgrade-failed")
"""States of the GPU operator's driver upgrade in which it does not work on the node."""


def gpu_count(labels: Mapping[str, str], status: Mapping[str, Any], sliced: int) -> GpuCount | None:
    """Return the GPUs of a Node; None for a Node with neither a GPU resource nor a ResourceSlice of GPUs.

    ``sliced`` is the number of GPUs in its ResourceSlices. They count if the device plugin offers no whole
    GPU, or if the GPUs are split by MIG.
    """
    capacity, allocatable = json_object(status, "capacity"), json_object(status, "allocatable")
    # This runs for every report of every kubelet, and few Nodes have MIG.
    in_parts = _MIG in "".join(capacity) and any(
        _number(str(capacity[name])) for name in capacity if name.startswith(_MIG)
    )
    numbers = tuple(
        [str(place.get(name, "")) for place in (capacity, allocatable) for name in PLUGIN_RESOURCES]
    )
    if not (sliced or in_parts or any(numbers)):
        return None
    return _counted(tuple(map(labels.get, COUNT_LABELS)), numbers, in_parts, sliced)


@lru_cache(maxsize=1024)  # a fleet has few combinations, and identical objects are compared fast
def _counted(
    labels: tuple[str | None, ...], numbers: tuple[str, ...], in_parts: bool, sliced: int
) -> GpuCount:
    texts = (text or "" for text in labels)
    kind, gpus, replicas, gke_replicas, product, mig, gke_mig, mig_state, upgrade, plugin = texts
    whole, renamed, usable, usable_renamed = map(_number, numbers)
    there, usable = whole + renamed, usable + usable_renamed
    is_mig = in_parts or "-MIG-" in product or mig not in ("", "all-disabled") or bool(gke_mig)
    by_slices = bool(sliced) and (is_mig or not there)
    shared = 1 if by_slices else max(_number(replicas), _number(gke_replicas), 1)
    # The operator pauses the device plugin for a new driver or MIG layout.
    is_paused = mig_state in ("pending", "rebooting") or plugin not in ("", "true")
    return GpuCount(
        allocatable=sliced if by_slices else -(-usable // shared),
        capacity=sliced if by_slices else -(-there // shared),
        kind="" if kind in _NO_TYPES else f"{kind}/{gpus}",
        layout="slices" if by_slices else f"replicas={shared}",
        comparable=by_slices or not is_mig,
        in_upgrade=is_paused or upgrade not in _IDLE_UPGRADES,
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0


def gpus_of_slice(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield an identity of each GPU in a ResourceSlice; a MIG device is a part of such a GPU."""
    devices = spec.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict):
            found = json_object(json_object(device, "basic") or device, "attributes")  # v1beta1: in ``basic``
            kind, whole, own = (
                json_object(found, name).get("string") for name in ("type", "parentUUID", "uuid")
            )
            if kind in ("gpu", "mig") and (whole or own):
                yield str(whole or own)
