"""Events on Nodes and on the Lease: best effort.

They are named so that the same thing reported twice is one Event (rule 25).
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from konductor_like.cluster.client import KubeClient, events_path
from konductor_like.cluster.errors import Backoff, KubeConflict, KubeError
from konductor_like.model import Change, EventReason, NodeState
from konductor_like.model.time import stamp

COMPONENT = "konductor-like"
ACT_ANNOTATION = "trainy.konduktor.ai/act"
"""On an Event: the name of the write that it reports."""
NAMESPACE = "default"
"""Where Events of objects without a namespace live; the server refuses any other."""
_TRIES = 5
"""Each waits for as long as the server asks for; five are half a minute of a server that asks for nothing."""
_BACKOFF = Backoff(first_seconds=2.0, most_seconds=16.0)
_MESSAGE_BYTES = 1000  # the API's limit is 1,024 characters in one place and bytes in another
_NODE_CHARS = 180
_WAITING_MOST = 100
"""Events about the fleet that wait for a slow server."""
_NORMAL = frozenset(
    {
        EventReason.RELEASED,
        EventReason.RECORDED,
        EventReason.ACKNOWLEDGED,
        EventReason.SHADOW,
        EventReason.PAUSED,
        EventReason.RESUMED,
        EventReason.BRAKE_RESET,
        EventReason.FREE,
    }
)


class _Events:
    """Creates Events in the name of one process."""

    def __init__(self, client: KubeClient, instance: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._instance = instance[:128]
        self._now = now

    def _create(
        self, name: str, involved: Mapping[str, str], reason: EventReason, message: str, act: str
    ) -> KubeError | None:
        """Create an Event about one object; why that failed, or None where the server has it now."""
        at, namespace = stamp(self._now()), involved.get("namespace", NAMESPACE)
        marked = {"annotations": {ACT_ANNOTATION: act}} if act else {}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace, **marked},
            "involvedObject": dict(involved),
            "type": "Normal" if reason in _NORMAL else "Warning",
            "reason": reason.value,
            "message": shortened(f"{message} act {act}" if act else message),
            "action": reason.value,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        try:
            self._client.create(events_path(namespace), event)
        except KubeConflict:
            return None
        except KubeError as error:
            return error
        return None


class NodeEvents(_Events):
    """Sends Events about Nodes. Thread-safe."""

    def __init__(
        self,
        client: KubeClient,
        instance: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """``instance`` says which process; ``now`` gives aware datetimes; a true ``sleep`` ends the tries."""
        super().__init__(client, instance, now)
        self._sleep = sleep

    def send(self, node: NodeState, reason: EventReason, message: str, about: str, act: str = "") -> bool:
        """Send one Event, patiently; whether the server has it now. Never raises a KubeError.

        ``about`` identifies the occurrence: the same reason and ``about`` on one node is the same Event,
        which is there already and stays as it is, so that trying again does no harm. ``act`` names the write
        that it reports; it stands at the end of the message and in an annotation.
        """
        involved = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": node.name,
            "uid": node.machine.node_uid,  # kubectl describe finds Events by it
        }
        name = event_name(node, reason, about)
        for failures in range(1, _TRIES + 1):
            error = self._create(name, involved, reason, message, act)
            if error is None:
                return True
            if not error.transient or failures == _TRIES:
                break
            if self._sleep(_BACKOFF.seconds(failures, error.retry_after_seconds)):
                break
        return False


class LeaseEvents(_Events):
    """Sends Events about the fleet, on the Lease: ``kubectl describe lease`` shows them.

    They are rare, and nothing waits for one.
    """

    def __init__(
        self,
        client: KubeClient,
        reference: Callable[[], dict[str, str]],
        instance: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``reference`` gives the Lease as an Event names what it is about."""
        super().__init__(client, instance, now)
        self._reference = reference
        self._waiting: queue.Queue[tuple[EventReason, str, str]] = queue.Queue(_WAITING_MOST)
        threading.Thread(target=self._run, name="lease-events", daemon=True).start()

    def send_soon(self, reason: EventReason, message: str, act: str = "") -> None:
        """Send one Event, after those that wait; returns at once.

        One that cannot be sent, or for which too many wait, is left out: the log holds it.
        """
        with suppress(queue.Full):
            self._waiting.put_nowait((reason, message, act))

    def send(self, reason: EventReason, message: str, act: str = "") -> bool:
        """Send one Event; whether the server has it now. Never raises a KubeError.

        ``act`` names what a person wrote, if it reports that; with the same reason it is the same Event.
        """
        involved = self._reference()
        identity = digest(involved.get("uid", ""), reason.value, act or message)
        name = f"{involved['name']}.{reason.value.lower()}.{identity}"
        return self._create(name, involved, reason, message, act) is None

    def _run(self) -> None:
        while True:
            self.send(*self._waiting.get())


def event_name(node: NodeState, reason: EventReason, about: str) -> str:
    """``<node>.<reason>.<hash>``, the same for the same thing about the same Node object."""
    identity = digest(node.name, node.machine.node_uid, reason.value, about)
    return f"{node.name[:_NODE_CHARS].rstrip('-.')}.{reason.value.lower()}.{identity}"


def shortened(message: str) -> str:
    """A message that the API accepts: cut in the middle, because both ends say something."""
    text = message.encode("utf-8", "replace")
    if len(text) <= _MESSAGE_BYTES:
        return text.decode()
    half = (_MESSAGE_BYTES - 5) // 2
    head, tail = text[:half].decode("utf-8", "ignore"), text[-half:].decode("utf-8", "ignore")
    return f"{head} … {tail}"


def digest(*parts: str) -> str:
    """A short name for what an Event reports."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def about(change: Change) -> str:
    """The occurrence or release that an Event reports; the same one again is the same Event."""
    if change.event is EventReason.ACKNOWLEDGED:
        return change.act_id
    if change.evidence is not None:
        finding = change.evidence.finding
        if change.event is EventReason.SHADOW:  # once in each boot, however often its line comes
            return f"{finding.rule} {finding.gpu} {finding.position.boot_id}"
        return f"{finding.rule} {finding.gpu} {change.evidence.timestamp_ns} {finding.text}"
    if change.incident is not None:
        key = change.incident.key
        return f"{key.rule} {key.gpu} {change.incident.first_ns}"
    if change.record is not None and change.record.releases:
        return change.record.releases[0].at.isoformat()
    return change.message
