"""The stand-in Loki as one object: the API on a loopback server, with helpers for tests and the demo."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from konductor_like.sandbox.loki.api import SINGLE_TENANT, LokiApi
from konductor_like.sandbox.loki.ingest import Pushed
from konductor_like.sandbox.loki.labels import label_set, with_service_name
from konductor_like.sandbox.loki.limits import LokiLimits
from konductor_like.sandbox.loki.messages import TimedMishaps
from konductor_like.sandbox.loki.store import Entry
from konductor_like.sandbox.mishaps import Mishap, Mishaps, any_request
from konductor_like.sandbox.server import Exchange, LoopbackServer
from konductor_like.sandbox.wire import HTML, Request

_DEFAULT_LIMITS = LokiLimits()


class LokiServer:
    """A Loki on 127.0.0.1 that keeps its lines in memory. Usable as a context manager.

    Stopped and started again it is there on the same port with the same lines. ``now_ns`` is its clock, in ns
    since the epoch. ``base_path`` puts it under a path, as behind a gateway.
    """

    def __init__(
        self,
        port: int = 0,
        limits: LokiLimits = _DEFAULT_LIMITS,
        *,
        auth_enabled: bool = False,
        base_path: str = "",
        now_ns: Callable[[], int] = time.time_ns,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._api = LokiApi(limits, now_ns, auth_enabled, base_path)
        self._http = LoopbackServer(self._api.handle, port, ssl_context)
        self._http.mishaps = TimedMishaps(limits)
        self._base_path = base_path.rstrip("/")

    @property
    def url(self) -> str:
        """What ``LOG_ENDPOINT`` is set to, without a slash at its end."""
        return f"{self._http.url}{self._base_path}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._http.port

    @property
    def journal(self) -> list[Exchange]:
        """All requests so far."""
        return self._http.journal

    @property
    def mishaps(self) -> Mishaps:
        """What is yet to go wrong."""
        return self._http.mishaps

    @property
    def open_tails(self) -> int:
        """How many websockets follow the log."""
        return self._api.queries.tails.count

    def requests(self, path: str) -> list[Request]:
        """The requests so far to one path, ``/loki/api/v1/query_range`` for example."""
        wanted = f"{self._base_path}{path}"
        return [exchange.request for exchange in self.journal if exchange.request.path == wanted]

    def clear_journal(self) -> None:
        """Forget the requests so far."""
        self._http.clear_journal()

    def fail(
        self,
        mishap: Mishap,
        times: int | None = 1,
        when: Callable[[Request], bool] = any_request,
    ) -> None:
        """Let the next ``times`` requests that ``when`` picks go wrong; ``None`` means all from now on."""
        self._http.mishaps.add(mishap, times, when)

    def close_tails(self) -> None:
        """End every open tail from the server's side."""
        self._api.queries.tails.close_all()

    def push(
        self,
        labels: Mapping[str, str],
        lines: Iterable[tuple[int, str]],
        metadata: Mapping[str, str] | None = None,
        tenant: str = SINGLE_TENANT,
    ) -> None:
        """Store (time in ns, text) pairs in one stream. Raises ``LokiError`` if any was refused."""
        stored = label_set(metadata or {})
        entries = [Entry(timestamp_ns, text, stored) for timestamp_ns, text in lines]
        self._api.push([Pushed(with_service_name(labels), entries)], tenant)

    def push_otlp(self, export: object, tenant: str = SINGLE_TENANT) -> None:
        """Store an OTLP export request (:func:`otlp_body`) as the collector would send it.

        Raises ``LokiError`` if any line was refused.
        """
        self._api.push_otlp(export, tenant)

    @property
    def line_count(self) -> int:
        """How many lines the single tenant has."""
        return self._api.store().line_count

    def start(self) -> Self:
        """Listen. Raises ``OSError`` if the port is taken."""
        self._http.start()
        return self

    def stop(self) -> None:
        """Stop listening and drop every connection; the lines stay."""
        self._http.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()


HTML_ANSWER = Mishap(
    status=200,
    body="<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in</body></html>",
    content_type=HTML,
)
"""A proxy's sign-in page where JSON was expected."""

EMPTY_ANSWER = Mishap(
    status=200,
    body='{"status":"success","data":{"resultType":"streams","result":[],"stats":{"summary":'
    '{"totalBytesProcessed":0,"totalLinesProcessed":0,"totalEntriesReturned":0,"totalPostFilterLines":0}}}}',
    content_type="application/json; charset=UTF-8",
)
"""No lines although there are some: a Loki whose ingester has just been replaced (no error is told)."""
