"""Events: best effort, named so that telling the same thing twice is one Event (design rule 25).

What is about a node goes on its Node; what is about the fleet on the Lease, where ``kubectl describe lease``
and the namespace's own list of Events show it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from konductor_like.cluster import paths, times
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.errors import KubeConflict, KubeError
from konductor_like.cluster.lease import LeaderLease
from konductor_like.model import EventReason, NodeState

COMPONENT = "konductor-like"
NAMESPACE = "default"
"""Where Events of objects without a namespace live; the server refuses any other."""
_MESSAGE_BYTES = 1000  # the API's limit is 1,024 characters in one place and bytes in another
_NODE_CHARS = 180
_NORMAL = frozenset({EventReason.RELEASED, EventReason.RECORDED})


class NodeEvents:
    """Sends Events. ``instance`` says which process; ``now`` gives aware datetimes."""

    def __init__(
        self, client: KubeClient, instance: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client = client
        self._instance = instance[:128]
        self._now = now
        self.last_error: KubeError | None = None
        """Why the latest Event could not be sent; None if it was."""

    def send(self, node: NodeState, reason: EventReason, message: str, about: str) -> bool:
        """Send one Event; whether the server has it now. Never raises a KubeError.

        ``about`` identifies what it tells of: the same reason and ``about`` on one node is the same Event,
        which is there already and stays as it is.
        """
        involved = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": node.name,
            "uid": node.machine.node_uid,  # kubectl describe finds Events by it
        }
        name = event_name(node, reason, about)
        try:
            self._client.create(
                paths.events(NAMESPACE),
                event(name, NAMESPACE, involved, reason, message, self._instance, self._now()),
            )
        except KubeConflict:
            self.last_error = None
        except KubeError as error:
            self.last_error = error
            return False
        else:
            self.last_error = None
        return True


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

    def send_soon(self, reason: EventReason, message: str) -> None:
        """Send one Event and return at once; one that cannot be sent is left out: the log has said it."""
        threading.Thread(target=self.send, args=(reason, message), name="lease-event", daemon=True).start()

    def send(self, reason: EventReason, message: str) -> bool:
        """Send one Event; whether the server has it now. Never raises a KubeError."""
        involved = self._lease.reference
        name, namespace = involved["name"], involved["namespace"]
        digest = _digest(involved.get("uid", ""), reason.value, message)
        named = f"{name}.{reason.value.lower()}.{digest}"
        told = event(named, namespace, involved, reason, message, self._instance, self._now())
        try:
            self._client.create(paths.events(namespace), told)
        except KubeConflict:
            return True
        except KubeError:
            return False
        return True


def event(
    name: str,
    namespace: str,
    involved: Mapping[str, str],
    reason: EventReason,
    message: str,
    instance: str,
    now: datetime,
) -> dict[str, object]:
    """A core/v1 Event about one object, in the object's namespace."""
    at = times.plain_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": dict(involved),
        "type": "Normal" if reason in _NORMAL else "Warning",
        "reason": reason.value,
        "message": shortened(message),
        "action": reason.value,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def event_name(node: NodeState, reason: EventReason, about: str) -> str:
    """``<node>.<reason>.<hash>``, the same for the same thing about the same Node object."""
    digest = _digest(node.name, node.machine.node_uid, reason.value, about)
    return f"{node.name[:_NODE_CHARS].rstrip('-.')}.{reason.value.lower()}.{digest}"


def shortened(message: str) -> str:
    """A message that the API accepts: cut in the middle, because both ends tell something."""
    text = message.encode("utf-8", "replace")
    if len(text) <= _MESSAGE_BYTES:
        return text.decode()
    half = (_MESSAGE_BYTES - 5) // 2
    head, tail = text[:half].decode("utf-8", "ignore"), text[-half:].decode("utf-8", "ignore")
    return f"{head} … {tail}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]
