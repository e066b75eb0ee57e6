"""The Lease, which elects the one automatic writer and stores its cursor (rules 9 and 24).

Taking, renewing and releasing the Lease are single writes guarded by its resourceVersion, so that a holder
that lost the Lease can neither renew it nor move the cursor. Another holder's Lease counts as expired when
it did not change for its duration by our own clock; times of two machines are never compared. Our own right
to write ends before that: at the renew deadline, counted from when the last successful renewal was sent.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from konductor_like.backoff import Backoff
from konductor_like.cluster.api.client import KubeClient, ReadOnlyKubeClient, lease_path, leases_path
from konductor_like.cluster.api.errors import (
    KubeConflict,
    KubeError,
    KubeNotFound,
    KubeUnavailable,
    LeadershipLost,
)
from konductor_like.cluster.api.transport import JsonObject, json_object, suspend_aware_seconds
from konductor_like.cluster.lease.annotations import (
    LeaseControls,
    LeasePayload,
    LeaseView,
    annotated,
    annotations_of,
    controls_of,
    encode_payload,
    view,
)
from konductor_like.cluster.preflight import namespace_missing
from konductor_like.model.time import micro_time

_TRIES_PER_DEADLINE = 4
"""Renewals without an answer that fit into the renew deadline: each is given up after a quarter of it."""


def read_lease(client: ReadOnlyKubeClient, namespace: str, name: str) -> LeaseView | None:
    """Read the Lease; None if it does not exist. Raises a KubeError."""
    try:
        return view(client.get(lease_path(namespace, name)))
    except KubeNotFound:
        return None


def read_controls(
    client: ReadOnlyKubeClient, namespace: str, name: str, timeout_seconds: float
) -> LeaseControls | None:
    """Read the operators' controls; None if the Lease does not exist. Raises a KubeError."""
    try:
        return controls_of(client.get(lease_path(namespace, name), timeout_seconds=timeout_seconds))
    except KubeNotFound:
        return None


@dataclass(frozen=True, slots=True)
class _Term:
    """The time since this process took the Lease."""

    acquired: str
    """The ``acquireTime`` that we wrote."""
    renewed_at: float
    """Seconds on our clock just before the last successful renewal was sent. Other processes see the renewal
    later, so they wait longer than we write."""


class LeaderLease:
    """The Lease as this process takes, renews and releases it; also the WriteDeadline. Thread-safe."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration_seconds: int,
        renew_deadline_seconds: float,
        renew_interval_seconds: float,
        clock: Callable[[], float] = suspend_aware_seconds,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        notes: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """``clock`` measures spans and must go on while the machine sleeps; ``now`` is only written.

        ``notes`` returns annotations that every write of ours to the Lease sets.
        """
        self.renew_interval_seconds = renew_interval_seconds
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_seconds = duration_seconds
        self._deadline_seconds = renew_deadline_seconds
        self._clock = clock
        self._now = now
        self._notes = notes
        self._lock = threading.Lock()
        self._term: _Term | None = None
        self._lease: JsonObject = {}
        self._observed: tuple[object, float] = (None, 0.0)

    def budget_seconds(self) -> float:
        """Return the seconds that a write may take now. Raises LeadershipLost if no write may start."""
        term = self._term
        if term is None:
            raise LeadershipLost("this process does not hold the Lease")
        left = term.renewed_at + self._deadline_seconds - self._clock()
        if left <= 0:
            raise LeadershipLost(f"the Lease could not be renewed for {self._deadline_seconds:g} s")
        return left

    def renewal_since(self, since_seconds: float) -> tuple[float, LeaseControls] | None:
        """Return when the last renewal was sent and the controls that it found; None if it is too old.

        ``since_seconds`` and the returned time are seconds on our clock.
        """
        term = self._term
        if term is None or term.renewed_at <= since_seconds:
            return None
        # A renewal sets the Lease before the term, so these controls are at least as new as the term.
        return term.renewed_at, controls_of(self._lease)

    @property
    def reference(self) -> dict[str, str]:
        """The Lease as an Event's ``involvedObject``."""
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "namespace": self._namespace,
            "name": self._name,
            "uid": str(json_object(self._lease, "metadata").get("uid", "")),
        }

    def try_acquire(self) -> LeaseView:
        """Take the Lease if that is allowed, and return what it says. Raises a KubeError.

        We may take it at once if nobody holds it, if it is ours, or if its holder is a dead process of this
        machine; otherwise after it was not renewed for its duration while we watched. Raises KubeConfigError
        if its namespace does not exist.
        """
        with self._lock:
            try:
                lease = self._client.get(self._path)
            except KubeNotFound:
                lease = None
            before = view(lease or {})
            if lease is not None and not self._may_take(before):
                return before
            sent_at = self._clock()
            try:
                self._lease = self._take(lease)
            except KubeConflict:
                return view(self._client.get(self._path))
            found = view(self._lease)
            self._term = _Term(found.acquired, sent_at)
            return replace(found, is_ours=True, program=before.program)

    def renew(self, payload: LeasePayload) -> None:
        """Renew the Lease and save what it carries, such as the cursor, in one write.

        Raises LeadershipLost if the Lease is no longer ours or the deadline has passed; otherwise the
        KubeError of the failed renewal.
        """
        with self._lock:
            try:
                self._renew(payload)
            except LeadershipLost:
                self._term = None
                raise

    def release(self, payload: LeasePayload) -> bool:
        """Save what the Lease carries, and make it free for the next holder. Return whether that worked.

        No write may start once this call has begun. A Lease that could not be released expires.
        """
        with self._lock:
            term, self._term = self._term, None
            if term is None:
                return False
            try:
                # Like client-go: some candidates wait for the duration to pass even if there is no holder.
                self._save(term, payload, holderIdentity="", leaseDurationSeconds=1)
            except KubeError:
                return False
            return True

    @property
    def _path(self) -> str:
        return lease_path(self._namespace, self._name)

    @property
    def _patience_seconds(self) -> float:
        return self._deadline_seconds / _TRIES_PER_DEADLINE

    def _may_take(self, seen: LeaseView) -> bool:
        if seen.holder in ("", self._identity) or is_dead(seen.holder):
            return True
        # Only fields that a holder writes show a renewal: a person may have changed an annotation.
        sign = (seen.holder, seen.acquired, seen.renewed, seen.transitions)
        if self._observed[0] != sign:
            self._observed = (sign, self._clock())
        unchanged_seconds = self._clock() - self._observed[1]
        return unchanged_seconds >= (seen.duration_seconds or self._duration_seconds)

    def _take(self, lease: JsonObject | None) -> JsonObject:
        """Make us the holder, in a new Lease if there is none. Return the server's answer."""
        before = view(lease or {})
        changed_hands = before.holder not in ("", self._identity)
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration_seconds,
            "acquireTime": micro_time(self._now()),
            "leaseTransitions": before.transitions + (1 if changed_hands else 0),
        }
        if lease is not None:
            wanted = self._wanted(lease, LeasePayload(), spec)
            return self._client.replace(self._path, wanted, timeout_seconds=self._patience_seconds)
        metadata = {"name": self._name, "namespace": self._namespace}
        new = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        try:
            return self._create(self._wanted(new, LeasePayload(), spec))
        except KubeNotFound as error:
            raise namespace_missing(self._namespace) from error

    def _wanted(self, lease: JsonObject, payload: LeasePayload, spec: JsonObject) -> JsonObject:
        """Return the Lease with a new renew time and these fields of its spec, and else unchanged."""
        spec = {**json_object(lease, "spec"), "renewTime": micro_time(self._now()), **spec}
        notes = {**encode_payload(payload, annotations_of(lease)), **self._notes()}
        return annotated({**lease, "spec": spec}, notes)

    def _renew(self, payload: LeasePayload) -> None:
        self.budget_seconds()
        term, sent_at = self._term, self._clock()
        if term is None:
            raise LeadershipLost("this process does not hold the Lease")
        try:
            self._save(term, payload)
        except (KubeNotFound, KubeUnavailable):
            # For the update of a deleted Lease some servers answer 404 and others 500.
            if read_lease(self._client, self._namespace, self._name) is not None:
                raise
            self._recreate(payload)
        self._term = _Term(term.acquired, sent_at)

    def _save(self, term: _Term, payload: LeasePayload, **spec: object) -> None:
        """Replace the Lease. If somebody changed it meanwhile, read it and, if still ours, try again."""
        timeout = self._patience_seconds
        try:
            wanted = self._wanted(self._lease, payload, spec)
            self._lease = self._client.replace(self._path, wanted, timeout_seconds=timeout)
        except KubeConflict:
            self._read_again(term)
            wanted = self._wanted(self._lease, payload, spec)
            self._lease = self._client.replace(self._path, wanted, timeout_seconds=timeout)

    def _read_again(self, term: _Term) -> None:
        """Read the Lease that somebody changed. Raises LeadershipLost if it is no longer ours."""
        try:
            lease = self._client.get(self._path)
        except KubeNotFound as error:
            raise LeadershipLost("the Lease was deleted") from error
        seen = view(lease)
        if (seen.holder, seen.acquired) != (self._identity, term.acquired):
            raise LeadershipLost(f"the Lease is now held by {seen.holder or 'nobody'}")
        self._lease = lease

    def _recreate(self, payload: LeasePayload) -> None:
        """Create the deleted Lease again, with the cursor. Raises LeadershipLost if another process did."""
        wanted = self._wanted(self._lease, payload, {})
        server_set = ("resourceVersion", "uid", "creationTimestamp", "managedFields")
        metadata = {name: value for name, value in wanted["metadata"].items() if name not in server_set}
        try:
            self._lease = self._create({**wanted, "metadata": metadata})
        except KubeConflict as error:
            raise LeadershipLost("the Lease was deleted, and another process created it again") from error

    def _create(self, wanted: JsonObject) -> JsonObject:
        return self._client.create(leases_path(self._namespace), wanted, self._patience_seconds)


class LeaseKeeper:
    """Renews the Lease at its interval, with the newest cursor and notes, in a thread of its own."""

    def __init__(
        self,
        lease: LeaderLease,
        newest: Callable[[], LeasePayload],
        on_loss: Callable[[str], object],
    ) -> None:
        """``on_loss`` is called once, with the reason, in the keeper's thread; then the keeper ends."""
        self._lease = lease
        self._newest = newest
        self._on_loss = on_loss
        self._backoff = Backoff(first_seconds=0.5, most_seconds=lease.renew_interval_seconds)
        self._stopping = threading.Event()
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Start renewing."""
        self._thread.start()

    def renew_soon(self) -> None:
        """Renew now, because a restart must not lose what is new. May be called from any thread."""
        self._due.set()

    def stop(self) -> None:
        """Stop renewing, and wait for a renewal that has begun."""
        self._stopping.set()
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        failures, wait = 0, self._lease.renew_interval_seconds
        while True:
            self._due.wait(wait)
            self._due.clear()
            if self._stopping.is_set():
                return
            try:
                self._lease.renew(self._newest())
                failures, wait = 0, self._lease.renew_interval_seconds
            except LeadershipLost as error:
                self._on_loss(f"{error}.")
                return
            except KubeError:
                failures += 1
                wait = self._backoff.seconds(failures)
            except Exception as error:
                self._on_loss(f"the process stopped renewing the Lease: {error}.")
                raise


_DEAD_STATES = frozenset("ZX")
"""The kernel's letters for a zombie and a dead process."""


_NO_PLACE = uuid.uuid4().hex[:16]
"""The random text in the identity of a process for which :func:`_place` has none; it stays the same."""


def own_identity(environ: Mapping[str, str] | None = None) -> str:
    """Return the identity of this process.

    In a pod it is ``<pod>_<uid>``, elsewhere ``<host>_<hash>_<pid>_<start time>``; see ``_place`` for the
    hash.
    """
    environ = os.environ if environ is None else environ
    pod, uid = environ.get("POD_NAME"), environ.get("POD_UID")
    if pod and uid:
        return f"{pod}_{uid}"
    host, pid = socket.gethostname() or "localhost", os.getpid()
    # Without /proc a random text takes the place of the hash: is_dead then never finds a match.
    place = _place() or _NO_PLACE
    _, start = _state_and_start(pid) or ("", "0")
    return f"{host}_{place}_{pid}_{start}"


def is_dead(identity: str) -> bool:
    """Whether this is a process of this machine, boot and process namespace, and has ended."""
    parts = identity.rsplit("_", 3)
    if len(parts) != 4 or parts[1] != _place():
        return False
    pid, start = parts[2], parts[3]
    if not (pid.isdecimal() and start.isdecimal() and 0 < int(pid) < 1 << 31):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # the process exists, and belongs to another user
    found = _state_and_start(int(pid))
    if found is None:
        return False  # the process exists, and /proc hides it from us
    return found[0] in _DEAD_STATES or found[1] != start


def _place() -> str | None:
    """Return a hash of this boot and process namespace; None if the kernel does not show them."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
    return hashlib.sha256(f"{boot_id} {namespace}".encode()).hexdigest()[:16]


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """Return the state letter and the start time of a process (proc(5), fields 3 and 22)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else None
