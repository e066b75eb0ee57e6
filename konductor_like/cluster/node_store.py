"""All Nodes, kept up to date by one watch.

One paged list at the start, then a watch from there on; it is resumed where it broke off, and only a
resourceVersion that the server no longer knows (410) costs another list. Nothing lists Nodes per poll.

Where etcd was restored from a backup, versions are lower than before, and a watch from a higher one is
answered with silence. So after silence or trouble one small request asks for the present version; if that is
lower, all is listed anew, and nothing that was known before counts as newer.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from konductor_like.cluster.client import NODES_PATH, RESOURCE_SLICES_PATHS, ReadOnlyKubeClient
from konductor_like.cluster.errors import (
    Backoff,
    KubeBadAnswer,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeNotFound,
    KubeTimeout,
)
from konductor_like.cluster.node_decoder import NodeDecoder
from konductor_like.cluster.watch import WatchEvent, WatchStream
from konductor_like.model import NodeState

_WATCH_SECONDS = (240, 480)
"""The server ends a watch after a random time between these: clients shall not come back all at once."""
_SILENCE_SECONDS = 120.0
"""A real server sends a bookmark about once a minute; a watch silent for longer is opened again."""
_SHORT_SECONDS = 1.0
"""A watch that ends sooner than this may end at once each time: wait a little."""
_STOP_SECONDS = 5.0
GPU_DRIVER = "gpu.nvidia.com"
SLICES_SECONDS = 600.0
SLICES_AGAIN_SECONDS = 60.0
"""When the slices could not be listed, what is known holds for so long."""


def list_nodes(
    client: ReadOnlyKubeClient, decode: NodeDecoder, label_selector: str | None = None
) -> dict[str, NodeState]:
    """All Nodes, or those that the label selector picks, by name. Raises a KubeError."""
    params = {"labelSelector": label_selector} if label_selector else None
    listing = client.list_pages(NODES_PATH, decode, params)
    return {state.name: state for state in listing.items if state.name}


class NodeStore:
    """The newest known state of every Node. Thread-safe.

    ``on_change`` is called whenever a Node changed in anything that we keep of it but its resourceVersion;
    the kubelets' status reports are none of that, nor is what we wrote ourselves. It must return
    at once, and not ask the store.
    """

    def __init__(
        self,
        client: ReadOnlyKubeClient,
        decode: NodeDecoder,
        *,
        silence_seconds: float = _SILENCE_SECONDS,
        backoff: Backoff | None = None,
        on_change: Callable[[], object] = lambda: None,
        slices: ResourceSlices | None = None,
    ) -> None:
        """``slices`` are those that the decoder knows: they are kept up to date between two watches."""
        self._client = client
        self._decode = decode
        self._silence_seconds = silence_seconds
        self._backoff = backoff or Backoff()
        self._on_change = on_change
        self._slices = slices
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeState] = {}
        self._snapshot: Mapping[str, NodeState] | None = None
        self._version = ""
        self._reached = ""
        """The version of the last event or list, also while ``_version`` is given up."""
        self._doubtful = False
        self._events = 0
        self._problem: KubeError | None = None
        self._synced = threading.Event()
        self._stopping = threading.Event()
        self._stream: WatchStream | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to follow the Nodes."""
        self._thread = threading.Thread(target=self._follow, name="nodes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until nothing runs any more."""
        with self._lock:
            self._stopping.set()
            stream = self._stream
        if stream is not None:
            stream.close()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)  # a server that swallows requests shall not keep us from ending
            self._thread = None

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait for the first complete list; whether it is there."""
        return self._synced.wait(timeout_seconds)

    @property
    def problem(self) -> KubeError | None:
        """Why the Nodes cannot be followed right now; None while they can."""
        with self._lock:
            return self._problem

    def snapshot(self) -> Mapping[str, NodeState]:
        """All Nodes by name, as of now. It never changes, and is made anew only after a change."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = MappingProxyType(dict(self._nodes))
            return self._snapshot

    def apply(self, state: NodeState, written: NodeState | None = None) -> None:
        """Fold in the answer to our own write, unless something newer is known.

        It is no change where it shows just what we have ``written``.
        """
        with self._lock:
            known = self._nodes.get(state.name)
            newest = self._version if known is None else known.as_read.resource_version
            if _is_newer(state.as_read.resource_version, newest):
                self._put(state, written)

    def _follow(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            started, events = time.monotonic(), self._events
            error = self._follow_once()
            if self._events > events:
                failures = 0
            if error is None and time.monotonic() - started >= _SHORT_SECONDS:
                continue
            failures += 1
            self._stopping.wait(self._backoff.seconds(failures, error.retry_after_seconds if error else None))

    def _follow_once(self) -> KubeError | None:
        """List if need be, then watch until the watch ends; the error that ended it, if one did."""
        try:
            if self._slices is not None:
                self._slices.refresh()
            if self._version and self._doubtful and self._was_restored():
                self._version = ""
            if not self._version:
                self._list()
            self._doubtful = False
            self._doubtful = not self._watch()
        except KubeError as error:
            self._doubtful = True
            with self._lock:
                self._problem = None if self._stopping.is_set() else error
                if isinstance(error, KubeGone):
                    self._version = ""
            return error
        except Exception as error:  # noqa: BLE001  # a view that froze unseen would be worse; it is reported as a problem
            mistake = KubeBadAnswer(f"cannot follow nodes: {error!r}", hint="please report this")
            with self._lock:
                self._problem, self._version = mistake, ""
            return mistake
        return None

    def _list(self) -> None:
        listing = self._client.list_pages(NODES_PATH, self._decode)
        listed = {state.name: state for state in listing.items if state.name}
        with self._lock:
            restored = _is_newer(self._reached, listing.resource_version, if_unknown=False)
            # The answer to a write of ours may be newer than the list; the watch's events come later.
            ahead = {
                name: state
                for name, state in self._nodes.items()
                if not restored
                and _is_newer(state.as_read.resource_version, listing.resource_version, if_unknown=False)
            }
            before, now_ns = self._nodes, time.time_ns()
            self._nodes = {
                name: witnessed(before.get(name), state, now_ns)
                for name, state in {**listed, **ahead}.items()
            }
            self._version = self._reached = listing.resource_version
            differs = before.keys() != self._nodes.keys() or any(
                _differ(before[name], state) for name, state in self._nodes.items()
            )
            self._problem = None
            self._tell(differs or not self._synced.is_set())
        self._synced.set()

    def _was_restored(self) -> bool:
        """Whether the server's present version is lower than one that it sent before."""
        page = self._client.list(NODES_PATH, {"limit": "1"})
        return _is_newer(self._reached, str(page["metadata"].get("resourceVersion", "")), if_unknown=False)

    def _watch(self) -> bool:
        """Watch until the watch ends; False where it ended because nothing came for too long."""
        params = {
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 -- spreads load, no secret
        }
        with self._client.stream(NODES_PATH, params, self._silence_seconds) as stream:
            with self._lock:
                self._stream = stream
                self._problem = None
            try:
                for event in stream if not self._stopping.is_set() else ():
                    self._take(event)
            except KubeTimeout:
                return False  # what is known may well be right; the watch is simply opened again
            finally:
                with self._lock:
                    self._stream = None
        return True

    def _take(self, event: WatchEvent) -> None:
        metadata = event.object.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name, version = metadata.get("name"), metadata.get("resourceVersion")
        with self._lock:
            known = self._nodes.get(name) if isinstance(name, str) else None
        # An event that an answer to our own write has preceded need not be decoded again.
        is_known = known is not None and version == known.as_read.resource_version
        state = None if event.kind == "BOOKMARK" or is_known else self._decode(event.object)
        with self._lock:
            self._events += 1
            self._problem = None
            if isinstance(version, str) and version:
                self._version = self._reached = version
            if state is None or not state.name:
                return
            known = self._nodes.get(state.name)
            if known is not None and not _is_newer(version or "", known.as_read.resource_version):
                return
            if event.kind == "DELETED":
                if self._nodes.pop(state.name, None) is not None:
                    self._tell(differs=True)
            else:
                self._put(state)

    def _put(self, state: NodeState, expected: NodeState | None = None) -> None:
        before = self._nodes.get(state.name)
        self._nodes[state.name] = state = witnessed(before, state, time.time_ns())
        self._tell(before is None or _differ(expected or before, state))

    def _tell(self, differs: bool) -> None:
        self._snapshot = None
        if differs:
            self._on_change()


def _is_newer(version: str, than: str, *, if_unknown: bool = True) -> bool:
    """Order two resourceVersions; every server in use counts upwards, another could not be ordered."""
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return if_unknown


def _differ(before: NodeState, after: NodeState) -> bool:
    same_version = replace(after.as_read, resource_version=before.as_read.resource_version)
    return before != replace(after, as_read=same_version)


def witnessed(before: NodeState | None, state: NodeState, now_ns: int) -> NodeState:
    """The newer state of a Node, with what is known from the one before it about when its boot began.

    While the kubelet of the old boot still reported, the new one had not begun. Its report bears the node's
    own time, which may be ahead: the report was made before ``now_ns``, our time, all the same.
    """
    if before is None or before.machine.boot_id is None or state.machine.boot_id is None:
        return state
    if replace(before.machine, boot_id=state.machine.boot_id) != state.machine:
        return state  # another Node, or another machine: its boot may be older
    known_ns = before.booted_after_ns
    if before.machine.boot_id != state.machine.boot_id:
        known_ns = None if before.reported_ns is None else min(before.reported_ns, now_ns)
    return state if known_ns is None else replace(state, booted_after_ns=known_ns)


class ResourceSlices:
    """Which nodes have a ResourceSlice of NVIDIA's driver, that is a GPU by dynamic resource allocation.

    Such a node may bear no label and no capacity of its own. The slices are listed rarely and kept by name. A
    node that gains its first one is known after some minutes; an Xid of its kernel log proves its GPU at
    once. For one thread, but for ``nodes``.
    """

    def __init__(self, client: ReadOnlyKubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds."""
        self._client = client
        self._clock = clock
        self._nodes: frozenset[str] = frozenset()
        self._due_seconds = float("-inf")

    def nodes(self) -> frozenset[str]:
        """Their names, as last listed. Sends nothing; any thread may call it."""
        return self._nodes

    def refresh(self) -> None:
        """List them again if that is due, at most once an interval. Raises nothing.

        A server without this API, or that does not let us list them, has none.
        """
        if self._clock() < self._due_seconds:
            return
        wait_seconds = SLICES_SECONDS
        try:
            self._nodes = self._listed()
        except KubeForbidden:
            self._nodes = frozenset()
        except KubeError:
            wait_seconds = SLICES_AGAIN_SECONDS
        self._due_seconds = self._clock() + wait_seconds

    def _listed(self) -> frozenset[str]:
        for path in RESOURCE_SLICES_PATHS:
            with suppress(KubeNotFound):  # an older server has an older version, or none
                params = {"fieldSelector": f"spec.driver={GPU_DRIVER}"}
                return frozenset(filter(None, self._client.list_pages(path, _node_of, params).items))
        return frozenset()


def listed_slices(client: ReadOnlyKubeClient) -> Callable[[], frozenset[str]]:
    """The nodes that have a ResourceSlice now, for a decoder that is used once."""
    slices = ResourceSlices(client)
    slices.refresh()
    return slices.nodes


def _node_of(piece: dict[str, object]) -> str:
    spec = piece.get("spec")
    name = spec.get("nodeName") if isinstance(spec, dict) else None
    return name if isinstance(name, str) else ""
