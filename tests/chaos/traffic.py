"""Requests of processes and people on their way to the servers, and what befalls them and their senders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konductor_like.sandbox.http import Reply, Request
from konductor_like.sandbox.kubernetes import errors
from konductor_like.sandbox.kubernetes.api import _whole
from konductor_like.sandbox.kubernetes.lists import Selection
from konductor_like.sandbox.kubernetes.resources import NODES
from konductor_like.sandbox.kubernetes.watches import _changes, _error
from tests.chaos.machines import seconds
from tests.chaos.process import NAMESPACE, Killed, Process
from tests.chaos.troubles import Strike, Troubles, befall, empty_answer
from tests.chaos.wire import LOKI, Exchange, awaited

if TYPE_CHECKING:
    from tests.chaos.world import World

LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
NODE_PATH = "/api/v1/nodes/"


class Traffic:
    """Carries every request, and lets troubles and strikes meet it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.troubles = Troubles()
        self.strikes: list[Strike] = []
        self.blind_until_ns = 0

    def clear(self) -> None:
        """From now on nothing goes wrong any more."""
        self.troubles.clear()
        self.strikes.clear()
        self.blind_until_ns = 0

    def exchange_of(self, process: Process | None) -> Exchange:
        """What carries the requests of a process, or of a person's command (None)."""

        def exchange(server: str, request: Request, timeout_seconds: float) -> Reply:
            return self._exchange(process, server, request, timeout_seconds)

        return exchange

    def _exchange(self, process: Process | None, server: str, request: Request, timeout: float) -> Reply:
        who = process.name if process else "person"
        turn = process.turn if process else 0
        self._world.requests += 1
        is_lease_write = request.path.startswith(LEASE_PATH) and request.method != "GET"
        is_node_write = request.path.startswith(NODE_PATH) and request.method == "PATCH"
        sent_seconds = self._world.clock.seconds()  # a stop that meets another thread holds this one up too
        if process is not None:
            if is_node_write:
                self._world.ledger.starts_write(process)
            process.another_thread(self._world.rng, often=is_node_write)
        held_up = self._strike(process, after=False, write=is_node_write)

        def serve(request: Request) -> Reply:
            late = held_up or self._world.clock.seconds() > sent_seconds
            return self._serve(process, server, request, late=late, turn=turn)

        kind = self.troubles.take(server, request)
        if kind and process is not None and request.method == "GET" and request.path.startswith(LEASE_PATH):
            process.unread_seconds = self._world.clock.seconds() + timeout
        try:
            reply = serve(request) if kind is None else befall(self._world, kind, request, timeout, serve)
            reply = awaited(reply, timeout, self._world.advance)
        except Exception as error:
            self._world.tell(f"   {who} {request.method} {request.path}: {kind}: {type(error).__name__}")
            self._strike(process, after=True, write=is_node_write)
            raise
        if self._world.traced:
            noted = f" ({kind})" if kind else ""
            self._world.tell(
                f"   {who} {request.method} {request.path} → {reply.status}{noted}{_told(request, reply)}"
            )
        self._strike(process, after=True, write=is_node_write)
        if process is not None and is_lease_write and reply.status < 300:
            process.renewed_seconds = sent_seconds
        return reply

    def _serve(
        self, process: Process | None, server: str, request: Request, *, late: bool, turn: int
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
            world.ledger.wrote(process, name, before, world.nodes.stored(name), late=late, turn=turn)
            return reply
        return self._world.kube._http.handle(request)

    def _watch(self, request: Request) -> Reply:
        """All that happened since, and then the server ends the watch: it never waits for more."""
        version, store = int(request.param("resourceVersion")), self._world.kube._store
        if version < store.oldest("nodes"):
            return Reply(body=_error(errors.expired("too old resource version")))
        selection = Selection(NODES, "", Request("GET", request.path))
        changes = store.changes_since("nodes", version)
        return Reply(body=b"".join(_changes(changes, selection, lambda item: _whole(NODES, item))))

    def _strike(self, process: Process | None, *, after: bool, write: bool = False) -> bool:
        """Kill or stop the process if that is due; True where it was stopped."""
        if process is None:
            return False
        world, held_up = self._world, False
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
                held_up = True
                world.tell(f"   {process.name} is stopped {'after' if after else 'before'} this request")
                process.stopped = True
                offset_ns, world.clock.offset_ns = world.clock.offset_ns, 0
                world.take_steps(strike.steps)
                world.clock.offset_ns = offset_ns
                process.stopped = False
                world.tell(f"   {process.name} goes on")
        if process.dead:
            raise Killed(process)
        return held_up

    def strike(self, strike: Strike) -> None:
        """Let something befall a process at one of its next requests; a stopped one dies at once."""
        if strike.process.stopped and strike.steps is None:
            self._world.kill(strike.process)
        else:
            self.strikes.append(strike)

    def pause_here(self, process: Process) -> None:
        """A point between two things that a process does, where it may be killed or stopped as well."""
        self._strike(process, after=True)

    def blind(self, span_seconds: float) -> None:
        """Loki answers 200 without the lines of its ingester, which come back later: they count as late."""
        self.blind_until_ns = self._world.clock.true_ns + seconds(span_seconds)
        for occurrence in self._world.occurrences:
            for shipment in occurrence.shipments:
                shipment.visible_ns = max(shipment.visible_ns, self.blind_until_ns)


def _told(request: Request, reply: Reply) -> str:
    """The gist of a write, for the trace."""
    if request.method == "PATCH":
        body = request.body.decode()
        verb = "taint" if "faulty" in body and '"add", "path": "/spec/taints' in body else ""
        verb = verb or ("untaint" if '"remove", "path": "/spec/taints' in body else "record")
        return f" {verb}"
    if request.path.endswith("query_range"):
        return f" {len(reply.body)} bytes"
    return ""
