"""A small HTTP/1.1 server on loopback, on which both stand-ins are built.

It serves HTTP, keeps a journal of the requests and plays the injected mishaps. A callable gives the answers.
It uses only the standard library.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import socketserver
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol, Self, cast
from urllib.parse import parse_qs, unquote, urlsplit

from konductor_like_sandbox.fault_injection import Drop, Mishap, Mishaps
from konductor_like_sandbox.http import BadBodyError, Reply, Request, read_body

Handler = Callable[[Request], Reply]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One line of the journal. ``status`` is 0 if the connection was closed without an answer."""

    request: Request
    status: int


class LoopbackServer:
    """Serves ``handle`` on 127.0.0.1, one thread per connection. Usable as a context manager.

    A port of 0 picks a free one, which is kept when the server is stopped and started again. With an
    ``ssl_context`` it speaks HTTPS. ``handle`` is called from many threads at once.
    """

    def __init__(self, handle: Handler, port: int = 0, ssl_context: ssl.SSLContext | None = None) -> None:
        self.handle = handle
        self.mishaps = Mishaps()
        self.stopping = threading.Event()
        """Set when the server stops; endless answers must end then."""
        self._ssl_context = ssl_context
        self._port = port
        self._journal: list[Exchange] = []
        self._journal_lock = threading.Lock()
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 before the first start if any free port will do."""
        return self._port

    @property
    def url(self) -> str:
        """The base address, without a slash at its end."""
        return f"{'https' if self._ssl_context else 'http'}://127.0.0.1:{self._port}"

    @property
    def journal(self) -> list[Exchange]:
        """All requests answered until now, in the order of their answers."""
        with self._journal_lock:
            return list(self._journal)

    def clear_journal(self) -> None:
        """Forget the requests until now."""
        with self._journal_lock:
            self._journal.clear()

    def start(self) -> Self:
        """Listen. Raises ``OSError`` if the port is taken."""
        self.stopping.clear()
        self._listener = _Listener(self, self._port, self._ssl_context)
        self._port = self._listener.server_address[1]
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.02}, name=f"sandbox-{self._port}"
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port and every connection, and wait for all threads. Harmless if not started."""
        self.stopping.set()
        if self._listener is None or self._thread is None:
            return
        self._listener.shutdown()
        self._listener.hang_up()
        self._listener.server_close()
        self._thread.join()
        self._listener = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def record(self, request: Request, status: int) -> None:
        """Write one line of the journal."""
        with self._journal_lock:
            self._journal.append(Exchange(request, status))


class Service(Protocol):
    """A stand-in that can be started and stopped."""

    def start(self) -> object: ...
    def stop(self) -> None: ...


def serve_until_interrupted(service: Service, port: int, begun: Callable[[], str]) -> int:
    """Serve until SIGINT or SIGTERM; print the text of ``begun`` once it listens. Return the exit code."""
    signals = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, signals
    )  # threads inherit this, so that only sigwait gets a signal
    try:
        service.start()
        sys.stdout.write(f"{begun()}\n")
        sys.stdout.flush()
        signal.sigwait(signals)
    except OSError as error:
        sys.stderr.write(f"cannot listen on port {port}: {error}; choose another, or 0 for any\n")
        return 1
    finally:
        service.stop()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


class _Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = False  # so that server_close waits for them
    request_queue_size = 128

    def __init__(self, owner: LoopbackServer, port: int, ssl_context: ssl.SSLContext | None) -> None:
        self.owner = owner
        self._ssl_context = ssl_context
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Connection)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self._ssl_context:  # the handshake happens at the first read, in the connection's own thread
            connection = self._ssl_context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        with self._lock:
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End every open connection, so that threads that wait on one stop waiting."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):  # below TLS, whose own shutdown would race with the reader
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "sandbox", ""
    disable_nagle_algorithm = True
    wbufsize = -1  # buffered, so that a reply is sent in one piece
    server: _Listener

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # clients may go away at any time
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        """Log nothing: the journal has the requests."""

    def _serve(self) -> None:
        owner = self.server.owner
        try:
            request = self._read()
        except BadBodyError as error:
            self.close_connection = True
            self._send(Reply.of_text(f"{error}\n", 400))
            return
        mishap = owner.mishaps.take(request) or Mishap()
        if mishap.replaces:
            self._be_silent(mishap.delay_seconds)
        elif mishap.delay_seconds:
            owner.stopping.wait(mishap.delay_seconds)
        reply = mishap.spoil(Reply() if mishap.replaces else owner.handle(request))
        self._be_silent(reply.after_seconds)
        if reply.hangs_up or mishap.drop in (Drop.SILENTLY, Drop.RESET):
            owner.record(request, 0)
            self._hang_up(reset=mishap.drop is Drop.RESET)
            return
        owner.record(request, reply.status)
        self._send(reply, halfway=mishap.drop is Drop.MIDWAY)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 -- http.server's names

    def _be_silent(self, seconds: float) -> None:
        """Wait, at most until the client goes away or the server stops: both make the socket readable."""
        if seconds:
            poll = select.poll()  # select.select() cannot watch descriptors above 1023
            poll.register(self.connection, select.POLLIN)
            poll.poll(seconds * 1000)

    def _read(self) -> Request:
        target = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Request(
            method=self.command,
            path=unquote(target.path),
            params=parse_qs(target.query, keep_blank_values=True),
            headers=headers,
            body=read_body(cast("Any", self.rfile), headers),
        )

    def _send(self, reply: Reply, halfway: bool = False) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.takeover:
            self.close_connection = True
            self.end_headers()
            self.wfile.flush()
            reply.takeover(cast("Any", self.rfile), cast("Any", self.wfile))
            return
        if reply.status not in (101, 204, 304):
            self.send_header("Content-Type", reply.content_type)
        if reply.chunks is not None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._send_chunks(reply.chunks)
            return
        if reply.status != 204:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        body = b"" if self.command == "HEAD" or reply.status == 204 else reply.body
        self.wfile.write(body[: len(body) // 2] if halfway else body)
        self.wfile.flush()
        if halfway:
            self._hang_up(reset=False)

    def _send_chunks(self, chunks: Iterator[bytes]) -> None:
        self.close_connection = True
        self.wfile.flush()
        with contextlib.closing(cast("Any", chunks)):
            for chunk in chunks:
                if chunk:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _hang_up(self, reset: bool) -> None:
        self.close_connection = True
        if reset:  # with a linger time of 0 the close becomes a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        else:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
