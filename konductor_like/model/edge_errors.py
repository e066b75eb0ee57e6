"""The base of the errors of requests to servers: the API server, Loki, the receivers of notifications.

``str(error)`` says what failed on which server. The edges do not import one another, so their base is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Kind = TypeVar("Kind")


class EdgeError(Exception):
    """A request that a server did not answer as it should."""

    transient: bool = False
    """Whether the same request may succeed later."""
    hint: str = ""
    """What a person does next."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        transient: bool | None = None,
        retry_after_seconds: float | None = None,
        outcome_unknown: bool = False,
    ) -> None:
        """Without ``hint`` and ``transient``, those of the class count.

        ``retry_after_seconds``: the wait that the server asked for. ``outcome_unknown``: the request was a
        write, and the server may have carried it out although no usable answer came.
        """
        super().__init__(message)
        self.hint = self.hint if hint is None else hint
        self.transient = self.transient if transient is None else transient
        self.retry_after_seconds = retry_after_seconds
        self.outcome_unknown = outcome_unknown


def kind_of(status: int, kinds: Mapping[int, type[Kind]]) -> type[Kind]:
    """Return the class for an HTTP status: its own, or its hundred's (4 for all of 4xx), or that of 0."""
    return kinds.get(status) or kinds.get(status // 100) or kinds[0]
