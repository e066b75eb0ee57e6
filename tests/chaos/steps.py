"""The steps of schedules. Each prints as the code that makes it, so that a schedule can be kept.

Nodes and processes are numbers, modulo their count: a schedule without some of its steps is still valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tests.chaos.machines import ALL_GPUS, GPUS, Machine, seconds
from tests.chaos.traffic import JOB_TARGETS, KUBE_TARGETS, Strike, Trouble
from tests.chaos.wire import KUBE, LOKI

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World


class Step(Protocol):
    """One step of a schedule."""

    def take(self, world: World) -> None:
        """Take the step."""


# The controller


@dataclass(frozen=True, slots=True)
class Round:
    """A controller does one round; a controller that was killed is started again first."""

    slot: int = 0

    def take(self, world: World) -> None:
        process = world.processes[self.slot % 2]
        if process is None and self.slot % 2 == 0:
            process = world.start(0)
        if process is not None:
            world.start(self.slot % 2).round()


@dataclass(frozen=True, slots=True)
class Start:
    """A second controller starts, or a dead one with a new identity, as a pod on another machine."""

    slot: int = 1

    def take(self, world: World) -> None:
        world.start(self.slot % 2, same_identity=False)


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM."""

    slot: int = 0

    def take(self, world: World) -> None:
        process = _living(world, self.slot)
        if process is not None:
            process.end()


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL after ``requests`` more requests: before the next is sent, or ``after`` its answer.

    With ``writes`` only writes to Nodes count as requests.
    """

    slot: int = 0
    requests: int = 0
    after: bool = False
    writes: bool = False

    def take(self, world: World) -> None:
        process = _living(world, self.slot)
        if process is not None:
            world.traffic.strike(Strike(process, self.requests, self.after, self.writes, None))


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGSTOP at a request, as for Kill; SIGCONT after the next ``steps`` steps."""

    slot: int = 0
    requests: int = 0
    after: bool = False
    steps: int = 5
    writes: bool = False

    def take(self, world: World) -> None:
        process = _living(world, self.slot)
        if process is not None:
            world.traffic.strike(Strike(process, self.requests, self.after, self.writes, self.steps))


@dataclass(frozen=True, slots=True)
class SetClock:
    """The wall clock of a controller's machine is set."""

    slot: int
    ahead_seconds: float

    def take(self, world: World) -> None:
        process = world.processes[self.slot % 2]
        if process is not None:
            process.set_clock(seconds(self.ahead_seconds))
            world.ledger.clock_ahead_ns = max(world.ledger.clock_ahead_ns, seconds(self.ahead_seconds))
            world.clocks_differ = True


@dataclass(frozen=True, slots=True)
class SlowWarmup:
    """A controller that starts takes its time to read what it had acted upon before."""

    seconds: float

    def take(self, world: World) -> None:
        world.traffic.warmup_from_ns = world.clock.true_ns + seconds(self.seconds)


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes."""

    seconds: float

    def take(self, world: World) -> None:
        world.advance(self.seconds)


# Kernel logs and pods


@dataclass(frozen=True, slots=True)
class Xid:
    """The driver prints an Xid, ``times`` times in a row.

    Its line reaches Loki at once, or ``late`` by a share of the lateness that the settings allow.
    """

    node: int
    code: int = 79
    gpu: int = 0
    late: float = 0.0
    times: int = 1

    def take(self, world: World) -> None:
        delay_seconds = self.late * world.setup.lateness_seconds
        for repeated in range(self.times):
            world.advance(0.001 if repeated else 0.0)
            name, gpu = node_of(world, self.node), GPUS[self.gpu % 2]
            world.lines.happen(name, self.code, gpu, delay_seconds=delay_seconds)


@dataclass(frozen=True, slots=True)
class PodLine:
    """A pod of a job prints an NCCL error or a memory error; job 0 runs on every node."""

    node: int
    late: float = 0.0
    job: int = 0
    ecc: bool = False

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        world.lines.pod_prints(name, job=self.job, delay_seconds=self.late, ecc=self.ecc)


@dataclass(frozen=True, slots=True)
class PodFlood:
    """A pod prints many long lines that are no faults."""

    node: int
    lines: int = 30
    chars: int = 500

    def take(self, world: World) -> None:
        world.lines.pod_floods(node_of(world, self.node), self.lines, self.chars)


@dataclass(frozen=True, slots=True)
class Flood:
    """A broken driver, or a pod, names ever new GPUs; without a ``code`` also ever new Xids."""

    node: int
    code: int | None = 63
    lines: int = 20
    of_pod: bool = False

    def take(self, world: World) -> None:
        name, kind = node_of(world, self.node), "pod" if self.of_pod else "driver"
        for _ in range(self.lines):
            world.advance(0.001)
            number = len(world.occurrences)
            gpu = f"{number >> 8:04x}:{number % 256:02x}:00"
            if self.of_pod:
                world.lines.pod_prints(name, gpu=gpu)
            else:
                world.lines.happen(name, 500 + number if self.code is None else self.code, gpu)
        world.ledger.happened[f"flood of a {kind}"] += 1


@dataclass(frozen=True, slots=True)
class Replay:
    """The dmesg pod restarts: the whole ring buffer once more, with new timestamps."""

    node: int

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        for place, record in enumerate(world.machines[name].ring):
            at_ns = world.node_clock_ns(name) + place
            world.lines.ship(name, record.text, at_ns, record.occurrence, note="replay ")


@dataclass(frozen=True, slots=True)
class Reread:
    """The collector lost its checkpoint: the end of its files once more, with old timestamps."""

    node: int
    late: float = 0.0

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        note = f"reread {world.clock.true_ns} "
        for text, timestamp_ns, occurrence in world.lines.files[name][-50:]:
            world.lines.ship(name, text, timestamp_ns, occurrence, delay_seconds=self.late, note=note)


@dataclass(frozen=True, slots=True)
class Collectors:
    """Sets the number of collectors that ship this node."""

    node: int
    count: int = 2

    def take(self, world: World) -> None:
        world.lines.collectors[node_of(world, self.node)] = self.count


@dataclass(frozen=True, slots=True)
class SetNodeClock:
    """A node's wall clock is set."""

    node: int
    ahead_seconds: float

    def take(self, world: World) -> None:
        machine = world.machines[node_of(world, self.node)]
        machine.clock_ahead_ns, machine.clock_was_set = seconds(self.ahead_seconds), True


@dataclass(frozen=True, slots=True)
class Silence:
    """The collector of a node's kernel log stops for a while; its lines come later, or ``lost`` never."""

    node: int
    seconds: float
    lost: bool = False

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        world.lines.silences[name] = (world.clock.true_ns + seconds(self.seconds), self.lost)


# Nodes


@dataclass(frozen=True, slots=True)
class Gpus:
    """The number of GPUs of a machine changes; its kubelet reports that."""

    node: int
    count: int = 7

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        world.machines[name].gpus = self.count
        world.nodes.post_gpus(name)


@dataclass(frozen=True, slots=True)
class Ready:
    """The kubelet of a machine reports that its Node is Ready, or that it is not."""

    node: int
    on: bool = True

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        world.machines[name].ready = self.on
        world.nodes.post_boot(name)


FLAPS = ("GPUs come and go", "Ready comes and goes")
"""The names under which it is counted what comes and goes."""


@dataclass(frozen=True, slots=True)
class Flap:
    """A GPU of a machine is away for some seconds and comes back; without ``gpus``, its readiness does."""

    node: int
    gpus: bool = True
    seconds: float = 10.0

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        machine = world.machines[name]
        if not self.gpus:
            self._turn(world, name, machine, ready=False)
            world.later(self.seconds, lambda: self._turn(world, name, machine, ready=True))
        else:
            self._lose(world, name, machine, -1)
            world.later(self.seconds, lambda: self._lose(world, name, machine, 1))
        world.ledger.happened[FLAPS[not self.gpus]] += 1

    def _turn(self, world: World, name: str, machine: Machine, *, ready: bool) -> None:
        machine.ready = ready
        if world.machines[name] is machine:
            world.nodes.post_boot(name)

    def _lose(self, world: World, name: str, machine: Machine, more: int) -> None:
        machine.gpus = min(ALL_GPUS, max(0, machine.gpus + more))
        if world.machines[name] is machine:
            world.nodes.post_gpus(name)


@dataclass(frozen=True, slots=True)
class Reboot:
    """The machine comes up again, perhaps with another board; its kubelet posts the new boot later."""

    node: int
    posted_after: float = 0.0
    new_board: bool = False

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        if self.new_board:
            world.machines[name].system_id = f"system-{name}-{world.uuid()}"
        world.machines[name].reboot(world.uuid(), world.clock.true_ns)
        world.later(self.posted_after, lambda: world.nodes.post_boot(name))
        world.later(self.posted_after, lambda: world.words.booted(name))
        world.advance(0.001)


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Somebody deletes the Node object."""

    node: int

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        stored = world.nodes.stored(name)
        if stored is not None:
            world.ledger.deleted(name, stored)
            world.kube.delete_node(name)
            world.words.note(name)


@dataclass(frozen=True, slots=True)
class Register:
    """A Node that is gone registers again: the same machine, or another one under the old name."""

    node: int
    new_machine: bool = False

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        if world.nodes.stored(name) is not None:
            return
        world.advance(2.0)  # a Node's time of creation has whole seconds
        old = world.machines[name]
        if self.new_machine:
            system = f"system-{name}-{world.uuid()}"
            world.lines.files[name] = []
            world.machines[name] = Machine(system, old.plain, world.uuid(), world.clock.true_ns)
        world.nodes.put(name)


# Servers


@dataclass(frozen=True, slots=True)
class LokiTrouble:
    """The next ``times`` queries fail."""

    kind: str
    times: int = 1

    def take(self, world: World) -> None:
        world.traffic.troubles.planned.append(Trouble(LOKI, self.kind, self.times))


@dataclass(frozen=True, slots=True)
class Blind:
    """Loki answers 200 without lines for a while: its ingester was just replaced."""

    seconds: float

    def take(self, world: World) -> None:
        world.traffic.blind(self.seconds)


@dataclass(frozen=True, slots=True)
class KubeTrouble:
    """The next ``times`` requests to the API server for ``target`` fail."""

    kind: str
    target: str = "any"
    times: int = 1

    def take(self, world: World) -> None:
        path, writes = (KUBE_TARGETS | JOB_TARGETS)[self.target], self.target == "node"
        world.traffic.troubles.planned.append(Trouble(KUBE, self.kind, self.times, path, writes))


@dataclass(frozen=True, slots=True)
class ForgetHistory:
    """The API server forgets old resourceVersions: watches get 410."""

    def take(self, world: World) -> None:
        world.kube.forget_history()


def node_of(world: World, number: int) -> str:
    return world.names[number % len(world.names)]


def _living(world: World, slot: int) -> Process | None:
    process = world.processes[slot % 2]
    return None if process is None or process.dead else process
