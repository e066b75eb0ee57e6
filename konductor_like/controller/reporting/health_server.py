"""``/healthz``, ``/readyz`` and ``/metrics`` on one port.

``/healthz`` fails only if the controller is stuck: while Loki is down, a restart would not help. ``/readyz``
names every dependency that keeps the controller from its work.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from konductor_like.settings import parse_listen

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

Check = Callable[[], list[str]]
"""Returns why the probe fails, a sentence for each reason; an empty list if all is well."""


class HealthServer:
    """Serves the probes in a thread of its own until ``close``."""

    def __init__(self, listen: str, registry: CollectorRegistry, *, alive: Check, ready: Check) -> None:
        """Bind at once.

        ``listen`` is ``host:port`` or ``:port``. Raises OSError if the address cannot be bound, and
        ValueError if it is no address.
        """
        host, port = parse_listen(listen)
        self._metrics = make_wsgi_app(registry)
        self._checks = {"/healthz": alive, "/readyz": ready}
        kind = _IPv6Server if ":" in host else _Server
        self._server = make_server(host, port, self._answer, kind, _QuietHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="probes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics(environ, start)
            return answer
        check = self._checks.get(path)
        if check is None:
            start("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"try /healthz, /readyz or /metrics\n"]
        reasons = check()
        status = "503 Service Unavailable" if reasons else "200 OK"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [("\n".join(reasons or ["ok"]) + "\n").encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's signature
        """Log nothing: probes come every few seconds."""
