"""A server that plays a given act with each connection, for what a mocked transport cannot do."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Self

_TLS_HELLO = b"\x16\x03"

Act = Callable[[socket.socket, bytes], None]
"""Plays with a connection after the head of its request has come."""


class ScriptedServer:
    """Plays one act per connection, and repeats the last act. A context manager; the port is a free one."""

    def __init__(self, *acts: Act, context: ssl.SSLContext | None = None) -> None:
        self._acts = acts
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.requests: list[bytes] = []
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        """Return the server's address."""
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        # A last connection wakes the thread that waits for one.
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        number = 0
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if self.stopping.is_set():
                    return
                connection.settimeout(10)
                act = self._acts[min(number, len(self._acts) - 1)]
                number += 1
                try:
                    self._play(connection, act)
                except OSError:
                    # The client hung up or refused our certificate, as some tests want.
                    continue

    def _play(self, connection: socket.socket, act: Act) -> None:
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        with connection:
            head = b""
            while b"\r\n\r\n" not in head and not head.startswith(_TLS_HELLO):
                chunk = connection.recv(65536)
                if not chunk:
                    return
                head += chunk
            self.requests.append(head)
            act(connection, head)


def respond(body: bytes, status: str = "200 OK", *, length: int | None = None, headers: str = "") -> Act:
    """Answer and close; a ``length`` of one's own makes the body look cut or endless."""

    def act(connection: socket.socket, _head: bytes) -> None:
        announced = len(body) if length is None else length
        connection.sendall(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {announced}\r\n"
            f"Connection: close\r\n{headers}\r\n".encode()
            + body
        )

    return act


def reset(connection: socket.socket, _head: bytes) -> None:
    """Drop the connection with a TCP reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(_connection: socket.socket, _head: bytes) -> None:
    """Close without an answer."""
