"""The stand-in Loki: its HTTP API on a loopback server, with helpers for tests and the demo."""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from konductor_like_sandbox.fault_injection import Mishap, Mishaps, any_request
from konductor_like_sandbox.http import HTML, JSON, Reply, Request
from konductor_like_sandbox.loki.ingest import Pushed, ingest
from konductor_like_sandbox.loki.labels import label_set, with_service_name
from konductor_like_sandbox.loki.limits import LokiError, LokiLimits
from konductor_like_sandbox.loki.messages import TimedMishaps
from konductor_like_sandbox.loki.push import parse_push, read_export, streams_of
from konductor_like_sandbox.loki.queries import Queries, with_form
from konductor_like_sandbox.loki.store import Entry, Store
from konductor_like_sandbox.server import Exchange, LoopbackServer

SINGLE_TENANT = "fake"
"""The tenant of every request while ``auth_enabled`` is off."""

Answer = Callable[[Request, Store, str], Reply]

_LABEL_VALUES = re.compile(r"/loki/api/v1/label/[^/]+/values")
_NOT_FOUND = Reply.of_text("404 page not found\n", 404)


class LokiApi:
    """Answers requests. ``now_ns`` is its clock. Thread-safe."""

    def __init__(
        self, limits: LokiLimits, now_ns: Callable[[], int], auth_enabled: bool = False, base_path: str = ""
    ) -> None:
        self._limits = limits
        self._now_ns = now_ns
        self._auth_enabled = auth_enabled
        self._base_path = base_path.rstrip("/")
        self._stores: dict[str, Store] = defaultdict(Store)
        self._stores_lock = threading.Lock()
        self.queries = Queries(limits, now_ns)
        self._routes: dict[str, tuple[str, Answer]] = {
            "/ready": ("GET", _ready),
            "/loki/api/v1/status/buildinfo": ("GET", _build_info),
            "/loki/api/v1/push": ("POST", self._push),
            "/otlp/v1/logs": ("POST", self._push_otlp),
            "/loki/api/v1/query_range": ("GET POST", self.queries.over_range),
            "/loki/api/v1/query": ("GET POST", self.queries.at_instant),
            "/loki/api/v1/tail": ("GET", self.queries.tail),
            "/loki/api/v1/labels": ("GET POST", self.queries.labels),
            "/loki/api/v1/index/volume": ("GET POST", self.queries.volume),
            "/loki/api/v1/label/NAME/values": ("GET POST", self.queries.label_values),
            "/config": ("GET", self._config),
        }

    def handle(self, request: Request) -> Reply:
        """Answer one request."""
        if not request.path.startswith(f"{self._base_path}/"):
            return _NOT_FOUND
        path = request.path.removeprefix(self._base_path)
        route = _LABEL_VALUES.sub("/loki/api/v1/label/NAME/values", path)
        if route not in self._routes:
            return _NOT_FOUND
        methods, answer = self._routes[route]
        if request.method not in methods.split():
            return Reply(405)
        try:
            tenant = self._tenant(request, path)
            return answer(with_form(request), self.store(tenant), tenant)
        except LokiError as error:
            return Reply.of_text(error.message, error.status)

    def store(self, tenant: str = SINGLE_TENANT) -> Store:
        """Return the lines of one tenant."""
        with self._stores_lock:
            return self._stores[tenant]

    def push(self, pushed: list[Pushed], tenant: str = SINGLE_TENANT) -> None:
        """Store lines. Raises ``LokiError`` if any line was refused."""
        ingest(self.store(tenant), pushed, self._limits, self._now_ns(), tenant)

    def push_otlp(self, export: object, tenant: str = SINGLE_TENANT) -> None:
        """Store the lines of an export request. Raises ``LokiError`` if any line was refused."""
        self.push(streams_of(export, self._limits.promoted_attributes, self._now_ns()), tenant)

    def _config(self, _request: Request, _store: Store, _tenant: str) -> Reply:
        """Return the part of Loki's configuration that these limits stand for, as YAML."""
        limits = self._limits
        return Reply.of_text(
            f"server:\n  grpc_server_max_recv_msg_size: {limits.grpc_message_bytes}\n"
            f"  grpc_server_max_send_msg_size: {limits.grpc_message_bytes}\n"
            f"limits_config:\n  max_entries_limit_per_query: {limits.max_entries_limit_per_query}\n"
            f"  max_query_length: {limits.max_query_length_seconds}s\n"
            f"  max_query_lookback: {limits.max_query_lookback_seconds}s\n"
            f"  query_timeout: {limits.query_timeout_seconds:g}s\n"
            f"  reject_old_samples_max_age: {limits.reject_old_samples_max_age_seconds}s\n"
            f"  retention_period: {limits.retention_period_seconds}s\n"
            f"compactor:\n  retention_enabled: {str(limits.retention_period_seconds > 0).lower()}\n"
        )

    def _tenant(self, request: Request, path: str) -> str:
        if not self._auth_enabled or not path.startswith(("/loki/", "/otlp/")):
            return SINGLE_TENANT
        tenant = request.headers.get("x-scope-orgid", "")
        if not tenant:
            raise LokiError(401, "no org id\n")
        if "|" in tenant:
            raise LokiError(500, "multiple org IDs present")
        return tenant

    def _push(self, request: Request, _store: Store, tenant: str) -> Reply:
        try:
            self.push(parse_push(request), tenant)
        except LokiError as error:
            return Reply.of_text(f"{error.message}\n", error.status)
        return Reply(204)

    def _push_otlp(self, request: Request, _store: Store, tenant: str) -> Reply:
        try:
            self.push_otlp(read_export(request), tenant)
        except LokiError as error:
            # An exporter gives up after 500 and retries after 503.
            status = 503 if error.status == 500 else error.status
            return Reply(status, _protobuf_status(error.message), "application/octet-stream")
        return Reply(204)


def _protobuf_status(message: str) -> bytes:
    """Return an OTLP error: a ``google.rpc.Status`` with only a message."""
    text = message.encode()
    length, head = len(text), bytearray(b"\x12")
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*head, length]) + text


def _ready(_request: Request, _store: Store, _tenant: str) -> Reply:
    return Reply.of_text("ready\n")


def _build_info(_request: Request, _store: Store, _tenant: str) -> Reply:
    names = ("version", "revision", "branch", "buildUser", "buildDate", "goVersion")
    return Reply.of_json({**dict.fromkeys(names, ""), "version": "sandbox"}, content_type=JSON)


_DEFAULT_LIMITS = LokiLimits()


class LokiServer:
    """A Loki on 127.0.0.1 that keeps its lines in memory. Usable as a context manager.

    After a stop and a start it has the same port and the same lines. ``now_ns`` is its clock, in ns since the
    epoch. With ``base_path`` its URLs begin with that path, as behind a gateway.
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
        """The value for ``LOG_ENDPOINT``, without a slash at its end."""
        return f"{self._http.url}{self._base_path}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._http.port

    @property
    def journal(self) -> list[Exchange]:
        """All requests until now."""
        return self._http.journal

    @property
    def mishaps(self) -> Mishaps:
        """The mishaps that have not happened yet."""
        return self._http.mishaps

    @property
    def open_tails(self) -> int:
        """The number of open tails."""
        return self._api.queries.tails.count

    def requests(self, path: str) -> list[Request]:
        """Return the requests until now to one path, ``/loki/api/v1/query_range`` for example."""
        wanted = f"{self._base_path}{path}"
        return [exchange.request for exchange in self.journal if exchange.request.path == wanted]

    def clear_journal(self) -> None:
        """Forget the requests until now."""
        self._http.clear_journal()

    def fail(
        self,
        mishap: Mishap,
        times: int | None = 1,
        when: Callable[[Request], bool] = any_request,
    ) -> None:
        """Inject a mishap into the next ``times`` requests that match ``when``; ``None`` means all."""
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
        """Store (time in ns, text) pairs in one stream. Raises ``LokiError`` if any line was refused."""
        stored = label_set(metadata or {})
        entries = [Entry(timestamp_ns, text, stored) for timestamp_ns, text in lines]
        self._api.push([Pushed(with_service_name(labels), entries)], tenant)

    def push_otlp(self, export: object, tenant: str = SINGLE_TENANT) -> None:
        """Store an OTLP export request (:func:`otlp_body`) as the collector would send it.

        Raises ``LokiError`` if any line was refused.
        """
        self._api.push_otlp(export, tenant)

    def forget(self, before_ns: int) -> None:
        """Drop the single tenant's lines before this time."""
        self._api.store().forget(before_ns)

    @property
    def line_count(self) -> int:
        """Return the number of lines of the single tenant."""
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
"""Return a mishap: a proxy's sign-in page in place of JSON."""

EMPTY_ANSWER = Mishap(
    status=200,
    body='{"status":"success","data":{"resultType":"streams","result":[],"stats":{"summary":'
    '{"totalBytesProcessed":0,"totalLinesProcessed":0,"totalEntriesReturned":0,"totalPostFilterLines":0}}}}',
    content_type="application/json; charset=UTF-8",
)
"""Return a mishap: an answer without lines and without an error, as after an ingester was replaced."""
