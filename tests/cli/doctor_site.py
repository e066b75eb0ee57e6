"""A whole site over both stand-ins, which a test may damage before `doctor` looks at it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cli.doctor import gather as gathering
from konductor_like.cli.doctor.facts import Facts
from konductor_like.cli.doctor.gather import gather
from konductor_like.cli.session import load_settings
from konductor_like.cluster.api.client import KubeClient, ReadOnlyKubeClient
from konductor_like.cluster.lease.annotations import CONTROLS_ANNOTATION, LeasePayload, with_act
from konductor_like.cluster.lease.election import LeaderLease
from konductor_like.cluster.published import LOKI_NAMES, SETTINGS_ANNOTATION, encode_settings
from konductor_like.model import Checkpoint, Coverage, Source, Unparsed
from konductor_like.model.attempts import Attempt, Attempts, Doing, Unwritten
from konductor_like.model.controls import ControlAct
from konductor_like.model.time import unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings
from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.access import Rule
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_node
from konductor_like_sandbox.loki import LokiServer, shipped
from konductor_like_sandbox.loki.limits import LokiLimits
from konductor_like_sandbox.server import LoopbackServer
from tests.chaos.wire import KUBE, LOKI, Exchange, NoConnectionError, kube_client, loki_client
from tests.cli.scenes import settings_of
from tests.manifests.policy import StoredPolicies
from tests.manifests.roles import CONTROLLER, rules_of
from tools.manifests.embed import script_hash
from tools.manifests.manifests import documents, only

GPU_NODES = ("gpu-1.example.com", "gpu-2.example.com", "gpu-3.example.com")
BOOT = "0b1c2d3e-0000-4000-8000-000000000001"
MANIFEST = documents("controller_deployment.yaml")


@dataclass
class Site:
    """The parts of a site, each whole; a test changes one."""

    nodes: list[dict[str, Any]] = field(
        default_factory=lambda: [*map(_small_node, GPU_NODES), make_cpu_node("cpu-1")]
    )
    objects: dict[str, dict[str, Any]] = field(default_factory=lambda: whole_objects())
    """By ``table/name``."""
    pods: list[dict[str, Any]] = field(default_factory=lambda: whole_pods())
    names: dict[str, str] = field(default_factory=lambda: dict.fromkeys(GPU_NODES, ""))
    """By Node, the name on its lines if it is another one."""
    recent_names: dict[str, str | None] = field(default_factory=dict)
    """By Node, the name on its lines of the last two minutes; None if no such lines came."""
    beats: bool = True
    line: str = ""
    """A kernel line in place of heartbeats."""
    ahead_seconds: float = 0.0
    """Seconds by which the clock of the first node is ahead."""
    kernel: dict[str, str] = field(default_factory=dict)
    """Namespace and container of the kernel log, if they are others."""
    oldest_seconds: float = 90_000.0
    last_named: float = 130.0
    """Seconds since the last line that is older than two minutes."""
    shipped_namespaces: tuple[str, ...] = ("team-a",)
    pods_node: str = GPU_NODES[0]
    """The node's name on the lines of pods; empty if they have none."""
    watched: tuple[str, ...] = ("team-a",)
    """The controller's WATCHED_NAMESPACES."""
    lease: bool = True
    holder: str = "konductor-like-6d5f7-x2x4k"
    renewed_seconds: float = 4.0
    kernel_read_seconds: float = 5.0
    pods_read_seconds: float | None = 5.0
    """None if the controller watches no namespace."""
    unheard: frozenset[str] = frozenset()
    unparsed: tuple[str, ...] = ()
    """The nodes with a kernel line that the controller does not understand."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    pause: ControlAct | None = None
    limits: LokiLimits = field(default_factory=LokiLimits)
    tenants: bool = False
    rules: tuple[Rule, ...] | None = None
    """The caller's rights; None for all."""
    account: tuple[Rule, ...] = field(default_factory=lambda: rules_of(MANIFEST))
    """The rights of the controller's account."""
    attempts: dict[Doing, Attempt] = field(default_factory=dict)
    """The controller's attempts that did not go well just now."""
    publishes: bool = True
    """Whether the controller publishes its attempts; an older one does not."""
    unwritten: tuple[Unwritten, ...] = ()
    heard: int | None = None
    """Number of GPU nodes that this controller has heard; all that coverage measures by default."""
    leading_seconds: float = 7200.0
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the controller."""
    environment: dict[str, str] = field(default_factory=dict)
    before: Callable[[KubernetesServer, LokiServer], object] = lambda _kube, _loki: None
    """Called when both servers run, before the checkup."""

    @contextmanager
    def serving(self, folder: Path) -> Iterator[dict[str, str]]:
        """Run both stand-ins, and yield the environment of the person who calls the doctor."""
        kube, loki, token = self._servers()
        with kube, loki:
            kubeconfig = kube.kubeconfig(folder / "kubeconfig", token)
            self.before(kube, loki)
            yield {"KUBECONFIG": str(kubeconfig), "LOG_ENDPOINT": loki.url, **self._settings()}

    @contextmanager
    def in_memory(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
        """Let the clients reach both stand-ins without sockets, which costs a third; else as ``serving``."""
        kube, loki, token = self._servers()
        exchange = _exchange({KUBE: kube._http, LOKI: loki._http}, token)
        agent, steady = "doctor", time.monotonic
        connect = ReadOnlyKubeClient.connect  # finds no file
        found = staticmethod(
            lambda path, *rest: connect(path, *rest) if path else kube_client(exchange, agent, _no_date)
        )
        monkeypatch.setattr(ReadOnlyKubeClient, "connect", found)
        here = partial(loki_client, exchange=exchange, date=_no_date, steady=steady)
        monkeypatch.setattr(gathering, "LokiClient", lambda settings, _: here(settings))
        self.before(kube, loki)
        yield {"KUBECONFIG": "", "LOG_ENDPOINT": "http://loki.test", **self._settings()}

    def _settings(self) -> dict[str, str]:
        return {"WATCHED_NAMESPACES": "team-a", **self.environment}

    def _servers(self) -> tuple[KubernetesServer, LokiServer, str]:
        """Return both stand-ins with this site's content, and the person's token."""
        now, policies = datetime.now(UTC), StoredPolicies()
        limits = replace(self.limits, max_behind_stream_seconds=10**6)
        kube = policies.server = KubernetesServer(nodes=self.nodes, admission=policies)
        loki = LokiServer(limits=limits, auth_enabled=self.tenants)
        kube.access.add_user(CONTROLLER, self.account)
        for key, each in self.objects.items():
            kube.put(key.partition("/")[0], each)
        for each in self.pods:
            kube.put_pod(each)
        self._ship(loki, now)
        if self.lease:
            exchange = _exchange({KUBE: kube._http}, kube.access.admin_token)
            self._publish(kube, kube_client(exchange, self.holder, _no_date), now)
        return kube, loki, kube.access.add_user("kim", self.rules)

    def _ship(self, loki: LokiServer, now: datetime) -> None:
        for place, (node, name) in enumerate(self.names.items()):
            ahead = timedelta(seconds=self.ahead_seconds if not place else 0)
            recent = self.recent_names.get(node, name or node)
            for sender, agos in ((name or node, (self.oldest_seconds, self.last_named)), (recent, (70, 10))):
                lines = [(unix_ns(now) - round(ago * 1e9)) for ago in agos]
                texts = [
                    (ns, self.line or _beat(datetime.fromtimestamp(ns / 1e9, UTC) + ahead)) for ns in lines
                ]
                if self.beats and sender is not None:
                    loki.push_otlp(shipped(sender, texts, **self.kernel))  # type: ignore[arg-type]  # two texts
        for namespace in self.shipped_namespaces:
            loki.push_otlp(
                shipped(self.pods_node, [(time.time_ns(), "step 1")], namespace=namespace, container="main")
            )

    def _publish(self, kube: KubernetesServer, client: KubeClient, now: datetime) -> None:
        kube.create_namespace("konductor-like")
        queries = {name: Settings.model_fields[name].default for name in LOKI_NAMES}
        others = {**queries, **self.settings}
        published = settings_of(self.policy, namespaces=self.watched, by=self.holder, **others)
        notes = {SETTINGS_ANNOTATION: encode_settings(published)}
        if self.pause is not None:
            notes[CONTROLS_ANNOTATION] = with_act(None, self.pause)
        lease = LeaderLease(
            client,
            "konductor-like",
            "konductor-like",
            self.holder,
            duration_seconds=30,
            renew_deadline_seconds=20,
            renew_interval_seconds=10,
            now=lambda: now - timedelta(seconds=seconds),
            notes=lambda: notes,
        )
        seconds = self.leading_seconds
        assert lease.try_acquire().is_ours
        seconds = self.renewed_seconds
        read = {
            Source.KERNEL: unix_ns(now - timedelta(seconds=self.kernel_read_seconds)),
        }
        if self.pods_read_seconds is not None:
            read[Source.POD] = unix_ns(now - timedelta(seconds=self.pods_read_seconds))
        coverage = Coverage(
            now - timedelta(seconds=self.kernel_read_seconds),
            self.unheard,
            listed_are_measured=False,
            read_ns=read,
            unparsed={name: Unparsed(1, unix_ns(now)) for name in self.unparsed},
        )
        well = dict.fromkeys(Doing, Attempt(now - timedelta(seconds=4)))
        heard = len(GPU_NODES) - len(self.unheard) if self.heard is None else self.heard
        taints = len(self.unwritten)
        tried = {**well, **self.attempts}
        attempts = Attempts(self.holder, tried, self.unwritten, taints, heard=heard)
        since = Checkpoint(read, act_from_ns=unix_ns(now - timedelta(days=3)))
        lease.renew(LeasePayload(since, coverage, attempts=attempts if self.publishes else None))


def _exchange(servers: Mapping[str, LoopbackServer], token: str) -> Exchange:
    """Return what carries a person's requests to the stand-ins, with the mishaps that these have planned."""

    def carry(server: str, request: Request, timeout_seconds: float) -> Reply:  # noqa: ARG001  # nothing takes time
        http = servers[server]
        if http.stopping.is_set():
            raise NoConnectionError
        mishap = http.mishaps.take(request)
        if mishap is not None:
            return mishap.spoil(Reply())
        if server == KUBE:
            request = replace(request, headers={**request.headers, "authorization": f"Bearer {token}"})
        return http.handle(request)

    return carry


def _no_date() -> str:
    return ""


def _beat(wall: datetime) -> str:
    return f"kmsg/1 heartbeat boot={BOOT} seq=4711 uptime=1000.000001 wall={wall:%Y-%m-%dT%H:%M:%S.%fZ}"


def pod(
    namespace: str, name: str, node: str, *, ready: bool = True, phase: str = "Running", script: str = ""
) -> dict[str, Any]:
    """Return a pod of one container, with the hash of the reader's ``script``."""
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "annotations": {"trainy.konduktor.ai/kmsg-sha256": script} if script else {},
        },
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": phase, "containerStatuses": [{"ready": ready, "restartCount": 0}]},
    }


def daemonset(namespace: str, name: str, image: str, *, desired: int = 3, ready: int = 3) -> dict[str, Any]:
    """Return a DaemonSet with its status."""
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"template": {"spec": {"containers": [{"name": name, "image": image}]}}},
        "status": {"desiredNumberScheduled": desired, "numberReady": ready},
    }


def deployment(namespace: str, name: str, *arguments: str, replicas: int = 1) -> dict[str, Any]:
    """Return a Deployment with its status."""
    container = {"name": name, "image": f"registry.example.com/{name}:1", "command": [name, *arguments]}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": replicas},
    }


def _small_node(name: str) -> dict[str, Any]:
    """Return a GPU node without what only makes it large: the policies copy each Node in many steps."""
    node = make_node(name)
    node["status"].pop("images"), node["metadata"].pop("managedFields")
    labels = node["metadata"]["labels"].items()
    node["metadata"]["labels"] = {key: value for key, value in labels if "feature.node" not in key}
    return node


def whole_pods() -> list[dict[str, Any]]:
    """Return a reader on every GPU node, and a job's pod."""
    script = script_hash()
    readers = [pod("dmesg-logging", f"dmesg-{name}", name, script=script) for name in GPU_NODES]
    return [*readers, pod("team-a", "job-1", GPU_NODES[0])]


def whole_objects() -> dict[str, dict[str, Any]]:
    """Return the policy, its binding, the controller's Deployment and the reader."""
    policy, binding = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
    return {
        f"{policy}/konductor-like": only(MANIFEST, "ValidatingAdmissionPolicy"),
        f"{binding}/konductor-like": only(MANIFEST, "ValidatingAdmissionPolicyBinding"),
        "deployments/konductor-like": deployment("konductor-like", "konductor-like", "run"),
        "daemonsets/dmesg": daemonset("dmesg-logging", "dmesg", "docker.io/library/python:3.13"),
    }


def facts_of(seconds: float = 8.0) -> Facts:
    """Return the facts that the command gathers in this environment."""
    end = time.monotonic() + seconds
    return gather(
        load_settings(), os.environ["KUBECONFIG"], None, seconds, lambda: max(0.0, end - time.monotonic())
    )
