"""Everything around the controllers: both stand-ins, the machines, the collector, and people."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from konductor_like.cluster.api.client import NODES_PATH, lease_path, node_path
from konductor_like.cluster.lease.checkpoint import CURSOR_ANNOTATION, decode_checkpoint
from konductor_like.model import TAINT_EFFECT, TAINT_KEY, TAINT_VALUE
from konductor_like_sandbox.http import Request
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_node
from konductor_like_sandbox.loki import LokiServer, shipped
from tests.chaos.processes.journal import Journal, Object
from tests.chaos.processes.machines import KMSG, PLAIN, Machine, Occurrence

LEASE = ("konductor-like", "konductor-like")
KUBELET, PERSON, RESETTER = "system:node", "alice", "carol"
OUR_TAINT = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}
MERGE = "application/merge-patch+json"


class World:
    """Use as a context manager. ``forms`` has for each node how its kernel log is shipped."""

    def __init__(self, forms: Mapping[str, str]) -> None:
        self.journal = Journal()
        self.loki = LokiServer()
        self.cluster = KubernetesServer(admission=self.journal)
        self.machines = {
            name: Machine(name, form, 1_235_000.0 + 977.25 * number)
            for number, (name, form) in enumerate(forms.items())
        }
        self.occurrences: list[Occurrence] = []
        self._tokens: dict[str, str] = {}
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            self.folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="konductor-like-")))
            exits.enter_context(self.loki)
            exits.enter_context(self.cluster)
            for machine in self.machines.values():
                self.cluster.put_node(node_of(machine))
                self.heartbeat(machine.node)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def environment(self, user: str) -> dict[str, str]:
        """Return the environment for a program of this user."""
        config = self.folder / f"{user}.kubeconfig"
        self.cluster.kubeconfig(config, self._token(user))
        return {"KUBECONFIG": str(config), "LOG_ENDPOINT": self.loki.url}

    def xid(self, node: str, code: int, gpu: str) -> Occurrence:
        """Print an Xid, without shipping it."""
        occurrence = self.machines[node].xid(code, gpu)
        self.occurrences.append(occurrence)
        return occurrence

    def ship(
        self,
        occurrences: Iterable[Occurrence],
        form: str,
        *,
        restamped: bool = False,
        collector: str = "dmesg",
    ) -> None:
        """Ship records with their own times, or if ``restamped`` with the present time."""
        now_ns, occurrences = time.time_ns(), list(occurrences)
        self._push(
            collector,
            [
                (one.node, one.line(form), now_ns + number if restamped else one.printed_ns)
                for number, one in enumerate(occurrences)
            ],
        )
        for one in occurrences:
            self.machines[one.node].shipped_plain |= form == PLAIN
            one.accepted_ns = one.accepted_ns or time.time_ns()

    def replay(self, node: str, form: str) -> None:
        """Ship the whole ring buffer again with new timestamps, as a restarted ``dmesg`` pod does."""
        shipped = [one for one in self.machines[node].ring if one.accepted_ns is not None]
        self.ship(shipped, form, restamped=True)

    def heartbeat(self, node: str) -> None:
        """Ship a heartbeat of the node's kernel-log reader, if the node has one."""
        if self.machines[node].form == KMSG:
            self._push("dmesg", [(node, self.machines[node].heartbeat(), time.time_ns())])

    def post_boot(self, node: str) -> None:
        """Write the machine's boot to its Node, as the kubelet does."""
        boot = {"status": {"nodeInfo": {"bootID": self.machines[node].boot}}}
        self.ask(KUBELET, "PATCH", f"{node_path(node)}/status", boot, MERGE)

    def recreate(self, node: str, *, new_machine: bool) -> None:
        """Delete the Node and register it again, perhaps with another machine under the old name."""
        if new_machine:
            self.machines[node] = Machine(node, self.machines[node].form, 50.0, reboots=1)
        self.ask(PERSON, "DELETE", node_path(node))
        self.ask(KUBELET, "POST", NODES_PATH, node_of(self.machines[node], register=True))
        self.heartbeat(node)

    def edit(self, node: str, change: Callable[[dict[str, Any]], Mapping[str, Any] | None]) -> None:
        """Edit a Node as a person; ``change`` returns a merge patch for the Node, or None."""
        while True:
            status, seen = self.ask(PERSON, "GET", node_path(node))
            patch = change(seen) if status == 200 else None
            if patch is None:
                return
            version = {"resourceVersion": seen["metadata"]["resourceVersion"]}
            body = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
            if self.ask(PERSON, "PATCH", node_path(node), body, MERGE)[0] != 409:
                return

    def delete_lease(self) -> None:
        """Delete the Lease as a person."""
        self.ask(PERSON, "DELETE", lease_path(*LEASE))

    def nodes(self) -> dict[str, Object]:
        return {node["metadata"]["name"]: node for node in self.cluster.objects("nodes")}

    def lease(self) -> dict[str, Any]:
        return next(iter(self.cluster.objects("leases", LEASE[0])), {})

    def read_until_ns(self) -> int:
        """Return the cursor on the Lease; 0 if there is none."""
        text = self.lease().get("metadata", {}).get("annotations", {}).get(CURSOR_ANNOTATION, "{}")
        checkpoint, _ = decode_checkpoint(text)
        return min(checkpoint.read_ns.values(), default=0) if checkpoint else 0

    def ask(
        self, user: str, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        """Send a request without the network and its mishaps, as to another replica of the API server."""
        headers = {"authorization": f"Bearer {self._token(user)}", "content-type": content_type}
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(method, path, {"fieldManager": [f"of-{user}"]}, headers, data)
        reply = self.cluster._http.handle(request)
        return reply.status, json.loads(reply.body)

    def _token(self, user: str) -> str:
        if user not in self._tokens:
            self._tokens[user] = self.cluster.access.add_user(user)
        return self._tokens[user]

    def _push(self, collector: str, lines: Iterable[tuple[str, str, int]]) -> None:
        """Push lines (node, text, time) of several nodes to Loki in one export."""
        now_ns = time.time_ns()
        resources = []
        for node, line, time_ns in lines:
            pod = f"{collector}-{node}"
            resources += shipped(node, [(time_ns, line)], pod=pod, read_ns=now_ns)["resourceLogs"]
        if resources:
            self.loki.push_otlp({"resourceLogs": resources})


def node_of(machine: Machine, *, register: bool = False) -> dict[str, Any]:
    """Return the Node of a machine; with ``register``, as its kubelet registers it."""
    node = make_node(
        machine.node,
        boot_id=machine.boot,
        annotations={"example.com/owner": "training"},
        taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
    )
    node["status"]["nodeInfo"]["systemUUID"] = machine.system
    node["spec"]["providerID"] = f"metal:///{machine.system}"
    if register:
        for field in ("uid", "creationTimestamp", "managedFields"):
            node["metadata"].pop(field, None)
    return node


def with_taint(node: dict[str, Any], taint: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return a merge patch that adds a taint; None if the Node has a taint with its key."""
    taints = node["spec"].get("taints", [])
    if any(one["key"] == taint["key"] for one in taints):
        return None
    return {"spec": {"taints": [*taints, dict(taint)]}}


def without_taint(node: dict[str, Any], key: str) -> Mapping[str, Any] | None:
    """Return a merge patch that removes the taints of a key; None if there is none."""
    taints = node["spec"].get("taints", [])
    kept = [one for one in taints if one["key"] != key]
    return {"spec": {"taints": kept}} if len(kept) < len(taints) else None
