"""Loki's HTTP API: which path does what, for whom, and how a refusal looks."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable

from konductor_like.sandbox.loki import params
from konductor_like.sandbox.loki.index import Index
from konductor_like.sandbox.loki.ingest import Pushed, ingest
from konductor_like.sandbox.loki.limits import LokiError, LokiLimits
from konductor_like.sandbox.loki.otlp import read_export, streams_of
from konductor_like.sandbox.loki.push import parse_push
from konductor_like.sandbox.loki.queries import Queries
from konductor_like.sandbox.loki.store import Store
from konductor_like.sandbox.wire import JSON, Reply, Request

SINGLE_TENANT = "fake"
"""The tenant of everybody while ``auth_enabled`` is off."""

Answer = Callable[[Request, Store, str], Reply]

_VALUES_PATH = re.compile(r"/loki/api/v1/label/([^/]+)/values")
_NOT_FOUND = Reply.of_text("404 page not found\n", 404)


class LokiApi:
    """Answers requests. ``now_ns`` is its clock. Called from many threads at once."""

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
        self._index = Index(limits, now_ns)
        self._routes: dict[str, tuple[str, Answer]] = {
            "/ready": ("GET", _ready),
            "/flush": ("POST", _flush),
            "/loki/api/v1/status/buildinfo": ("GET", _build_info),
            "/loki/api/v1/push": ("POST", self._push),
            "/otlp/v1/logs": ("POST", self._push_otlp),
            "/loki/api/v1/query_range": ("GET POST", self.queries.over_range),
            "/loki/api/v1/query": ("GET POST", self.queries.at_instant),
            "/loki/api/v1/tail": ("GET", self.queries.tail),
            "/loki/api/v1/label": ("GET POST", self._index.labels),
            "/loki/api/v1/labels": ("GET POST", self._index.labels),
            "/loki/api/v1/series": ("GET POST", self._index.series),
            "/loki/api/v1/index/stats": ("GET POST", self._index.stats),
        }

    def handle(self, request: Request) -> Reply:
        """Answer one request."""
        if not request.path.startswith(f"{self._base_path}/"):
            return _NOT_FOUND
        path = request.path.removeprefix(self._base_path)
        methods, answer = self._route(path)
        if answer is None:
            return _NOT_FOUND
        if request.method not in methods.split():
            return Reply(405)
        try:
            tenant = self._tenant(request, path)
            return answer(params.with_form(request), self.store(tenant), tenant)
        except LokiError as error:
            return Reply.of_text(error.message, error.status)

    def store(self, tenant: str = SINGLE_TENANT) -> Store:
        """The lines of one tenant."""
        with self._stores_lock:
            return self._stores[tenant]

    def push(self, pushed: list[Pushed], tenant: str = SINGLE_TENANT) -> None:
        """Store lines. Raises ``LokiError`` if any was refused."""
        ingest(self.store(tenant), pushed, self._limits, self._now_ns(), tenant)

    def push_otlp(self, export: object, tenant: str = SINGLE_TENANT) -> None:
        """Store the lines of an export request. Raises ``LokiError`` if any was refused."""
        self.push(streams_of(export, self._limits.promoted_attributes, self._now_ns()), tenant)

    def _route(self, path: str) -> tuple[str, Answer | None]:
        values = _VALUES_PATH.fullmatch(path)
        if values:
            return "GET", lambda request, store, _tenant: self._index.label_values(request, store, values[1])
        return self._routes.get(path, ("", None))

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
            # An exporter gives up on 500 and tries 503 again.
            status = 503 if error.status == 500 else error.status
            return Reply(status, _protobuf_status(error.message), "application/octet-stream")
        return Reply(204)


def _protobuf_status(message: str) -> bytes:
    """A ``google.rpc.Status`` with only its message, which is how OTLP errors come back."""
    text = message.encode()
    length, head = len(text), bytearray(b"\x12")
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*head, length]) + text


def _ready(_request: Request, _store: Store, _tenant: str) -> Reply:
    return Reply.of_text("ready\n")


def _flush(_request: Request, _store: Store, _tenant: str) -> Reply:
    """Nothing to do: all lines are in memory, where every query finds them."""
    return Reply(204)


def _build_info(_request: Request, _store: Store, _tenant: str) -> Reply:
    names = ("version", "revision", "branch", "buildUser", "buildDate", "goVersion")
    return Reply.of_json({**dict.fromkeys(names, ""), "version": "sandbox"}, content_type=JSON)
