"""Steps of people and other programs, on Nodes and on the Lease: see :mod:`tests.chaos.steps`."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from konductor_like import model
from konductor_like.backoff import Backoff, retrying
from konductor_like.cli.nodes import acts
from konductor_like.cli.nodes.acts import OperatorTaint
from konductor_like.cli.nodes.writes import NodeWrites
from konductor_like.cli.options import DryRun
from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.lease.annotations import LeaseView, add_control_act
from konductor_like.cluster.node.patch import SUSPECT_TAINT
from konductor_like.cluster.node.writer import NoDeadline
from konductor_like.model import TAINT_EFFECT, TAINT_KEY, TAINT_VALUE
from konductor_like.policy.recovery.returns import settled_by_resume
from konductor_like_sandbox.kubernetes.store import Key
from tests.chaos import wire
from tests.chaos.process import LEASE, NAMESPACE, InOrder, NotedWriter, SerialCrew
from tests.chaos.setup import CLAIM, PERSON
from tests.chaos.steps import node_of

if TYPE_CHECKING:
    from tests.chaos.world import World

CURSOR = "trainy.konduktor.ai/cursor"
OURS = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}


@dataclass(frozen=True, slots=True)
class Taint:
    """``konductor-like taint NODE --reason …``."""

    node: int

    def take(self, world: World) -> None:
        work = OperatorTaint(client_of(world), world.settings, DryRun.NONE, reason="smells of smoke")
        carry_out(world, work, node_of(world, self.node))


@dataclass(frozen=True, slots=True)
class Pause:
    """``konductor-like pause --reason …``, with ``--for SECONDS`` or until somebody resumes."""

    seconds: float | None = None

    def take(self, world: World) -> None:
        at = world.clock.moment()
        until = None if self.seconds is None else at + timedelta(seconds=self.seconds)
        act = model.ControlAct(model.Control.PAUSE, at, "ann", "a network change", until)
        if write_control(world, act):
            world.ledger.brake.person_pauses(until)


@dataclass(frozen=True, slots=True)
class Resume:
    """``konductor-like resume``."""

    def take(self, world: World) -> None:
        if write_control(world, model.ControlAct(model.Control.RESUME, world.clock.moment(), "ann")):
            world.ledger.brake.person_resumes()


@dataclass(frozen=True, slots=True)
class BrakeReset:
    """``konductor-like brake reset``."""

    def take(self, world: World) -> None:
        at = world.clock.moment()
        write_control(world, model.ControlAct(model.Control.BRAKE_RESET, at, "ann"))


@dataclass(frozen=True, slots=True)
class Reset:
    """``konductor-like reset``: one node, or all that are affected."""

    node: int | None = None
    purge: bool = False

    def take(self, world: World) -> None:
        client = client_of(world)
        kind = acts.Purge if self.purge else acts.Reset
        reset = kind(client, world.settings, DryRun.NONE, reason="")
        carry_out(world, reset, None if self.node is None else node_of(world, self.node))


@dataclass(frozen=True, slots=True)
class Untaint:
    """``kubectl taint nodes NAME trainy.konduktor.ai/faulty-``."""

    node: int

    def take(self, world: World) -> None:
        _edit_taints(world, self.node, lambda taints: [t for t in taints if t != OURS], manager=PERSON)


@dataclass(frozen=True, slots=True)
class Strip:
    """A program writes an old copy of a Node back: our taint is gone, and with ``record`` our annotation."""

    node: int
    record: bool = True
    manager: str = "karpenter"

    def take(self, world: World) -> None:
        def change(node: dict[str, Any]) -> None:
            node["spec"]["taints"] = [each for each in node["spec"].get("taints", []) if each != OURS]
            if self.record:
                node["metadata"].get("annotations", {}).pop(model.RECORD_ANNOTATION, None)

        name = node_of(world, self.node)
        if (stored := world.nodes.stored(name)) is not None and world.decode(stored).tainted:
            world.nodes.edit(name, change, self.manager)


@dataclass(frozen=True, slots=True)
class TaintSuspect:
    """An earlier version gives a node its suspect taint."""

    node: int

    def take(self, world: World) -> None:
        suspect = dict(SUSPECT_TAINT)
        _edit_taints(world, self.node, lambda taints: [*(t for t in taints if t != suspect), suspect])


@dataclass(frozen=True, slots=True)
class TaintByHand:
    """Somebody sets our taint by hand, or a taint with our key and another effect or value."""

    node: int
    value: str = TAINT_VALUE
    effect: str = TAINT_EFFECT

    def take(self, world: World) -> None:
        ours = {"key": TAINT_KEY, "value": self.value, "effect": self.effect}
        place = (TAINT_KEY, self.effect)
        _edit_taints(
            world,
            self.node,
            lambda taints: [*(t for t in taints if (t["key"], t["effect"]) != place), ours],
        )
        world.ledger.brake.person_taints(node_of(world, self.node))


@dataclass(frozen=True, slots=True)
class RemoveTwin:
    """Somebody removes the taints that have our key and another effect or value."""

    node: int

    def take(self, world: World) -> None:
        _edit_taints(
            world, self.node, lambda taints: [t for t in taints if t["key"] != TAINT_KEY or t == OURS]
        )


@dataclass(frozen=True, slots=True)
class Cordon:
    """``kubectl cordon NAME``, or ``kubectl uncordon NAME``."""

    node: int
    on: bool = True

    def take(self, world: World) -> None:
        on = self.on
        world.nodes.edit(node_of(world, self.node), lambda node: node["spec"].update(unschedulable=on))


@dataclass(frozen=True, slots=True)
class Label:
    """``kubectl label nodes NAME KEY=VALUE``; without a value the label is removed."""

    node: int
    key: str = model.OPT_OUT_LABEL
    value: str | None = "true"

    def take(self, world: World) -> None:
        def change(node: dict[str, Any]) -> None:
            node["metadata"]["labels"].pop(self.key, None)
            if self.value is not None:
                node["metadata"]["labels"][self.key] = self.value

        world.nodes.edit(node_of(world, self.node), change)
        world.ledger.left_alone.add(node_of(world, self.node))


@dataclass(frozen=True, slots=True)
class SpoilRecord:
    """Somebody damages one part of a node's record, which stays readable otherwise."""

    node: int

    def take(self, world: World) -> None:
        def change(node: dict[str, Any]) -> None:
            notes = node["metadata"].get("annotations", {})
            if text := notes.get(model.RECORD_ANNOTATION):
                notes[model.RECORD_ANNOTATION] = json.dumps({**json.loads(text), "hold_until": "tomorrow"})

        world.nodes.edit(node_of(world, self.node), change)


# Other programs


@dataclass(frozen=True, slots=True)
class Claim:
    """Another tool claims a node for its own repair with a taint, or gives it back."""

    node: int
    on: bool = True

    def take(self, world: World) -> None:
        taint = {"key": CLAIM, "effect": "NoSchedule"}
        _edit_taints(
            world,
            self.node,
            lambda taints: [*(each for each in taints if each != taint), *([taint] if self.on else [])],
        )


@dataclass(frozen=True, slots=True)
class OthersWrite:
    """Other programs change their own taints, labels and annotations."""

    node: int
    number: int

    def take(self, world: World) -> None:
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

        world.nodes.edit(node_of(world, self.node), careful)


@dataclass(frozen=True, slots=True)
class DeleteLease:
    """Somebody deletes the Lease."""

    def take(self, world: World) -> None:
        if world.kube._store.get("leases", Key(NAMESPACE, LEASE)) is not None:
            world.kube._store.delete("leases", Key(NAMESPACE, LEASE))
            world.ledger.lease_touched()


@dataclass(frozen=True, slots=True)
class SpoilCursor:
    """The cursor on the Lease is lost, garbled, or from the future."""

    cursor: str | None

    def take(self, world: World) -> None:
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


def _others(node: dict[str, Any]) -> list[dict[str, str]]:
    return [taint for taint in node["spec"].get("taints", []) if taint["key"] != "team"]


def write_control(world: World, act: model.ControlAct) -> bool:
    """Write a pause, resume or brake reset on the Lease. Return False if that failed."""

    def act_for(seen: LeaseView) -> model.ControlAct:
        is_resume = act.control is model.Control.RESUME
        return replace(act, relapses=settled_by_resume(seen.controls)) if is_resume else act

    try:
        add_control_act(client_of(world), NAMESPACE, LEASE, act_for)
    except KubeError as error:
        world.log(f"   {error}")
        return False
    return True


def client_of(world: World) -> KubeClient:
    return wire.kube_client(world.traffic.exchange_of(None), "konductor-like/cli", world.date)


def carry_out(world: World, work: NodeWrites, name: str | None) -> None:
    """Do a command's work on one node, or without a name on all affected nodes."""
    assert isinstance(work.client, KubeClient)
    writer = NotedWriter(
        *(work.client, work.decode, NoDeadline()),
        timeout_seconds=10.0,
        keep=work._keep,
        sleep=world.advance,
        clock=world.clock.seconds,
        writing=world.command_writes,
    )
    writer._pool = SerialCrew(world)  # type: ignore[assignment]  # stands in
    work._writer = writer
    work._threads = InOrder  # type: ignore[assignment,method-assign]  # stands in
    work.by = "ann"  # one request less, so that the schedules found earlier stay the same
    if work._events is not None:
        work._events._retry = retrying(Backoff(), lambda _: True, attempts=1)
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        try:
            states = work.affected(None) if name is None else work.named([name])  # type: ignore[attr-defined]  # of Reset
            work.carry_out(states)
        except KubeError as error:
            output.write(f"{error}")
    # The id is a digest of the record, which may name a Job whose uid is of chance.
    world.log(f"   {re.sub('audit id [0-9a-f]+', 'audit id', output.getvalue())}")


def _edit_taints(
    world: World,
    number: int,
    change: Callable[[list[dict[str, str]]], list[dict[str, str]]],
    *,
    manager: str = "",
) -> None:
    def edit(node: dict[str, Any]) -> None:
        node["spec"]["taints"] = change(node["spec"].get("taints", []))

    world.nodes.edit(node_of(world, number), edit, manager)
