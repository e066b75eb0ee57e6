"""A release that leaves a need unmet says so everywhere, until the node has booted or passed a validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konductor_like.model import (
    MET_BY_REBOOT,
    EventReason,
    Fault,
    Needs,
    NodeRecord,
    Release,
    ReleaseHow,
    Role,
    Severity,
    Validation,
    ValidationStage,
    ValidationVerdict,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.lifecycle import DEFAULTS
from konductor_like.policy.node.needs import RANK
from konductor_like.policy.node.release import RELEASES_KEPT
from konductor_like.policy.node.undone import released_with, reminders, undone
from konductor_like.policy.operator import operator_taint
from tests.policy.scenes import Cluster, at, fault, fleet, ns, reset_node

OTHER = "0000:9a:00"
NEEDS = [each for each in Needs if each is not Needs.NONE]


def failed(*needs: Needs) -> Cluster:
    """A fleet whose gpu-1 is tainted for one fault of each need. No number of failures asks for more."""
    cluster = Cluster(fleet(20), PolicyConfig(repeat_count=0))
    faults = [
        fault(rule=f"xid.{100 + number}", needs=each.value, stamp=100 + number, seconds=number)
        for number, each in enumerate(needs)
    ]
    cluster.tick(*faults, seconds=20)
    return cluster


def reset(cluster: Cluster, seconds: float = 60) -> None:
    reset_node(cluster, "gpu-1", seconds)


def remove(cluster: Cluster, seconds: float = 60) -> None:
    cluster.untaint_by_hand("gpu-1")
    cluster.tick(seconds=seconds)


@pytest.mark.parametrize("how", [reset, remove])
@pytest.mark.parametrize("needs", NEEDS)
def test_each_unmet_need_is_in_the_event_the_warning_and_the_mark_however_the_node_is_released(
    needs: Needs, how: Callable[[Cluster], None]
) -> None:
    cluster = failed(needs)

    how(cluster)

    state = cluster.nodes["gpu-1"]
    words = f"Unmet need: {needs} (xid 100 on GPU 0000:4e:00)."
    assert cluster.tainted == set()
    assert cluster.writes[-1].event is EventReason.RELEASED
    assert cluster.writes[-1].message.endswith(words)
    assert (released_with(state), reminders(state)) == ((needs,), [words])


def test_a_fault_without_a_need_leaves_no_mark() -> None:
    cluster = failed(Needs.NONE)

    reset(cluster)

    state = cluster.nodes["gpu-1"]
    assert (released_with(state), reminders(state)) == ((), [])
    assert state.record.releases[0].warning is None


@pytest.mark.parametrize("how", [reset, remove])
def test_of_several_needs_the_gravest_comes_first(how: Callable[[Cluster], None]) -> None:
    cluster = failed(Needs.GPU_RESET, Needs.INSPECTION, Needs.REBOOT)
    state = cluster.nodes["gpu-1"]
    found = undone(state, at=at(60), reason="x", policy=DEFAULTS)
    assert [each.needs for each in found.needs] == [Needs.INSPECTION, Needs.REBOOT, Needs.GPU_RESET]

    how(cluster)

    assert released_with(cluster.nodes["gpu-1"]) == (Needs.INSPECTION, Needs.REBOOT, Needs.GPU_RESET)


def test_a_held_fault_leaves_its_need_as_a_tainted_one_does() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-2"), seconds=1)
    cluster.tick(fault(needs="inspection", seconds=2), seconds=3)
    assert cluster.tainted == {"gpu-2"}

    reset(cluster)

    assert released_with(cluster.nodes["gpu-1"]) == (Needs.INSPECTION,)


def persons() -> Cluster:
    cluster = Cluster(fleet(20))
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(10), by="kim", reason="riser swap"))
    return cluster


def of(found: Fault) -> Cluster:
    cluster = Cluster(fleet(20))
    cluster.tick(found, seconds=1)
    return cluster


def collateral() -> Cluster:
    cluster = of(fault())
    state = cluster.nodes["gpu-1"]
    incidents = tuple(replace(each, role=Role.COLLATERAL) for each in state.record.incidents)
    cluster.nodes["gpu-1"] = replace(state, record=replace(state.record, incidents=incidents))
    return cluster


@pytest.mark.parametrize(
    "cluster",
    [
        persons(),
        of(fault(severity=Severity.TEST)),
        of(fault(severity=Severity.SUSPECT)),
        collateral(),
    ],
    ids=["a person's taint", "a test", "a suspicion", "a failure that began elsewhere"],
)
def test_what_is_no_failure_of_the_machine_leaves_no_need(cluster: Cluster) -> None:
    reset(cluster)

    assert released_with(cluster.nodes["gpu-1"]) == ()


def test_a_reboot_that_meets_the_need_leaves_none_and_one_that_does_not_leaves_it() -> None:
    for needs, left in ((Needs.REBOOT, ()), (Needs.INSPECTION, (Needs.INSPECTION,))):
        cluster = failed(needs)
        cluster.reboot("gpu-1", "boot-b", reported=30)
        cluster.tick(seconds=50)

        reset(cluster)

        assert released_with(cluster.nodes["gpu-1"]) == left


def test_a_node_that_is_marked_for_replacement_needs_one_and_no_reboot() -> None:
    cluster = failed(Needs.REBOOT)
    state = cluster.nodes["gpu-1"]
    life = replace(state.record.life, replace_since=at(30))
    cluster.nodes["gpu-1"] = replace(state, record=replace(state.record, life=life))

    reset(cluster)

    assert released_with(cluster.nodes["gpu-1"]) == (Needs.REPLACEMENT,)
    assert "Unmet need: replacement (it failed 1 times in 7 days)." in cluster.writes[-1].message


def test_the_mark_ends_with_a_boot_also_if_a_person_released_the_node_before_the_controller_saw_a_boot() -> (
    None
):
    cluster = failed(Needs.INSPECTION)
    cluster.reboot("gpu-1", "boot-b")  # no controller has looked at the node since

    reset(cluster)
    assert released_with(cluster.nodes["gpu-1"]) == (Needs.INSPECTION,)
    cluster.tick(seconds=70)
    assert released_with(cluster.nodes["gpu-1"]) == (Needs.INSPECTION,)

    cluster.reboot("gpu-1", "boot-c")
    assert released_with(cluster.nodes["gpu-1"]) == ()
    assert reminders(cluster.nodes["gpu-1"]) == []


def test_an_unknown_boot_is_no_boot_since() -> None:
    cluster = failed(Needs.INSPECTION)
    reset(cluster)
    state = cluster.nodes["gpu-1"]

    unknown = replace(state, machine=replace(state.machine, boot_id=None))

    assert released_with(unknown) == (Needs.INSPECTION,)


def ended_with(verdict: ValidationVerdict, began: float) -> Validation:
    return Validation(
        *(ValidationStage.ENDED, 3, at(0), "kim"), began_at=at(began), ended_at=at(900), verdict=verdict
    )


@pytest.mark.parametrize(
    ("validation", "left"),
    [
        (ended_with(ValidationVerdict.PASS, 61), ()),
        (ended_with(ValidationVerdict.PASS, 59), (Needs.INSPECTION,)),
        (ended_with(ValidationVerdict.FAIL, 61), (Needs.INSPECTION,)),
        (ended_with(ValidationVerdict.UNKNOWN, 61), (Needs.INSPECTION,)),
    ],
    ids=["passed since", "began before", "failed", "unknown"],
)
def test_only_a_passed_validation_that_began_after_the_release_ends_the_mark(
    validation: Validation, left: tuple[Needs, ...]
) -> None:
    cluster = failed(Needs.INSPECTION)
    reset(cluster, 60)
    state = cluster.nodes["gpu-1"]

    after = replace(state, record=replace(state.record, validation=validation))

    assert released_with(after) == left


def test_a_return_after_a_validation_ends_the_mark_and_the_end_of_a_test_does_not() -> None:
    cluster = failed(Needs.INSPECTION)
    reset(cluster)
    state = cluster.nodes["gpu-1"]
    for how, left in ((ReleaseHow.VALIDATED, ()), (ReleaseHow.TEST_ENDED, (Needs.INSPECTION,))):
        marks = (Release(at(99), "konductor-like", "", how), *state.record.releases)

        assert released_with(replace(state, record=replace(state.record, releases=marks))) == left


def test_later_releases_of_the_same_boot_keep_the_need_however_many_they_are() -> None:
    cluster = failed(Needs.INSPECTION)
    reset(cluster)
    for number in range(RELEASES_KEPT + 2):
        seconds = 1000 * (number + 1)
        later = fault(rule="xid.48", gpu=OTHER, needs="gpu-reset", stamp=seconds, seconds=seconds)
        cluster.tick(later, seconds=seconds)
        assert reminders(cluster.nodes["gpu-1"]) == []  # the node is tainted: its label tells the need
        reset(cluster, seconds + 60)
        assert released_with(cluster.nodes["gpu-1"]) == (Needs.INSPECTION, Needs.GPU_RESET)
        assert "inspection" in "".join(reminders(cluster.nodes["gpu-1"]))

    assert len(cluster.nodes["gpu-1"].record.releases) == RELEASES_KEPT


def test_a_release_without_room_for_its_sentence_still_tells_the_need() -> None:
    cluster = failed(Needs.INSPECTION)
    reset(cluster)
    state = cluster.nodes["gpu-1"]
    short = tuple(replace(each, warning=None) for each in state.record.releases)

    cut = replace(state, record=replace(state.record, releases=short))

    assert (released_with(cut), reminders(cut)) == ((Needs.INSPECTION,), ["Unmet need: inspection."])


def test_of_an_earlier_whole_release_only_a_need_is_still_told() -> None:
    [state] = fleet(1).values()
    latest = Release(at(2), "ann", "", ReleaseHow.RESET, warning="One GPU less.")
    earlier = Release(at(1), "ann", "", ReleaseHow.RESET, warning="Two GPUs less.")
    needy = Release(at(0), "ann", "", ReleaseHow.RESET, warning="Unmet need: reboot.", needs="reboot")
    record = NodeRecord(state.machine, releases=(latest, earlier, needy))

    assert reminders(replace(state, record=record)) == ["One GPU less.", "Unmet need: reboot."]


def test_a_release_of_an_earlier_build_is_marked_by_its_warning() -> None:
    warning = "The node has not rebooted since: xid 79 on GPU 0000:4e:00: Reboot the node."
    [state] = fleet(1).values()
    mark = Release(at(0), "ann", "", ReleaseHow.RESET, warning=warning)
    marked = replace(state, record=NodeRecord(state.machine, releases=(mark,)))

    assert (released_with(marked), reminders(marked)) == ((Needs.REBOOT,), [warning])


def test_a_need_of_a_newer_build_is_no_error_and_hides_no_known_one() -> None:
    [state] = fleet(1).values()
    mark = Release(at(0), "ann", "", ReleaseHow.RESET, needs="exorcism inspection rebo…")

    assert released_with(replace(state, record=NodeRecord(releases=(mark,)))) == (Needs.INSPECTION,)


STEPS = st.lists(
    st.sampled_from(
        [*(f"fails {each}" for each in NEEDS), "reset", "reset", "remove", "reboot", "replay", "wait"]
    ),
    min_size=4,
    max_size=14,
)


@settings(max_examples=100)
@given(STEPS)
def test_in_any_order_of_faults_releases_and_boots_the_node_is_marked_with_what_was_not_met(
    steps: list[str],
) -> None:
    """``left`` and ``unmet`` say again, in other words, what the mark has to be."""
    cluster = Cluster(fleet(20), PolicyConfig(repeat_count=0, test_seconds=0))
    left: set[Needs] = set()
    unmet: dict[str, Needs | None] = {}
    printed: list[Fault] = []
    for number, step in enumerate(steps):
        seconds = 7200 * (number + 1)
        if step.startswith("fails"):
            needs, rule = Needs(step.removeprefix("fails ")), f"xid.{200 + number}"
            boot = cluster.nodes["gpu-1"].machine.boot_id
            printed.append(fault(rule=rule, needs=needs, stamp=seconds, seconds=seconds, boot=boot))
            cluster.tick(printed[-1], seconds=seconds)
            unmet[rule] = needs
        elif step == "reboot":
            cluster.reboot("gpu-1", f"boot-{number}", reported=seconds - 1)
            left.clear()
            unmet = {rule: None if need in MET_BY_REBOOT else need for rule, need in unmet.items()}
        elif step == "replay":
            cluster.tick(*(replace(each, timestamp_ns=ns(seconds)) for each in printed), seconds=seconds)
        elif step in ("reset", "remove") and unmet:
            cluster.tick(seconds=seconds)
            (reset if step == "reset" else remove)(cluster, seconds + 60)
            left |= {need for need in unmet.values() if need is not None}
            unmet.clear()
        cluster.tick(seconds=seconds + 90)

        state = cluster.nodes["gpu-1"]
        assert state.tainted is bool(unmet)
        assert released_with(state) == tuple(sorted(left, key=RANK.__getitem__, reverse=True))
