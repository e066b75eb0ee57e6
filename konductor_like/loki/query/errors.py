"""The ways in which Loki fails to answer, with messages for people.

::

    LokiError
    ├── LokiMisconfigured     a setting cannot be used: a missing file, an unreadable certificate
    ├── LokiUnreachable       no connection: refused, name not found, TLS
    ├── LokiTimeout           connected, but no complete answer in time (also Loki's own 504)
    │   └── LokiDropped         the connection was dropped before a complete answer came (a gateway's 502)
    ├── LokiRefused           400: the query or a setting is wrong; Loki's message names the reason
    ├── LokiUnauthorized      401, 403
    ├── LokiOverloaded        429, with the wait that Loki asked for
    ├── LokiUnavailable       500, 503: starting, stopping, short of ingesters
    ├── LokiBadAnswer         an answer, but not Loki's: HTML, truncated JSON, another shape, 404, a redirect
    │   └── LokiAnswerTooLarge  more bytes than Loki can hand over, or than we accept; fewer entries help
    └── LokiStopped           the process is stopping, and does not ask again

``str(error)`` says what failed and where, ``error.hint`` what to do, and ``error.transient`` whether the same
request may succeed later.
"""

# ruff: noqa: N818 - the names say what happened; the base class says that they are errors

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

import httpx

from konductor_like.model import edge_errors
from konductor_like.model.edge_errors import Cause, EdgeError, kind_of
from konductor_like.model.text import excerpt

_LIMIT = re.compile(r"max entries limit per query exceeded.*\((\d+) > (\d+)\)")
_TOO_MUCH = re.compile(
    r"would read too many bytes|too large to execute on a single querier|time range exceeds the limit"
)
_TOO_LARGE = re.compile(
    # Loki's frontend writes the first message, gRPC between Loki's parts the others.
    r"larger than the max message size|(?:received|trying to send) message larger than max"
)
_TLS_HINT = (
    "Set KONDUCTOR_LOKI_CA_FILE to the authority that signed Loki's certificate. If Loki asks for a client "
    "certificate, set KONDUCTOR_LOKI_CLIENT_CERT_FILE and KONDUCTOR_LOKI_CLIENT_KEY_FILE. If Loki has no "
    "TLS, use http:// in LOG_ENDPOINT."
)
_PROXY_HINT = "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY."
_OF_THE_REQUEST = re.compile("request entity too large", re.IGNORECASE)
"""A proxy's message about a query that is too long for the proxy; fewer entries would not help."""
_DNS_HINT = (
    "This machine cannot resolve the host name in LOG_ENDPOINT. Outside the cluster, use a port-forward and "
    "LOG_ENDPOINT=http://localhost:3100."
)


class LokiError(EdgeError):
    """Anything that kept Loki from answering."""

    edge = "Loki"
    hint = "Check LOG_ENDPOINT and Loki's log."


class LokiMisconfigured(LokiError):
    """One of our settings cannot be used."""

    hint = "Correct the setting; `konductor-like check-config` shows all settings."


class LokiUnreachable(LokiError):
    """There is no connection."""

    transient = True
    hint = "Check that LOG_ENDPOINT is Loki's query address and that this machine can reach it."


class LokiTimeout(LokiError):
    """Connected, but no complete answer in time.

    When an answer is larger than a message between Loki's parts may be, Loki is silent until it times out,
    or drops the connection. From outside that looks like a slow Loki: fewer entries or a narrower window may
    help.
    """

    transient = True
    hint = (
        "The reader then requests fewer lines. If Loki's log says `received message larger than max`, raise "
        "server.grpc_server_max_recv_msg_size (4 MiB by default). If Loki is slow, narrow "
        "KONDUCTOR_KERNEL_SELECTOR or WATCHED_NAMESPACES, or give Loki more queriers. Keep "
        "KONDUCTOR_LOKI_TIMEOUT_SECONDS above Loki's query_timeout."
    )


class LokiDropped(LokiTimeout):
    """The connection was dropped before a complete answer came: by a restart, or over too large an answer."""


class LokiRefused(LokiError):
    """Loki understood the request and will not serve it."""

    hint = (
        "Loki's message names the problem. The query comes from KONDUCTOR_KERNEL_SELECTOR, "
        "KONDUCTOR_EXTRA_MATCHERS and WATCHED_NAMESPACES."
    )

    @property
    def allowed_limit(self) -> int | None:
        """The tenant's ``max_entries_limit_per_query``, where asking for more was the reason."""
        match = _LIMIT.search(str(self))
        return int(match[2]) if match else None

    @property
    def asks_for_less(self) -> bool:
        """Whether a narrower window would have been served."""
        return _TOO_MUCH.search(str(self)) is not None


class LokiUnauthorized(LokiError):
    """Loki, or a proxy before it, does not accept our credentials."""

    hint = (
        "If Loki says `no org id`, set KONDUCTOR_LOKI_TENANT. Behind a proxy, set "
        "KONDUCTOR_LOKI_BEARER_TOKEN_FILE, KONDUCTOR_LOKI_BEARER_TOKEN, or KONDUCTOR_LOKI_USERNAME and "
        "KONDUCTOR_LOKI_PASSWORD. A renewed token in the file needs no restart."
    )


class LokiOverloaded(LokiError):
    """Loki has too many queries already."""

    transient = True
    hint = "Raise KONDUCTOR_POLL_INTERVAL_SECONDS, or give Loki more queriers."


class LokiUnavailable(LokiError):
    """Loki failed, or is starting or stopping."""

    transient = True
    hint = "Check Loki's pods and log. Reading continues from the same position when Loki answers."


class LokiBadAnswer(LokiError):
    """Something answered, but not as Loki does."""

    hint = (
        "LOG_ENDPOINT may point at another server, such as Grafana, a login page or a gateway without the "
        "query paths. `curl $LOG_ENDPOINT/loki/api/v1/status/buildinfo` must return JSON."
    )


class LokiAnswerTooLarge(LokiBadAnswer):
    """The answer is larger than Loki can hand over, or than we keep in memory."""

    hint = (
        "The reader then requests fewer lines. To allow larger answers, raise "
        "server.grpc_server_max_recv_msg_size and server.grpc_server_max_send_msg_size in Loki's "
        "configuration (4 MiB by default)."
    )


class LokiStopped(LokiError):
    """The process began to stop while it waited to ask again."""

    hint = "No action is needed: the next start reads the remaining lines."


LOKI_AWAY = (LokiUnreachable, LokiUnauthorized, LokiOverloaded, LokiStopped)
"""Errors after which another query would fail as well, so the poll ends."""
LOKI_DOWN = (*LOKI_AWAY, LokiUnavailable)
"""Errors of a Loki that answers nobody, so nothing that waits to be read uses up its tries."""


_BY_CAUSE: Mapping[Cause, Callable[..., LokiError]] = {
    **dict.fromkeys(Cause, LokiUnreachable),
    Cause.UNTRUSTED: partial(LokiUnreachable, hint=_TLS_HINT, transient=False),
    Cause.TLS: partial(LokiUnreachable, hint=_TLS_HINT),
    Cause.NAME: partial(LokiUnreachable, hint=_DNS_HINT),
    Cause.PROXY: partial(LokiUnreachable, hint=_PROXY_HINT),
    Cause.LATE: LokiTimeout,
    Cause.PACKED: LokiBadAnswer,
    Cause.REQUEST: LokiMisconfigured,
    Cause.DROPPED: LokiDropped,
}


def from_exception(error: Exception, place: str) -> LokiError:
    """Return the error for a request without an answer. ``place`` is Loki's URL without credentials."""
    return edge_errors.from_exception(error, place, _BY_CAUSE)


_BY_STATUS: Mapping[int, type[LokiError]] = {
    401: LokiUnauthorized,
    403: LokiUnauthorized,
    429: LokiOverloaded,
    502: LokiDropped,  # a gateway reports that its own connection broke
    504: LokiTimeout,
    4: LokiRefused,
    5: LokiUnavailable,
    0: LokiBadAnswer,
}


def from_status(response: httpx.Response, body: bytes | bytearray, place: str) -> LokiError:
    """Return the error for a status other than 200; Loki's errors are plain text, so the status decides."""
    status, headers = response.status_code, response.headers
    words = body.decode("utf-8", "replace")
    message = f"{place} answered {status}: {excerpt(words)}".removesuffix(": ")
    kind = kind_of(status, _BY_STATUS)
    if _TOO_LARGE.search(words) or (status == 413 and not _OF_THE_REQUEST.search(words)):
        kind = LokiAnswerTooLarge
    elif status in (404, 405, 501):
        kind, message = LokiBadAnswer, f"{message} (there is no Loki at this path)"
    elif kind is LokiBadAnswer and "location" in headers:
        target = headers["location"].partition("?")[0]  # its query may carry a token
        message = f"{place} redirects ({status}) to {excerpt(target)}"
    return kind(message, retry_after=headers.get("retry-after"))


def without_credentials(url: httpx.URL) -> str:
    """Return the URL without its user name and password, for messages and the log."""
    return str(url.copy_with(username=None, password=None))
