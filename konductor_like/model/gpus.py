"""Which GPU it is. The PCI bus id names a place in a machine; UUID and serial number stay with the GPU.

They are shown, and no decision depends on them (rule 43).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class GpuSource(StrEnum):
    """Who told which GPU is in a place."""

    VALIDATION = "validation"
    """``nvidia-smi`` in a validation of ours."""
    SLICE = "ResourceSlice"
    """NVIDIA's driver for dynamic resource allocation (DRA)."""
    FAULT = "fault"
    """A fault of the same boot, with which it was noted."""
    EXPORTER = "exporter"
    """The labels of a metric or an alert, such as dcgm-exporter's."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU and its place, as a program named them. ``detection.gpu_identity`` makes it from texts."""

    bus: str
    """PCI bus id, as in ``0000:4e:00``."""
    uuid: str
    serial: str = ""
    """Empty if the program does not tell it."""

    def __str__(self) -> str:
        return f"GPU {self.bus} {self.identity}"

    @property
    def identity(self) -> str:
        """What stays with the GPU, in words."""
        return self.uuid + (f", serial {self.serial}" if self.serial else "")


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """A GPU in its place, by whom it was seen there, and when."""

    gpu: Gpu
    told_by: GpuSource
    at_ns: int
    """When it was seen there, in nanoseconds since the Unix epoch; of something that lasts, its begin."""


def newest(seen: Iterable[SeenGpu]) -> Mapping[str, SeenGpu]:
    """Return, by PCI bus id, the GPU that was seen there last.

    If only an older one of the same UUID has the serial number, that one is returned.
    """
    found: dict[str, SeenGpu] = {}
    for each in sorted(seen, key=lambda each: each.at_ns):
        before = found.get(each.gpu.bus)
        if before is None or before.gpu.uuid != each.gpu.uuid or each.gpu.serial or not before.gpu.serial:
            found[each.gpu.bus] = each
    return found
