"""Each invariant finds its violation, which is made by hand here, without a controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from multiprocessing import Process
from pathlib import Path

import pytest

from konductor_like.cluster.api.client import leases_path, node_path
from konductor_like.cluster.lease.annotations import CONTROLS_ANNOTATION
from konductor_like.model import HEALTH_LABEL, RECORD_ANNOTATION
from tests.chaos.processes.actors import Actor
from tests.chaos.processes.invariants import RunRecord, unmet, violations
from tests.chaos.processes.machines import KMSG, Occurrence
from tests.chaos.processes.world import MERGE, OUR_TAINT, RESETTER, World

NODE, GPU = "gpu-01", "0000:4e:00"
LEASES = leases_path("konductor-like")
LEASE = f"{LEASES}/konductor-like"
EARLY, LATE = "2026-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
"""Times before and after all lines of the test."""
RENEWAL = {"renewTime": "2026-01-01T00:00:09.000000Z"}


@pytest.fixture
def world() -> Iterator[World]:
    with World({NODE: KMSG}) as made:
        made.cluster.create_namespace("konductor-like")
        take_lease(made, "first")
        yield made


def take_lease(world: World, user: str) -> None:
    spec = {"holderIdentity": user, "acquireTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 3}
    if world.lease():
        done = world.ask(user, "PATCH", LEASE, {"spec": spec}, MERGE)
    else:
        done = world.ask(user, "POST", LEASES, {"metadata": {"name": "konductor-like"}, "spec": spec})
    assert done[0] in (200, 201)


def write(world: World, user: str, faults: list[Occurrence], *, state: str = "active", at: str = "") -> None:
    """Write a node as a controller would, or with ``at`` as a reset; tainted unless the state is released."""
    tainted = state != "released"
    incidents = [
        {"rule": one.rule, "gpu": one.gpu, "state": state, "count": 1, "at": {"us": one.stamp_us}}
        for one in faults
    ]
    record = {"v": 1, "incidents": incidents, **({"releases": [{"at": at}]} if at else {})}
    taints = [taint for taint in world.nodes()[NODE]["spec"]["taints"] if taint["key"] != OUR_TAINT["key"]]
    body = {
        "metadata": {
            "annotations": {RECORD_ANNOTATION: json.dumps(record)},
            "labels": {HEALTH_LABEL: "faulty" if tainted else None},
        },
        "spec": {"taints": [*taints, OUR_TAINT] if tainted else taints},
    }
    assert world.ask(user, "PATCH", node_path(NODE), body, MERGE)[0] == 200


def reset(world: World, faults: list[Occurrence], at: str = EARLY) -> None:
    write(world, RESETTER, faults, state="released", at=at)


def fault(world: World) -> Occurrence:
    occurrence = world.xid(NODE, 79, GPU)
    world.ship([occurrence], KMSG)
    return occurrence


def run_record(world: World) -> RunRecord:
    controllers = [Actor(user, Process(), Path("nowhere")) for user in ("first", "second")]
    machines = {name: machine.system for name, machine in world.machines.items()}
    return RunRecord(world.journal.entries(), world.nodes(), machines, world.occurrences, controllers)


def broken(world: World) -> str:
    return "; ".join(violations(run_record(world)))


def test_a_fault_without_a_taint_is_found(world: World) -> None:
    faults = [fault(world)]
    assert "not tainted in spite of xid.79" in broken(world)
    assert "not on its record" in broken(world)

    write(world, "first", faults)
    assert broken(world) == ""

    write(world, "first", faults, state="held")
    assert "was written 2 times, 1 are allowed" in broken(world)


def test_a_taint_for_no_fault_is_found(world: World) -> None:
    write(world, "first", [])

    assert "for no new fault" in broken(world)


def test_a_fault_that_acts_again_after_its_release_is_found_and_a_new_one_must_taint(world: World) -> None:
    faults = [fault(world)]
    write(world, "first", faults)
    reset(world, faults)
    assert broken(world) == ""

    faults.append(fault(world))
    assert unmet(run_record(world))
    write(world, "first", faults)
    assert broken(world) == ""

    reset(world, faults)
    write(world, "first", faults)
    assert "for no new fault" in broken(world)


@pytest.mark.parametrize(
    "closed", [False, True], ids=["it covers those of an open incident", "not those of a closed incident"]
)
def test_a_reset_covers_unread_lines_of_open_incidents_only(world: World, closed: bool) -> None:
    faults = [fault(world)]
    write(world, "first", faults)
    if closed:
        reset(world, faults)
    unread = fault(world)
    reset(world, faults, LATE)

    write(world, "first", [unread])

    assert ("for no new fault" in broken(world)) is not closed


def test_a_controller_that_removes_a_taint_or_changes_fields_of_others_is_found(world: World) -> None:
    faults = [fault(world)]
    write(world, "first", faults)
    write(world, "first", faults, state="released")
    assert "first removed the taint" in broken(world)

    world.ask("first", "PATCH", node_path(NODE), {"spec": {"taints": []}}, MERGE)
    assert "first changed fields of others" in broken(world)


def test_writes_without_the_lease_are_found(world: World) -> None:
    take_lease(world, "second")
    write(world, "first", [fault(world)])
    world.ask("first", "PATCH", LEASE, {"spec": RENEWAL}, MERGE)

    assert "first wrote gpu-01" in broken(world)
    assert "first wrote konductor-like" in broken(world)
    assert "without holding the Lease" in broken(world)


@pytest.mark.parametrize(("spec", "allowed"), [({}, True), (RENEWAL, False)])
def test_a_note_on_the_lease_is_allowed_if_it_changes_nothing_else(
    spec: dict[str, str], allowed: bool, world: World
) -> None:
    note = {"metadata": {"annotations": {CONTROLS_ANNOTATION: "{}"}}, "spec": spec}
    assert world.ask(RESETTER, "PATCH", LEASE, note, MERGE)[0] == 200

    assert (f"{RESETTER} wrote konductor-like" not in broken(world)) == allowed


def test_a_refused_creation_is_no_write(world: World) -> None:
    before = len(world.journal.entries())
    body = {"metadata": {"name": "konductor-like"}, "spec": {"holderIdentity": "second"}}

    assert world.ask("second", "POST", LEASES, body)[0] == 409
    assert len(world.journal.entries()) == before
