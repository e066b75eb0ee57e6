"""The errors of requests to servers: the API server, Loki, Prometheus, the receivers of notifications.

``str(error)`` says what failed on which server. The edges do not import one another, so what they share is
here: why a request had no answer, and the class of an error. An edge has subclasses of its own where its
callers tell cases apart.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import ClassVar, TypeVar

from konductor_like.model.text import excerpt
from konductor_like.model.time import retry_after_seconds as seconds_of

Kind = TypeVar("Kind")
Error = TypeVar("Error", bound="EdgeError")


class Cause(StrEnum):
    """Why a request had no answer."""

    UNTRUSTED = "the certificate is not trusted"
    TLS = "TLS failed"
    NO_CONNECTION = "no connection in time"
    LATE = "no complete answer in time"
    NAME = "the host name cannot be resolved"
    PROXY = "the proxy refused"
    UNREACHABLE = "cannot connect"
    PACKED = "the answer's compression is broken"
    REQUEST = "the settings give no valid request"
    DROPPED = "the connection was dropped before a complete answer came"


class EdgeError(Exception):
    """A request that a server did not answer as it should."""

    edge: ClassVar[str] = "the server"
    """The name of the server, for messages."""
    transient: bool = False
    """Whether the same request may succeed later."""
    hint: str = ""
    """What a person does next."""
    cause: Cause | None = None
    """Why there was no answer; None for an answer."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        transient: bool | None = None,
        retry_after_seconds: float | None = None,
        retry_after: str | None = None,
        outcome_unknown: bool = False,
    ) -> None:
        """Without ``hint`` and ``transient``, those of the class count.

        ``retry_after_seconds``: the wait that the server asked for; ``retry_after``: the header with it.
        ``outcome_unknown``: the request was a write, and the server may have carried it out although no
        usable answer came.
        """
        super().__init__(message)
        self.hint = self.hint if hint is None else hint
        self.transient = self.transient if transient is None else transient
        self.retry_after_seconds = seconds_of(retry_after) if retry_after else retry_after_seconds
        self.outcome_unknown = outcome_unknown


_CAUSES: Mapping[Cause, set[str]] = {
    Cause.UNTRUSTED: {"SSLCertVerificationError"},
    Cause.TLS: {"SSLError"},
    Cause.NAME: {"gaierror", "NameResolutionError"},
    Cause.UNREACHABLE: {"ConnectError", "NewConnectionError", "OSError"},
    Cause.NO_CONNECTION: {"ConnectTimeout", "PoolTimeout", "ConnectTimeoutError"},
    Cause.LATE: {"TimeoutException", "ReadTimeoutError"},
    Cause.PROXY: {"ProxyError"},
    Cause.PACKED: {"DecodingError", "DecodeError"},
    Cause.REQUEST: {"LocalProtocolError", "UnsupportedProtocol", "InvalidURL", "UnicodeError"}
    | {"LocationValueError", "URLSchemeUnknown"},
}
"""The classes of httpx, urllib3 and the standard library, by name: this layer imports none of them."""
_AT_ANY_DEPTH = (Cause.UNTRUSTED, Cause.TLS, Cause.NAME)
"""What the libraries wrap in an error of their own."""


def from_exception(
    error: Exception,
    place: str,
    kinds: Mapping[Cause, Callable[..., Error]],
    *,
    quotes: bool = True,
    write: bool = False,
    sent: bool = False,
) -> Error:
    """Return the error of an edge for a request without an answer; ``place`` begins its message.

    Without ``quotes`` the message cannot quote the address with its password. ``write``: the request changes
    something. ``sent``: it was sent before.
    """
    chain: list[BaseException] = [error]
    while before := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(before)
    names = [{each.__name__ for each in type(one).__mro__} for one in chain]
    every = set[str]().union(*names)
    causes = (cause for cause, of in _CAUSES.items() if of & (every if cause in _AT_ANY_DEPTH else names[0]))
    cause = next(causes, Cause.DROPPED)
    system = [one.strerror for one in chain if isinstance(one, OSError) and one.strerror]
    tls = [one for one in chain if isinstance(one, ssl.SSLError)]
    words = [place, cause.value]
    if cause in (Cause.PROXY, Cause.UNREACHABLE) and system:
        words.append(excerpt(system[-1]))
    elif quotes and tls:
        said = getattr(tls[-1], "reason", None) or str(tls[-1])
        words.append(excerpt(getattr(tls[-1], "verify_message", "") or said.replace("_", " ").lower()))
    elif quotes and error.args and cause not in (Cause.NO_CONNECTION, Cause.LATE, Cause.NAME, Cause.DROPPED):
        words.append(excerpt(str(error.args[-1]).rsplit(">: ", 1)[-1]))  # after urllib3's name of an object
    sent = sent or cause in (Cause.LATE, Cause.PACKED, Cause.DROPPED)
    found = kinds[cause](": ".join(words), outcome_unknown=write and sent)
    found.cause = cause
    return found


def kind_of(status: int, kinds: Mapping[int, Kind]) -> Kind:
    """Return the kind for an HTTP status: its own, or its hundred's (4 for all of 4xx), or that of 0."""
    return kinds.get(status) or kinds.get(status // 100) or kinds[0]
