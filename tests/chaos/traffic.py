"""Carries the requests of processes and people to the servers, with troubles and stopped senders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from konductor_like.model import TAINT_KEY
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.kubernetes import errors
from konductor_like_sandbox.kubernetes.api import _whole
from konductor_like_sandbox.kubernetes.errors import ApiError, refusal
from konductor_like_sandbox.kubernetes.lists import Selection
from konductor_like_sandbox.kubernetes.resources import NODES
from konductor_like_sandbox.kubernetes.watches import _changes, _error
from konductor_like_sandbox.loki.server import EMPTY_ANSWER, HTML_ANSWER
from tests.chaos.machines import seconds
from tests.chaos.process import NAMESPACE, Killed, Process
from tests.chaos.setup import SPACE
from tests.chaos.wire import (
    LOKI,
    BrokenOffError,
    Exchange,
    NoAnswerError,
    NoConnectionError,
    awaited,
)

if TYPE_CHECKING:
    from tests.chaos.ledger import Wanted
    from tests.chaos.world import World

_POD_OF_JOB = re.compile(r"(/validation-\w+)-\w{5}\b")
"""The name of a Job's pod, which ends by chance; the trace of a seed is always the same."""
SLOW_SECONDS = 20.0
"""Seconds that a slow answer takes."""
LATE_SECONDS = (3.0, 50.0, 150.0, 700.0)
"""Seconds after which a request that its sender gave up may still reach the server."""

LOKI_KINDS = (
    *("down", "timeout", "slow", "429", "500", "503", "504", "html"),
    *("truncated", "broken off", "no answer", "empty", "twice"),
)
KUBE_KINDS = (
    *("down", "timeout", "slow", "409", "422", "429", "500", "503", "401", "truncated"),
    *("reset", "reset after", "timeout after", "500 after", "late"),
)
KUBE_TARGETS = {"any": "", "node": "/nodes/", "nodes": "/nodes", "lease": "/leases", "events": "/events"}
JOB_TARGETS = {"validation": f"/namespaces/{SPACE}/", "jobs": "/jobs", "log": "/log", "users": "/api/v1/pods"}
"""Requests about validations only: all in their namespace, Jobs, logs, and pods that use GPUs."""

DENIED = 'admission webhook "returns.example.org" denied the request: the rack is in maintenance'

Serve = Callable[[Request], Reply]
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
NODE_PATH = "/api/v1/nodes/"


@dataclass(slots=True)
class Strike:
    """A SIGKILL or SIGSTOP of a process after ``requests`` requests: before the next is sent, or answered."""

    process: Process
    requests: int
    after: bool
    writes: bool
    """Whether only writes to Nodes count as requests."""
    steps: int | None
    """Number of steps of the schedule for which the process is stopped; None: it is killed."""


@dataclass(slots=True)
class Trouble:
    """``times`` requests to a server that fail; at the API server only those whose path contains ``path``."""

    server: str
    kind: str
    times: int
    path: str = ""
    write: bool = False
    """Whether only writes fail."""
    untaints: bool = False
    """Whether only patches that remove our taint fail."""

    def meets(self, server: str, request: Request) -> bool:
        """Whether this request fails."""
        write = request.method != "GET"
        meets = server == self.server and self.path in request.path and (write or not self.write)
        return meets and (not self.untaints or _removes_our_taint(request))


@dataclass
class Troubles:
    """The troubles to come, in their order."""

    planned: list[Trouble] = field(default_factory=list)

    def take(self, server: str, request: Request) -> str | None:
        """Return the kind of trouble that this request meets; None for none."""
        for trouble in self.planned:
            if trouble.meets(server, request):
                trouble.times -= 1
                if trouble.times <= 0:
                    self.planned.remove(trouble)
                return trouble.kind
        return None

    def clear(self) -> None:
        """Cancel all troubles."""
        self.planned.clear()


def answer_in_trouble(
    world: World, kind: str, request: Request, timeout_seconds: float, serve: Serve
) -> Reply:
    """Return the answer to a request that meets trouble. Raises an error of ``wire`` if it gets none."""
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
    """Return an empty answer with status 200, for a range query or an instant query."""
    if request.path.endswith("/query"):
        return Reply.of_json({"status": "success", "data": {"resultType": "vector", "result": []}})
    return EMPTY_ANSWER.spoil(Reply())


def _refused(kind: str, request: Request, serve: Serve) -> Reply:
    if kind == "html":
        return HTML_ANSWER.spoil(Reply())
    if kind == "denied":
        return Reply.of_json(ApiError(403, "Forbidden", DENIED).status(), status=403)
    after = kind.endswith("after")
    code = int(kind.split()[0])
    if after:
        serve(request)
    if request.path.startswith("/loki"):
        headers = {"Retry-After": "5"} if code == 429 else {}
        return Mishap(status=code, body="too many outstanding requests", headers=headers).spoil(Reply())
    return refusal(code, retry_after_seconds=2 if code == 429 else None).spoil(Reply())


def _twice(reply: Reply) -> Reply:
    """Return the answer with every line twice."""
    if reply.status != 200:
        return reply
    answer = json.loads(reply.body)
    for stream in answer["data"]["result"]:
        if "values" in stream:
            stream["values"] = [value for value in stream["values"] for _ in range(2)]
    return Reply(reply.status, json.dumps(answer).encode(), reply.content_type, reply.headers)


def _removes_our_taint(request: Request) -> bool:
    """Whether this is a JSON Patch of a Node that removes our taint."""
    operations = json.loads(request.body) if request.method == "PATCH" else []
    taints = next((each["value"] for each in operations if each["path"] == "/spec/taints"), None) or []
    gone = {each["path"] for each in operations if each["op"] == "remove"}
    return any(
        taint["key"] == TAINT_KEY and f"/spec/taints/{place}" in gone for place, taint in enumerate(taints)
    )


class Traffic:
    """Carries every request, and applies troubles and strikes to it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.troubles = Troubles()
        self.strikes: list[Strike] = []
        self.blind_until_ns = 0
        self.warmup_from_ns = 0
        """When a controller that starts may begin to read what was acted upon before."""

    def warmup_waits(self) -> bool:
        """Whether a controller that starts does not read yet what was acted upon before."""
        return self._world.rng.random() < 0.1 or self._world.clock.true_ns < self.warmup_from_ns

    def clear(self) -> None:
        """Cancel all troubles, strikes and blindness."""
        self.troubles.clear()
        self.strikes.clear()
        self.blind_until_ns = 0

    def exchange_of(self, process: Process | None) -> Exchange:
        """Return the exchange for the requests of a process, or of a person's command (None)."""

        def exchange(server: str, request: Request, timeout_seconds: float) -> Reply:
            return self._exchange(process, server, request, timeout_seconds)

        return exchange

    def _exchange(self, process: Process | None, server: str, request: Request, timeout: float) -> Reply:
        who = process.name if process else "person"
        step = process.reconcile_step if process else 0
        self._world.requests += 1
        is_lease_write = request.path.startswith(LEASE_PATH) and request.method != "GET"
        is_node_write = request.path.startswith(NODE_PATH) and request.method == "PATCH"
        writing = process.writing if process else self._world.command_writes
        wanted = writing.get(request.path.removeprefix(NODE_PATH)) if is_node_write else None
        sent_seconds = self._world.clock.seconds()  # a stop of another thread delays this request too
        if process is not None:
            self._world.ledger.attempts.asked(process, request)
            if is_node_write:
                self._world.ledger.starts_write(process)
            process.another_thread(self._world.rng, often=is_node_write)
        delayed = self._strike(process, after=False, write=is_node_write)

        def serve(request: Request) -> Reply:
            late = delayed or self._world.clock.seconds() > sent_seconds
            return self._serve(process, server, request, late=late, step=step, wanted=wanted)

        kind = self.troubles.take(server, request)
        self._world.ledger.happened["refused removal of a taint"] += kind == "denied"
        if kind and process is not None and request.method == "GET" and request.path.startswith(LEASE_PATH):
            process.unread_seconds = self._world.clock.seconds() + timeout
        try:
            reply = (
                serve(request)
                if kind is None
                else answer_in_trouble(self._world, kind, request, timeout, serve)
            )
            reply = awaited(reply, timeout, self._world.advance)
        except Exception as error:
            self._world.log(f"   {who} {request.method} {request.path}: {kind}: {type(error).__name__}")
            self._strike(process, after=True, write=is_node_write)
            raise
        if self._world.traced:
            noted = f" ({kind})" if kind else ""
            path = _POD_OF_JOB.sub(r"\1", request.path)
            self._world.log(
                f"   {who} {request.method} {path} → {reply.status}{noted}{_gist(request, reply)}"
            )
        self._strike(process, after=True, write=is_node_write)
        if process is not None and is_lease_write and reply.status < 300:
            process.renewed_seconds = sent_seconds
        return reply

    def _serve(
        self,
        process: Process | None,
        server: str,
        request: Request,
        *,
        late: bool,
        step: int,
        wanted: Wanted | None,
    ) -> Reply:
        world = self._world
        if server == LOKI:
            if self._world.clock.true_ns < self.blind_until_ns:
                return empty_answer(request)
            return self._world.loki._api.handle(request)
        if "watch" in request.params:
            return self._watch(request)
        if request.path.startswith(NODE_PATH) and request.method == "PATCH":
            name = request.path.removeprefix(NODE_PATH)
            before = world.nodes.stored(name)
            reply = world.kube._http.handle(request)
            after = world.nodes.stored(name)
            world.ledger.wrote(process, name, before, after, late=late, step=step, wanted=wanted)
            return reply
        if request.path.endswith("/jobs") and request.method == "POST":
            reply = world.kube._http.handle(request)
            world.ledger.attempts.created(request, reply, late=late)
            return reply
        return self._world.kube._http.handle(request)

    def _watch(self, request: Request) -> Reply:
        """Return all changes since the version; the server then ends the watch."""
        version, store = int(request.param("resourceVersion")), self._world.kube._store
        if version < store.oldest("nodes"):
            return Reply(body=_error(errors.expired("too old resource version")))
        selection = Selection(NODES, "", Request("GET", request.path))
        changes = store.changes_since("nodes", version)
        return Reply(body=b"".join(_changes(changes, selection, lambda item: _whole(NODES, item))))

    def _strike(self, process: Process | None, *, after: bool, write: bool = False) -> bool:
        """Kill or stop the process if that is due. Return True if it was stopped."""
        if process is None:
            return False
        world, delayed = self._world, False
        for strike in [each for each in self.strikes if each.process is process and each.after is after]:
            if strike.writes and not write:
                continue
            strike.requests -= 1
            if strike.requests >= 0 or process.stopped:
                continue
            self.strikes.remove(strike)
            if strike.steps is None:
                self._world.kill(process)
            else:
                delayed = True
                world.log(f"   {process.name} is stopped {'after' if after else 'before'} this request")
                process.stopped = True
                offset_ns, world.clock.offset_ns = world.clock.offset_ns, 0
                world.take_steps(strike.steps)
                world.clock.offset_ns = offset_ns
                process.stopped = False
                world.log(f"   {process.name} goes on")
        if process.dead:
            raise Killed(process)
        return delayed

    def strike(self, strike: Strike) -> None:
        """Kill or stop a process at one of its next requests; a stopped process is killed at once."""
        if strike.process.stopped and strike.steps is None:
            self._world.kill(strike.process)
        else:
            self.strikes.append(strike)

    def pause_here(self, process: Process) -> None:
        """A point between two parts of a process's work where it may be killed or stopped."""
        self._strike(process, after=True)

    def blind(self, span_seconds: float) -> None:
        """Let Loki answer 200 without its ingester's lines; they appear later and count as late."""
        self.blind_until_ns = self._world.clock.true_ns + seconds(span_seconds)
        for occurrence in self._world.occurrences:
            for shipment in occurrence.shipments:
                shipment.visible_ns = max(shipment.visible_ns, self.blind_until_ns)


def _gist(request: Request, reply: Reply) -> str:
    """Summarise a request for the trace."""
    if request.method == "PATCH":
        body = request.body.decode()
        verb = "taint" if "faulty" in body and '"add", "path": "/spec/taints' in body else ""
        verb = verb or ("untaint" if '"remove", "path": "/spec/taints' in body else "record")
        return f" {verb}"
    if request.path.endswith("query_range"):
        return f" {len(reply.body)} bytes"
    return ""
