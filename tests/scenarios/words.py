"""Helpers that describe a fleet and its failures in short words."""

from __future__ import annotations

from collections.abc import Sequence

from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.scenarios.site import Site

GPU = "0000:4e:00"
JOB = "ml/PyTorchJob/llama"
LOST = f"NVRM: Xid (PCI:{GPU}): 79, pid=4711, name=python3, GPU has fallen off the bus."
SYMPTOMS = (
    f"NVRM: Xid (PCI:{GPU}): 43, pid=4711, name=python3, Ch 00000008",
    f"NVRM: Xid (PCI:{GPU}): 45, pid=4711, name=python3, Ch 00000008",
    f"NVRM: Xid (PCI:{GPU}): 31, pid=4711, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS",
)
NCCL = "misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer 10.31.4.9<41822>"
REMAP = f"NVRM: Xid (PCI:{GPU}): 145, RLW_REMAP Nonfatal XC0 i0 Link 03 (0x00000004 0x00000001 0x00000000)"
REMAP_FATAL = f"NVRM: Xid (PCI:{GPU}): 145, RLW_REMAP Fatal XC0 i0 Link 03 (0x00000004 0x00000040 0x00000000)"
LINK_DOWN = (
    f"NVRM: Xid (PCI:{GPU}): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x00200011 0x00000000 0x00000000)"
)
PEERS_LINK = (
    f"NVRM: Xid (PCI:{GPU}): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x01500011 0x00000000 0x00000000)"
)
ROW_REMAP = "NVRM: Xid (PCI:0000:9b:00): 64, pid=4711, name=python3, Row Remapper: failed to remap"
CLIQUE = "nvidia.com/gpu.clique"


def gpu(number: int) -> str:
    return f"gpu-{number:04}"


def gpus(count: int, first: int = 1) -> list[str]:
    return [gpu(number) for number in range(first, first + count)]


def racks(count: int, size: int) -> list[dict[str, object]]:
    """A fleet of racks, each of which is one multi-node NVLink domain."""
    return [
        make_node(gpu(rack * size + place), labels={CLIQUE: f"c4f1d0a2.{rack}"})
        for rack in range(count)
        for place in range(1, size + 1)
    ]


def crash(
    site: Site,
    nodes: Sequence[str],
    job: str = JOB,
    *,
    at: float = 0.0,
    over: float = 5.0,
    kernel_late: float = 0.2,
    pods_late: float = 0.2,
) -> None:
    """A job dies: each node prints Xid 43, 45, 31 and NCCL's complaint, within ``over`` seconds."""
    for rank, node in enumerate(nodes):
        when = at + over * rank / len(nodes)
        for text in SYMPTOMS:
            site.kernel(node, text, at=when, late=kernel_late)
        site.pod(node, job, NCCL, rank=rank, at=when, late=pods_late)
