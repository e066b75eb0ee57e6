"""What goes wrong between a process and its servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.http import Reply, Request
from konductor_like.sandbox.kubernetes.errors import refusal
from konductor_like.sandbox.loki.server import EMPTY_ANSWER, HTML_ANSWER
from tests.chaos.wire import BrokenOffError, NoAnswerError, NoConnectionError

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

SLOW_SECONDS = 20.0
LATE_SECONDS = (3.0, 50.0, 150.0, 700.0)
"""How much later a request that was given up may still reach the server."""

LOKI_KINDS = (
    *("down", "timeout", "slow", "429", "500", "503", "504", "html"),
    *("truncated", "broken off", "no answer", "empty", "twice"),
)
KUBE_KINDS = (
    *("down", "timeout", "slow", "409", "422", "429", "500", "503", "401", "truncated"),
    *("reset", "reset after", "timeout after", "500 after", "late"),
)
KUBE_TARGETS = {"any": "", "node": "/nodes/", "nodes": "/nodes", "lease": "/leases", "events": "/events"}

Serve = Callable[[Request], Reply]


@dataclass(slots=True)
class Strike:
    """Befalls a process at its request after ``requests`` more: before it leaves, or when it was answered."""

    process: Process
    requests: int
    after: bool
    writes: bool
    """Only writes to Nodes count."""
    steps: int | None
    """Stopped for so many steps of the schedule; None: killed."""


@dataclass(slots=True)
class Trouble:
    """``times`` requests to a server that go wrong; of the API server those whose path holds ``path``."""

    server: str
    kind: str
    times: int
    path: str = ""
    write: bool = False
    """Only writes are met."""

    def meets(self, server: str, request: Request) -> bool:
        """Whether this request is one of them."""
        write = request.method != "GET"
        return server == self.server and self.path in request.path and (write or not self.write)


@dataclass
class Troubles:
    """All that is still to go wrong, first come first served."""

    planned: list[Trouble] = field(default_factory=list)

    def take(self, server: str, request: Request) -> str | None:
        """What befalls this request."""
        for trouble in self.planned:
            if trouble.meets(server, request):
                trouble.times -= 1
                if trouble.times <= 0:
                    self.planned.remove(trouble)
                return trouble.kind
        return None

    def clear(self) -> None:
        """From now on all goes well."""
        self.planned.clear()


def befall(world: World, kind: str, request: Request, timeout_seconds: float, serve: Serve) -> Reply:
    """The answer to a request that something befalls. Raises what the wire knows where there is none."""
    if kind in ("down", "reset"):
        raise NoConnectionError if kind == "down" else BrokenOffError
    if kind == "no answer":
        raise BrokenOffError
    if kind == "timeout":
        world.advance(timeout_seconds)
        raise NoAnswerError
    if kind == "late":
        delay = world.rng.choice(LATE_SECONDS)
        world.later(delay, lambda: serve(request))
        world.advance(min(delay, timeout_seconds))
        raise NoAnswerError
    if kind == "slow":
        world.advance(min(SLOW_SECONDS, timeout_seconds / 2))
        return serve(request)
    if kind in ("reset after", "timeout after"):
        serve(request)
        if kind == "reset after":
            raise BrokenOffError
        world.advance(timeout_seconds)
        raise NoAnswerError
    if kind in ("truncated", "broken off"):
        reply = serve(request)
        body = b"".join(reply.chunks) if reply.chunks else reply.body
        half = Reply(reply.status, body[: len(body) // 2], reply.content_type, reply.headers)
        if kind == "truncated":
            return half
        raise BrokenOffError(half)
    if kind == "empty":
        world.traffic.blind(0.0)
        return empty_answer(request)
    if kind == "twice":
        return _twice(serve(request))
    return _refused(kind, request, serve)


def empty_answer(request: Request) -> Reply:
    """200, and nothing found: lines for a range, numbers for an instant."""
    if request.path.endswith("/query"):
        return Reply.of_json({"status": "success", "data": {"resultType": "vector", "result": []}})
    return EMPTY_ANSWER.spoil(Reply())


def _refused(kind: str, request: Request, serve: Serve) -> Reply:
    if kind == "html":
        return HTML_ANSWER.spoil(Reply())
    after = kind.endswith("after")
    code = int(kind.split()[0])
    if after:
        serve(request)
    if request.path.startswith("/loki"):
        headers = {"Retry-After": "5"} if code == 429 else {}
        return Mishap(status=code, body="too many outstanding requests", headers=headers).spoil(Reply())
    return refusal(code, retry_after_seconds=2 if code == 429 else None).spoil(Reply())


def _twice(reply: Reply) -> Reply:
    """Loki gives every line twice."""
    if reply.status != 200:
        return reply
    answer = json.loads(reply.body)
    for stream in answer["data"]["result"]:
        if "values" in stream:
            stream["values"] = [value for value in stream["values"] for _ in range(2)]
    return Reply(reply.status, json.dumps(answer).encode(), reply.content_type, reply.headers)
