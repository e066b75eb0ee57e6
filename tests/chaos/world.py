"""A cluster, a Loki, machines and people, all in memory and on one clock."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from email.utils import format_datetime
from typing import TYPE_CHECKING

from konductor_like.cluster.lease.annotations import view
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.model import Change, Controls, NodeState, with_kept
from konductor_like_sandbox.kubernetes.server import KubernetesServer
from konductor_like_sandbox.kubernetes.store import Key
from konductor_like_sandbox.loki.limits import LokiLimits
from konductor_like_sandbox.loki.server import LokiServer
from tests.chaos.clock import Clock
from tests.chaos.evidence import Node
from tests.chaos.firings import Firings
from tests.chaos.ledger import Ledger
from tests.chaos.lines import Lines
from tests.chaos.machines import (
    Machine,
    Nodes,
    Occurrence,
    seconds,
)
from tests.chaos.people import Resume
from tests.chaos.process import LEASE, NAMESPACE, RENEW_SECONDS, Process
from tests.chaos.prometheus import MemoryPrometheus
from tests.chaos.setup import SPACE, Setup, settings_of
from tests.chaos.traffic import Traffic
from tests.chaos.words import Words

if TYPE_CHECKING:
    from tests.chaos.steps import Step

CHUNK_SECONDS = RENEW_SECONDS / 2


class World:
    """Everything outside the code under test, and the processes that run it."""

    def __init__(
        self, setup: Setup, seed: int, *, trace: list[str] | None = None, until_broken: bool = False
    ) -> None:
        """With ``until_broken`` no step is taken after an invariant broke."""
        self._until_broken = until_broken
        self.setup = setup
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.settings = settings_of(setup)
        self.decode = node_decoder(self.settings)
        limits = LokiLimits(
            max_entries_limit_per_query=setup.loki_limit,
            sharded_results_fall_short=setup.loki_cuts,
            grpc_message_bytes=setup.message_bytes,
            big_answer=setup.big_answer,
            query_timeout_seconds=setup.query_timeout_seconds,
            http_server_write_timeout_seconds=setup.write_timeout_seconds,
            promoted_attributes=frozenset({"k8s.node.name"}),
        )
        self.loki = LokiServer(limits=limits, now_ns=lambda: self.clock.true_ns)
        self.kube = KubernetesServer(clock=self.clock.moment)
        self.kube.create_namespace(NAMESPACE)
        if self.settings.validation_image:
            self._prepare_validations()
        self.ledger = Ledger(self)
        self.clocks_differ = False
        """Whether a controller's wall clock was ever wrong."""
        self.processes: list[Process | None] = [None, None]
        self.machines: dict[str, Machine] = {}
        self.occurrences: list[Occurrence] = []
        self.names = [f"gpu-{number}" for number in range(1, len(setup.plain) + 1)]
        self.refusing: set[str] = set()
        """Nodes whose record somebody's admission policy refuses."""
        self.command_writes: dict[str, tuple[NodeState, Change]] = {}
        """By node, what a person's command writes, and the state on which that was decided."""
        self.recovered = False
        """Whether all steps were taken and all troubles have ended."""
        self.taken = 0
        """Number of steps that were taken."""
        self.requests = 0
        """Number of requests that processes and people sent."""
        self._steps: Iterator[Step] = iter(())
        self._trace = trace
        self._later: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0
        self.traffic = Traffic(self)
        self.nodes = Nodes(self)
        self.words = Words(self)
        self.prometheus = MemoryPrometheus(self.clock, set(self.names))
        self.firings = Firings(self)
        self.lines: Lines = Lines(self)
        for name, plain in zip(self.names, setup.plain, strict=True):
            self.machines[name] = Machine(
                f"system-{name}", plain, self.uuid(), self.clock.true_ns - seconds(86_400)
            )
            self.nodes.put(name, created_ns=self.clock.true_ns - seconds(30 * 86_400))

    def _prepare_validations(self) -> None:
        """Apply ``manifests/validation.yaml``."""
        self.kube.create_namespace(SPACE)
        meta = {"name": "konductor-like-validation"}
        self.kube.put("priorityclasses", {"metadata": meta, "value": -1000, "preemptionPolicy": "Never"})

    # Running

    def run(self, steps: Sequence[Step]) -> None:
        """Take all steps in order, including those during which a process is stopped."""
        self._steps = iter(steps)
        self.take_steps(None)

    def take_steps(self, count: int | None) -> None:
        """Take the next ``count`` steps; None: all that are left."""
        while count is None or count > 0:
            step = next(self._steps, None)
            if step is None or (self._until_broken and self.ledger.broken):
                return
            self.log(f"── {step}")
            self.taken += 1
            step.take(self)
            self.ledger.check_now()
            count = None if count is None else count - 1

    def advance(self, span_seconds: float) -> None:
        """Let time pass: Leases are renewed; heartbeats, late lines and late requests arrive."""
        end_ns = self.clock.true_ns + seconds(span_seconds)
        while self.clock.true_ns < end_ns:
            soon = self._later[0][0] if self._later else end_ns
            step_ns = min(
                end_ns, max(soon, self.clock.true_ns + 1), self.clock.true_ns + seconds(CHUNK_SECONDS)
            )
            self.clock.true_ns = step_ns
            while self._later and self._later[0][0] <= step_ns:
                heapq.heappop(self._later)[2]()
            self.nodes.send_heartbeats()
            for process in self.processes:
                if process is not None:
                    process.keep()

    def later(self, delay_seconds: float, do: Callable[[], object]) -> None:
        """Call ``do`` after ``delay_seconds``."""
        self._count += 1
        heapq.heappush(self._later, (self.clock.true_ns + seconds(delay_seconds), self._count, do))

    def log(self, line: str) -> None:
        """Add a line to the trace, if there is one."""
        if self._trace is not None:
            self._trace.append(f"t+{self.clock.seconds() - 1000:9.1f}s  {line}")

    @property
    def traced(self) -> bool:
        """Whether a trace is written."""
        return self._trace is not None

    @property
    def trace(self) -> list[str]:
        """Return the lines of the trace; empty if none is written."""
        return self._trace or []

    def heal(self) -> None:
        """End all troubles, restore deleted Nodes, and set all clocks right."""
        self.recovered = True
        self.traffic.clear()
        self.prometheus.error, self.prometheus.partial = "", False
        self.prometheus.down.clear()
        self.refusing.clear()
        self.lines.nameless_ns.clear()
        for name, machine in self.machines.items():
            machine.clock_ahead_ns, machine.ready = 0, True
            self.nodes.fill(name, None)
            if self.nodes.stored(name) is None:
                self.nodes.put(name)
        for process in self.processes:
            if process is not None:
                process.set_clock(0)
        if self.paused():
            Resume().take(self)
        self.start(0)

    def paused(self) -> bool:
        """Whether the Lease has a pause."""
        return self._controls().pause is not None

    def known(self, node: Node) -> NodeState:
        """Return the node with its record, which the Lease has if the Node had no room for it (rule 21)."""
        state = self.decode(node)
        if state.name not in self.ledger.crowded:
            return state
        return with_kept({state.name: state}, self._controls().kept)[state.name]

    def _controls(self) -> Controls:
        lease = self.kube._store.get("leases", Key(NAMESPACE, LEASE))
        return Controls() if lease is None else view(lease.load()).controls

    def round_of_all(self) -> None:
        for process in self.processes:
            if process is not None:
                process.round()

    def date(self) -> str:
        """Return the servers' Date header; empty while every clock is right, which is faster."""
        return format_datetime(self.clock.moment(), usegmt=True) if self.clocks_differ else ""

    def uuid(self) -> str:
        """Return a new id, the same in every run of a seed."""
        return f"{self.rng.getrandbits(32):08x}-0000-4000-8000-{self.rng.getrandbits(48):012x}"

    # Processes

    def kill(self, process: Process) -> None:
        self.log(f"   {process.name} is killed")
        process.dead = True

    def start(self, slot: int, *, same_identity: bool = True) -> Process:
        """Start a process in a slot; a container that is restarted in place keeps its identity."""
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

    def node_clock_ns(self, name: str) -> int:
        """Return the time by the node's clock."""
        return self.clock.true_ns + self.machines[name].clock_ahead_ns
