"""Pods that a kubelet refused: the Events that tell of them, and a look at the pods of one node (rule 45).

The API server has no cache of Events: a list of them, also a selected one, reads all of them from etcd. So
Events are only watched, and one Event is listed, to know where the watch begins. Anybody who may create
Events can forge one. An Event therefore only leads to a look, and the pods' status is the evidence.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from konductor_like.cluster.api.client import PODS_PATH, ReadOnlyKubeClient
from konductor_like.cluster.api.transport import JsonObject, json_object
from konductor_like.cluster.api.watch import WatchStream
from konductor_like.cluster.pods import POD_BYTES, asks_plugin_for_gpu
from konductor_like.model import EVIDENCE_CHARS, PodsSeen, RefusedPod
from konductor_like.model.time import ns_of_text, unix_ns
from konductor_like.policy.node.refused_pods import REASON, SPAN_NS, names_nvml

EVENTS_PATH = "/api/v1/events"
"""The Events of all namespaces."""
_SELECTED = f"reason={REASON},involvedObject.kind=Pod"
_WATCH_SECONDS = (240, 480)
"""Seconds after which the server ends a watch: a random time between these."""
_SILENCE_SECONDS = 600.0
"""Seconds of silence after which the connection counts as dead; without a cache there are no bookmarks."""
LOOK_BYTES = 16 << 20
"""Bytes of the pods of one node that a look reads, at most: about 2,000 pods."""
REFUSED_MOST = 500
"""Refused pods of one node that a look remembers: the latest ones."""


def present_version(client: ReadOnlyKubeClient) -> str:
    """Return the resourceVersion of now, from which a watch of Events may begin. Raises a KubeError."""
    page = client.list(EVENTS_PATH, {"limit": "1"})
    return str(page["metadata"].get("resourceVersion", ""))


def watch_refusals(client: ReadOnlyKubeClient, version: str) -> WatchStream:
    """Watch the Events of refused pods from this resourceVersion on, for some minutes. Raises a KubeError."""
    seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311 -- spreads load, no secret
    params = {"fieldSelector": _SELECTED, "resourceVersion": version, "timeoutSeconds": str(seconds)}
    return client.stream(EVENTS_PATH, params, _SILENCE_SECONDS)


def node_of_event(event: JsonObject) -> str:
    """Return the node whose kubelet sent the Event; empty if it does not say."""
    return str(json_object(event, "source").get("host") or event.get("reportingInstance") or "")


def look_at_pods(client: ReadOnlyKubeClient, node: str, now: datetime) -> PodsSeen:
    """Look at the GPU pods of a node that were refused lately, or admitted. Raises a KubeError.

    The API server answers from its cache (``resourceVersion=0``), which has an index by node. The answer is
    read pod by pod, ``LOOK_BYTES`` at most.
    """
    found = _Found(unix_ns(now))
    params = {"fieldSelector": f"spec.nodeName={node},status.phase!=Pending", "resourceVersion": "0"}
    client.scan(PODS_PATH, found.take, params, object_bytes=POD_BYTES, total_bytes=LOOK_BYTES)
    latest = sorted(found.refused)[-REFUSED_MOST:]
    message = latest[-1][1] if latest else ""
    return PodsSeen(tuple(pod for pod, _ in latest), message, found.admitted_ns)


class _Found:
    """The refused pods with their messages, and the latest start of another GPU pod."""

    def __init__(self, now_ns: int) -> None:
        self.refused: list[tuple[RefusedPod, str]] = []
        self.admitted_ns: int | None = None
        self._now_ns = now_ns

    def take(self, pod: Mapping[str, Any]) -> None:
        """Add a pod. Raises ValueError if the pod is malformed."""
        try:
            if asks_plugin_for_gpu(pod["spec"]):
                self._take(pod["metadata"], pod["status"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError("a pod in the list is malformed") from error

    def _take(self, meta: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        at_ns, message = self._began_ns(meta, status), str(status.get("message", ""))
        if status.get("reason") != REASON or status.get("phase") != "Failed":
            if status.get("containerStatuses"):  # a pod that was refused has none
                self.admitted_ns = max(self.admitted_ns or 0, at_ns)
        elif at_ns >= self._now_ns - SPAN_NS and names_nvml(message):
            pod = RefusedPod(at_ns, str(meta["namespace"]), str(meta.get("uid", "")))
            self.refused.append((pod, message[:EVIDENCE_CHARS]))

    def _began_ns(self, meta: Mapping[str, Any], status: Mapping[str, Any]) -> int:
        """Return when the kubelet refused or admitted the pod: its ``startTime``.

        A clock of a node that is ahead would hide that the node had just booted. Then the pod counts as of
        its creation, by the API server's clock.
        """
        created_ns = ns_of_text(meta["creationTimestamp"])
        started_ns = ns_of_text(status["startTime"]) if status.get("startTime") else created_ns
        return started_ns if created_ns <= started_ns <= self._now_ns else created_ns
