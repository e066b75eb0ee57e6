"""The invariants find what they are for: each is broken here by hand, with no controller running."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cluster.client import leases_path, node_path
from konductor_like.cluster.lease_annotations import CONTROLS_ANNOTATION
from konductor_like.model import HEALTH_LABEL, RECORD_ANNOTATION
from tests.chaos.processes.actors import Actor
from tests.chaos.processes.invariants import Story, unmet, violations
from tests.chaos.processes.machines import KMSG, Occurrence
from tests.chaos.processes.world import MERGE, OUR_TAINT, RESETTER, World

NODE, GPU = "gpu-01", "0000:4e:00"
LEASES = leases_path("konductor-like")


class Nobody:
    """A process that is not there."""

    pid = 0

    def wait(self, timeout_seconds: float) -> int:
        assert timeout_seconds >= 0
        return 0


LATE = "2100-01-01T00:00:00Z"
"""After everything that is said here."""


@pytest.fixture
def world() -> Iterator[World]:
    with World({NODE: KMSG}) as made:
        made.cluster.create_namespace("konductor-like")
        take_lease(made, "first")
        yield made


def take_lease(world: World, user: str) -> None:
    lease = world.lease()
    spec = {"holderIdentity": user, "acquireTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 3}
    if lease:
        assert world.ask(user, "PATCH", f"{LEASES}/konductor-like", {"spec": spec}, MERGE)[0] == 200
    else:
        assert (
            world.ask(user, "POST", LEASES, {"metadata": {"name": "konductor-like"}, "spec": spec})[0] == 201
        )


def write(
    world: World,
    user: str,
    *,
    tainted: bool,
    faults: list[Occurrence],
    state: str = "active",
    at: str = "2026-01-01T00:00:00Z",
) -> None:
    """Write a node as a controller, or a reset, would."""
    node = world.nodes()[NODE]
    incidents = [
        {"rule": one.rule, "gpu": one.gpu, "state": state, "count": 1, "at": {"us": one.stamp_us}}
        for one in faults
    ]
    record: dict[str, Any] = {"v": 1, "incidents": incidents}
    if user == RESETTER:
        record["releases"] = [{"at": at}]
    taints = [taint for taint in node["spec"]["taints"] if taint["key"] != OUR_TAINT["key"]]
    body = {
        "metadata": {
            "annotations": {RECORD_ANNOTATION: json.dumps(record)},
            "labels": {HEALTH_LABEL: "faulty" if tainted else None},
        },
        "spec": {"taints": [*taints, OUR_TAINT] if tainted else taints},
    }
    assert world.ask(user, "PATCH", node_path(NODE), body, MERGE)[0] == 200


def fault(world: World) -> Occurrence:
    occurrence = world.xid(NODE, 79, GPU)
    world.ship([occurrence], KMSG)
    return occurrence


def story(world: World) -> Story:
    controllers = [Actor(user, Nobody(), Path("nowhere")) for user in ("first", "second")]
    machines = {name: machine.system for name, machine in world.machines.items()}
    return Story(world.journal.entries(), world.nodes(), machines, world.occurrences, controllers)


def found(world: World) -> str:
    return "; ".join(violations(story(world)))


def test_a_fault_that_was_acted_upon_is_fine(world: World) -> None:
    write(world, "first", tainted=True, faults=[fault(world)])

    assert found(world) == ""


def test_a_fault_that_nobody_acted_upon_is_found(world: World) -> None:
    fault(world)

    assert "not tainted in spite of xid.79" in found(world)
    assert "not on its record" in found(world)


def test_a_taint_for_no_fault_is_found(world: World) -> None:
    write(world, "first", tainted=True, faults=[])

    assert "for no new fault" in found(world)


def test_a_fault_that_acts_again_after_its_release_is_found(world: World) -> None:
    faults = [fault(world)]
    write(world, "first", tainted=True, faults=faults)
    write(world, RESETTER, tainted=False, faults=faults, state="released")
    assert found(world) == ""

    write(world, "first", tainted=True, faults=faults)

    assert "for no new fault" in found(world)


def test_a_reset_covers_unread_lines_of_what_stands(world: World) -> None:
    faults = [fault(world)]
    write(world, "first", tainted=True, faults=faults)
    unread = fault(world)
    write(world, RESETTER, tainted=False, faults=faults, state="released", at=LATE)

    write(world, "first", tainted=True, faults=[unread])

    assert "for no new fault" in found(world)


def test_a_reset_covers_no_unread_line_of_what_an_earlier_one_closed(world: World) -> None:
    faults = [fault(world)]
    write(world, "first", tainted=True, faults=faults)
    write(world, RESETTER, tainted=False, faults=faults, state="released")
    unread = fault(world)
    write(world, RESETTER, tainted=False, faults=faults, state="released", at=LATE)

    write(world, "first", tainted=True, faults=[unread])

    assert found(world) == ""


def test_a_new_fault_after_a_release_must_taint(world: World) -> None:
    faults = [fault(world)]
    write(world, "first", tainted=True, faults=faults)
    write(world, RESETTER, tainted=False, faults=faults, state="released")
    faults.append(fault(world))
    assert unmet(story(world))

    write(world, "first", tainted=True, faults=faults)

    assert found(world) == ""


def test_a_controller_that_removes_a_taint_is_found(world: World) -> None:
    faults = [fault(world)]
    write(world, "first", tainted=True, faults=faults)
    write(world, "first", tainted=False, faults=faults)

    assert "first removed the taint" in found(world)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"metadata": {"annotations": {"example.com/owner": "me"}}}, id="annotation"),
        pytest.param({"spec": {"taints": []}}, id="taint"),
    ],
)
def test_a_controller_that_touches_what_is_others_is_found(world: World, body: dict[str, Any]) -> None:
    world.ask("first", "PATCH", node_path(NODE), body, MERGE)

    assert "first changed what is others'" in found(world)


def test_a_write_without_the_lease_is_found(world: World) -> None:
    take_lease(world, "second")
    write(world, "first", tainted=True, faults=[fault(world)])

    assert "first wrote gpu-01" in found(world)
    assert "without holding the Lease" in found(world)


def test_a_renewal_by_who_lost_the_lease_is_found(world: World) -> None:
    take_lease(world, "second")
    renewal = {"spec": {"renewTime": "2026-01-01T00:00:09.000000Z"}}
    world.ask("first", "PATCH", f"{LEASES}/konductor-like", renewal, MERGE)

    assert "first wrote konductor-like" in found(world)


@pytest.mark.parametrize(
    ("spec", "fine"), [({}, True), ({"renewTime": "2026-01-01T00:00:09.000000Z"}, False)]
)
def test_a_note_on_the_lease_is_fine_if_it_is_nothing_else(
    spec: dict[str, Any], fine: bool, world: World
) -> None:
    note = {"metadata": {"annotations": {CONTROLS_ANNOTATION: "{}"}}, "spec": spec}
    assert world.ask(RESETTER, "PATCH", f"{LEASES}/konductor-like", note, MERGE)[0] == 200

    assert (f"{RESETTER} wrote konductor-like" not in found(world)) == fine


def test_too_many_writes_are_found(world: World) -> None:
    faults = [fault(world)]
    write(world, "first", tainted=True, faults=faults)
    write(world, "first", tainted=True, faults=faults, state="held")

    assert "was written 2 times, which 1 would do for" in found(world)


def test_a_creation_that_was_refused_is_no_write(world: World) -> None:
    before = len(world.journal.entries())
    body = {"metadata": {"name": "konductor-like"}, "spec": {"holderIdentity": "second"}}

    assert world.ask("second", "POST", LEASES, body)[0] == 409
    assert len(world.journal.entries()) == before
