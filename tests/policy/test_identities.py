"""Which GPU failed: noted with the incident, kept after a swap, and no reason for any decision (rule 43)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from konductor_like.cluster.node.record import decode, encode
from konductor_like.model import (
    Fault,
    Gpu,
    GpuSource,
    Incident,
    NodeRecord,
    Plan,
    SeenGpu,
    Severity,
    Snapshot,
    Validation,
    ValidationStage,
)
from konductor_like.policy.decide import decide
from konductor_like.policy.node.identities import present_gpus, present_words
from tests.policy import answers
from tests.policy.answers import NAME
from tests.policy.lives import GPUS, Life
from tests.policy.scenes import GPU, Cluster, at, fault, fleet, node, ns
from tests.policy.validated_lives import ValidatedLife

OLD, NEW = (f"GPU-{digit * 8}-1111-2222-3333-444444444444" for digit in "ab")
SERIAL = "1650124014249"


def seen(uuid: str = OLD, seconds: float = -60, serial: str = "", by: GpuSource = GpuSource.SLICE) -> SeenGpu:
    return SeenGpu(Gpu(GPU, uuid, serial), by, ns(seconds))


def with_slices(cluster: Cluster, *found: SeenGpu) -> None:
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], seen_gpus=found)


def validated(uuid: str, seconds: float, boot: str = "boot-a") -> Validation:
    gpus = (Gpu(GPU, uuid, SERIAL),)
    return Validation(
        *(ValidationStage.ENDED, 2, at(seconds - 90), "kim"), boot_id=boot, ended_at=at(seconds), gpus=gpus
    )


def named(cluster: Cluster) -> list[tuple[str, str]]:
    return [(each.uuid, each.serial) for each in cluster.nodes["gpu-1"].record.incidents]


def test_an_incident_keeps_the_gpu_that_the_slices_name() -> None:
    cluster = Cluster(fleet(9))
    with_slices(cluster, seen())

    plan = cluster.tick(fault())

    assert named(cluster) == [(OLD, "")]
    assert plan.changes[0].incident is not None
    assert plan.changes[0].incident.uuid == OLD  # the audit trail tells this one


def test_an_exporters_labels_name_it_too() -> None:
    cluster = Cluster(fleet(9))
    told = {"gpu-1": (seen(serial=SERIAL, by=GpuSource.EXPORTER),), "gpu-2": (seen(NEW),)}
    cluster.snapshot = replace(cluster.snapshot, seen_gpus=told)

    cluster.tick(fault())

    assert named(cluster) == [(OLD, SERIAL)]


def test_what_the_driver_says_in_its_own_lines_counts_before_anything_else() -> None:
    cluster = Cluster(fleet(9))
    with_slices(cluster, seen(NEW))
    line = fault()

    cluster.tick(replace(line, finding=line.finding._replace(uuid=OLD, serial=SERIAL)))

    assert named(cluster) == [(OLD, SERIAL)]


def test_a_gpu_that_was_swapped_is_still_the_one_that_failed() -> None:
    cluster = Cluster(fleet(9))
    with_slices(cluster, seen())
    cluster.tick(fault())
    cluster.reboot("gpu-1", "boot-b", reported=3600)
    with_slices(cluster, seen(NEW, 3700))

    cluster.tick(fault(seconds=3800, boot="boot-b", stamp=150), seconds=3800)

    assert named(cluster) == [(OLD, ""), (NEW, "")]
    assert [*present_words(cluster.nodes["gpu-1"])] == []


@pytest.mark.parametrize("known", ["slices", "validation", "exporter"])
def test_what_was_seen_before_the_boot_names_no_gpu_of_the_boot(known: str) -> None:
    cluster = Cluster(fleet(9))
    cluster.nodes["gpu-1"] = replace(node(boot="boot-b"), booted_after_ns=ns(-30))
    if known == "slices":
        with_slices(cluster, seen(seconds=-31))
    elif known == "exporter":
        told = {"gpu-1": (seen(seconds=-31, by=GpuSource.EXPORTER),)}
        cluster.snapshot = replace(cluster.snapshot, seen_gpus=told)
    else:
        record = NodeRecord(validation=validated(OLD, -10, boot="boot-a"))
        cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], record=record)

    cluster.tick(fault(boot="boot-b"))

    assert named(cluster) == [("", "")]


def test_a_line_of_another_boot_gets_no_gpu_of_this_boot() -> None:
    cluster = Cluster(fleet(9))
    with_slices(cluster, seen())

    cluster.tick(fault(boot="boot-of-later"))

    assert named(cluster) == [("", "")]


def test_a_later_fault_of_the_boot_is_of_the_same_gpu_though_only_the_first_was_named() -> None:
    cluster, line = Cluster(fleet(9)), fault(rule="xid.63", severity=Severity.SUSPECT)
    cluster.tick(replace(line, finding=line.finding._replace(uuid=OLD, serial=SERIAL)))

    cluster.tick(fault(seconds=800, stamp=900), seconds=800)

    assert named(cluster) == [(OLD, SERIAL), (OLD, SERIAL)]


def test_a_gpu_that_was_noted_stays_though_a_later_source_of_the_boot_disagrees() -> None:
    cluster = Cluster(fleet(9))
    with_slices(cluster, seen())
    cluster.tick(fault())
    with_slices(cluster, seen(NEW, 700))

    cluster.tick(fault(rule="xid.48", seconds=800, stamp=900), seconds=800)

    assert named(cluster) == [(OLD, ""), (NEW, "")]


def test_a_fault_of_an_earlier_boot_does_not_tell_which_gpu_is_there_now() -> None:
    cluster = Cluster(fleet(9))
    with_slices(cluster, seen())
    cluster.tick(fault())
    state = cluster.nodes["gpu-1"]
    rebooted = replace(state, machine=replace(state.machine, boot_id="boot-b"), seen_gpus=())

    assert present_gpus(replace(state, seen_gpus=()))[GPU].gpu.uuid == OLD
    assert present_gpus(rebooted) == {}


def test_a_write_of_a_label_alone_leaves_the_record_as_it_is() -> None:
    cluster = Cluster(fleet(9))
    cluster.tick(fault())
    state = cluster.nodes["gpu-1"]
    cluster.nodes["gpu-1"] = replace(state, as_read=replace(state.as_read, health=None), seen_gpus=(seen(),))

    [change] = cluster.tick(seconds=60).changes

    assert change.record == state.record


def test_no_gpu_is_noted_while_two_machines_have_the_nodes_name() -> None:
    cluster = Cluster(fleet(9))
    with_slices(cluster, seen())
    cluster.snapshot = replace(cluster.snapshot, ambiguous=frozenset({"gpu-1"}))

    cluster.tick(fault())

    assert named(cluster) == [("", "")]


def test_the_latest_of_sources_that_disagree_counts() -> None:
    state = replace(node(), record=NodeRecord(validation=validated(NEW, 30)), seen_gpus=(seen(OLD, 10),))

    assert present_gpus(state)[GPU].gpu == Gpu(GPU, NEW, SERIAL)
    assert present_gpus(state, [seen(OLD, 60, by=GpuSource.EXPORTER)])[GPU].gpu == Gpu(GPU, OLD)


def test_a_serial_number_that_only_one_source_has_is_kept() -> None:
    for tested_at, sliced_at in ((10, 30), (30, 10)):
        record = NodeRecord(validation=validated(OLD, tested_at))
        state = replace(node(), record=record, seen_gpus=(seen(OLD, sliced_at),))
        assert present_gpus(state)[GPU].gpu == Gpu(GPU, OLD, SERIAL)


def test_nothing_is_written_for_a_name_alone_and_the_next_write_has_it() -> None:
    cluster = Cluster(fleet(9))
    cluster.tick(fault())
    with_slices(cluster, seen())

    assert cluster.tick(seconds=700).changes == ()
    cluster.tick(fault(rule="xid.48", seconds=800, stamp=900), seconds=800)

    assert named(cluster) == [(OLD, ""), (OLD, "")]


def test_the_gpu_in_the_place_of_one_that_failed_is_told_if_it_is_another_or_none_was_noted() -> None:
    cluster = Cluster(fleet(9))
    cluster.tick(fault())
    with_slices(cluster, seen(OLD, 60))
    [unknown] = present_words(cluster.nodes["gpu-1"])
    record = cluster.nodes["gpu-1"].record
    swapped = replace(record, incidents=(replace(record.incidents[0], uuid=NEW),))
    [other] = present_words(replace(cluster.nodes["gpu-1"], record=swapped))

    assert unknown == f"{GPU} {OLD} (ResourceSlice, 2026-03-04T12:01:00Z): which GPU failed was not noted"
    assert other == f"{GPU} {OLD} (ResourceSlice, 2026-03-04T12:01:00Z): not the GPU that failed"


# Nothing is decided by it.


def _unnamed(incident: Incident) -> Incident:
    return replace(incident, uuid="", serial="")


def with_names(snapshot: Snapshot, faults: Sequence[Fault], random: Random) -> tuple[Snapshot, list[Fault]]:
    """Let all sources name GPUs, often wrongly."""
    state = snapshot.nodes[NAME]
    begin_ns = state.booted_after_ns or 0
    found = tuple(
        SeenGpu(
            Gpu(random.choice(GPUS), random.choice([OLD, NEW]), random.choice(["", SERIAL])),
            random.choice([*GpuSource]),
            begin_ns + random.choice([-1, 0, 10**9]),
        )
        for _ in range(random.randrange(4))
    )
    state = replace(state, seen_gpus=found[:2])
    named = [replace(f, finding=f.finding._replace(uuid=random.choice(["", OLD, NEW]))) for f in faults]
    return replace(snapshot, nodes={**snapshot.nodes, NAME: state}, seen_gpus={NAME: found[2:]}), named


def without_names(snapshot: Snapshot) -> Snapshot:
    state = snapshot.nodes[NAME]
    record = replace(state.record, incidents=tuple(map(_unnamed, state.record.incidents)))
    return replace(snapshot, nodes={**snapshot.nodes, NAME: replace(state, record=record)})


@pytest.mark.parametrize("kind", [Life, ValidatedLife])
@pytest.mark.parametrize("seed", range(6))
def test_every_decision_of_random_lives_is_the_same_without_names(
    kind: type[Life], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, named = Random(f"names {seed}"), 0

    def both(snapshot: Snapshot, faults: Sequence[Fault], *rest: Any) -> Plan:
        nonlocal named
        plan = decide(*with_names(snapshot, faults, random), *rest)
        assert comparable(plan) == comparable(decide(without_names(snapshot), faults, *rest))
        named += sum(bool(i.uuid) for c in plan.changes if c.record for i in c.record.incidents)
        return plan

    monkeypatch.setattr(answers, "decide", both)
    life = kind(seed)
    for number in range(40):
        life.step(number)

    assert named > 10


def comparable(plan: Plan) -> Any:
    """Return all that is written, told, refused and remembered, without the names of GPUs."""
    writes = []
    for each in plan.changes:
        record, about = each.record, each.incident
        if record is not None:
            record = replace(record, incidents=tuple(map(_unnamed, record.incidents)))
        told = (each.event, each.message, each.also, about and _unnamed(about), each.upkeep, each.counts_only)
        writes.append((each.node, each.verb, each.health, each.needs, record, told))
    refused = [(each.node, each.key, each.why, each.detail) for each in plan.refused]
    ignored = [(each.fault.key, each.reason) for each in plan.ignored]
    rest = (plan.brake.out, plan.window, plan.kept_out, plan.gpus and plan.gpus.due)
    return writes, refused, ignored, [each.key for each in plan.counted], rest


def test_a_record_with_names_is_read_as_it_was_written_and_one_without_is_as_before() -> None:
    cluster = Cluster(fleet(9))
    cluster.tick(fault())
    plain = encode(cluster.nodes["gpu-1"].record)
    with_slices(cluster, seen(serial=SERIAL))
    cluster.tick(fault(rule="xid.48", seconds=800, stamp=900), seconds=800)
    record = cluster.nodes["gpu-1"].record

    assert "uuid" not in plain
    assert decode(encode(record)) == (record, None)
