"""The true state: machines with kernel logs and Nodes, what happened on them, and what reached Loki."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from konductor_like.cluster.node.patch import SUSPECT_TAINT
from konductor_like.detection import packaged
from konductor_like.model import Finding, Source
from konductor_like_sandbox.kubernetes.managed_fields import record_write
from konductor_like_sandbox.kubernetes.store import Key
from konductor_like_sandbox.kubernetes.validation import ANNOTATIONS_BYTES
from tests.chaos.clock import SECOND_NS, moment_of
from tests.chaos.setup import DOMAIN_LABEL, MANAGED, PERSON, POOL_LABEL, RECOVERABLE

if TYPE_CHECKING:
    from tests.chaos.world import World

FATAL = (79, 48, 95, 119, 74)
BEYOND_REBOOT = (54, 57, 58)
"""Fatal Xids whose needs no reboot meets."""
TEST = 14
SUSPECT = (94, 63)
APPLICATION = (31, 43, 13)
JOB_FAULTS = (13, 31)
"""Faults of a program, unless they happen to several jobs on one GPU."""
SYMPTOMS = (43, 45, 31, 13)
"""Xids that the end of a job prints on healthy nodes."""
LINKS = (145, 149)
"""Xids that a whole NVLink domain prints as fatal when one link fails: their rules defer."""
DEFERRING_RULES = frozenset({f"xid.{code}" for code in LINKS})
GPUS = ("0000:4e:00", "0000:9a:00")
ALL_GPUS = 8
_LINK_WORDS = {
    145: "RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040 0x{number:08x} 0x00000000)",
    149: "NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x004505c6 0x00000000 0x{number:08x} 0x00000000)",
}
POD_LINE = (
    "{pod}:7:8 [0] misc.cc:42 NCCL WARN Cuda failure 'uncorrectable ECC error encountered' (number {number})"
)
HANDLE_LINE = "Unable to determine the device handle for GPU {gpu}.0: Unknown Error (number {number})"
"""A pod's line that names its GPU, whatever GPUs the machine has."""
ECC_LINE = "RuntimeError: CUDA error: uncorrectable ECC error encountered (number {number})"
"""A memory error that a program prints, which the kernel log may confirm."""


@dataclass(eq=False, slots=True)
class Shipment:
    """One line of Loki: its timestamp, when Loki accepted it, and since when every query returns it."""

    timestamp_ns: int
    accepted_ns: int
    visible_ns: int


@dataclass(eq=False, slots=True)
class Occurrence:
    """A fault that really happened once, on one machine in one boot."""

    number: int
    node: str
    machine: Machine
    boot_id: str
    source: Source
    finding: Finding
    """The finding of detection for its line; detection itself is not tested here."""
    sequence: int
    stamp_us: int
    happened_ns: int
    job: int | None = None
    """The number of the job whose pod printed the line; None for a kernel line."""
    shipments: list[Shipment] = field(default_factory=list)

    @property
    def taints(self) -> bool:
        return self.source is Source.KERNEL and self.finding.severity.taints

    @property
    def deferrable(self) -> bool:
        """Whether the fault is fatal and its rule defers, to separate the root cause from collateral."""
        return self.taints and self.finding.code in LINKS

    @property
    def in_loki(self) -> bool:
        return bool(self.shipments)

    @property
    def first_ns(self) -> int:
        """Return the earliest timestamp of its lines in Loki."""
        return min(shipment.timestamp_ns for shipment in self.shipments)

    @property
    def timestamps(self) -> set[int]:
        return {shipment.timestamp_ns for shipment in self.shipments}

    def __str__(self) -> str:
        where = f"{self.node} {self.finding.gpu or self.source} boot {self.boot_id[:4]} seq {self.sequence}"
        return f"#{self.number} {self.finding.rule} on {where}"


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record of the kernel's ring buffer, with its occurrence."""

    text: str
    timestamp_ns: int
    occurrence: Occurrence


@dataclass(eq=False)
class Machine:
    """A machine behind a Node's name. ``plain`` machines ship ``dmesg -w``, the others ``kmsg/1`` records."""

    system_id: str
    plain: bool
    boot_id: str
    booted_ns: int
    posted_ns: int = 0
    """When the Node object got the id of this boot."""
    ambiguous: bool = False
    """Whether lines that name no boot were unread or held when the boot changed: their boot is unknown."""
    clock_ahead_ns: int = 0
    clock_was_set: bool = False
    gpus: int = ALL_GPUS
    ready: bool = True
    stood_ns: int = 0
    """Since when its Node has shown the same GPUs and the same readiness."""
    sequence: int = 1000
    stamp_us: int = 0
    ring: list[KernelRecord] = field(default_factory=list)
    """The kernel's records of this boot, which a restarted reader prints again."""

    def reboot(self, boot_id: str, now_ns: int) -> None:
        """Start another boot with an empty ring."""
        self.boot_id, self.booted_ns = boot_id, now_ns
        self.sequence, self.stamp_us, self.ring = 1000, 0, []

    def next_position(self, now_ns: int) -> tuple[int, int]:
        """Return sequence and stamp of the next record; the stamps drift, as a kernel's do."""
        self.sequence += 1
        drifted_us = (now_ns - self.booted_ns) * 10_001 // 10_000_000
        self.stamp_us = max(self.stamp_us + 1, drifted_us)
        return self.sequence, self.stamp_us

    def line(self, message: str, sequence: int, stamp_us: int) -> str:
        stamp = f"[{stamp_us // 1_000_000:5d}.{stamp_us % 1_000_000:06d}] {message}"
        if self.plain:
            return stamp
        return f"kmsg/1 boot={self.boot_id} seq={sequence} facility=0 priority=3 {stamp}"

    def heartbeat(self, now_ns: int, wall: str) -> str:
        uptime_us = max(0, now_ns - self.booted_ns) // 1000
        return (
            f"kmsg/1 heartbeat boot={self.boot_id} seq={self.sequence} "
            f"uptime={uptime_us // 1_000_000}.{uptime_us % 1_000_000:06d} wall={wall}"
        )


def xid_message(code: int, gpu: str, number: int) -> str:
    """Return the driver's message; the number makes every text unique."""
    if code in _LINK_WORDS:
        return f"NVRM: Xid (PCI:{gpu}): {code}, {_LINK_WORDS[code].format(number=number)}"
    return f"NVRM: Xid (PCI:{gpu}): {code}, pid={1000 + number}, name=train, channel {number:08x}"


@lru_cache(maxsize=10_000)
def found(message: str, source: Source) -> Finding:
    """Return detection's finding for a message. Raises ValueError if the message is no fault."""
    finding = packaged().find(message, source)
    if finding is None:
        raise ValueError(f"no fault: {message}")
    return finding


def seconds(count: float) -> int:
    return round(count * SECOND_NS)


def apart_ns(one: Occurrence, other: Occurrence) -> int:
    """Return the shortest time between lines of two occurrences; 10^18 if Loki has no line of one."""
    return min((abs(a - b) for a in one.timestamps for b in other.timestamps), default=10**18)


# Node objects


class _TooLongError(Exception):
    """The annotations of a Node would be too large."""


FILLER = "filler.example.com/reason"
"""The annotation with which another program fills a Node."""


def _notes(node: dict[str, Any]) -> dict[str, str]:
    return node["metadata"].get("annotations") or {}


def annotations_bytes(node: dict[str, Any]) -> int:
    return sum(len(key.encode()) + len(text.encode()) for key, text in _notes(node).items())


def _gpus(count: int) -> dict[str, dict[str, str]]:
    return {part: {"nvidia.com/gpu": str(count)} for part in ("capacity", "allocatable")}


HEARTBEAT_NS = seconds(60)
HEARTBEATS_PER_REPORT = 5
"""Number of heartbeats (60 s) between two reports of a kubelet whose Node does not change."""


class Nodes:
    """The Nodes of the cluster, by name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heartbeat_ns = world.clock.true_ns
        self._heartbeats = 0
        self._transitions: dict[str, tuple[bool, str]] = {}
        """By node, the readiness that its kubelet told last, and the ``lastTransitionTime``."""

    def stored(self, name: str) -> dict[str, Any] | None:
        """Return the Node as it is now; None if it does not exist."""
        stored = self._world.kube._store.get("nodes", Key("", name))
        return None if stored is None else stored.load()

    def put(self, name: str, created_ns: int | None = None) -> None:
        """Register a machine: create its Node object."""
        machine, created = self._world.machines[name], self._world.clock.moment()
        if created_ns is not None:
            created = moment_of(created_ns)
        machine.posted_ns = created_ns or self._world.clock.true_ns
        machine.stood_ns = self._world.clock.true_ns
        self._transitions.pop(name, None)
        labels = {
            "nvidia.com/gpu.present": "true",
            POOL_LABEL: f"pool-{int(name[-1]) % 2}",
            MANAGED: "yes",
            RECOVERABLE: "yes",
        }
        if self._world.setup.rack:
            labels[DOMAIN_LABEL] = "rack-0"
        self._world.kube.put_node(
            {
                "metadata": {
                    "name": name,
                    "uid": self._world.uuid(),
                    "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "labels": labels,
                    # On a Node without annotations, a patch tests the resourceVersion instead of the record.
                    "annotations": {} if name.endswith("3") else {"node.alpha.kubernetes.io/ttl": "0"},
                },
                "spec": {"taints": [dict(SUSPECT_TAINT)]} if self._world.setup.suspect_taints else {},
                "status": {
                    "nodeInfo": self._info(name),
                    "conditions": [self._condition(name)],
                    **_gpus(machine.gpus),
                },
            }
        )
        self._world.words.registered(name)

    def edit(self, name: str, change: Callable[[dict[str, Any]], None], manager: str = "") -> None:
        """Change a Node as another writer; the entry of ``manager`` changes with it.

        The API server refuses a change that makes the annotations too large.
        """
        before = self.stored(name)
        if before is None:
            return

        def written(node: dict[str, Any]) -> None:
            old = copy.deepcopy(node)
            change(node)
            if manager:
                # A write that only removes would leave no entry.
                node["metadata"].setdefault("annotations", {})["chaos.example/step"] = str(self._world.taken)
                now = moment_of(self._world.clock.true_ns).strftime("%Y-%m-%dT%H:%M:%SZ")
                record_write(old, node, manager, "", now)
            if annotations_bytes(node) > ANNOTATIONS_BYTES:
                raise _TooLongError

        try:
            self._world.kube.edit_node(name, written)
        except _TooLongError:
            return
        self._world.ledger.edited(name, before, self.stored(name), by_person=manager == PERSON)

    def fill(self, name: str, left: int | None) -> None:
        """Let another program's annotation leave only ``left`` bytes on a Node; None: it goes."""

        def change(node: dict[str, Any]) -> None:
            notes = node["metadata"].setdefault("annotations", {})
            notes.pop(FILLER, None)
            more = ANNOTATIONS_BYTES - annotations_bytes(node) - len(FILLER) - (left or 0)
            if left is not None and more > 0:
                notes[FILLER] = "x" * more

        if (stored := self.stored(name)) is not None and (left is not None or FILLER in _notes(stored)):
            self._world.kube.edit_node(name, change)

    def post_boot(self, name: str) -> None:
        """Write the machine's present boot to its Node, as the kubelet does."""
        if self.stored(name) is not None:
            self._world.machines[name].posted_ns = self._world.clock.true_ns
            self._world.ledger.boot_posted(name)
            self._report(name)

    def post_gpus(self, name: str) -> None:
        """Write the number of the machine's GPUs to its Node, as the kubelet does."""
        if self.stored(name) is not None:
            gpus = _gpus(self._world.machines[name].gpus)
            before = self.stored(name)
            self._world.kube.edit_node(name, lambda node: node["status"].update(gpus))
            if before and before["status"]["allocatable"] != gpus["allocatable"]:
                self._world.machines[name].stood_ns = self._world.clock.true_ns
            self._world.ledger.suspicions.counts_gpus(name)

    def _kubelet_runs(self, name: str) -> bool:
        """Whether the Node exists and has the machine's present boot."""
        stored = self.stored(name)
        own_boot = self._world.machines[name].boot_id
        return stored is not None and stored["status"]["nodeInfo"]["bootID"] == own_boot

    def _report(self, name: str) -> None:
        def change(node: dict[str, Any]) -> None:
            node["status"]["nodeInfo"] = self._info(name)
            others = (each for each in node["status"]["conditions"] if each["type"] != "Ready")
            node["status"]["conditions"] = [self._condition(name), *others]

        self._world.kube.edit_node(name, change)
        self._world.words.note(name)

    def _condition(self, name: str) -> dict[str, str]:
        """Return the Ready condition, with the time of the machine's clock."""
        at = moment_of(self._world.node_clock_ns(name)).strftime("%Y-%m-%dT%H:%M:%SZ")
        machine = self._world.machines[name]
        before, since = self._transitions.get(name, (None, at))
        if before is not machine.ready:
            since = at
            machine.stood_ns = self._world.clock.true_ns
            self._transitions[name] = (machine.ready, since)
        times = {"lastHeartbeatTime": at, "lastTransitionTime": since}
        return {"type": "Ready", "status": str(machine.ready), **times}

    def _info(self, name: str) -> dict[str, str]:
        machine = self._world.machines[name]
        return {"systemUUID": machine.system_id, "bootID": machine.boot_id}

    def send_heartbeats(self) -> None:
        if self._world.clock.true_ns - self._heartbeat_ns < HEARTBEAT_NS:
            return
        self._heartbeat_ns = self._world.clock.true_ns
        self._heartbeats += 1
        if self._heartbeats % HEARTBEATS_PER_REPORT == 0:
            self._world.words.beat()
        for name, machine in self._world.machines.items():
            if self._heartbeats % HEARTBEATS_PER_REPORT == 0 and self._kubelet_runs(name):
                self._report(name)
            if not machine.plain:
                wall = self._world.clock.moment().isoformat().replace("+00:00", "Z")
                text = machine.heartbeat(self._world.clock.true_ns, wall)
                self._world.lines.ship(name, text, self._world.node_clock_ns(name), None)
