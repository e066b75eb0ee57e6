"""A cluster with a node that is out of service, and a Loki with its kernel log and the audit trail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from konductor_like.cluster.node.record import decode, encode
from konductor_like.model import RECORD_ANNOTATION, NodeRecord
from konductor_like.model.time import text_of
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.loki import LokiServer, shipped
from tests.cli.scenes import DEAD_GPU, GPU, ago, ago_ns, boot_of

MODEL = "NVIDIA-H100-80GB-HBM3"
UUID, SERIAL = "GPU-509665ad-b600-ac93-3616-d754b23d636d", "1650124014249"
HEARTBEAT = "kmsg/1 heartbeat boot={boot} seq=9 uptime={up}.000000 wall={wall}"


class Past(NamedTuple):
    """gpu-1 is out of service for Xid 79; its kernel log and the audit trail are in Loki."""

    cluster: KubernetesServer
    loki: LokiServer

    def edit_record(self, change: Callable[[NodeRecord], NodeRecord]) -> None:
        def edit(node: dict[str, Any]) -> None:
            notes = node["metadata"]["annotations"]
            notes[RECORD_ANNOTATION] = encode(change(decode(notes[RECORD_ANNOTATION])[0]))

        self.cluster.edit_node("gpu-1", edit)

    def kernel(self, *lines: tuple[float, str], node: str = "gpu-1") -> None:
        self.loki.push_otlp(shipped(node, [(ago_ns(seconds), text) for seconds, text in lines]))

    def heartbeats(self, first: int = 800, last: int = 0) -> None:
        boot = boot_of(self.cluster.node("gpu-1"))
        self.kernel(
            *(
                (at, HEARTBEAT.format(boot=boot, up=9000 - at, wall=ago(at).isoformat()))
                for at in range(first, last, -60)
            )
        )

    def trail(self, seconds: float, **fields: Any) -> None:
        facts = {"audit": "v1", "node": "gpu-1", "outcome": "applied", "verb": "record", **fields}
        sent = shipped(
            "cpu-1",
            [(ago_ns(seconds), json.dumps(facts))],
            namespace="konductor-like",
            pod="c",
            container="c",
        )
        self.loki.push_otlp(sent)

    def fill(self) -> None:
        """Push the kernel log of the outage and its line of the trail."""
        self.heartbeats()
        self.kernel(
            (900, "[100.0] past: too early"),
            (400, "[600.0] nvme nvme0: a line that is no fault"),
            (201, f"[799.0] NVRM: GPU at PCI:{GPU}: {UUID}"),
            (200.5, f"[799.1] NVRM: GPU Board Serial Number: {SERIAL}"),
            (200, f"[799.2] {DEAD_GPU}"),
        )
        self.trail(191, verb="taint", rule="xid.79", gpu=GPU, out_since=text_of(ago(192)), model=MODEL)
