"""Short literals that Loki looks for; every line that can be a fault has at least one of its source's.

They are few because each costs time on every byte that Loki scans (design rule 11), so that some stand for
several patterns: ``atchdog`` with a blank is PyTorch's ``Watchdog caught …`` and ``… by watchdog at work``,
``call failed`` is what both ``ncclSystemError`` and ``ncclRemoteError`` print.
"""

from __future__ import annotations

from konductor_like.model import Source

KERNEL_ANCHORS: tuple[str, ...] = ("Xid (", "NVRM", "peermem", "nv_mem", "libnccl")
POD_ANCHORS: tuple[str, ...] = (
    "NCCL WARN",
    "NCCL error",
    "CUDA error",
    "cuda error",
    "Cuda failure",
    "CUDA out of memory",
    "atchdog ",
    "Got completion from peer",
    "call failed",
    "fallen off the bus",
    "determine the device handle",
    "aten/src/THC",
)
HEARTBEAT_ANCHOR = "kmsg/1 heartbeat"


def anchors_of(source: Source) -> tuple[str, ...]:
    """The anchors of one source."""
    return KERNEL_ANCHORS if source is Source.KERNEL else POD_ANCHORS
