"""UUID and serial number of a GPU, read strictly from the texts of other programs: nothing else is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping

from konductor_like.detection.kernel_record import normal_pci, open_record, origin
from konductor_like.model import Gpu, GpuSource, KernelPosition, SeenGpu

GPU_WORDS = "NVRM: GPU at "
SERIAL_WORDS = "NVRM: GPU Board Serial Number: "
"""What the driver prints before the first Xid of a GPU: its UUID and, in the next line, its serial number."""
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
"""A part of a GPU that MIG makes has a UUID of its own, ``MIG-…``: it names no GPU."""
_BUS = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?", re.IGNORECASE | re.ASCII)
_SERIAL = re.compile(r"[0-9A-Za-z]{1,32}", re.ASCII)
"""NVML's words for a serial number that it does not tell, such as ``N/A``, have other characters."""
_GPU_LINE = re.compile(rf"{GPU_WORDS}(?:PCI:)?([0-9a-f:.]{{5,18}}): (\S{{40}})", re.IGNORECASE | re.ASCII)


def gpu_of(bus: str, uuid: str, serial: str = "") -> Gpu | None:
    """Return the GPU that a program names by texts such as ``00000000:4E:00.0``.

    None if bus id or UUID is none. A serial number that is none is left out.
    """
    place = _BUS.fullmatch(bus)
    if place is None or not _UUID.fullmatch(uuid):
        return None
    known = serial if _SERIAL.fullmatch(serial) else ""
    return Gpu(normal_pci(place[1]) or "", f"GPU-{uuid[4:].lower()}", known)


def gpu_of_labels(labels: Mapping[str, str], at_ns: int) -> SeenGpu | None:
    """Return the GPU that dcgm-exporter names in the labels of a metric, or of an alert about one.

    ``at_ns``: the begin of the alert, or the time of the metric's value, in nanoseconds since the Unix epoch.
    The serial number is among the labels if the site's list of fields has it.
    """
    named = (labels.get(name, "") for name in ("pci_bus_id", "UUID", "DCGM_FI_DEV_SERIAL"))
    gpu = gpu_of(*named)
    return SeenGpu(gpu, GpuSource.EXPORTER, at_ns) if gpu else None


def gpu_in_line(text: str) -> tuple[Gpu, KernelPosition] | None:
    """Return the GPU that a line of the driver names, and the line's place in the kernel log."""
    opened = _of_driver(text)
    match = _GPU_LINE.match(opened[0]) if opened else None
    gpu = gpu_of(match[1], match[2]) if match else None
    return (gpu, opened[1]) if gpu and opened else None


def serial_in_line(text: str) -> str:
    """Return the serial number in a line of the driver; empty for any other line."""
    opened = _of_driver(text)
    if opened is None or not opened[0].startswith(SERIAL_WORDS):
        return ""
    serial = opened[0].removeprefix(SERIAL_WORDS).strip()
    return serial if _SERIAL.fullmatch(serial) else ""


def _of_driver(text: str) -> tuple[str, KernelPosition] | None:
    """Return the kernel's own record and its place; None for one that a program wrote into /dev/kmsg."""
    opened = open_record(text)
    if opened is None:
        return None
    position, user_written = origin(opened[1])
    return None if user_written else (opened[0], position)
