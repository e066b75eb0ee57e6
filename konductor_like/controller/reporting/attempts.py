"""Remembers how the controller's last attempts went; each renewal writes them on the Lease."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError, KubeForbidden, refused_right
from konductor_like.cluster.preflight import Permission, missing_permissions
from konductor_like.model.attempts import Attempt, Doing
from konductor_like.model.text import clipped, listed, printable

ERROR_CHARS = 160
"""Characters of one error, at most."""
RIGHTS_NAMED = 4
"""Missing rights that the error names; it counts the others."""
SILENT_SECONDS = 15.0
"""Seconds without an answer of Loki after which its silence is told. Most slow queries take less, and the
answer to any other query ends the silence."""
_ADDRESS = re.compile(r"( at)? ?\b[a-z][a-z0-9+.-]*://\S*[^\s:,;.)]")
"""A URL. An address on the Lease would be read by everybody who may use ``status``."""


class AttemptLog:
    """The last attempt of each kind of request. Thread-safe."""

    def __init__(
        self,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        silent_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``silent_seconds`` returns for how long Loki has answered nothing; 0 after any answer."""
        self._now = now
        self._silent_seconds = silent_seconds
        self._lock = threading.Lock()
        self._latest: dict[Doing, Attempt] = {}

    def note(self, doing: Doing, error: Exception | str | None = None) -> None:
        """Note an attempt that failed, or without an error one that succeeded."""
        now = self._now().replace(microsecond=0)
        with self._lock:
            before = self._latest.get(doing, Attempt())
            failed = Attempt(before.ok, before.since or now, error_words(error)) if error else None
            self._latest[doing] = failed or Attempt(now)

    def latest(self) -> Mapping[Doing, Attempt]:
        """Return the last attempt of each kind that was tried.

        A query of a Loki that accepts it and is silent takes minutes to fail; it counts as failed before.
        """
        with self._lock:
            latest = dict(self._latest)
        seconds, kernel = self._silent_seconds(), latest.get(Doing.KERNEL, Attempt())
        if seconds >= SILENT_SECONDS:
            silent_since = self._now().replace(microsecond=0) - timedelta(seconds=round(seconds))
            since = min(kernel.since or silent_since, silent_since)
            latest[Doing.KERNEL] = Attempt(kernel.ok, since, kernel.error or "Loki has not answered yet")
        return latest


def error_words(error: Exception | str) -> str:
    """Return an error as a short text without addresses, such as ``patch nodes is forbidden``."""
    if isinstance(error, KubeForbidden) and (right := refused_right(error)):
        return f"{right} is forbidden"
    return clipped(printable(_ADDRESS.sub("", str(error)).strip()), ERROR_CHARS)


def note_rights(attempts: AttemptLog, client: ReadOnlyKubeClient, needed: Iterable[Permission]) -> None:
    """Ask the API server for our rights, which somebody may take while we run; note the missing ones."""
    with suppress(KubeError):
        missing = missing_permissions(client, needed)
        if missing is not None:
            attempts.note(Doing.RIGHTS, listed([str(each) for each in missing], RIGHTS_NAMED))
