"""Send Events about Nodes and about the Lease, best effort.

The name of an Event follows from its content, so that a repeated report does not make a second Event
(rule 25).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import ClassVar

from konductor_like.backoff import Backoff, retrying
from konductor_like.cluster.api.client import KubeClient, events_path
from konductor_like.cluster.api.errors import KubeConflict, KubeError
from konductor_like.cluster.pods import Owner
from konductor_like.model import Change, EventReason, NodeState
from konductor_like.model.time import stamp

COMPONENT = "konductor-like"
ACT_ANNOTATION = "trainy.konduktor.ai/act"
"""The annotation of an Event with the id of the write that the Event reports."""
NAMESPACE = "default"
"""The namespace of Events about Nodes and other objects without one; the server refuses any other."""
_BACKOFF = Backoff(first_seconds=2.0, most_seconds=16.0)
_MESSAGE_BYTES = 1000  # the API limits a message to 1,024, in one place in characters and in another in bytes
_NODE_CHARS = 180
_NORMAL = frozenset(
    {
        EventReason.RELEASED,
        EventReason.RECORDED,
        EventReason.SHADOW,
        EventReason.PAUSED,
        EventReason.RESUMED,
        EventReason.BRAKE_RESET,
        EventReason.FREE,
        EventReason.REBOOTED,
        EventReason.ENDED,
        EventReason.RESTORED,
        EventReason.RETURNED,
        EventReason.RETURNS_RESUMED,
    }
)


class _Events:
    """Creates Events as one reporting process."""

    tries: ClassVar[int] = 5
    """Tries for one Event. The waits between five tries add up to 30 seconds at most, or to what the server
    asks for with Retry-After, if that is longer."""

    def __init__(
        self,
        client: KubeClient,
        instance: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """``instance`` names the process; ``now`` returns aware times; a true ``sleep`` ends the tries."""
        self._client = client
        self._instance = instance[:128]
        self._now = now
        self._retry = retrying(_BACKOFF, sleep, attempts=self.tries)

    def _create(
        self, name: str, involved: Mapping[str, str], reason: EventReason, message: str, act: str
    ) -> KubeError | None:
        """Create an Event about one object. Return the error, or None if the server has the Event."""
        at, namespace = stamp(self._now()), involved.get("namespace", NAMESPACE)
        marked = {"annotations": {ACT_ANNOTATION: act}} if act else {}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace, **marked},
            "involvedObject": dict(involved),
            "type": "Normal" if reason in _NORMAL else "Warning",
            "reason": reason.value,
            "message": shortened(f"{message} (audit id {act})" if act else message),
            "action": reason.value,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        try:
            self._retry(self._client.create, events_path(namespace), event)
        except KubeConflict:
            return None
        except KubeError as error:
            return error
        return None


class NodeEvents(_Events):
    """Sends Events about Nodes. Thread-safe."""

    def send(self, node: NodeState, reason: EventReason, message: str, subject: str, act: str = "") -> bool:
        """Send one Event, with retries. Return whether the server has it. Never raises a KubeError.

        Node, ``reason`` and ``subject`` identify the Event (see ``event_subject``); sending the same Event
        again changes nothing. ``act`` is the id of the reported write; the id is added to the end of the
        message and to an annotation.
        """
        involved = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": node.name,
            "uid": node.machine.node_uid,  # kubectl describe finds Events by the UID
        }
        return self._create(event_name(node, reason, subject), involved, reason, message, act) is None


class JobEvents(_Events):
    """Sends Events about a tainted node to the owners of the jobs there."""

    tries = 2

    def send(self, owner: Owner, message: str, subject: str, act: str) -> KubeError | None:
        """Send one Event, in the owner's namespace. Return the error, or None if the server has the Event.

        Owner and ``subject`` identify the Event; ``act`` is the id of the write that tainted the node.
        """
        involved = {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "namespace": owner.namespace,
            "name": owner.name,
            "uid": owner.uid,
        }
        reason = EventReason.JOBS_NODE
        return self._create(
            f"{reason.value.lower()}.{digest(*owner, subject)}", involved, reason, message, act
        )


class LeaseEvents(_Events):
    """Sends Events about the fleet, on the Lease: ``kubectl describe lease`` shows them."""

    def send(self, lease: Mapping[str, str], reason: EventReason, message: str, act: str = "") -> bool:
        """Send one Event, with retries. Return whether the server has it. Never raises a KubeError.

        ``lease`` is the Lease as an Event's ``involvedObject``. ``act`` is the id of the operator's act that
        the Event reports, if any. Events of the same reason and ``act`` (without an ``act``, of the same
        message) are one Event.
        """
        identity = digest(lease.get("uid", ""), reason.value, act or message)
        name = f"{lease['name']}.{reason.value.lower()}.{identity}"
        return self._create(name, lease, reason, message, act) is None


def event_name(node: NodeState, reason: EventReason, subject: str) -> str:
    """Return ``<node>.<reason>.<hash>``. The hash covers the Node's name and UID, reason and subject."""
    identity = digest(node.name, node.machine.node_uid, reason.value, subject)
    return f"{node.name[:_NODE_CHARS].rstrip('-.')}.{reason.value.lower()}.{identity}"


def shortened(message: str) -> str:
    """Return a message that the API accepts. A long one is cut in the middle: both of its ends matter."""
    text = message.encode("utf-8", "replace")
    if len(text) <= _MESSAGE_BYTES:
        return text.decode()
    half = (_MESSAGE_BYTES - 5) // 2
    head, tail = text[:half].decode("utf-8", "ignore"), text[-half:].decode("utf-8", "ignore")
    return f"{head} … {tail}"


def digest(*parts: str) -> str:
    """Return a short hash of these texts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def events_of(change: Change) -> list[tuple[EventReason, str, str]]:
    """Return the Events of a change: reason, message and subject."""
    first = [] if change.event is None else [(change.event, change.message, event_subject(change))]
    return first + [(reason, message, f"{change.act_id} {message}") for reason, message in change.also]


def event_subject(change: Change) -> str:
    """Return a text that identifies what an Event reports. A repeated report has the same text."""
    if change.event in (EventReason.REBOOTED, EventReason.ENDED):
        return f"{change.act_id} {change.message}"
    if change.evidence is not None:
        finding = change.evidence.finding
        if change.event is EventReason.SHADOW:  # one Event in each boot, even if the line repeats
            return f"{finding.rule} {finding.gpu} {finding.position.boot_id}"
        return f"{finding.rule} {finding.gpu} {change.evidence.timestamp_ns} {finding.text}"
    if change.incident is not None:
        key = change.incident.key
        return f"{key.rule} {key.gpu} {change.incident.first_ns}"
    if change.record is not None and change.record.releases:
        return change.record.releases[0].at.isoformat()
    return change.message
