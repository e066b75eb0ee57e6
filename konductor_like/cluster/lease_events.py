"""Events about the fleet, on the Lease: ``kubectl describe lease`` shows them, and their namespace's list."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from konductor_like.cluster import paths
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.errors import KubeConflict, KubeError
from konductor_like.cluster.events import digest, event
from konductor_like.cluster.lease import LeaderLease
from konductor_like.model import EventReason


class LeaseEvents:
    """Sends Events about the Lease, each in a thread of its own: they are rare, and nothing waits for one."""

    def __init__(
        self,
        client: KubeClient,
        lease: LeaderLease,
        instance: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._lease = lease
        self._instance = instance[:128]
        self._now = now

    def send_soon(self, reason: EventReason, message: str, act: str = "") -> None:
        """Send one Event and return at once; one that cannot be sent is left out: the log has said it."""
        arguments = (reason, message, act)
        threading.Thread(target=self.send, args=arguments, name="lease-event", daemon=True).start()

    def send(self, reason: EventReason, message: str, act: str = "") -> bool:
        """Send one Event; whether the server has it now. Never raises a KubeError.

        ``act`` names what a person wrote, where it tells of that; with the same reason it is the same Event.
        """
        involved = self._lease.reference
        name, namespace = involved["name"], involved["namespace"]
        identity = digest(involved.get("uid", ""), reason.value, act or message)
        named = f"{name}.{reason.value.lower()}.{identity}"
        told = event(named, namespace, involved, reason, message, self._instance, self._now(), act)
        try:
            self._client.create(paths.events(namespace), told)
        except KubeConflict:
            return True
        except KubeError:
            return False
        return True
