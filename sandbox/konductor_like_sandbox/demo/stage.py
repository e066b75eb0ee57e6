"""The stage of the story: both stand-ins, a fleet, its kernel logs, and the real controller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from konductor_like.cluster.lease.checkpoint import COVERAGE_ANNOTATION, decode_coverage
from konductor_like.cluster.preflight import admission_objects
from konductor_like.cluster.reader_pods import DEVICE, NAMESPACE, WRITE
from konductor_like.model import HEALTH_LABEL, RECORD_ANNOTATION, TAINT_KEY, CoverageState
from konductor_like_sandbox.demo import jobs as made_up
from konductor_like_sandbox.demo import validation
from konductor_like_sandbox.demo.kept import KeptDemo
from konductor_like_sandbox.kmsg import Kmsg, written_by
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.exec import Command, Outcome
from konductor_like_sandbox.kubernetes.fleet import (
    make_cpu_node,
    make_node,
    make_reader_daemonset,
    make_reader_pod,
    reader_pod_name,
)
from konductor_like_sandbox.loki import LokiServer, shipped

CONTROLLER = (sys.executable, "-m", "konductor_like.controller.launch")
COMMAND = (sys.executable, "-m", "konductor_like.cli")
CONTROLLERS = "konductor-like"
"""The controller's namespace, and the name of its container."""
HEARTBEAT_SECONDS = 60.0
OFTEN_SECONDS = 10.0
"""Seconds between heartbeats in a demo of validations, where people wait for them."""
KEPT_SECONDS = 3600.0
_LOG_LINES_KEPT = 200
_NO_FILE = Path(os.devnull)


@dataclass(slots=True)
class KernelLog:
    """One node's kernel ring buffer, as ``dmesg -w`` prints it: a stamp in brackets, then the text."""

    node: str
    uptime_seconds: float
    boot_id: str = ""
    """The boot of the last heartbeat."""
    lines: list[str] = field(default_factory=list)
    device: Kmsg = field(default_factory=Kmsg)

    def write(self, text: str, elapsed_seconds: float) -> list[str]:
        """Take one write to ``/dev/kmsg``; return the lines, with stamps, that can be read from now on."""
        stamp = f"[{self.uptime_seconds + elapsed_seconds:.6f}]"
        readable = self.device.write(text, lambda line: f"{stamp} {line}")
        self.lines += readable
        return readable


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node as the API server shows it."""

    name: str
    tainted: bool
    health: str
    record: dict[str, Any]

    def recorded(self, code: int) -> bool:
        """Whether the node's record has an incident with this Xid."""
        return any(incident["rule"] == f"xid.{code}" for incident in self.record.get("incidents", ()))

    @property
    def passed(self) -> bool:
        """Whether the node's last validation passed."""
        return bool((self.record.get("validation") or {}).get("verdict") == "pass")

    @property
    def collateral(self) -> bool:
        """Whether a failure on another node explains a fault of the node."""
        return any(incident.get("role") == "collateral" for incident in self.record.get("incidents", ()))


class RunningController:
    """The real controller as a process.

    ``log`` has the last lines of its log as text, ``log_file`` has all, and ``ship`` takes each, as a
    collector does.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        arguments: Sequence[str],
        log_file: Path = _NO_FILE,
        ship: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._log_file, self._ship = log_file, ship
        self.log: deque[str] = deque(maxlen=_LOG_LINES_KEPT)
        self.process = subprocess.Popen(  # noqa: S603  # our own interpreter and module
            (*CONTROLLER, *arguments), env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()

    def stop(self) -> int:
        """Terminate the controller if it still runs; return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self._ended()

    def kill(self) -> None:
        """End the controller with SIGKILL."""
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        try:
            code = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._follower.join()
        return code

    def _follow(self) -> None:
        assert self.process.stderr is not None  # noqa: S101  # it was asked for
        with (
            self.process.stderr as lines,
            self._log_file.open("a", buffering=1, encoding="utf-8") as log_file,
        ):
            for line in lines:
                log_file.write(line)
                self._ship(line.rstrip("\n"))
                self.log.append(_as_text(line.rstrip("\n")))


def _as_text(line: str) -> str:
    """Return a line of the controller's log as people read it; a line that is no JSON stays as it is."""
    try:
        found = json.loads(line)
        return f"{found['ts'][:19]}Z {found['level'].upper()} {found['msg']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return line


class Stage:
    """A context manager. At its end everything is stopped and removed."""

    def __init__(
        self, gpu_nodes: int = 10, settings: Mapping[str, str] | None = None, jobs: bool = False
    ) -> None:
        """``settings`` are environment variables of the controller; with ``jobs`` the GPUs are in use."""
        self._settings = settings or {}
        self.validates = bool(self._settings.get("KONDUCTOR_VALIDATION_IMAGE"))
        self._exits = ExitStack()
        self.loki = LokiServer()
        self.cluster = KubernetesServer()
        self._started_ns = time.time_ns()
        digits = max(2, len(str(gpu_nodes)))
        names = [f"gpu-{i:0{digits}}" for i in range(1, gpu_nodes + 1)]
        self.jobs = made_up.jobs_on(names) if jobs else []
        self._kernels = {name: KernelLog(name, 1_235_000.0 + 977.25 * i) for i, name in enumerate(names)}

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            self._folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="konductor-like-")))
            exits.enter_context(self.loki)
            exits.enter_context(self.cluster)
            self.kubeconfig = self._folder / "kubeconfig"
            self.cluster.kubeconfig(self.kubeconfig)
            for name in self._kernels:
                self.cluster.put_node(make_node(name))
                self.cluster.put_pod(make_reader_pod(name))
            for job in self.jobs:
                for name in job.nodes:
                    self.cluster.put_pod(job.pod(name))
            self.cluster.put_node(make_cpu_node("cpu-01"))
            self.cluster.create_namespace(NAMESPACE)
            self.cluster.put("daemonsets", make_reader_daemonset(len(self._kernels)))
            policy, binding = admission_objects()["konductor-like"]
            self.cluster.put("validatingadmissionpolicies", policy)
            self.cluster.put("validatingadmissionpolicybindings", binding)
            self.cluster.access.deny("impersonate", "*")  # it has no account, and evaluates no policy
            self.cluster.exec.run = self._run_in_pod
            if self.validates:
                validation.prepare(self.cluster)
                program = validation.passing(self._boot_of)
                self.cluster.jobs.programs.update(dict.fromkeys(self._kernels, program))
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a shell needs to use this stage."""
        return {"KUBECONFIG": str(self.kubeconfig), "LOG_ENDPOINT": self.loki.url}

    @property
    def controller_log(self) -> Path:
        """The file with the log lines of the stage's controllers."""
        return self._folder / "controller.log"

    @property
    def kept(self) -> KeptDemo:
        """What another process needs to write to the nodes' kernel logs."""
        booted_ns = {
            name: self._started_ns - round(kernel.uptime_seconds * 1e9)
            for name, kernel in self._kernels.items()
        }
        return KeptDemo(os.getpid(), str(self.kubeconfig), self.loki.url, booted_ns)

    @property
    def gpu_nodes(self) -> tuple[str, ...]:
        """The names of the GPU nodes."""
        return tuple(self._kernels)

    def start_controller(self, *arguments: str, **settings: str) -> RunningController:
        """Start ``python -m konductor_like.controller.launch`` and follow its log.

        ``settings`` are environment variables; they override the stage's own.
        """
        quick = {
            "KONDUCTOR_POLL_INTERVAL_SECONDS": "0.5",
            "KONDUCTOR_LEASE_DURATION_SECONDS": "6",
            "KONDUCTOR_LISTEN": "off",
            "KONDUCTOR_LOG_FORMAT": "json",
        }
        controller = RunningController(
            self.child_environment(**(quick | dict(self._settings) | settings)),
            arguments,
            self.controller_log,
            self._ship_log,
        )
        self._exits.callback(controller.stop)
        return controller

    def _ship_log(self, line: str) -> None:
        """Send a line of the controller's log to Loki, where ``history`` finds the audit trail."""
        lines = [(time.time_ns(), line)]
        sent = shipped("cpu-01", lines, namespace=CONTROLLERS, pod=f"{CONTROLLERS}-0", container=CONTROLLERS)
        self.loki.push_otlp(sent)

    def run(self, *arguments: str, show: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a ``konductor-like`` command against this stage; with ``show`` it prints to our terminal."""
        return subprocess.run(  # noqa: S603  # our own interpreter and module
            (*COMMAND, *arguments),
            env=self.child_environment(**self._settings),
            capture_output=not show,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def _run_in_pod(self, command: Command) -> Outcome:
        """Run a command in a reader's pod: only the one that writes to the kernel log is there."""
        if tuple(command.words[:-1]) != WRITE:
            return Outcome(127, stderr=b"the demo's pods have no such program\n")
        node = next(name for name in self._kernels if reader_pod_name(name) == command.pod)
        self._write(node, written_by(command.words, DEVICE))
        return Outcome()

    def kernel(self, node: str, line: str) -> None:
        """Write a line to a node's kernel log, and ship it."""
        self._write(node, f"{line}\n")

    def _write(self, node: str, text: str) -> None:
        """Write to a node's ``/dev/kmsg``, and ship what can be read then."""
        lines = self._kernels[node].write(text, (time.time_ns() - self._started_ns) / 1e9)
        if lines:
            self.push(node, *lines)

    def reboot(self, node: str) -> None:
        """Boot a node: its Node has a new boot id from now on, and its heartbeats are of the new boot."""
        boot_id = str(uuid4())
        self.cluster.edit_node(node, lambda stored: stored["status"]["nodeInfo"].update(bootID=boot_id))
        self.heartbeats()

    def _boot_of(self, node: str) -> str:
        return str(self._get(node)["status"]["nodeInfo"]["bootID"])

    def fail_job(self, job: made_up.Job) -> None:
        """Let every rank of a job print an error of NCCL, and end the job's pods."""
        now_ns, labels = time.time_ns(), {"kubeflow.job.name": job.name}
        for rank, node in enumerate(job.nodes):
            line = made_up.NCCL_ERROR.format(rank=8 * rank)
            sent = shipped(
                node,
                [(now_ns, line)],
                namespace=made_up.NAMESPACE,
                pod=job.pod_name(node),
                container="pytorch",
                attributes=labels,
            )
            self.loki.push_otlp(sent)
            self.cluster.put_pod(job.pod(node, "Failed"))

    def replay(self, node: str) -> None:
        """Ship the whole ring buffer again with new timestamps, as after a restart of the ``dmesg`` pod."""
        self.push(node, *self._kernels[node].lines)

    def keep_beating(self) -> None:
        """Send every node's heartbeats of the last two minutes, then one each minute until the stage ends."""
        now_ns = time.time_ns()
        for minutes in (2, 1):  # a controller that starts now reads lines that are older than 20 s
            self.heartbeats(now_ns - minutes * round(HEARTBEAT_SECONDS * 1e9))
        over = threading.Event()
        beating = threading.Thread(target=self.beat, args=(over.wait,), daemon=True)
        beating.start()
        self._exits.callback(beating.join)
        self._exits.callback(over.set)

    def beat(self, wait: Callable[[float], bool], now_ns: Callable[[], int] = time.time_ns) -> None:
        """Send heartbeats now and each minute; ``wait`` takes seconds and returns whether to stop.

        What is older than an hour, and the servers' journals, are dropped: people keep a demo for days.
        """
        self.heartbeats(now_ns())
        while not wait(OFTEN_SECONDS if self.validates else HEARTBEAT_SECONDS):
            self.loki.forget(now_ns() - round(KEPT_SECONDS * 1e9))
            self.loki.clear_journal()
            self.cluster.clear_calls()
            self.heartbeats(now_ns())

    def heartbeats(self, at_ns: int | None = None) -> None:
        """Send one heartbeat of every node's kernel-log reader, now or at this Unix time."""
        at_ns = time.time_ns() if at_ns is None else at_ns
        wall = datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="milliseconds")
        for node in self.cluster.objects("nodes"):
            if kernel := self._kernels.get(
                node["metadata"]["name"]
            ):  # people may delete nodes of a kept demo
                boot_id = node["status"]["nodeInfo"]["bootID"]
                if kernel.boot_id not in ("", boot_id):
                    kernel.uptime_seconds = (self._started_ns - at_ns) / 1e9
                kernel.boot_id = boot_id
                uptime = kernel.uptime_seconds + (at_ns - self._started_ns) / 1e9
                beat = f"kmsg/1 heartbeat boot={boot_id} seq=4711 uptime={uptime:.6f} wall={wall}"
                self._push(kernel.node, [beat], at_ns)

    def node(self, name: str) -> SeenNode:
        """Return a node as the API server shows it."""
        node = self._get(name)
        metadata = node["metadata"]
        record = json.loads(metadata.get("annotations", {}).get(RECORD_ANNOTATION, "{}"))
        tainted = any(taint["key"] == TAINT_KEY for taint in node["spec"].get("taints", ()))
        return SeenNode(name, tainted, metadata.get("labels", {}).get(HEALTH_LABEL, ""), record)

    def nodes(self) -> list[SeenNode]:
        """Return all GPU nodes."""
        return [self.node(name) for name in self._kernels]

    def heard(self) -> set[str]:
        """Return the GPU nodes whose kernel log arrives, by the coverage on the Lease."""
        for lease in self.cluster.objects("leases", "konductor-like"):
            text = lease["metadata"].get("annotations", {}).get(COVERAGE_ANNOTATION, "")
            if (coverage := decode_coverage(text)[0]) is not None:
                return {name for name in self._kernels if coverage.of(name) is CoverageState.MEASURED}
        return set()

    def _get(self, name: str) -> dict[str, Any]:
        return self.cluster.node(name)

    def child_environment(self, **more: str) -> dict[str, str]:
        """Return the environment for our own commands on this stage."""
        # Settings of the person who runs the demo must not change it.
        names = ("LOG_ENDPOINT", "WATCHED_NAMESPACES", "KUBECONFIG")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KONDUCTOR_") and k not in names}
        return {**kept, **self.environment, **more}

    def push(self, node: str, *lines: str) -> None:
        """Ship lines of a node, as the collector does; with an empty ``node`` the lines name no node."""
        self._push(node, lines, time.time_ns())

    def _push(self, node: str, lines: Sequence[str], at_ns: int) -> None:
        self.loki.push_otlp(shipped(node, ((at_ns + i, line) for i, line in enumerate(lines))))
