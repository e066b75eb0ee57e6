"""A site: a cluster, its Loki, the kernel logs and pods of its nodes, and one controller, on simulated time.

The controller is put together by its own wiring (:mod:`tests.chaos.process`), and its requests are answered
by the stand-ins' own handlers. Lines reach Loki as the collector ships them (``manifests/otel-values.yaml``).
"""

from __future__ import annotations

import heapq
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import pytest
from prometheus_client import generate_latest

from konductor_like.cli import session
from konductor_like.cli.app import execute
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.model import Incident, IncidentState, NodeRecord, NodeState, Role
from konductor_like.settings import Settings
from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.kmsg import Kmsg
from konductor_like_sandbox.kubernetes.api import _whole
from konductor_like_sandbox.kubernetes.lists import Selection
from konductor_like_sandbox.kubernetes.resources import EVENTS, NODES
from konductor_like_sandbox.kubernetes.server import KubernetesServer
from konductor_like_sandbox.kubernetes.watches import _changes
from konductor_like_sandbox.loki import LokiServer, otlp_body, otlp_record
from tests.chaos.clock import Clock
from tests.chaos.machines import seconds
from tests.chaos.process import NAMESPACE, RENEW_SECONDS, Process, _shared
from tests.chaos.prometheus import MemoryPrometheus
from tests.chaos.wire import LOKI, Exchange, awaited
from tests.cli.transcripts import forget_settings
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER, rules_of
from tools.manifests.manifests import documents

DOCS = documents("controller_deployment.yaml")
"""The controller's manifest: its rights hold in every scenario."""
SHIPPING_SECONDS = 0.2
STEP_SECONDS, LONG_STEP_SECONDS, LONG_SECONDS = 10.0, 30.0, 120.0
"""Simulated seconds between two rounds of the controller; the second if the wait is longer than the third."""
UPTIME_SECONDS = 1_235_000
HEARTBEAT_SECONDS = 60.0
RENEWAL_SECONDS = 5.0
"""Seconds between renewals of the Lease, which has what people wrote there."""
_LABEL_OF_KIND = {
    "Job": "k8s.job.name",
    "PyTorchJob": "kubeflow.job.name",
    "JobSet": "jobset.name",
    "RayCluster": "ray.cluster.name",
}
"""How the collector labels the pods of a job of each kind; the pods of any other are known by their name."""


@dataclass(slots=True)
class _Kernel:
    """One node's kernel log, as our reader of ``/dev/kmsg`` prints it."""

    boot_id: str
    booted_ns: int
    sequence: int = 1000
    device: Kmsg = field(default_factory=Kmsg)

    def line(self, text: str, now_ns: int) -> str:
        """Return the record of a line that the kernel prints now."""
        self.sequence += 1
        stamp_us = (now_ns - self.booted_ns) // 1000
        stamp = f"[{stamp_us // 1_000_000:5d}.{stamp_us % 1_000_000:06d}]"
        return f"kmsg/1 boot={self.boot_id} seq={self.sequence} facility=0 priority=3 {stamp} {text}"

    def heartbeat(self, now_ns: int, wall: str) -> str:
        """Return the heartbeat that the reader prints once a minute."""
        stamp_us = (now_ns - self.booted_ns) // 1000
        return (
            f"kmsg/1 heartbeat boot={self.boot_id} seq={self.sequence} "
            f"uptime={stamp_us // 1_000_000}.{stamp_us % 1_000_000:06d} wall={wall}"
        )


class Printed(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[str]:
        heads = [number for number, line in enumerate(self.lines) if line.startswith("NODE ")]
        return self.lines[heads[0] + 1 :] if heads else []

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


class _Ledger:
    """A stand-in for the ledger of the chaos tests."""

    def starts_leading(self, *_: object) -> None:
        """Ignore the entry."""

    def break_(self, what: str) -> None:
        """Fail the test: an invariant is broken."""
        raise AssertionError(what)


class Site:
    """Use as a context manager. Lines are scheduled, and happen while :meth:`run` lets time pass."""

    def __init__(
        self,
        nodes: Iterable[Mapping[str, Any]],
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        *,
        admitted: bool = False,
        alerts: bool = False,
        **settings: Any,
    ) -> None:
        """``admitted``: every write passes the manifest's admission policy, which is slow in the stand-in.

        ``alerts``: the controller reads the alerts of a Prometheus.
        """
        self.clock = Clock()
        self.rng = random.Random(6)
        self.setup = SimpleNamespace(slow_writes=False, spans={})
        self.ledger = _Ledger()
        self.prometheus = MemoryPrometheus(self.clock) if alerts else None
        """Answers the questions about alerts."""
        self.traffic = self.lines = self
        """The site itself has the methods that :class:`Process` needs of these."""
        self.taken = 0
        self.recovered = True
        """Nothing goes wrong by chance."""
        forget_settings(monkeypatch)
        self.settings = Settings(
            log_endpoint="http://loki.test:3100",
            watched_namespaces=("ml",),
            tail=False,
            **settings,
        )
        self.loki = LokiServer(now_ns=lambda: self.clock.true_ns)
        policy: dict[str, Any] = {"admission": Policy(DOCS)} if admitted else {}
        self.kube = KubernetesServer(clock=self.clock.moment, nodes=nodes, **policy)
        docs = [*DOCS, *(documents("validation.yaml") if self.settings.validation_image else ())]
        self._token = self.kube.access.add_user(CONTROLLER, rules_of(docs))
        self.kube.create_namespace(NAMESPACE)
        self.names = sorted(node["metadata"]["name"] for node in self.kube.objects("nodes"))
        if self.prometheus is not None:
            self.prometheus.nodes.update(self.names)
        self._decode = node_decoder(self.settings)
        self.calls: set[tuple[str, str]] = set()
        """The kinds of the controller's requests to the API server: method, and path without names."""
        self.writes: Counter[str] = Counter()
        """Number of the controller's writes, by node."""
        self.meddle: Callable[[Request, Callable[[], Reply]], Reply] = lambda _, answer: answer()
        """Stands between the controller and the API server: is given the request, and what answers it."""
        self._kernels: dict[str, _Kernel] = {}
        self.silent: set[str] = set()
        """The nodes whose kernel-log reader does not run."""
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._reading = False
        self._seen: tuple[int, dict[str, NodeState]] = (-1, {})
        self._process: Process | None = None
        self._folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self._exits.enter_context(self.kube)
        kubeconfig = self.kube.kubeconfig(self._folder / "kubeconfig")
        environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(self._folder), "COLUMNS": "80"}
        for name, value in environment.items():  # no setting: commands learn them from the Lease
            self._monkeypatch.setenv(name, value)
        self._monkeypatch.setattr(session, "now", self.clock.moment)
        self._monkeypatch.setattr(session, "who", lambda *_: "kim@laptop")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    # The controller

    def start(self) -> None:
        """Start a controller and let it do its first round."""
        with self._by_its_clock():
            self._process = Process(self, "controller", "controller_uid")
            self._process.round()

    @contextmanager
    def _by_its_clock(self) -> Iterator[None]:
        """Give the modules simulated time meanwhile; time may pass inside."""
        if self._reading:
            yield
            return
        self._reading = True
        try:
            with self.clock.installed():
                yield
        finally:
            self._reading = False

    def kill(self) -> None:
        assert self._process is not None
        self._process.dead, self._process = True, None

    def restart(self, after_seconds: float = 0.0) -> None:
        """Kill the controller and start it again after some seconds."""
        self.kill()
        self.advance(after_seconds)
        self.start()

    @property
    def process(self) -> Process:
        """The controller that runs, or was killed by :attr:`meddle`."""
        assert self._process is not None
        return self._process

    def run(self, span_seconds: float, step_seconds: float | None = None) -> None:
        """Let time pass while the controller works."""
        if step_seconds is None:
            step_seconds = STEP_SECONDS if span_seconds <= LONG_SECONDS else LONG_STEP_SECONDS
        end_ns = self.clock.true_ns + seconds(span_seconds)
        while self.clock.true_ns < end_ns:
            self.advance(min(step_seconds, (end_ns - self.clock.true_ns) / 1e9))
            if self._process is not None:
                with self._by_its_clock():
                    self._process.round()

    def advance(self, span_seconds: float) -> None:
        """Let time pass: lines arrive and the Lease is renewed, but the controller reads nothing."""
        end_ns = self.clock.true_ns + seconds(span_seconds)
        while self.clock.true_ns < end_ns:
            soon_ns = self._later[0][0] if self._later else end_ns
            self.clock.true_ns = min(end_ns, max(soon_ns, self.clock.true_ns + 1), self._renewal_ns())
            while self._later and self._later[0][0] <= self.clock.true_ns:
                heapq.heappop(self._later)[2]()
            if self._process is not None:
                with self._by_its_clock():
                    self._process.keep()

    def _renewal_ns(self) -> int:
        return self.clock.true_ns + seconds(RENEW_SECONDS / 2)

    # What Process asks of its world

    def exchange_of(self, _process: Process) -> Exchange:
        """Return the transport of the requests."""
        return self._exchange

    def date(self) -> str:
        """Return no Date header: every clock is right."""
        return ""

    def take_nudge(self) -> None:
        """Have no tail."""

    def pause_here(self, process: Process) -> None:
        """Stop nothing."""

    def _exchange(self, server: str, request: Request, timeout_seconds: float) -> Reply:
        if server == LOKI:
            return awaited(self.loki._api.handle(request), timeout_seconds, self.advance)
        self.calls.add((request.method, kind_of(request.path)))
        if request.method == "PATCH":
            self.writes[request.path.rpartition("/")[2]] += 1
        if request.method == "PUT" and "/leases/" in request.path and self._process is not None:
            self._process.renewed_seconds = self.clock.seconds() + RENEWAL_SECONDS - RENEW_SECONDS
        if "watch" not in request.params:
            headers = {**request.headers, "authorization": f"Bearer {self._token}"}
            authorized = replace(request, headers=headers)
            return self.meddle(request, lambda: self.kube._http.handle(authorized))
        store, version = self.kube._store, int(request.param("resourceVersion"))
        watched = EVENTS if request.path.endswith("/events") else NODES
        selection = Selection(watched, "", request)
        changes = store.changes_since(watched.plural, version)
        return Reply(body=b"".join(_changes(changes, selection, lambda item: _whole(watched, item))))

    # Lines

    def kernel(self, node: str, text: str, *, at: float = 0.0, late: float = SHIPPING_SECONDS) -> None:
        """Schedule a kernel line ``at`` seconds from now; Loki has it ``late`` seconds after that."""

        self._at(at, lambda: self.write(node, f"{text}\n", late=late))

    def write(
        self, node: str, text: str, *, late: float = SHIPPING_SECONDS, shipped_as: str | None = None
    ) -> None:
        """Write to a node's ``/dev/kmsg`` now; the collector may give the lines another node name."""
        log, now_ns = self._log(node), self.clock.true_ns
        for line in log.device.write(text, lambda line: log.line(line, now_ns)):
            self._ship(shipped_as or node, "dmesg-logging", f"dmesg-{node[-4:]}", "dmesg", {}, line, late)

    def pod(
        self,
        node: str,
        job: str,
        text: str,
        *,
        rank: int = 0,
        at: float = 0.0,
        late: float = SHIPPING_SECONDS,
    ) -> None:
        """Schedule a line of a pod of the job ``namespace/Kind/name`` on a node."""
        namespace, kind, name = job.split("/")
        labels = {_LABEL_OF_KIND[kind]: name} if kind in _LABEL_OF_KIND else {}
        pod = f"{name}-worker-{rank}"
        self._at(
            at, lambda: self._ship(node, namespace, pod, "train", labels, f"{pod}:71:98 [0] {text}", late)
        )

    def hearts(self) -> None:
        """Let every kernel-log reader print its heartbeat once a minute from now on."""

        def beat() -> None:
            wall = self.clock.moment().isoformat().replace("+00:00", "Z")
            for name in [each for each in self.names if each not in self.silent]:
                text = self._log(name).heartbeat(self.clock.true_ns, wall)
                self._ship(name, "dmesg-logging", f"dmesg-{name[-4:]}", "dmesg", {}, text, SHIPPING_SECONDS)
            self._at(HEARTBEAT_SECONDS, beat)

        beat()

    def reboot(self, node: str, boot_id: str, *, silent: bool = False) -> None:
        """Let a machine boot: its kubelet reports the new boot id, and its kernel log starts again.

        With ``silent`` the reader of the kernel log does not start.
        """

        def boot(stored: dict[str, Any]) -> None:
            stored["status"]["nodeInfo"]["bootID"] = boot_id

        self.kube.edit_node(node, boot)
        self._kernels[node] = _Kernel(boot_id, self.clock.true_ns)
        self.silent.discard(node)
        self.silent.update([node] if silent else [])

    def _log(self, node: str) -> _Kernel:
        if node not in self._kernels:
            boot_id = self.kube.node(node)["status"]["nodeInfo"]["bootID"]
            self._kernels[node] = _Kernel(boot_id, self.clock.true_ns - seconds(UPTIME_SECONDS))
        return self._kernels[node]

    def _ship(
        self,
        node: str,
        namespace: str,
        pod: str,
        container: str,
        labels: Mapping[str, str],
        text: str,
        late_seconds: float,
    ) -> None:
        now_ns = self.clock.true_ns
        record = otlp_record(text, now_ns, now_ns + seconds(late_seconds))
        resource = {
            "k8s.cluster.name": "default",
            "k8s.namespace.name": namespace,
            "k8s.pod.name": pod,
            "k8s.container.name": container,
            "k8s.node.name": node,
            **labels,
        }
        self._at(late_seconds, lambda: self.loki.push_otlp(otlp_body(resource, [record])))

    def _at(self, delay_seconds: float, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._later, (self.clock.true_ns + seconds(delay_seconds), self._count, do))

    # What people see

    def cli(self, *arguments: str) -> Printed:
        """Run one of our commands against the cluster."""
        self._capsys.readouterr()
        code = execute(list(arguments), "konductor-like")
        printed = self._capsys.readouterr()
        return Printed(code, printed.out, printed.err)

    def nodes(self) -> dict[str, NodeState]:
        version, states = self._seen
        if version != self.kube._store.version:
            version = self.kube._store.version
            states = {state.name: state for state in map(self._decode, self.kube.objects("nodes"))}
            self._seen = (version, states)
        return states

    def record(self, name: str) -> NodeRecord:
        return self.nodes()[name].record

    @property
    def tainted(self) -> set[str]:
        return {name for name, state in self.nodes().items() if state.tainted}

    @property
    def labels(self) -> dict[str, int]:
        """Return the number of nodes with each health label."""
        found = Counter(state.as_read.health for state in self.nodes().values())
        return {health: count for health, count in found.items() if health is not None}

    @property
    def open(self) -> list[tuple[str, Incident]]:
        """Return all open incidents with their nodes."""
        return [
            (name, incident)
            for name, state in self.nodes().items()
            for incident in state.record.incidents
            if incident.state is not IncidentState.RELEASED
        ]

    @property
    def events(self) -> set[str]:
        return {incident.failure_group for _, incident in self.open if incident.failure_group is not None}

    def in_role(self, role: Role | None) -> set[str]:
        return {name for name, incident in self.open if incident.role is role}

    @property
    def metrics(self) -> str:
        """Return the controller's metrics."""
        return generate_latest(_shared()[0].registry).decode()

    def told(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.kube.objects("events", "default") if event["reason"] == reason]

    def told_of_fleet(self) -> list[tuple[str, str]]:
        """Return the Events of the running controller on the Lease: reason and message."""
        return [] if self._process is None else self._process.told


def kind_of(path: str) -> str:
    """Return the resource of a path, without the names of objects: ``nodes/*/status``."""
    words = path.partition("/v1/")[2].split("/")
    words = words[2:] if words[0] == "namespaces" and len(words) > 2 else words
    return "/".join("*" if place == 1 else word for place, word in enumerate(words))
