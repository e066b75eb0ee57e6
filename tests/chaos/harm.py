"""Steps of what harms most: refused returns, records without room, lost logs and names, and wrong clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from konductor_like.cluster.lease.annotations import (
    RETURNED_ANNOTATION,
    TAINTED_ANNOTATION,
    controls_of,
    encode_returned,
    encode_tainted,
)
from konductor_like.cluster.node.record import encode
from konductor_like.model import (
    RECORD_ANNOTATION,
    Control,
    ControlAct,
    Controls,
    Machine,
    NodeRecord,
    Quarantine,
    Release,
    ReleaseHow,
    ReturnedNode,
    TaintedNode,
)
from konductor_like_sandbox.kubernetes.store import Key
from tests.chaos.machines import GPUS, seconds, xid_message
from tests.chaos.people import write_control
from tests.chaos.process import LEASE, NAMESPACE
from tests.chaos.steps import node_of
from tests.chaos.traffic import NODE_PATH, Trouble
from tests.chaos.wire import KUBE

if TYPE_CHECKING:
    from tests.chaos.world import World

FOR_GOOD = 100_000
"""More requests than any schedule sends."""
YEARS = 10 * 365 * 86_400.0
"""Seconds ahead of a time that never comes."""


@dataclass(frozen=True, slots=True)
class RefuseReturns:
    """An admission webhook refuses the next ``times`` patches that remove the taint of a node."""

    node: int
    times: int = FOR_GOOD

    def take(self, world: World) -> None:
        path = NODE_PATH + node_of(world, self.node)
        trouble = Trouble(KUBE, "denied", self.times, path, write=True, untaints=True)
        world.traffic.troubles.planned.append(trouble)


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The kernel-log reader is replaced, and the ring buffer no longer has the beginning of the boot.

    ``unread`` records were printed and overwritten while no reader ran.
    """

    node: int
    unread: int = 0

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        machine, returns = world.machines[name], world.ledger.returns
        if machine.plain:
            return
        world.advance(0.001)
        machine.sequence += self.unread
        machine.ring = [] if self.unread else machine.ring[-1:]
        last = machine.ring[0].occurrence.sequence - 1 if machine.ring else machine.sequence
        text = f"kmsg/1 gap boot={machine.boot_id} from=0 to={last} lost={last + 1}"
        was_heard = returns.was_heard(name)
        if self.unread or not was_heard:
            returns.loses(text)
        world.ledger.happened[
            "beginning of a boot overwritten, "
            + ("heard before" if was_heard else "never heard")
            + (", and a part lost" if was_heard and self.unread else "")
        ] += 1
        world.lines.ship(name, text, world.node_clock_ns(name), None)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A second shipper ships a kernel line without a boot id, whose stamp is of another boot or clock.

    Its stamp is ``ahead_seconds`` above the uptime, or at that share of the uptime if negative.
    """

    node: int
    ahead_seconds: float
    code: int = 79
    gpu: int = 0

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        machine = world.machines[name]
        if machine.plain:
            return
        world.advance(0.001)
        uptime_us = (world.clock.true_ns - machine.booted_ns) // 1000
        ahead = self.ahead_seconds
        stamp_us = round(-ahead * uptime_us if ahead < 0 else uptime_us + ahead * 1e6)
        message = xid_message(self.code, GPUS[self.gpu % 2], 0)
        world.ledger.foreign.add(name)
        world.ledger.happened["foreign stamp " + ("below" if ahead < 0 else "above") + " the uptime"] += 1
        text = f"[{stamp_us // 1_000_000:5d}.{stamp_us % 1_000_000:06d}] {message}"
        world.lines.ship(name, text, world.node_clock_ns(name), None)


CROWDED = ("Node without room for its record", "record refused by a policy")
"""The names under which it is counted why a record is not on its Node."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Another program's annotation leaves ``left`` bytes on a Node; without ``left`` it is removed."""

    node: int
    left: int | None = 60

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        world.nodes.fill(name, self.left)
        if self.left is not None:
            world.ledger.crowded.add(name)
            world.ledger.happened[CROWDED[0]] += 1


@dataclass(frozen=True, slots=True)
class RefuseRecord:
    """Somebody's admission policy refuses each write that changes the record of a node, or no longer."""

    node: int
    on: bool = True

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        if not self.on:
            world.refusing.discard(name)
            return
        world.refusing.add(name)
        world.ledger.crowded.add(name)
        world.ledger.happened[CROWDED[1]] += 1
        world.kube._writes._admission = lambda review: (
            "no annotations of strangers"
            if review.resource == "nodes"
            and review.name in world.refusing
            and _record_of(review.object) != _record_of(review.old_object)
            else ""
        )


def _record_of(node: Any) -> str | None:
    text: str | None = (node or {}).get("metadata", {}).get("annotations", {}).get(RECORD_ANNOTATION)
    return text


@dataclass(frozen=True, slots=True)
class Nameless:
    """A node's collector ships the kernel log without the node's name for a while."""

    node: int
    seconds: float = 30.0

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        if not world.machines[name].plain:  # a line without a boot id belongs to no node
            world.lines.nameless_ns[name] = world.clock.true_ns + seconds(self.seconds)


# Times that a wrong clock wrote, or the kubelet of one node

_RECORDS: dict[str, Callable[[NodeRecord, datetime], NodeRecord]] = {
    "quarantines": lambda record, at: _lived(record, quarantines=_past(at, ReleaseHow.RESET)),
    "returns": lambda record, at: _lived(record, quarantines=_past(at, ReleaseHow.REBOOT)),
    "relapses": lambda record, at: _lived(record, quarantines=_past(at, ReleaseHow.REBOOT, relapse=True)),
    "releases": lambda record, at: replace(
        record, releases=(Release(at, "kubelet", "", ReleaseHow.RESET), *record.releases)[:5]
    ),
    "probation": lambda record, at: _lived(record, probation_until=at),
    "tainted": lambda record, at: _lived(record, tainted_at=at),
}
RECORD_PARTS = tuple(_RECORDS)
LEASE_PARTS = (Control.RESUME, Control.BRAKE_RESET, Control.PURGE, "tainted", "deleted", "returned")


def _lived(record: NodeRecord, **changes: Any) -> NodeRecord:
    return replace(record, life=replace(record.life, **changes))


def _past(at: datetime, how: ReleaseHow, *, relapse: bool = False) -> tuple[Quarantine, ...]:
    """Return ten times out of service, each for a second, the latest until ``at``."""
    times = (at - timedelta(seconds=number) for number in range(10))
    return tuple(
        Quarantine(back - timedelta(seconds=1), back, "xid.79", how, relapse=relapse) for back in times
    )


@dataclass(frozen=True, slots=True)
class ForgeRecord:
    """A node's kubelet writes times into the record of its own Node; it may write no taint."""

    node: int
    part: str = "quarantines"
    ahead_seconds: float = YEARS

    def take(self, world: World) -> None:
        name = node_of(world, self.node)
        stored = world.nodes.stored(name)
        if stored is None:
            return
        state = world.known(stored)
        at = world.clock.moment() + timedelta(seconds=self.ahead_seconds)
        forged = _RECORDS[self.part](replace(state.record, machine=state.record.machine or state.machine), at)

        def write(node: dict[str, Any]) -> None:
            node["metadata"].setdefault("annotations", {})[RECORD_ANNOTATION] = encode(forged)

        world.nodes.edit(name, write)
        world.ledger.forged(name)
        world.ledger.happened[f"record with {self.part} {_when(self.ahead_seconds)}"] += 1


@dataclass(frozen=True, slots=True)
class ForgeLease:
    """A time on the Lease that a controller, or a person's command, with a wrong clock wrote."""

    part: str = Control.PURGE
    ahead_seconds: float = YEARS

    def take(self, world: World) -> None:
        stored = world.kube._store.get("leases", Key(NAMESPACE, LEASE))
        if stored is None:
            return
        at = world.clock.moment() + timedelta(seconds=self.ahead_seconds)
        if self.part in list(Control):
            if not write_control(world, ControlAct(Control(self.part), at, "ann", nodes=2)):
                return
            if self.part == Control.RESUME:
                world.ledger.brake.person_resumes()
        else:
            lease = stored.load()
            notes = lease["metadata"].setdefault("annotations", {})
            notes |= self._noted(controls_of(lease).controls, at)
            world.kube._store.put("leases", lease)
        world.ledger.happened[f"Lease with {self.part} {_when(self.ahead_seconds)}"] += 1

    def _noted(self, before: Controls, at: datetime) -> dict[str, str]:
        """Return the changed annotation, with entries of Nodes that no schedule has."""
        if self.part == "returned":
            entries = (ReturnedNode(f"old-{number}", at, at if number else None) for number in range(2))
            known = {each.name: each for each in (*before.returned, *entries)}
            return {RETURNED_ANNOTATION: encode_returned(known.values())}
        deleted_at = at if self.part == "deleted" else None
        gone = (
            TaintedNode(name, Machine(f"uid-{name}"), at, None, deleted_at, "Xid 79")
            for name in ("gone-0", "gone-1")
        )
        nodes = {each.machine.node_uid: each for each in (*before.tainted, *gone)}
        return {TAINTED_ANNOTATION: encode_tainted(nodes.values())}


def _when(seconds: float) -> str:
    return "years ahead" if seconds == YEARS else "a little ahead"
