"""All Nodes, kept up to date by one watch.

The store lists the Nodes once, page by page, and then watches them from that resourceVersion on. A watch that
broke is resumed where it ended. Only if the server no longer knows that resourceVersion (410), the store
lists again. Polling Loki never lists Nodes.

After etcd was restored from a backup, resourceVersions are lower than before, and the server sends nothing to
a watch from a higher one. So after silence or an error the store asks for the present version with one small
request. If it is lower, the store lists all Nodes again, and no older state counts as newer.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from konductor_like.backoff import Backoff
from konductor_like.cluster.api.client import NODES_PATH, RESOURCE_SLICES_PATHS, ReadOnlyKubeClient
from konductor_like.cluster.api.errors import (
    KubeBadAnswer,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeNotFound,
    KubeRejected,
    KubeSelectorInvalid,
    KubeTimeout,
)
from konductor_like.cluster.api.watch import WatchEvent, WatchStream
from konductor_like.cluster.node.decoder import NodeDecoder, PageDecoder
from konductor_like.cluster.node.gpu_counts import SlicedGpus, gpus_of_slice
from konductor_like.cluster.node.managers import with_removal
from konductor_like.model import NodeState, SeenGpu, Standing
from konductor_like.model.text import excerpt

_WATCH_SECONDS = (240, 480)
"""Seconds after which the server ends a watch: a random time between these, so that clients do not all return
at once."""
_SILENCE_SECONDS = 120.0
"""Seconds of silence after which a watch is opened again. A server sends a bookmark about once a minute."""
_SHORT_SECONDS = 1.0
"""Seconds. After a watch that was shorter than this, the store waits before the next: all may be short."""
_STOP_SECONDS = 5.0
_LISTED_AT_ONCE = 250
"""Nodes in a page of which only some fields are parsed, so that it needs less memory than a whole one."""
GPU_DRIVER = "gpu.nvidia.com"
_Since = tuple[float, float]
"""Since when a watch has shown the same readiness, and the same GPUs, in seconds of the monotonic clock."""
SLICES_SECONDS = 600.0
"""Seconds between two lists of the ResourceSlices."""
SLICES_AGAIN_SECONDS = 60.0
"""Seconds until the next list of the ResourceSlices after one that failed."""


def list_nodes(
    client: ReadOnlyKubeClient,
    decode: PageDecoder,
    label_selector: str | None = None,
    *,
    cached: bool = False,
) -> dict[str, NodeState]:
    """Return the Nodes that match the label selector (by default all), by name. Raises a KubeError.

    Their ``last_writer`` is not known. ``cached`` Nodes come in half of the time, and may be a moment old:
    they are for people to read, not for writes.
    """
    params = {"labelSelector": label_selector} if label_selector else {}
    states: Sequence[NodeState]
    try:
        if cached:
            states = client.list_cached(NODES_PATH, decode, params, decode.parsed)
        else:
            params["limit"] = str(_LISTED_AT_ONCE)
            states = client.list_pages(NODES_PATH, decode, params, decode.parsed).items
    except KubeRejected as error:
        if not label_selector:
            raise
        raise KubeSelectorInvalid(
            f"the selector {excerpt(label_selector)!r} is not valid: {error}"
        ) from error
    return {state.name: state for state in states if state.name}


class NodeStore:
    """The newest known state of every Node. Thread-safe.

    ``on_change`` is called when the state that we keep of a Node changed, except when only the
    resourceVersion did (after a kubelet's status report) or when the change is our own write. It must return
    at once, and must not call the store.
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
        between: Callable[[], object] = lambda: None,
    ) -> None:
        """``slices`` are the ones that ``decode`` uses; the store refreshes them between two watches.

        ``between`` is called before each watch, every few minutes. It raises no error.
        """
        self._client = client
        self._decode = decode
        self._silence_seconds = silence_seconds
        self._backoff = backoff or Backoff()
        self.on_change = on_change
        self._slices = slices
        self._between = between
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeState] = {}
        self._since: dict[str, _Since] = {}
        self._shown: dict[str, NodeState] = {}
        """By name, what the watch showed last of a Node whose taint is gone in an answer that is ahead."""
        self._snapshot: Mapping[str, NodeState] | None = None
        self._version = ""
        self._reached = ""
        """The version of the last event or list. It is kept when ``_version`` is cleared to list again."""
        self._doubtful = False
        """Whether the last watch ended by silence or an error, so that etcd may have been restored."""
        self._events = 0
        self._problem: KubeError | None = None
        self._synced = threading.Event()
        self._stopping = threading.Event()
        self._stream: WatchStream | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that lists and watches the Nodes."""
        self._thread = threading.Thread(target=self._follow, name="nodes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end, ``_STOP_SECONDS`` at most."""
        with self._lock:
            self._stopping.set()
            stream = self._stream
        if stream is not None:
            stream.close()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)  # a server that does not answer must not keep us from ending
            self._thread = None

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait for the first complete list. Return whether it has come."""
        return self._synced.wait(timeout_seconds)

    @property
    def problem(self) -> KubeError | None:
        """The error that keeps the store from following the Nodes now; None if there is none."""
        with self._lock:
            return self._problem

    def snapshot(self) -> Mapping[str, NodeState]:
        """Return the Nodes by name. The mapping never changes; after a change there is a new one."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = MappingProxyType(dict(self._nodes))
            return self._snapshot

    def standing(self, names: Iterable[str]) -> Mapping[str, Standing]:
        """Return for how long these Nodes have not changed; none of them while they cannot be watched.

        A watch that ends and goes on from its resourceVersion misses no change. A new list may hide a change
        that was taken back, so it begins all spans again. The answer to a write may hide one, too: until the
        watch has come as far as the answer, the Node is left out.
        """
        now = time.monotonic()  # no set clock shortens a span
        with self._lock:
            found = {} if self._problem is not None else self._since
            known = [(name, found[name]) for name in names if name in found and not self._is_ahead(name)]
            return {name: Standing(now - ready, now - gpus) for name, (ready, gpus) in known}

    def apply(self, state: NodeState, written: NodeState | None = None) -> None:
        """Take over the state from an answer to us, unless the store has a newer one.

        ``on_change`` is not called if ``state`` is what we have ``written``.
        """
        with self._lock:
            known = self._nodes.get(state.name)
            newest = self._version if known is None else known.as_read.resource_version
            if _is_newer(state.as_read.resource_version, newest):
                self._put(state, written)

    def _is_ahead(self, name: str) -> bool:
        """Whether the state of a Node is newer than what the watch has shown."""
        return _is_newer(self._nodes[name].as_read.resource_version, self._reached, if_unknown=False)

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
        """List if necessary, then watch until the watch ends. Return the error that ended it, or None."""
        try:
            if self._slices is not None:
                self._slices.refresh()
            if self._version and self._doubtful and self._was_restored():
                self._version = ""
            if not self._version:
                self._list()
            self._doubtful = False
            self._between()
            self._doubtful = not self._watch()
        except KubeError as error:
            self._doubtful = True
            with self._lock:
                self._problem = None if self._stopping.is_set() else error
                if isinstance(error, KubeGone):
                    self._version = ""
            return error
        except Exception as error:  # noqa: BLE001  # reported as a problem: a dead thread would leave old states unnoticed
            mistake = KubeBadAnswer(f"cannot watch Nodes: {error!r}", hint="please report this")
            with self._lock:
                self._problem, self._version = mistake, ""
            return mistake
        return None

    def _list(self) -> None:
        listing = self._client.list_pages(NODES_PATH, self._decode)
        listed = {state.name: state for state in listing.items if state.name}
        with self._lock:
            restored = _is_newer(self._reached, listing.resource_version, if_unknown=False)
            # Keep states from answers to our own writes that are newer than the list.
            ahead = {
                name: state
                for name, state in self._nodes.items()
                if not restored
                and _is_newer(state.as_read.resource_version, listing.resource_version, if_unknown=False)
            }
            before, now_ns = self._nodes, time.time_ns()
            self._nodes = {
                name: _continued(state, before.get(name), now_ns)
                for name, state in {**listed, **ahead}.items()
            }
            listed_at = time.monotonic()
            self._since = dict.fromkeys(self._nodes, (listed_at, listed_at))
            self._shown.clear()
            self._version = self._reached = listing.resource_version
            differs = before.keys() != self._nodes.keys() or any(
                _differ(before[name], state) for name, state in self._nodes.items()
            )
            self._problem = None
            self._changed(differs or not self._synced.is_set())
        self._synced.set()

    def _was_restored(self) -> bool:
        """Whether the server's present version is lower than the last one that it sent."""
        page = self._client.list(NODES_PATH, {"limit": "1"})
        return _is_newer(self._reached, str(page["metadata"].get("resourceVersion", "")), if_unknown=False)

    def _watch(self) -> bool:
        """Watch until the watch ends. Return False if it ended by silence."""
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
                return (
                    False  # no error to report: the states may well be right, and the watch is opened again
                )
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
        # The answer to our own write may have brought this state already: do not decode it again.
        is_known = known is not None and version == known.as_read.resource_version
        is_known = is_known and name not in self._shown
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
                self._watched(state, known)  # the answer to a write has skipped it
                self._judge(state, known)
                return
            if event.kind == "DELETED":
                self._since.pop(state.name, None)
                if self._nodes.pop(state.name, None) is not None:
                    self._changed(differs=True)
            else:
                self._put(state, is_step=True)

    def _put(self, state: NodeState, expected: NodeState | None = None, *, is_step: bool = False) -> None:
        """Keep a state; ``is_step``: it is the version of the Node that follows the known one."""
        before = self._nodes.get(state.name)
        if is_step:
            self._shown.pop(state.name, None)
        elif expected is None and before is not None and before.has_key and not state.has_key:
            self._shown[state.name] = before  # the watch will show the step in which the taint went
        self._nodes[state.name] = state = _continued(state, before, time.time_ns(), is_step=is_step)
        self._watched(state, before)
        self._changed(before is None or _differ(expected or before, state))

    def _watched(self, state: NodeState, before: NodeState | None) -> None:
        known = self._since.get(state.name)
        self._since[state.name] = _unchanged_since(known, before, state, time.monotonic())

    def _judge(self, state: NodeState, known: NodeState) -> None:
        """Take from a version that the watch shows late who removed the taint that ``known`` lacks."""
        before = self._shown.pop(state.name, None)
        if before is None:
            return
        if state.has_key:
            self._shown[state.name] = state
        elif (by := with_removal(state, before, is_step=True).removed_by) and not known.has_key:
            self._nodes[state.name] = replace(known, removed_by=by)
            self._changed(differs=True)

    def _changed(self, differs: bool) -> None:
        self._snapshot = None
        if differs:
            self.on_change()


def _unchanged_since(known: _Since | None, before: NodeState | None, state: NodeState, now: float) -> _Since:
    """Return since when the watch has shown this state's readiness and GPUs."""
    if known is None or before is None or before.machine != state.machine:
        return now, now
    # A Ready condition with another lastTransitionTime was not Ready in between.
    is_as_ready = (before.ready, before.ready_since_ns) == (state.ready, state.ready_since_ns)
    return known[0] if is_as_ready else now, known[1] if before.gpus == state.gpus else now


def _is_newer(version: str, than: str, *, if_unknown: bool = True) -> bool:
    """Whether ``version`` is the later one; ``if_unknown`` if they are not numbers (they always were)."""
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return if_unknown


def _differ(before: NodeState, after: NodeState) -> bool:
    same_version = replace(after.as_read, resource_version=before.as_read.resource_version)
    return before != replace(after, as_read=same_version)


def _continued(
    state: NodeState, before: NodeState | None, now_ns: int, *, is_step: bool = False
) -> NodeState:
    """Add to a state what only the state ``before`` shows."""
    return with_removal(with_booted_after(state, before, now_ns), before, is_step=is_step)


def with_booted_after(state: NodeState, before: NodeState | None, now_ns: int) -> NodeState:
    """Add ``booted_after_ns`` to a state: a time before the start of its boot, from the state ``before``.

    If the boot id changed, the new boot began after the last report of the old boot's kubelet. That report
    has the node's own time. Its clock may be ahead, so a time later than ``now_ns`` (our time) becomes
    ``now_ns``.
    """
    if before is None or before.machine.boot_id is None or state.machine.boot_id is None:
        return state
    if replace(before.machine, boot_id=state.machine.boot_id) != state.machine:
        return state  # another Node or machine, which may have booted before
    known_ns = before.booted_after_ns
    if before.machine.boot_id != state.machine.boot_id:
        known_ns = None if before.reported_ns is None else min(before.reported_ns, now_ns)
    return state if known_ns is None else replace(state, booted_after_ns=known_ns)


class ResourceSlices:
    """The nodes with ResourceSlices of NVIDIA's driver (dynamic resource allocation), with their GPUs.

    Such a node may have neither a GPU label nor a GPU capacity. The slices are listed every ten minutes, so a
    node with a first slice is found after ten minutes at most; an Xid in its kernel log proves its GPU at
    once. For one thread, except ``nodes``.
    """

    def __init__(self, client: ReadOnlyKubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds."""
        self._client = client
        self._clock = clock
        self._nodes: Mapping[str, SlicedGpus] = {}
        self._due_seconds = float("-inf")

    def nodes(self) -> Mapping[str, SlicedGpus]:
        """Return the nodes' GPUs by the last list. Sends no request; any thread may call it."""
        return self._nodes

    def refresh(self) -> None:
        """List the slices if the last list is older than the interval. Never raises a KubeError.

        If the server lacks this API or forbids the list, there are no such nodes.
        """
        if self._clock() < self._due_seconds:
            return
        wait_seconds = SLICES_SECONDS
        try:
            self._nodes = self._listed()
        except KubeForbidden:
            self._nodes = {}
        except KubeError:
            wait_seconds = SLICES_AGAIN_SECONDS
        self._due_seconds = self._clock() + wait_seconds

    def _listed(self) -> Mapping[str, SlicedGpus]:
        for path in RESOURCE_SLICES_PATHS:
            with suppress(KubeNotFound):  # an older server has an older version of the API, or none
                params = {"fieldSelector": f"spec.driver={GPU_DRIVER}"}
                found: dict[str, dict[str, SeenGpu | None]] = {}
                for node, gpus in self._client.list_pages(path, gpus_of_slice, params).items:
                    found.setdefault(node, {}).update(gpus)
                named = {node: tuple(filter(None, gpus.values())) for node, gpus in found.items()}
                return {node: SlicedGpus(len(gpus), named[node]) for node, gpus in found.items() if node}
        return {}


def listed_slices(client: ReadOnlyKubeClient) -> Callable[[], Mapping[str, SlicedGpus]]:
    """List the ResourceSlices once, for a decoder of one command; return a function like ``nodes``."""
    slices = ResourceSlices(client)
    slices.refresh()
    return slices.nodes
