"""Stand-ins and controller as separate processes, so that each is measured alone."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from konductor_like_sandbox.demo.stage import RunningController
from konductor_like_sandbox.loki import shipped
from tests.processes.waiting import logged, until

KERNEL = {"k8s_namespace_name": "dmesg-logging", "k8s_container_name": "dmesg"}
REPORTED = (
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "GPUProblem",
    "GPUMissing",
    "NVLinkStatusInactive",
    "XIDErrors",
)
"""Conditions of node-problem-detector, those about GPUs among them."""
BOOT = "0d5c9a1e-7c44-4f0a-9a5e-3c1f6f0a2b77"


class StandIn:
    """A stand-in server as a process; it ends with ``stop``."""

    def __init__(self, *arguments: str) -> None:
        command = (sys.executable, "-m", "tests.benchmarks.serve", *arguments)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout
        self.url = self._from.readline().strip()

    def asked(self) -> Mapping[str, int]:
        """Return the number of its requests since the last call, by kind."""
        self._to.write("\n")
        self._to.flush()
        found: Mapping[str, int] = json.loads(self._from.readline())
        return found

    def stop(self) -> None:
        self.process.communicate(timeout=60)

    def connection(self, timeout_seconds: float | None = 60) -> http.client.HTTPConnection:
        """Return a new connection; without a timeout a watch may stay silent."""
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=timeout_seconds)


class Loki(StandIn):
    """The stand-in Loki with the shipped settings, and a collector that pushes over one connection."""

    def __init__(self) -> None:
        super().__init__("loki")
        self._collector = self.connection()
        self.pushed_bytes = 0

    def stop(self) -> None:
        self._collector.close()
        super().stop()

    def push(self, streams: Iterable[tuple[Mapping[str, str], Iterable[tuple[int, str]]]]) -> None:
        """Store lines: labels, and pairs of time (ns since the epoch) and text."""
        body = [
            {"stream": dict(labels), "values": [[str(at), text] for at, text in lines]}
            for labels, lines in streams
        ]
        self.pushed_bytes += sum(len(text) for one in body for _, text in one["values"])
        self._post("/loki/api/v1/push", {"streams": body})

    def ship(self, node: str, lines: Iterable[tuple[int, str]]) -> None:
        """Push kernel lines of one node with all labels of the shipped collector: 1 KiB a line in answers."""
        self._post("/otlp/v1/logs", shipped(node, lines))

    def _post(self, path: str, body: object) -> None:
        self._collector.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self._collector.getresponse()
        reply = answer.read()
        assert answer.status == 204, reply

    def push_kernel(self, lines: Iterable[tuple[str, int, str]]) -> None:
        """Push kernel lines (node, time, text), with one stream per node."""
        by_node: dict[str, list[tuple[int, str]]] = {}
        for node, at_ns, text in lines:
            by_node.setdefault(node, []).append((at_ns, text))
        self.push((kernel_labels(node), found) for node, found in by_node.items())


def kernel_labels(node: str) -> dict[str, str]:
    """Return the labels of a node's kernel-log reader."""
    return {**KERNEL, "k8s_pod_name": f"dmesg-{node}", "k8s_node_name": node}


class Cluster(StandIn):
    """The stand-in API server with a fleet of GPU nodes."""

    def __init__(self, folder: Path, nodes: int, *, refresh_seconds: float = 0, large_pods: int = 0) -> None:
        self.kubeconfig = folder / "kubeconfig"
        super().__init__(
            "kubernetes", str(self.kubeconfig), str(nodes), str(refresh_seconds), str(large_pods)
        )
        config = json.loads(self.kubeconfig.read_text())
        self._token = config["users"][0]["user"]["token"]

    @contextmanager
    def watching(self, path: str, seen: Callable[[bytes, float], object], **params: str) -> Iterator[None]:
        """Call ``seen`` with every later change, as JSON, and its time."""
        connection, broken = self.connection(None), queue.Queue[Exception]()
        start = self.get(f"{path}?limit=1")["metadata"]["resourceVersion"]
        watch = {"watch": "true", "timeoutSeconds": "3600", "resourceVersion": start}
        query = urlencode({**watch, **params})
        connection.connect()
        sock = connection.sock  # an answer that closes takes the socket away
        connection.request("GET", f"{path}?{query}", headers={"Authorization": f"Bearer {self._token}"})
        answer = connection.getresponse()

        def follow() -> None:
            try:
                rest = b""
                while piece := answer.read1(1 << 16):
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        seen(line, time.time())
            except (OSError, http.client.HTTPException):
                return  # closed below
            except Exception as error:  # noqa: BLE001  # raised again in the waiting thread
                broken.put(error)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            sock.shutdown(socket.SHUT_RDWR)
            thread.join()
            answer.close()
            connection.close()
        if not broken.empty():
            raise broken.get()

    def get(self, path: str) -> dict[str, Any]:
        connection = self.connection()
        connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def report_conditions(self, nodes: Iterable[str]) -> None:
        """Let node-problem-detector report, of each node, that all it knows of is well."""
        connection = self.connection()
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/strategic-merge-patch+json",
        }
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        conditions = [{"type": kind, "status": "False", "reason": f"No{kind}", **times} for kind in REPORTED]
        body = json.dumps({"status": {"conditions": conditions}})
        for node in nodes:
            connection.request("PATCH", f"/api/v1/nodes/{node}/status", body, headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
        connection.close()


class Prometheus:
    """Answers each question as a quiet fleet does: no alert fires, and both exporters are read."""

    def __init__(self) -> None:
        self.questions = 0
        series = [{"metric": {"exporter": each}, "value": [0, "5000"]} for each in ("dcgm", "node")]
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}}).encode()
        world = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                world.questions += 1
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def started(loki: Loki, cluster: Cluster, **settings: str) -> RunningController:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith("KONDUCTOR_") and k != "WATCHED_NAMESPACES"
    }
    plain = {"KUBECONFIG": str(cluster.kubeconfig), "LOG_ENDPOINT": loki.url, "KONDUCTOR_LISTEN": "off"}
    controller = RunningController({**kept, **plain, "KONDUCTOR_LOG_FORMAT": "text", **settings}, ())
    until(logged(controller, "Reading Loki"), "it leads", controller)
    return controller


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process and its threads have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int, what: str = "VmRSS") -> float:
    """Return the memory of a process in MiB: now, or with ``VmHWM`` at its peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {what} of process {pid}")
