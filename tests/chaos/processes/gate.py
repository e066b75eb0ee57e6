"""Requests held on their way: sent by a process that is stopped, taking effect when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from konductor_like.sandbox.http import Reply, Request
from konductor_like.sandbox.kubernetes import KubernetesServer

GIVE_UP_SECONDS = 60.0


@dataclass(eq=False)
class Held:
    """One request on its way to the API server."""

    request: Request
    reply: Reply | None = None
    _open: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """The object that it is about."""
        return self.request.path.rpartition("/")[2]

    def arrive(self) -> int:
        """Let it take effect, or be refused; gives the status."""
        self._open.set()
        assert self._done.wait(GIVE_UP_SECONDS), "it was never answered"
        assert self.reply is not None
        return self.reply.status

    def pass_through(self, handle: Callable[[Request], Reply]) -> Reply:
        """Wait to be let through."""
        self._open.wait(GIVE_UP_SECONDS)
        self.reply = handle(self.request)
        self._done.set()
        return self.reply


class Gate:
    """Holds what it is told to hold; everything else passes."""

    def __init__(self, handle: Callable[[Request], Reply]) -> None:
        self.held: list[Held] = []
        self._handle = handle
        self._wanted: Callable[[Request], bool] = lambda _: False
        self._lock = threading.Lock()

    def hold(self, wanted: Callable[[Request], bool]) -> None:
        """Hold such requests from now on, and no others."""
        with self._lock:
            self._wanted = wanted

    def open(self) -> None:
        """Let everything pass, what is held too."""
        self.hold(lambda _: False)
        for held in self.held:
            held._open.set()

    def __call__(self, request: Request) -> Reply:
        """Take one request in the server's place."""
        with self._lock:
            if not self._wanted(request):
                held = None
            else:
                held = Held(request)
                self.held.append(held)
        return self._handle(request) if held is None else held.pass_through(self._handle)


@contextmanager
def gate_of(server: KubernetesServer) -> Iterator[Gate]:
    """A gate in front of this API server; in the end all that is held passes."""
    gate = Gate(server._http.handle)
    server._http.handle = gate
    try:
        yield gate
    finally:
        gate.open()
