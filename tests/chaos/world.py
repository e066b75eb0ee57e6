"""A cluster, a Loki, machines and people, all in memory and on one clock."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import format_datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from konductor_like.cluster.decode import settled_decoder
from konductor_like.cluster.steering import PAUSE_ANNOTATION
from konductor_like.model import Source
from konductor_like.sandbox.kubernetes import errors
from konductor_like.sandbox.kubernetes.api import _whole
from konductor_like.sandbox.kubernetes.lists import Selection
from konductor_like.sandbox.kubernetes.resources import NODES
from konductor_like.sandbox.kubernetes.server import KubernetesServer
from konductor_like.sandbox.kubernetes.store import Key
from konductor_like.sandbox.kubernetes.watches import _changes, _error
from konductor_like.sandbox.loki.limits import LokiError, LokiLimits
from konductor_like.sandbox.loki.server import LokiServer
from konductor_like.sandbox.wire import Reply, Request
from konductor_like.settings import Settings
from tests.chaos.clock import Clock, moment_of
from tests.chaos.ledger import Ledger
from tests.chaos.machines import (
    POD_LINE,
    KernelRecord,
    Machine,
    Occurrence,
    Shipment,
    found,
    seconds,
    xid_message,
)
from tests.chaos.people import Resume
from tests.chaos.process import DEADLINE_SECONDS, LEASE, NAMESPACE, RENEW_SECONDS, Killed, Process
from tests.chaos.troubles import Strike, Troubles, befall, empty_answer
from tests.chaos.wire import KUBE, LOKI, Exchange

if TYPE_CHECKING:
    from tests.chaos.steps import Step

LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
NODE_PATH = "/api/v1/nodes/"
ENDPOINT = "http://loki.test:3100"
CHUNK_SECONDS = RENEW_SECONDS / 2
HEARTBEAT_NS = seconds(60)
POOL_LABEL = "example.org/pool"
RATE_SECONDS = 100.0
HEARTBEATS_PER_REPORT = 5
"""A kubelet that has nothing new to say reports every five minutes."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a schedule starts with: for each node whether it ships plain ``dmesg -w``; brake; Loki's limit."""

    plain: tuple[bool, ...] = (False, False, False)
    brake_percent: float = 100.0
    loki_limit: int = 5000
    loki_cuts: bool = False
    """Answers that must be cut have holes as well (grafana/loki#19133)."""
    slow_writes: bool = False
    """The API server is slow with some writes: they are under way longer than anybody waits."""
    overlap_seconds: float = 20.0
    """How far every poll looks back."""
    lateness_seconds: float = 20.0
    """How late a line may arrive; beyond the overlap it is found by a sweep."""
    pool_percent: float | None = None
    """The brake of each of two pools, which the nodes are in by turns."""
    rate_nodes: int | None = None
    """So many taints within :data:`RATE_SECONDS` at most."""
    cooldown_seconds: float = 0.0


@cache
def _settings(setup: Setup) -> Settings:
    """Short spans, so that a cursor that ran ahead is not made good by a sweep over an hour."""
    return Settings(
        log_endpoint=ENDPOINT,
        brake_max_percent=setup.brake_percent,
        brake_pool_max_percent=setup.pool_percent,
        brake_rate_nodes=setup.rate_nodes,
        brake_rate_window_seconds=RATE_SECONDS,
        brake_cooldown_seconds=setup.cooldown_seconds,
        pool_label=POOL_LABEL,
        kernel_overlap_seconds=setup.overlap_seconds,
        pod_overlap_seconds=setup.overlap_seconds,
        lateness_seconds=setup.lateness_seconds,
        pod_lateness_seconds=setup.lateness_seconds,
        first_start_history_seconds=3600.0,  # a day is read in as many queries as it has hours
        tail=False,  # the world nudges by itself
    )


class World:
    """Everything outside the code under test, and the processes that run it."""

    def __init__(self, setup: Setup, seed: int, *, trace: list[str] | None = None) -> None:
        self.setup = setup
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.settings = _settings(setup)
        self.decode = settled_decoder(self.settings)
        limits = LokiLimits(
            max_entries_limit_per_query=setup.loki_limit, sharded_results_fall_short=setup.loki_cuts
        )
        self.loki = LokiServer(limits=limits, now_ns=lambda: self.clock.true_ns)
        self.kube = KubernetesServer(clock=self.clock.moment)
        self.kube.create_namespace(NAMESPACE)
        self.ledger = Ledger(self)
        self.troubles = Troubles()
        self.blind_until_ns = 0
        self.clocks_differ = False
        """Whether any controller's wall clock was ever wrong."""
        self.strikes: list[Strike] = []
        self.processes: list[Process | None] = [None, None]
        self.machines: dict[str, Machine] = {}
        self.occurrences: list[Occurrence] = []
        self.names = [f"gpu-{number}" for number in range(1, len(setup.plain) + 1)]
        self.collectors = dict.fromkeys(self.names, 1)
        self.taken = 0
        """How many steps were taken."""
        self.requests = 0
        """How many requests processes sent."""
        self._steps: Iterator[Step] = iter(())
        self._trace = trace
        self._later: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0
        self._heartbeat_ns = self.clock.true_ns
        self._heartbeats = 0
        self._untold_ns: int | None = None
        self.files: dict[str, list[tuple[str, int, Occurrence]]] = {name: [] for name in self.names}
        """What stands in the log files of each node's kernel-log reader; reboots leave them as they are."""
        for name, plain in zip(self.names, setup.plain, strict=True):
            self.machines[name] = Machine(
                f"system-{name}", plain, self.uuid(), self.clock.true_ns - seconds(86_400)
            )
            self.put_node(name, created_ns=self.clock.true_ns - seconds(30 * 86_400))

    # Running

    def run(self, steps: Sequence[Step]) -> None:
        """Take all steps, in order; a stopped process wakes up after so many of them."""
        self._steps = iter(steps)
        self.take_steps(None)

    def take_steps(self, count: int | None) -> None:
        """Take so many of the next steps, or all that are left."""
        while count is None or count > 0:
            step = next(self._steps, None)
            if step is None:
                return
            self.tell(f"── {step}")
            self.taken += 1
            step.take(self)
            self.ledger.check_now()
            count = None if count is None else count - 1

    def advance(self, span_seconds: float) -> None:
        """Time passes: Leases are renewed, heartbeats and late lines arrive, late requests too."""
        end_ns = self.clock.true_ns + seconds(span_seconds)
        while self.clock.true_ns < end_ns:
            soon = self._later[0][0] if self._later else end_ns
            step_ns = min(
                end_ns, max(soon, self.clock.true_ns + 1), self.clock.true_ns + seconds(CHUNK_SECONDS)
            )
            self.clock.true_ns = step_ns
            while self._later and self._later[0][0] <= step_ns:
                heapq.heappop(self._later)[2]()
            self._beat_hearts()
            for process in self.processes:
                if process is not None:
                    process.keep()

    def later(self, delay_seconds: float, do: Callable[[], object]) -> None:
        """Do something when so much time has passed."""
        self._count += 1
        heapq.heappush(self._later, (self.clock.true_ns + seconds(delay_seconds), self._count, do))

    def tell(self, line: str) -> None:
        """A line of the trace, if somebody wants one."""
        if self._trace is not None:
            self._trace.append(f"t+{self.clock.seconds() - 1000:9.1f}s  {line}")

    @property
    def traced(self) -> bool:
        """Whether somebody wants to read along."""
        return self._trace is not None

    @property
    def trace(self) -> list[str]:
        """What happened, line by line; empty unless somebody wanted it."""
        return self._trace or []

    def heal(self) -> None:
        """From now on nothing goes wrong any more, and everything is there."""
        self.troubles.clear()
        self.strikes.clear()
        self.blind_until_ns = 0
        for name, machine in self.machines.items():
            machine.clock_ahead_ns = 0
            if self.stored(name) is None:
                self.put_node(name)
        for process in self.processes:
            if process is not None:
                process.clock_ahead_ns = 0
        if self.paused():
            Resume().take(self)
        self.start(0)

    def paused(self) -> bool:
        """Whether a person's pause stands on the Lease."""
        lease = self.kube._store.get("leases", Key(NAMESPACE, LEASE))
        return lease is not None and PAUSE_ANNOTATION in lease.load()["metadata"].get("annotations", {})

    def beat_all(self) -> None:
        """Every controller does its round."""
        for process in self.processes:
            if process is not None:
                process.beat()

    def date(self) -> str:
        """What the servers' Date header says; nothing while every clock is right, which is faster."""
        return format_datetime(self.clock.moment(), usegmt=True) if self.clocks_differ else ""

    def uuid(self) -> str:
        """A fresh id, the same in every run of a seed."""
        return f"{self.rng.getrandbits(32):08x}-0000-4000-8000-{self.rng.getrandbits(48):012x}"

    # Requests

    def exchange_of(self, process: Process | None) -> Exchange:
        """What carries the requests of a process, or of a person's command (None)."""

        def exchange(server: str, request: Request, timeout_seconds: float) -> Reply:
            return self._exchange(process, server, request, timeout_seconds)

        return exchange

    def _exchange(self, process: Process | None, server: str, request: Request, timeout: float) -> Reply:
        who = process.name if process else "person"
        turn = process.turn if process else 0
        self.requests += 1
        is_lease_write = request.path.startswith(LEASE_PATH) and request.method != "GET"
        is_node_write = request.path.startswith(NODE_PATH) and request.method == "PATCH"
        if process is not None:
            if is_node_write:
                self.ledger.starts_write(process)
            process.another_thread(self.rng, often=is_node_write)
        sent_seconds = self.clock.seconds()
        held_up = self._strike(process, after=False, write=is_node_write)

        def serve(request: Request) -> Reply:
            late = held_up or self.clock.seconds() > sent_seconds
            return self._serve(process, server, request, late=late, turn=turn)

        kind = self.troubles.take(server, request)
        if kind and process is not None and request.method == "GET" and request.path.startswith(LEASE_PATH):
            process.unread_seconds = self.clock.seconds() + timeout
        try:
            reply = serve(request) if kind is None else befall(self, kind, request, timeout, serve)
        except Exception as error:
            self.tell(f"   {who} {request.method} {request.path}: {kind}: {type(error).__name__}")
            self._strike(process, after=True, write=is_node_write)
            raise
        if self._trace is not None:
            noted = f" ({kind})" if kind else ""
            self.tell(
                f"   {who} {request.method} {request.path} → {reply.status}{noted}{_told(request, reply)}"
            )
        self._strike(process, after=True, write=is_node_write)
        if process is not None and is_lease_write and reply.status < 300:
            process.renewed_seconds = sent_seconds
        return reply

    def _serve(
        self, process: Process | None, server: str, request: Request, *, late: bool, turn: int
    ) -> Reply:
        if server == LOKI:
            if self.clock.true_ns < self.blind_until_ns:
                return empty_answer(request)
            return self.loki._api.handle(request)
        if "watch" in request.params:
            return self._watch(request)
        if request.path.startswith(NODE_PATH) and request.method == "PATCH":
            name = request.path.removeprefix(NODE_PATH)
            before = self.stored(name)
            reply = self.kube._http.handle(request)
            self.ledger.wrote(process, name, before, self.stored(name), late=late, turn=turn)
            return reply
        return self.kube._http.handle(request)

    def _watch(self, request: Request) -> Reply:
        """All that happened since, and then the server ends the watch: it never waits for more."""
        version, store = int(request.param("resourceVersion")), self.kube._store
        if version < store.oldest("nodes"):
            return Reply(body=_error(errors.expired("too old resource version")))
        selection = Selection(NODES, "", Request("GET", request.path))
        changes = store.changes_since("nodes", version)
        return Reply(body=b"".join(_changes(changes, selection, lambda item: _whole(NODES, item))))

    def _strike(self, process: Process | None, *, after: bool, write: bool = False) -> bool:
        """Kill or stop the process if that is due; True where it was stopped."""
        if process is None:
            return False
        held_up = False
        for strike in [each for each in self.strikes if each.process is process and each.after is after]:
            if strike.writes and not write:
                continue
            strike.requests -= 1
            if strike.requests >= 0 or process.stopped:
                continue
            self.strikes.remove(strike)
            if strike.steps is None:
                self.kill(process)
            else:
                held_up = True
                self.tell(f"   {process.name} is stopped {'after' if after else 'before'} this request")
                process.stopped = True
                offset_ns, self.clock.offset_ns = self.clock.offset_ns, 0
                self.take_steps(strike.steps)
                self.clock.offset_ns = offset_ns
                process.stopped = False
                self.tell(f"   {process.name} goes on")
        if process.dead:
            raise Killed(process)
        return held_up

    def strike(self, strike: Strike) -> None:
        """Let something befall a process at one of its next requests; a stopped one dies at once."""
        if strike.process.stopped and strike.steps is None:
            self.kill(strike.process)
        else:
            self.strikes.append(strike)

    def pause_here(self, process: Process) -> None:
        """A point between two things that a process does, where it may be killed or stopped as well."""
        self._strike(process, after=True)

    def blind(self, span_seconds: float) -> None:
        """Loki answers 200 without the lines of its ingester, which come back later: they count as late."""
        self.blind_until_ns = self.clock.true_ns + seconds(span_seconds)
        for occurrence in self.occurrences:
            for shipment in occurrence.shipments:
                shipment.visible_ns = max(shipment.visible_ns, self.blind_until_ns)

    # Processes

    def kill(self, process: Process) -> None:
        """SIGKILL."""
        self.tell(f"   {process.name} is killed")
        process.dead = True

    def start(self, slot: int, *, same_identity: bool = True) -> Process:
        """A new life in a slot; a container that is restarted in place keeps its identity."""
        before = self.processes[slot]
        if before is not None and not before.dead:
            return before
        self._count += 1
        identity = f"controller-{slot}_uid"
        if before is not None:
            identity = before.identity if same_identity else f"controller-{slot}_uid-{self._count}"
        ahead_ns = before.clock_ahead_ns if before is not None else 0
        process = Process(self, f"controller-{slot}", identity, ahead_ns)
        self.processes[slot] = process
        return process

    # Nodes

    def stored(self, name: str) -> dict[str, Any] | None:
        """The Node as it is now; None if there is none."""
        stored = self.kube._store.get("nodes", Key("", name))
        return None if stored is None else stored.load()

    def put_node(self, name: str, created_ns: int | None = None) -> None:
        """A machine registers: a Node object of its own."""
        machine, created = self.machines[name], self.clock.moment()
        if created_ns is not None:
            created = moment_of(created_ns)
        machine.posted_ns = created_ns or self.clock.true_ns
        self.kube.put_node(
            {
                "metadata": {
                    "name": name,
                    "uid": self.uuid(),
                    "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "labels": {"nvidia.com/gpu.present": "true", POOL_LABEL: f"pool-{int(name[-1]) % 2}"},
                    # Where there are none at all, a patch tests the resourceVersion instead of the record.
                    "annotations": {} if name.endswith("3") else {"node.alpha.kubernetes.io/ttl": "0"},
                },
                "spec": {},
                "status": {
                    "nodeInfo": {"systemUUID": machine.system_id, "bootID": machine.boot_id},
                    "conditions": [self._condition(name)],
                },
            }
        )

    def edit(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Somebody else changes a Node."""
        before = self.stored(name)
        if before is not None:
            self.kube.edit_node(name, change)
            self.ledger.edited(name, before, self.stored(name))

    # Lines

    def happen(self, name: str, code: int, gpu: str, *, delay_seconds: float = 0.0) -> Occurrence:
        """The kernel of a machine says something, and its reader ships it, perhaps late."""
        machine = self.machines[name]
        number = len(self.occurrences)
        message = xid_message(code, gpu, number)
        sequence, stamp_us = machine.next_position(self.clock.true_ns)
        occurrence = Occurrence(
            *(number, name, machine, machine.boot_id, Source.KERNEL, found(message, Source.KERNEL)),
            *(sequence, stamp_us, self.clock.true_ns),
        )
        self.occurrences.append(occurrence)
        record = KernelRecord(machine.line(message, sequence, stamp_us), self.node_clock_ns(name), occurrence)
        machine.ring.append(record)
        self.files[name].append((record.text, record.timestamp_ns, occurrence))
        self.ship(name, record.text, record.timestamp_ns, occurrence, delay_seconds=delay_seconds)
        return occurrence

    def pod_prints(self, name: str, *, delay_seconds: float = 0.0) -> Occurrence:
        """A pod on the node prints an error of its job."""
        # Two lines of one job in one nanosecond are told apart by nothing that a record could hold.
        self.clock.true_ns += 1000
        machine, number = self.machines[name], len(self.occurrences)
        text = POD_LINE.format(pod=f"train-{name}", number=number)
        occurrence = Occurrence(
            *(number, name, machine, machine.boot_id, Source.POD, found(text, Source.POD)),
            *(0, 0, self.clock.true_ns),
        )
        self.occurrences.append(occurrence)
        self.ship(name, text, self.node_clock_ns(name), occurrence, delay_seconds=delay_seconds)
        return occurrence

    def node_clock_ns(self, name: str) -> int:
        """The time as the node has it."""
        return self.clock.true_ns + self.machines[name].clock_ahead_ns

    def ship(
        self,
        name: str,
        text: str,
        timestamp_ns: int,
        occurrence: Occurrence | None,
        *,
        delay_seconds: float = 0.0,
        note: str = "",
    ) -> None:
        """A line goes to Loki, once per collector; ``note`` sets apart what is shipped again."""

        def arrive() -> None:
            for collector in range(self.collectors[name]):
                self._push(name, text, timestamp_ns, occurrence, f"{note}{collector}")

        if delay_seconds > 0:
            self.later(delay_seconds, arrive)
        else:
            arrive()

    def _push(
        self, name: str, text: str, timestamp_ns: int, occurrence: Occurrence | None, note: str
    ) -> None:
        kernel = occurrence is None or occurrence.source is Source.KERNEL
        labels = {
            "k8s_namespace_name": "dmesg-logging" if kernel else "default",
            "k8s_container_name": "dmesg" if kernel else "train",
            "k8s_pod_name": f"dmesg-{name}" if kernel else f"train-{name}",
            "k8s_node_name": name,
        }
        try:
            self.loki.push(labels, [(timestamp_ns, text)], {"observed_by": note})
        except LokiError as error:
            self.tell(f"   Loki refuses a line of {name}: {error.message[:80]}")
            return
        if kernel and any(process and process.leading for process in self.processes):
            self._untold_ns = min(timestamp_ns, self._untold_ns or timestamp_ns)
        if occurrence is not None:
            visible_ns = max(self.clock.true_ns, self.blind_until_ns)
            occurrence.shipments.append(Shipment(timestamp_ns, self.clock.true_ns, visible_ns))

    def take_nudge(self) -> int | None:
        """The oldest kernel line since the last time, as a tail tells of it; tails lose lines."""
        oldest_ns, self._untold_ns = self._untold_ns, None
        return None if self.rng.random() < 0.3 else oldest_ns

    def _condition(self, name: str) -> dict[str, str]:
        """What the kubelet reports every five minutes, with its machine's time."""
        at = moment_of(self.node_clock_ns(name)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"type": "Ready", "status": "True", "lastHeartbeatTime": at}

    def post_boot(self, name: str) -> None:
        """The kubelet posts the boot that its machine is in now."""
        if self.stored(name) is not None:
            self.machines[name].posted_ns = self.clock.true_ns
            self.ledger.boot_posted(name)
            self._report(name)

    def _kubelet_runs(self, name: str) -> bool:
        """Whether there is a Node, and the kubelet of its present boot has begun to report."""
        stored = self.stored(name)
        return stored is not None and stored["status"]["nodeInfo"]["bootID"] == self.machines[name].boot_id

    def _report(self, name: str) -> None:
        def change(node: dict[str, Any]) -> None:
            node["status"]["nodeInfo"]["bootID"] = self.machines[name].boot_id
            node["status"]["conditions"] = [self._condition(name)]

        self.kube.edit_node(name, change)

    def _beat_hearts(self) -> None:
        if self.clock.true_ns - self._heartbeat_ns < HEARTBEAT_NS:
            return
        self._heartbeat_ns = self.clock.true_ns
        self._heartbeats += 1
        for name, machine in self.machines.items():
            if self._heartbeats % HEARTBEATS_PER_REPORT == 0 and self._kubelet_runs(name):
                self._report(name)
            if not machine.plain:
                wall = self.clock.moment().isoformat().replace("+00:00", "Z")
                text = machine.heartbeat(self.clock.true_ns, wall)
                self.ship(name, text, self.node_clock_ns(name), None)


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


__all__ = ["DEADLINE_SECONDS", "KUBE", "LEASE", "Setup", "World"]
