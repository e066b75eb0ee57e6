"""The steps of schedules. Each prints as the code that makes it, so that a schedule can be kept.

Nodes and processes are given by number, modulo how many there are: any step may be left out of a schedule,
and what is left still means something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from konductor_like.cli import releasing
from konductor_like.cli.dryrun import DryRun
from konductor_like.model import TAINT_EFFECT, TAINT_KEY, TAINT_VALUE
from konductor_like.sandbox.kubernetes.store import Key
from tests.chaos import people
from tests.chaos.machines import GPUS, Machine, seconds
from tests.chaos.process import LEASE, NAMESPACE
from tests.chaos.troubles import KUBE, KUBE_TARGETS, LOKI, Strike, Trouble

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

CURSOR = "trainy.konduktor.ai/cursor"
OURS = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}


class Step(Protocol):
    """Something that happens."""

    def take(self, world: World) -> None:
        """Let it happen."""


# The controller


@dataclass(frozen=True, slots=True)
class Beat:
    """A controller does its round; one that was killed is started again first."""

    slot: int = 0

    def take(self, world: World) -> None:
        """See the class."""
        process = world.processes[self.slot % 2]
        if process is None and self.slot % 2 == 0:
            process = world.start(0)
        if process is not None:
            world.start(self.slot % 2).beat()


@dataclass(frozen=True, slots=True)
class Start:
    """A second controller is started; or a dead one, under a new identity, as a pod on another machine."""

    slot: int = 1

    def take(self, world: World) -> None:
        """See the class."""
        world.start(self.slot % 2, same_identity=False)


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM."""

    slot: int = 0

    def take(self, world: World) -> None:
        """See the class."""
        process = _living(world, self.slot)
        if process is not None:
            process.end()


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL after so many more requests: before the next one leaves, or when it was answered.

    With ``writes`` only writes to Nodes count as requests.
    """

    slot: int = 0
    requests: int = 0
    after: bool = False
    writes: bool = False

    def take(self, world: World) -> None:
        """See the class."""
        process = _living(world, self.slot)
        if process is not None:
            world.strike(Strike(process, self.requests, self.after, self.writes, None))


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGSTOP at a request, as for Kill; SIGCONT when so many steps were taken by everybody else."""

    slot: int = 0
    requests: int = 0
    after: bool = False
    steps: int = 5
    writes: bool = False

    def take(self, world: World) -> None:
        """See the class."""
        process = _living(world, self.slot)
        if process is not None:
            world.strike(Strike(process, self.requests, self.after, self.writes, self.steps))


@dataclass(frozen=True, slots=True)
class SetClock:
    """The wall clock of a controller's machine is set."""

    slot: int
    ahead_seconds: float

    def take(self, world: World) -> None:
        """See the class."""
        process = world.processes[self.slot % 2]
        if process is not None:
            process.clock_ahead_ns = seconds(self.ahead_seconds)
            world.clocks_differ = True


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes."""

    seconds: float

    def take(self, world: World) -> None:
        """See the class."""
        world.advance(self.seconds)


# Kernel logs and pods


@dataclass(frozen=True, slots=True)
class Xid:
    """The driver says something, ``times`` times in a row.

    Its line reaches Loki at once, or ``late`` by a share of the lateness that the settings allow.
    """

    node: int
    code: int = 79
    gpu: int = 0
    late: float = 0.0
    times: int = 1

    def take(self, world: World) -> None:
        """See the class."""
        delay_seconds = self.late * world.setup.lateness_seconds
        for repeated in range(self.times):
            world.advance(0.001 if repeated else 0.0)
            world.happen(_node(world, self.node), self.code, GPUS[self.gpu % 2], delay_seconds=delay_seconds)


@dataclass(frozen=True, slots=True)
class PodLine:
    """A job prints an error."""

    node: int
    late: float = 0.0

    def take(self, world: World) -> None:
        """See the class."""
        world.pod_prints(_node(world, self.node), delay_seconds=self.late)


@dataclass(frozen=True, slots=True)
class Replay:
    """The dmesg pod restarts: the whole ring buffer once more, with new timestamps."""

    node: int

    def take(self, world: World) -> None:
        """See the class."""
        name = _node(world, self.node)
        for place, record in enumerate(world.machines[name].ring):
            at_ns = world.node_clock_ns(name) + place
            world.ship(name, record.text, at_ns, record.occurrence, note="replay ")


@dataclass(frozen=True, slots=True)
class Reread:
    """The collector lost its checkpoint: the end of its files once more, with old timestamps."""

    node: int
    late: float = 0.0

    def take(self, world: World) -> None:
        """See the class."""
        name = _node(world, self.node)
        note = f"reread {world.clock.true_ns} "
        for text, timestamp_ns, occurrence in world.files[name][-50:]:
            world.ship(name, text, timestamp_ns, occurrence, delay_seconds=self.late, note=note)


@dataclass(frozen=True, slots=True)
class Collectors:
    """So many collectors ship this node."""

    node: int
    count: int = 2

    def take(self, world: World) -> None:
        """See the class."""
        world.collectors[_node(world, self.node)] = self.count


@dataclass(frozen=True, slots=True)
class SetNodeClock:
    """A node's wall clock is set."""

    node: int
    ahead_seconds: float

    def take(self, world: World) -> None:
        """See the class."""
        world.machines[_node(world, self.node)].clock_ahead_ns = seconds(self.ahead_seconds)


# Nodes


@dataclass(frozen=True, slots=True)
class Reboot:
    """The machine comes up again; its kubelet posts the new boot later."""

    node: int
    posted_after: float = 0.0

    def take(self, world: World) -> None:
        """See the class."""
        name = _node(world, self.node)
        world.machines[name].reboot(world.uuid(), world.clock.true_ns)
        world.later(self.posted_after, lambda: world.post_boot(name))
        world.ledger.allowed[name] += 2
        world.advance(0.001)


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Somebody deletes the Node object."""

    node: int

    def take(self, world: World) -> None:
        """See the class."""
        name = _node(world, self.node)
        stored = world.stored(name)
        if stored is not None:
            world.ledger.deleted(name, stored)
            world.kube.delete_node(name)


@dataclass(frozen=True, slots=True)
class Register:
    """A Node that is gone registers again: the same machine, or another one under the old name."""

    node: int
    new_machine: bool = False

    def take(self, world: World) -> None:
        """See the class."""
        name = _node(world, self.node)
        if world.stored(name) is not None:
            return
        world.advance(2.0)  # a Node's time of creation has whole seconds
        old = world.machines[name]
        if self.new_machine:
            system = f"system-{name}-{world.uuid()}"
            world.files[name] = []
            world.machines[name] = Machine(system, old.plain, world.uuid(), world.clock.true_ns)
        world.put_node(name)
        world.ledger.allowed[name] += 2


# People and other programs


@dataclass(frozen=True, slots=True)
class Reset:
    """``konductor-like reset``: one node, or all that are affected."""

    node: int | None = None
    purge: bool = False

    def take(self, world: World) -> None:
        """See the class."""
        client = people.client_of(world)
        reset = releasing.Reset(client, world.settings, DryRun.NONE, reason="", purge=self.purge)
        people.carry_out(world, reset, None if self.node is None else _node(world, self.node))


@dataclass(frozen=True, slots=True)
class Untaint:
    """``kubectl taint nodes NAME trainy.konduktor.ai/faulty-``."""

    node: int

    def take(self, world: World) -> None:
        """See the class."""
        _edit_taints(world, self.node, lambda taints: [taint for taint in taints if taint != OURS])


@dataclass(frozen=True, slots=True)
class TaintByHand:
    """Somebody sets our taint, or one with our key and another effect or value."""

    node: int
    value: str = TAINT_VALUE
    effect: str = TAINT_EFFECT

    def take(self, world: World) -> None:
        """See the class."""
        ours = {"key": TAINT_KEY, "value": self.value, "effect": self.effect}
        place = (TAINT_KEY, self.effect)
        _edit_taints(
            world,
            self.node,
            lambda taints: [*(t for t in taints if (t["key"], t["effect"]) != place), ours],
        )


@dataclass(frozen=True, slots=True)
class RemoveTwin:
    """Somebody removes what has our key and is not ours."""

    node: int

    def take(self, world: World) -> None:
        """See the class."""
        _edit_taints(
            world, self.node, lambda taints: [t for t in taints if t["key"] != TAINT_KEY or t == OURS]
        )


@dataclass(frozen=True, slots=True)
class OthersWrite:
    """Other programs change their own taints, labels and annotations."""

    node: int
    number: int

    def take(self, world: World) -> None:
        """See the class."""
        team = {"key": "team", "value": f"v{self.number}", "effect": "NoSchedule"}

        def change(node: dict[str, Any]) -> None:
            node["metadata"].setdefault("annotations", {})["example.org/note"] = f"<{self.number}> & ü"
            node["metadata"].setdefault("labels", {})["example.org/team"] = f"t{self.number}"
            if self.number % 3 == 0:
                node["spec"]["taints"] = [team, *_others(node)][:4]
            elif self.number % 3 == 1:
                node["spec"]["taints"] = [*_others(node), team][:4]
            if self.number % 5 == 4:
                node["metadata"].pop("annotations", None)

        def careful(node: dict[str, Any]) -> None:
            kept = {k: v for k, v in node["metadata"].get("annotations", {}).items() if "konduktor" in k}
            change(node)
            if kept:
                node["metadata"].setdefault("annotations", {}).update(kept)

        world.edit(_node(world, self.node), careful)


@dataclass(frozen=True, slots=True)
class DeleteLease:
    """Somebody deletes the Lease."""

    def take(self, world: World) -> None:
        """See the class."""
        if world.kube._store.get("leases", Key(NAMESPACE, LEASE)) is not None:
            world.kube._store.delete("leases", Key(NAMESPACE, LEASE))
            world.ledger.lease_touched()


@dataclass(frozen=True, slots=True)
class SpoilCursor:
    """The cursor on the Lease is lost, garbled, or from the future."""

    cursor: str | None

    def take(self, world: World) -> None:
        """See the class."""
        stored = world.kube._store.get("leases", Key(NAMESPACE, LEASE))
        if stored is None:
            return
        lease = stored.load()
        notes = lease["metadata"].setdefault("annotations", {})
        notes.pop(CURSOR, None)
        if self.cursor is not None:
            notes[CURSOR] = self.cursor
        world.kube._store.put("leases", lease)
        world.ledger.lease_touched()


# Servers


@dataclass(frozen=True, slots=True)
class LokiTrouble:
    """The next so many queries go wrong."""

    kind: str
    times: int = 1

    def take(self, world: World) -> None:
        """See the class."""
        world.troubles.planned.append(Trouble(LOKI, self.kind, self.times))


@dataclass(frozen=True, slots=True)
class Blind:
    """Loki answers 200 and shows nothing for a while: its ingester was just replaced."""

    seconds: float

    def take(self, world: World) -> None:
        """See the class."""
        world.blind(self.seconds)


@dataclass(frozen=True, slots=True)
class KubeTrouble:
    """The next so many requests to the API server, of a sort, go wrong."""

    kind: str
    target: str = "any"
    times: int = 1

    def take(self, world: World) -> None:
        """See the class."""
        writes = self.target == "node"
        world.troubles.planned.append(Trouble(KUBE, self.kind, self.times, KUBE_TARGETS[self.target], writes))


@dataclass(frozen=True, slots=True)
class ForgetHistory:
    """The API server forgets old resourceVersions: watches get 410."""

    def take(self, world: World) -> None:
        """See the class."""
        world.kube.forget_history()


def _node(world: World, number: int) -> str:
    return world.names[number % len(world.names)]


def _living(world: World, slot: int) -> Process | None:
    process = world.processes[slot % 2]
    return None if process is None or process.dead else process


def _others(node: dict[str, Any]) -> list[dict[str, str]]:
    return [taint for taint in node["spec"].get("taints", []) if taint["key"] != "team"]


def _edit_taints(
    world: World, number: int, change: Callable[[list[dict[str, str]]], list[dict[str, str]]]
) -> None:
    def edit(node: dict[str, Any]) -> None:
        node["spec"]["taints"] = change(node["spec"].get("taints", []))

    world.edit(_node(world, number), edit)
