"""What kubelets do to their Nodes on their own: status refreshes, Leases, reboots."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from konductor_like_sandbox.kubernetes.errors import ApiError
from konductor_like_sandbox.kubernetes.resources import LEASES, NODES
from konductor_like_sandbox.kubernetes.store import Key, Store
from konductor_like_sandbox.kubernetes.writes import STRATEGIC_MERGE_PATCH, Target, Writer, Writes

LEASE_NAMESPACE = "kube-node-lease"
_KUBELET = Writer("kubelet")


class Kubelets:
    """The kubelets of all Nodes. They act only when a method is called, or after ``start``."""

    def __init__(self, store: Store, writes: Writes, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._writes = writes
        self._clock = clock
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def refresh(self, name: str) -> None:
        """Set the heartbeat of every condition and renew the Node's Lease, as a kubelet does regularly."""
        now = self._clock()
        with self._store.lock:
            stored = self._store.get("nodes", Key("", name))
            if stored is None:
                return
            conditions = stored.load()["status"].get("conditions", [])
            heartbeat = now.strftime("%Y-%m-%dT%H:%M:%SZ")
            fresh = [{"type": c["type"], "lastHeartbeatTime": heartbeat} for c in conditions]
            self._patch(name, {"conditions": fresh})
            self._renew_lease(name, now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))

    def start(self, period_seconds: float) -> None:
        """Refresh every Node once per period, evenly spread, in the background until ``stop``."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, args=(period_seconds,), name="sandbox-kubelets")
        self._thread.start()

    def stop(self) -> None:
        """End the background refreshes. Harmless if there are none."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, period_seconds: float) -> None:
        while not self._stopping.is_set():
            names = [item.key.name for item in self._store.objects("nodes")[1]]
            for name in names:
                self.refresh(name)
                if self._stopping.wait(period_seconds / len(names)):
                    return
            if not names:
                self._stopping.wait(period_seconds)

    def _patch(self, name: str, status: dict[str, Any]) -> None:
        target = Target(NODES, Key("", name), "status")
        self._writes.patch(target, STRATEGIC_MERGE_PATCH, {"status": status}, _KUBELET)

    def _renew_lease(self, name: str, now: str) -> None:
        target = Target(LEASES, Key(LEASE_NAMESPACE, name))
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            self._writes.patch(target, STRATEGIC_MERGE_PATCH, {"spec": spec}, _KUBELET)
        except ApiError:  # the first time there is no Lease yet
            self._writes.create(target, {"metadata": {"name": name}, "spec": spec}, _KUBELET)
