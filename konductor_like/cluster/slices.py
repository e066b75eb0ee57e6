"""The nodes whose GPUs show as ResourceSlices of NVIDIA's driver, that is by dynamic resource allocation.

Such a node may bear no label and no capacity of its own. The slices are listed rarely and kept by name. A
node that gains its first one is known after some minutes; an Xid of its kernel log proves its GPU at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from konductor_like.cluster import paths
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.errors import KubeError, KubeForbidden, KubeNotFound

DRIVER = "gpu.nvidia.com"
INTERVAL_SECONDS = 600.0
AGAIN_SECONDS = 60.0
"""When the slices could not be listed, what is known holds for so long."""


class GpuSlices:
    """Which nodes have such a slice. Thread-safe; asks the server at most once an interval."""

    def __init__(self, client: ReadOnlyKubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds."""
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: frozenset[str] = frozenset()
        self._due_seconds = float("-inf")

    def nodes(self) -> frozenset[str]:
        """Their names. A server without this API, or that does not let us look, has none; raises nothing."""
        with self._lock:
            if self._clock() >= self._due_seconds:
                self._nodes, again_seconds = self._look()
                self._due_seconds = self._clock() + again_seconds
            return self._nodes

    def _look(self) -> tuple[frozenset[str], float]:
        for path in paths.RESOURCE_SLICES:
            try:
                found = self._client.list_pages(path, _node_of, {"fieldSelector": f"spec.driver={DRIVER}"})
            except KubeNotFound:
                continue  # an older server has an older version, or none
            except KubeForbidden:
                return frozenset(), INTERVAL_SECONDS
            except KubeError:
                return self._nodes, AGAIN_SECONDS
            return frozenset(name for name in found.items if name), INTERVAL_SECONDS
        return frozenset(), INTERVAL_SECONDS


def _node_of(piece: dict[str, object]) -> str:
    spec = piece.get("spec")
    name = spec.get("nodeName") if isinstance(spec, dict) else None
    return name if isinstance(name, str) else ""
