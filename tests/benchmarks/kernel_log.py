"""A kernel log of any size: of 1,000 lines one reports a fault, and one is another line of the driver."""

from __future__ import annotations

import random
from pathlib import Path

from konductor_like.detection import find
from konductor_like.model import Source
from tools.quality.corpus import own_cases

NOISE = (
    "usb 1-1: new high-speed USB device number {n} using xhci_hcd",
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none. {n}",
    "IPv6: ADDRCONF(NETDEV_CHANGE): cali5d2f3c9a{n}: link becomes ready",
    "audit: type=1400 audit(1772617200.{n}:451): apparmor='ALLOWED' operation='open' pid={n} comm='runc'",
    "docker0: port 2(veth{n}) entered blocking state",
    "systemd[1]: Started Session {n} of user root.",
    "oom_reaper: reaped process {n} (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "mce: CPU{n}: Core temperature/speed normal",
    "nvme nvme0: 64/0/{n} default/read/poll queues",
    "TCP: request_sock_TCP: Possible SYN flooding on port {n}. Sending cookies.",
)
TALK = (
    "NVRM: GPU at PCI:0000:6b:00: GPU-0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0",
    "NVRM: GPU Board Serial Number: 165000000{n}",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.45.04  Release Build",
    "nvidia-peermem: loaded, {n} clients",
)
_EVERY = 1000
_BLOCK_LINES = 200_000
_BLOCKS = 4


def faults() -> list[str]:
    lines = [case.line for case in own_cases() if case.source is Source.KERNEL]
    return [line for line in lines if line.startswith("[") and find(line, Source.KERNEL) is not None]


def write(path: Path, size: int, seed: int = 1) -> None:
    """Write a log of at least ``size`` bytes."""
    rng = random.Random(seed)
    hits = faults()
    blocks = [_block(rng, hits) for _ in range(_BLOCKS)]
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(rng.choice(blocks))


def _block(rng: random.Random, hits: list[str]) -> bytes:
    lines = []
    for number in range(_BLOCK_LINES):
        if number % _EVERY == _EVERY // 2:
            lines.append(rng.choice(hits))
            continue
        text = rng.choice(TALK if number % _EVERY == 0 else NOISE).format(n=rng.randrange(1_000_000))
        lines.append(f"[{number * 1.37 + rng.random():12.6f}] {text}")
    return ("\n".join(lines) + "\n").encode()
