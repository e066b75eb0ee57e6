"""The Node objects: machines register, their kubelets report, other people change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konductor_like.sandbox.kubernetes.store import Key
from tests.chaos.clock import moment_of
from tests.chaos.machines import seconds
from tests.chaos.setup import DOMAIN_LABEL, POOL_LABEL

if TYPE_CHECKING:
    from tests.chaos.world import World

HEARTBEAT_NS = seconds(60)
HEARTBEATS_PER_REPORT = 5
"""A kubelet that has nothing new to say reports every five minutes."""


class Nodes:
    """The Nodes of the cluster, by name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heartbeat_ns = world.clock.true_ns
        self._heartbeats = 0

    def stored(self, name: str) -> dict[str, Any] | None:
        """The Node as it is now; None if there is none."""
        stored = self._world.kube._store.get("nodes", Key("", name))
        return None if stored is None else stored.load()

    def put(self, name: str, created_ns: int | None = None) -> None:
        """A machine registers: a Node object of its own."""
        machine, created = self._world.machines[name], self._world.clock.moment()
        if created_ns is not None:
            created = moment_of(created_ns)
        machine.posted_ns = created_ns or self._world.clock.true_ns
        labels = {"nvidia.com/gpu.present": "true", POOL_LABEL: f"pool-{int(name[-1]) % 2}"}
        if self._world.setup.rack:
            labels[DOMAIN_LABEL] = "rack-0"
        self._world.kube.put_node(
            {
                "metadata": {
                    "name": name,
                    "uid": self._world.uuid(),
                    "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "labels": labels,
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
            self._world.kube.edit_node(name, change)
            self._world.ledger.edited(name, before, self.stored(name))

    def post_boot(self, name: str) -> None:
        """The kubelet posts the boot that its machine is in now."""
        if self.stored(name) is not None:
            self._world.machines[name].posted_ns = self._world.clock.true_ns
            self._world.ledger.boot_posted(name)
            self._report(name)

    def _kubelet_runs(self, name: str) -> bool:
        """Whether there is a Node, and the kubelet of its present boot has begun to report."""
        stored = self.stored(name)
        own_boot = self._world.machines[name].boot_id
        return stored is not None and stored["status"]["nodeInfo"]["bootID"] == own_boot

    def _report(self, name: str) -> None:
        def change(node: dict[str, Any]) -> None:
            node["status"]["nodeInfo"]["bootID"] = self._world.machines[name].boot_id
            node["status"]["conditions"] = [self._condition(name)]

        self._world.kube.edit_node(name, change)

    def _condition(self, name: str) -> dict[str, str]:
        """What the kubelet reports every five minutes, with its machine's time."""
        at = moment_of(self._world.node_clock_ns(name)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"type": "Ready", "status": "True", "lastHeartbeatTime": at}

    def beat_hearts(self) -> None:
        if self._world.clock.true_ns - self._heartbeat_ns < HEARTBEAT_NS:
            return
        self._heartbeat_ns = self._world.clock.true_ns
        self._heartbeats += 1
        for name, machine in self._world.machines.items():
            if self._heartbeats % HEARTBEATS_PER_REPORT == 0 and self._kubelet_runs(name):
                self._report(name)
            if not machine.plain:
                wall = self._world.clock.moment().isoformat().replace("+00:00", "Z")
                text = machine.heartbeat(self._world.clock.true_ns, wall)
                self._world.lines.ship(name, text, self._world.node_clock_ns(name), None)
