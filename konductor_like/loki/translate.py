"""httpx's exceptions and HTTP statuses become the errors of :mod:`konductor_like.loki.errors`."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from konductor_like.loki.errors import (
    LokiAnswerTooLarge,
    LokiBadAnswer,
    LokiDropped,
    LokiError,
    LokiMisconfigured,
    LokiOverloaded,
    LokiRefused,
    LokiTimeout,
    LokiUnauthorized,
    LokiUnavailable,
    LokiUnreachable,
    says_too_large,
    shown,
)

_TLS_HINT = (
    "Set KONDUCTOR_LOKI_CA_FILE to the authority that signed Loki's certificate, and "
    "KONDUCTOR_LOKI_CLIENT_CERT_FILE with KONDUCTOR_LOKI_CLIENT_KEY_FILE where Loki asks for one; a server "
    "without TLS needs http:// in LOG_ENDPOINT."
)
_LONGEST_WAIT_SECONDS = 300.0
"""Of a longer ``Retry-After`` so much is kept: nobody sees a fault meanwhile."""

_PROXY_HINT = "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY."
_OF_THE_REQUEST = re.compile("request entity too large", re.IGNORECASE)
"""A proxy says so of a query that is too long for it; asking for fewer entries would not help."""
_OUR_REQUEST = (httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeError)
_DNS_HINT = (
    "The host name in LOG_ENDPOINT is not known here. Outside the cluster, use a port-forward and "
    "LOG_ENDPOINT=http://localhost:3100."
)


def from_exception(error: Exception, place: str) -> LokiError:
    """Why no answer came. ``place`` names Loki's URL without credentials."""
    causes = list(_chain(error))
    if tls := next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None):
        return _tls(tls, place)
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return LokiUnreachable(f"{place}: no connection in time")
    if isinstance(error, httpx.TimeoutException):
        return LokiTimeout(f"{place}: no complete answer in time")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return LokiUnreachable(f"{place}: the host name cannot be resolved", _DNS_HINT)
    if isinstance(error, httpx.ProxyError):
        return LokiUnreachable(f"{place}: the proxy refused: {shown(str(error))}", _PROXY_HINT)
    if isinstance(error, httpx.ConnectError):
        return LokiUnreachable(f"{place}: cannot connect: {shown(_reason(causes))}")
    if isinstance(error, httpx.DecodingError):
        return LokiBadAnswer(f"{place}: the answer's compression is broken: {shown(str(error))}")
    if isinstance(error, _OUR_REQUEST):
        return LokiMisconfigured(f"{place}: no request can be made of the settings: {shown(str(error))}")
    return LokiDropped(f"{place}: the connection was dropped before a complete answer came")


def from_status(response: httpx.Response, body: bytes | bytearray, place: str) -> LokiError:
    """What an answer other than 200 means. Loki's errors are plain text, so only the status classifies."""
    status = response.status_code
    words = body.decode("utf-8", "replace")
    said = f"{place} answered {status}: {shown(words)}".removesuffix(": ")
    if status in (401, 403):
        return LokiUnauthorized(said)
    if says_too_large(words) or (status == 413 and not _OF_THE_REQUEST.search(words)):
        return LokiAnswerTooLarge(said)
    if status == 429:
        return LokiOverloaded(said, _retry_after_seconds(response.headers))
    if status == 504:
        return LokiTimeout(said)
    if status == 502:
        return LokiDropped(said)  # a gateway says so of the connection behind it
    if status >= 500:
        return LokiUnavailable(said)
    if status in (404, 405):
        return LokiBadAnswer(f"{said} (there is no Loki at this path)")
    if 400 <= status < 500:
        return LokiRefused(said, words)
    if "location" in response.headers:
        return LokiBadAnswer(f"{place} redirects ({status}) to {_target(response.headers['location'])}")
    return LokiBadAnswer(said)


def without_credentials(url: httpx.URL) -> str:
    """The URL as it may be shown and logged."""
    return str(url.copy_with(username=None, password=None))


def _tls(error: ssl.SSLError, place: str) -> LokiUnreachable:
    if isinstance(error, ssl.SSLCertVerificationError):
        message = f"{place}: TLS failed: {shown(error.verify_message)}"
        return LokiUnreachable(message, _TLS_HINT, transient=False)
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return LokiUnreachable(f"{place}: TLS failed: {shown(reason)}", _TLS_HINT)


def _reason(causes: list[BaseException]) -> str:
    """The operating system's own words are the most telling; the deepest cause has them."""
    for cause in reversed(causes):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    return str(causes[0])


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def _target(location: str) -> str:
    # A redirect's query may carry a token.
    return shown(location.partition("?")[0])


def _retry_after_seconds(headers: httpx.Headers) -> float | None:
    """``Retry-After``, given as seconds or as a date; a date is taken by the server's own clock."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), _LONGEST_WAIT_SECONDS)
    until = _date(value)
    if until is None:
        return None
    seconds = (until - (_date(headers.get("date", "")) or datetime.now(UTC))).total_seconds()
    return min(max(0.0, seconds), _LONGEST_WAIT_SECONDS)


def _date(value: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
