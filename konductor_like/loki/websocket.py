"""Opening the websocket of Loki's ``tail``, as the same client that queries Loki."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlencode
from urllib.request import getproxies, proxy_bypass

import httpx
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.http11 import Response
from websockets.sync.client import ClientConnection, connect

from konductor_like.loki.access import authorization, fixed_headers, tls_context
from konductor_like.loki.errors import LokiBadAnswer, LokiError, shown
from konductor_like.loki.translate import from_exception, from_status, without_credentials
from konductor_like.settings import Settings

_MOST_BYTES = 8 * 2**20
"""A longer message breaks the connection; a hundred kernel lines with their labels have a tenth of it."""
_PING_SECONDS = 20.0
"""How often we make sure that the other side lives; it has as long again to answer."""
_FAREWELL_SECONDS = 0.5

_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # what goes wrong is raised here; the library's own words would say it twice


@contextmanager
def open_tail(settings: Settings, query: str, start_ns: int) -> Iterator[ClientConnection]:
    """A connection on which Loki sends lines of ``query`` as they arrive, and newer ones than ``start_ns``.

    Proxies are those that httpx takes from the environment. Raises a LokiError when none can be had.
    """
    endpoint = httpx.URL(settings.log_endpoint)
    base = without_credentials(endpoint).rstrip("/")
    place = f"Loki at {base}"
    headers = fixed_headers(settings) | authorization(settings, endpoint)
    tls = tls_context(settings)
    fields = {"query": query, "start": f"{start_ns:019d}"}
    with ExitStack() as exits:
        try:
            connection = exits.enter_context(
                connect(
                    f"ws{base.removeprefix('http')}/loki/api/v1/tail?{urlencode(fields)}",
                    ssl=tls if isinstance(tls, ssl.SSLContext) else None,
                    additional_headers=headers,
                    user_agent_header=None,
                    compression=None,
                    proxy=_proxy(endpoint),
                    open_timeout=settings.loki_connect_timeout_seconds,
                    ping_interval=_PING_SECONDS,
                    ping_timeout=_PING_SECONDS,
                    close_timeout=_FAREWELL_SECONDS,
                    max_size=_MOST_BYTES,
                    logger=_LOG,
                    create_connection=_Connection,
                )
            )
        except Exception as error:
            raise _translated(error, place) from error
        yield connection


class _AnsweredError(Exception):
    """The server answered with something other than an upgrade."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class _Connection(ClientConnection):
    def handshake(self, *args: Any, **kwargs: Any) -> None:
        """As the library's, which would follow a redirect and take our tenant's name to another host."""
        try:
            super().handshake(*args, **kwargs)
        except InvalidStatus as error:
            raise _AnsweredError(error.response) from error


def _translated(error: Exception, place: str) -> LokiError:
    match error:
        case LokiError():
            return error
        case _AnsweredError(response=response):
            answer = httpx.Response(response.status_code, headers=list(response.headers.raw_items()))
            return from_status(answer, bytes(response.body or b""), place)
        case TimeoutError():
            return from_exception(httpx.ConnectTimeout(str(error)), place)
        case OSError():
            failed = httpx.ConnectError(str(error))
            failed.__cause__ = error
            return from_exception(failed, place)
        case WebSocketException() | EOFError():
            return LokiBadAnswer(f"{place} does not speak websocket: {shown(str(error))}")
        case _:
            return LokiBadAnswer(f"{place}: its tail cannot be followed: {error!r}")


def _proxy(endpoint: httpx.URL) -> str | None:
    """The proxy that httpx would use; the library would also take one that is meant for other schemes."""
    host = f"{endpoint.host}:{endpoint.port}" if endpoint.port else endpoint.host
    if proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(endpoint.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy
