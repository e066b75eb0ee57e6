"""The GPUs of a Node, as its status, its labels and its ResourceSlices tell them.

Whole GPUs are counted. The device plugin multiplies them when it shares GPUs by time-slicing; the labels of
GPU feature discovery, or of GKE, tell the factor.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from konductor_like.cluster.api.transport import JsonObject, json_object
from konductor_like.detection.gpu_identity import gpu_of
from konductor_like.model import NO_GPUS, GpuCount, GpuSource, SeenGpu
from konductor_like.model.time import ns_of_text

COUNT_LABELS = (
    *("node.kubernetes.io/instance-type", "cloud.google.com/gke-accelerator-count"),
    *("nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu"),
    *("nvidia.com/gpu.product", "nvidia.com/mig.config", "cloud.google.com/gke-gpu-partition-size"),
    *("nvidia.com/mig.config.state", "nvidia.com/gpu-driver-upgrade-state"),
    "nvidia.com/gpu.deploy.device-plugin",
)
"""The labels that counting reads. ``nvidia.com/mig.strategy`` is not one of them: the GPU operator sets it on
every node, also where MIG is off."""
PLUGIN_RESOURCES = _GPU, _SHARED_GPU = "nvidia.com/gpu", "nvidia.com/gpu.shared"
"""The device plugin's resources; the second one has shared GPUs, if the plugin renames them."""
_MIG = "nvidia.com/mig-"
_BUS = ("resource.kubernetes.io/pciBusID", "pcieBusID")
"""The attributes with the PCI bus id, by ``cmd/gpu-kubelet-plugin/deviceinfo.go`` of NVIDIA's driver: the
first one since its version 25.12, the second one in 25.3 and 25.8."""


def gpu_count(labels: JsonObject, capacity: JsonObject, allocatable: JsonObject, sliced: int) -> GpuCount:
    """Return the GPUs of a Node. ``sliced`` is the number of GPUs in its ResourceSlices.

    These count if the device plugin offers no whole GPU, or if the GPUs are split by MIG.
    """
    # This runs for every report of every kubelet, and few Nodes have MIG. A MIG resource with the number 0 is
    # left over from an earlier layout.
    in_parts = _MIG in "".join(capacity) and any(_MIG in key and capacity[key] != "0" for key in capacity)
    if not (sliced or in_parts or _GPU in capacity or _SHARED_GPU in capacity):
        return NO_GPUS
    name = _GPU if capacity.get(_SHARED_GPU, "0") == "0" else _SHARED_GPU
    numbers = str(capacity.get(name)), str(allocatable.get(name))
    return _counted(sliced, in_parts, *numbers, *map(labels.get, COUNT_LABELS))


@lru_cache(maxsize=1024)  # a fleet has few combinations, and identical objects are compared fast
def _counted(sliced: int, in_parts: bool, *found: str | None) -> GpuCount:
    whole, usable, *labels = (text or "" for text in found)
    kind, gpus, replicas, gke_replicas, product, mig, gke_mig, mig_state, upgrade, plugin = labels
    is_mig = in_parts or "-MIG-" in product or mig not in ("", "all-disabled") or bool(gke_mig)
    shared = max(_number(replicas), _number(gke_replicas), 1)
    present, there = -(-_number(usable) // shared), -(-_number(whole) // shared)
    if by_slices := bool(sliced) and (is_mig or not there):
        present, there, shared = sliced, sliced, 1
    # k3s and RKE2 set their own name on each node: it names no hardware.
    kind = "" if kind in ("", "k3s", "rke2") else f"{kind}/{gpus}"
    # The operator pauses the device plugin for a new driver or MIG layout.
    is_paused = mig_state in ("pending", "rebooting") or plugin not in ("", "true")
    is_paused |= upgrade not in ("", "upgrade-done", "upgrade-required", "upgrade-failed")
    is_whole = by_slices or not is_mig
    return GpuCount(present, there, kind, f"replicas={shared}", is_whole, is_paused, by_slices)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0


class SlicedGpus(NamedTuple):
    """The GPUs of one node's ResourceSlices."""

    number: int
    seen: tuple[SeenGpu, ...] = ()
    """Those whose PCI bus id is named, too."""


def gpus_of_slice(piece: JsonObject) -> tuple[str, dict[str, SeenGpu | None]]:
    """Return the node of a ResourceSlice, and its GPUs by UUID; MIG devices are parts.

    The kubelet deletes the slices when it starts, and the driver makes new ones. So a GPU has been in its
    place at least since the slice was made.
    """
    spec, gpus = json_object(piece, "spec"), dict[str, SeenGpu | None]()
    made = json_object(piece, "metadata").get("creationTimestamp")
    devices = spec.get("devices")
    for device in devices if isinstance(devices, list) else ():
        with suppress(AttributeError, KeyError, TypeError):  # no GPU, or malformed
            found = (device.get("basic") or device)["attributes"]  # v1beta1: in ``basic``
            if found["type"]["string"] in ("gpu", "mig"):
                uuid = str((found.get("parentUUID") or found["uuid"])["string"])
                gpus[uuid] = _seen(uuid, next((found[name] for name in _BUS if name in found), {}), made)
    return str(spec.get("nodeName") or ""), gpus


def _seen(uuid: str, bus: JsonObject, made: object) -> SeenGpu | None:
    gpu = gpu_of(str(bus.get("string")), uuid)
    with suppress(ValueError):
        return SeenGpu(gpu, GpuSource.SLICE, ns_of_text(str(made))) if gpu else None
    return None
