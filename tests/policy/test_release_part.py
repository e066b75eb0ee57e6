"""A release in part: only the chosen incidents are released, and the rest of the node stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konductor_like.catalog import Needs
from konductor_like.model import (
    Change,
    Covers,
    Escalation,
    EventReason,
    Fault,
    FaultKind,
    IncidentKey,
    IncidentState,
    Life,
    NodeRecord,
    NodeState,
    Quarantine,
    ReleaseHow,
    Severity,
    SkipReason,
    Source,
    Verb,
)
from konductor_like.policy import change
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.health import tainting
from konductor_like.policy.node.machines import recent_releases
from konductor_like.policy.node.release import RELEASES_KEPT, release
from konductor_like.policy.node.undone import reminders
from konductor_like.policy.operator import operator_taint, release_selected
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, node, ns, reset_node
from tests.policy.shared import RULES, gpu_fleet, xid

OTHER_GPU = "0000:9a:00"
SUSPECT = {"rule": "xid.63", "severity": Severity.SUSPECT, "needs": "gpu-reset"}
TEST = {"rule": "xid.14", "severity": Severity.TEST, "gpu": "0000:ff:1f", "needs": "nothing"}
POD_RULE = "cuda.214"
POD_THRESHOLD = Escalation(replace(RULES.escalations["xid.94"].threshold, count=2))  # type: ignore[type-var]
POD_RULES = replace(RULES, escalations={POD_RULE: POD_THRESHOLD})
"""Two of a pod's lines in a day taint."""


def release_rules(cluster: Cluster, seconds: float, *rules: str, name: str = "gpu-1") -> None:
    """Release the incidents of these rules as ``konductor-like reset NAME --rule R`` does."""
    change = release_selected(
        cluster.nodes[name], lambda each: each.key.rule in rules, at=at(seconds), by="ann", reason="seen"
    )
    cluster.apply(change)


def uncorrectable(seconds: float) -> Fault:
    """A pod's line about an uncorrectable memory error."""
    return fault(seconds=seconds, stamp=None, rule=POD_RULE, kind=FaultKind.CUDA, gpu=None,
                 severity=Severity.SUSPECT, source=Source.POD, text=f"CUDA error {seconds}")  # fmt: skip


def on_probation(rules: PolicyConfig | None = None) -> Cluster:
    """A fleet whose ``gpu-1`` returned by itself, and is on probation for ten days."""
    cluster = Cluster(fleet(10), rules)
    state = cluster.nodes["gpu-1"]
    before = Quarantine(at(-7200), at(-3600), "xid.79", ReleaseHow.REBOOT)
    record = NodeRecord(state.machine, Life(quarantines=(before,), probation_until=at(10 * 86_400)))
    cluster.nodes["gpu-1"] = replace(state, record=record)
    return cluster


def forget(cluster: Cluster) -> None:
    """Drop the released incidents, as the node's annotation does if they do not fit."""
    state = cluster.nodes["gpu-1"]
    kept = tuple(each for each in state.record.incidents if each.state is not IncidentState.RELEASED)
    cluster.nodes["gpu-1"] = replace(state, record=replace(state.record, incidents=kept))


def faults_of(keys: Collection[tuple[str, str, bool]], *, stamp: float, seconds: float) -> list[Fault]:
    return [
        fault(rule=rule, gpu=gpu, severity=Severity.FATAL if fatal else Severity.SUSPECT,
              stamp=stamp + number, seconds=seconds + number, text=f"{rule} {gpu} {stamp}")
        for number, (rule, gpu, fatal) in enumerate(sorted(keys))
    ]  # fmt: skip


KEYS = [(rule, gpu, rule != "xid.63") for rule in ("xid.48", "xid.63", "xid.79") for gpu in ("a", "b")]


@given(st.sets(st.sampled_from(KEYS), min_size=1), st.sets(st.sampled_from(KEYS), min_size=1))
def test_only_the_chosen_incidents_change_and_the_taint_stays_exactly_for_the_others(
    there: set[tuple[str, str, bool]], chosen: set[tuple[str, str, bool]]
) -> None:
    cluster = Cluster(fleet(10))
    old = faults_of(there, stamp=100, seconds=0)
    cluster.tick(*old, seconds=20)
    before = cluster.nodes["gpu-1"]
    keys = {IncidentKey(rule, gpu) for rule, gpu, _ in chosen}

    change = release_selected(before, lambda each: each.key in keys, at=at(60), by="ann", reason="")

    if not chosen & there:
        assert change is None
        return
    cluster.apply(change)
    after = cluster.nodes["gpu-1"]
    left = [each for each in after.record.incidents if each.key not in keys]
    assert left == [each for each in before.record.incidents if each.key not in keys]
    assert all(i.state is IncidentState.RELEASED for i in after.record.incidents if i.key in keys)
    assert after.tainted is bool(tainting(after.record))
    assert (after.record.life.tainted_at is not None) is after.tainted

    cluster.tick(*(replace(each, timestamp_ns=ns(300)) for each in old), seconds=301)  # a replay
    assert cluster.nodes["gpu-1"].tainted is after.tainted
    assert cluster.nodes["gpu-1"].record.incidents == after.record.incidents

    cluster.tick(*faults_of(chosen & there, stamp=500, seconds=400), seconds=420)
    news = {each.key for each in cluster.nodes["gpu-1"].record.incidents if each.first_ns >= ns(400)}
    assert news == {IncidentKey(rule, gpu) for rule, gpu, _ in chosen & there}
    is_faulty_again = any(fatal for _, _, fatal in chosen & there)
    assert cluster.nodes["gpu-1"].tainted is (after.tainted or is_faulty_again)


def test_the_release_of_a_test_leaves_a_real_fault_and_says_so() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100), fault(**TEST, stamp=101, seconds=1), seconds=2)  # type: ignore[arg-type]

    release_rules(cluster, 60, "xid.14")

    assert cluster.tainted == {"gpu-1"}
    write = cluster.writes[-1]
    assert (write.verb, write.event, write.health) == (Verb.RECORD, EventReason.RELEASED, "faulty")
    assert write.message == (
        "xid 14 on GPU 0000:ff:1f released by ann: seen. The taint stays, for xid 79 on GPU 0000:4e:00."
    )
    [mark] = write.record.releases if write.record else ()
    assert mark.how == "reset of xid 14 on GPU 0000:ff:1f"
    assert write.act_id


def test_the_last_reason_takes_the_taint_along_and_a_suspicion_stays() -> None:
    cluster = Cluster(fleet(10))
    suspect = fault(**SUSPECT, gpu=OTHER_GPU, stamp=101, seconds=1)  # type: ignore[arg-type]
    cluster.tick(fault(stamp=100), suspect, seconds=2)

    release_rules(cluster, 60, "xid.79")

    write = cluster.writes[-1]
    assert (write.verb, write.health, write.needs) == (Verb.UNTAINT, "suspect", Needs.GPU_RESET)
    assert [each.rule for each in cluster.nodes["gpu-1"].record.life.quarantines] == ["xid.79"]
    assert reminders(cluster.nodes["gpu-1"]) == ["Unmet need: reboot (xid 79 on GPU 0000:4e:00)."]


@pytest.mark.parametrize(
    "state",
    [
        replace(node(), taints=(OURS,)),
        replace(node(), taints=(OURS,), record_problem="not JSON"),
    ],
    ids=["a taint that nobody claims", "a damaged record"],
)
def test_a_taint_for_an_unknown_reason_stays(state: NodeState) -> None:
    cluster = Cluster({"gpu-1": state})
    cluster.tick(fault(**TEST))  # type: ignore[arg-type]

    release_rules(cluster, 60, "xid.14")

    assert cluster.tainted == {"gpu-1"}


def test_a_persons_own_taint_stays() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(**TEST))  # type: ignore[arg-type]
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(10), by="kim", reason="riser swap"))

    release_rules(cluster, 60, "xid.14")
    assert cluster.tainted == {"gpu-1"}

    release_rules(cluster, 70, "operator")
    assert cluster.tainted == set()


def test_a_line_that_no_incident_counted_yet_taints_after_a_release_in_part() -> None:
    """The release covers what was chosen; a whole reset would cover this line by its place in the log."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100))
    release_rules(cluster, 60, "xid.79")

    cluster.tick(fault(rule="xid.48", gpu=OTHER_GPU, stamp=90, seconds=50), seconds=61)

    assert cluster.tainted == {"gpu-1"}


def test_many_releases_in_part_push_no_whole_release_out_of_the_record() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(rule="xid.48", gpu=OTHER_GPU, stamp=100))
    reset_node(cluster, "gpu-1", 60, read=59)
    for number in range(RELEASES_KEPT + 2):
        cluster.tick(fault(**TEST, stamp=200 + 100 * number, seconds=100 + 100 * number),  # type: ignore[arg-type]
                     seconds=101 + 100 * number)  # fmt: skip
        release_rules(cluster, 130 + 100 * number, "xid.14")

    record = cluster.nodes["gpu-1"].record
    assert [mark.how for mark in record.releases if mark.how.covers is Covers.READ] == ["reset"]
    cluster.tick(fault(stamp=90, seconds=50), seconds=2000)
    assert cluster.tainted == set()


def test_a_release_in_part_keeps_the_reminder_of_the_reset_before_it() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100))
    reset_node(cluster, "gpu-1", 60)
    cluster.tick(fault(**TEST, stamp=200, seconds=100), seconds=101)  # type: ignore[arg-type]

    release_rules(cluster, 130, "xid.14")

    assert reminders(cluster.nodes["gpu-1"]) == ["Unmet need: reboot (xid 79 on GPU 0000:4e:00)."]
    cluster.reboot("gpu-1", "boot-b")
    assert reminders(cluster.nodes["gpu-1"]) == []


def test_a_machine_that_registers_again_remembers_both_releases() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(rule="xid.48", gpu=OTHER_GPU, stamp=100))
    reset_node(cluster, "gpu-1", 60, read=59)
    cluster.tick(fault(**TEST, stamp=200, seconds=100), seconds=101)  # type: ignore[arg-type]
    release_rules(cluster, 130, "xid.14")

    [kept] = recent_releases((), cluster.nodes.values(), at(140))

    assert [mark.how.split(" on ")[0] for mark in kept.releases] == ["reset of xid 14", "reset"]
    assert [each.rule for each in kept.part_covers] == ["xid.14"]


def test_released_evidence_counts_towards_no_threshold_any_more() -> None:
    cluster = gpu_fleet(10)
    for number in range(3):
        cluster.tick(xid("gpu-1", 94, seconds=3600 * number), seconds=3600 * number + 1)
    assert cluster.tainted == {"gpu-1"}

    release_rules(cluster, 7300, "xid.94")
    cluster.tick(xid("gpu-1", 94, seconds=7400), seconds=7401)

    assert cluster.tainted == set()


def test_evidence_of_a_pod_stays_released_after_a_reboot() -> None:
    cluster = Cluster(fleet(10), POD_RULES)
    for number in range(2):
        cluster.tick(uncorrectable(1000 * number), seconds=1000 * number + 1)
    release_rules(cluster, 3000, POD_RULE)

    cluster.reboot("gpu-1", "boot-b", reported=3050)
    cluster.tick(uncorrectable(3200), seconds=3201)

    assert cluster.tainted == set()


@pytest.mark.parametrize("reported", [95, None], ids=["watched reboot", "reboot that nobody watched"])
def test_a_line_that_names_no_boot_stays_released_after_reboot_and_restart(reported: float | None) -> None:
    """A plain ``dmesg`` names no boot, and the stamp alone does not show that the line is an old one."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=20), fault(rule="xid.48", stamp=21), seconds=1)
    release_rules(cluster, 60, "xid.79")
    cluster.reboot("gpu-1", "boot-b", reported=reported)
    cluster.tick(seconds=200)
    forget(cluster)

    plan = cluster.tick(fault(stamp=20), seconds=600)

    assert [each.key.rule for each in tainting(cluster.nodes["gpu-1"].record)] == ["xid.48"]
    assert [skipped.why for skipped in plan.refused] == [SkipReason.COVERED]
    cluster.tick(fault(stamp=310, seconds=500), seconds=601)
    assert {each.key.rule for each in tainting(cluster.nodes["gpu-1"].record)} == {"xid.48", "xid.79"}


def test_releases_in_part_of_two_boots_cover_each_its_own_lines() -> None:
    """The stamps of the two boots cannot be compared."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=50_000), seconds=1)
    release_rules(cluster, 60, "xid.79")
    cluster.reboot("gpu-1", "boot-b", reported=95)
    cluster.tick(fault(stamp=30, seconds=200), seconds=201)
    assert cluster.tainted == {"gpu-1"}
    release_rules(cluster, 300, "xid.79")
    forget(cluster)

    cluster.tick(fault(stamp=30, seconds=500), fault(stamp=50_000), seconds=501)
    assert cluster.tainted == set()
    cluster.tick(fault(stamp=400, seconds=570), seconds=571)

    assert cluster.tainted == {"gpu-1"}


def test_a_release_in_part_covers_an_earlier_boot_for_a_day() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=20), seconds=1)
    release_rules(cluster, 60, "xid.79")
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=200)
    assert [each.rule for each in cluster.nodes["gpu-1"].record.part_covers] == ["xid.79"]

    cluster.reboot("gpu-1", "boot-c")
    cluster.tick(seconds=60 + 86_400)

    assert not cluster.nodes["gpu-1"].record.part_covers


def test_a_release_in_part_survives_the_controllers_own_release() -> None:
    """The end of a test releases the test, and nothing that a person has released before."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(rule="xid.48", stamp=20), fault(stamp=30, **TEST), seconds=1)  # type: ignore[arg-type]
    release_rules(cluster, 60, "xid.48")
    cluster.tick(seconds=3700)
    assert cluster.nodes["gpu-1"].record.releases[0].how == "time"
    forget(cluster)

    cluster.tick(fault(rule="xid.48", stamp=20, seconds=3800), seconds=3801)

    assert cluster.tainted == set()


def test_a_line_without_a_position_stays_released_in_part() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=None), fault(rule="xid.48", stamp=None), seconds=1)
    release_rules(cluster, 60, "xid.79")
    forget(cluster)

    cluster.tick(fault(stamp=None), seconds=600)
    assert [each.key.rule for each in tainting(cluster.nodes["gpu-1"].record)] == ["xid.48"]
    cluster.tick(fault(stamp=None, seconds=590), seconds=601)

    assert {each.key.rule for each in tainting(cluster.nodes["gpu-1"].record)} == {"xid.48", "xid.79"}


def test_many_later_releases_in_part_change_nothing_about_the_first() -> None:
    cluster = gpu_fleet(10)
    for number in range(3):
        cluster.tick(xid("gpu-1", 94, seconds=3600 * number), seconds=3600 * number + 1)
    release_rules(cluster, 7300, "xid.94")
    for number in range(RELEASES_KEPT):
        seconds = 7310 + 20 * number
        cluster.tick(fault(**TEST, stamp=100_000 + seconds, seconds=seconds), seconds=seconds + 1)  # type: ignore[arg-type]
        release_rules(cluster, seconds + 10, "xid.14")

    cluster.tick(xid("gpu-1", 94, seconds=7600), seconds=7601)

    assert cluster.tainted == set()


@pytest.mark.parametrize("rule", ["xid.79", "xid.48"])
def test_a_replay_of_a_fault_that_left_the_record_taints_only_if_it_was_not_released(rule: str) -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100))
    release_rules(cluster, 60, "xid.79")
    forget(cluster)

    cluster.tick(fault(rule=rule, stamp=100, seconds=500), seconds=501)
    assert cluster.tainted == (set() if rule == "xid.79" else {"gpu-1"})

    cluster.tick(fault(stamp=600, seconds=600), seconds=601)
    assert cluster.tainted == {"gpu-1"}


def test_the_release_of_a_fault_of_an_earlier_boot_covers_no_unread_line_of_this_boot() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100))
    cluster.reboot("gpu-1", "boot-b", reported=10)
    cluster.tick(seconds=50)
    release_rules(cluster, 60, "xid.79")
    assert cluster.tainted == set()

    cluster.tick(fault(stamp=30, seconds=59, boot="boot-b"), seconds=61)

    assert cluster.tainted == {"gpu-1"}


def test_a_released_test_interrupts_no_probation() -> None:
    cluster = on_probation()
    cluster.tick(fault(**TEST, stamp=100), seconds=1)  # type: ignore[arg-type]

    release_rules(cluster, 60, "xid.14")
    assert cluster.nodes["gpu-1"].as_read.health == "probation"

    cluster.tick(fault(stamp=200, seconds=3600), seconds=3601)
    assert cluster.writes[-1].event is EventReason.RELAPSED


def test_a_node_whose_failure_is_released_before_its_test_ends_keeps_its_place_of_the_brake() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault(), fault(rule="xid.14", severity=Severity.TEST))
    release_rules(cluster, 30, "xid.79")

    cluster.tick(fault("gpu-2", seconds=60), seconds=61)

    assert cluster.tainted == {"gpu-1"}


def test_the_release_of_a_suspicion_notes_no_failure() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(), fault(rule="xid.63", severity=Severity.SUSPECT))

    release_rules(cluster, 30, "xid.63")

    assert cluster.nodes["gpu-1"].record.life.failed_rule is None


def test_a_failure_that_is_released_first_is_a_quarantine_when_the_taint_goes() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100), seconds=2)
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(10), by="kim", reason="riser swap"))

    release_rules(cluster, 60, "xid.79")
    assert cluster.nodes["gpu-1"].record.life.quarantines == ()
    cluster.reboot("gpu-1", "boot-b", reported=65)
    release_rules(cluster, 70, "operator")

    record = cluster.nodes["gpu-1"].record
    assert record.life.quarantines == (
        Quarantine(at(2), at(70), "xid.79", ReleaseHow.part("a person's taint"), gpu="0000:4e:00"),
    )
    assert record.life.failed_rule is None


def test_a_failure_that_is_released_first_is_a_quarantine_when_the_test_ends_by_itself() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100), fault(**TEST, stamp=101, seconds=1), seconds=2)  # type: ignore[arg-type]
    release_rules(cluster, 60, "xid.79")

    cluster.tick(seconds=4000)

    assert cluster.tainted == set()
    assert [(each.rule, each.how) for each in cluster.nodes["gpu-1"].record.life.quarantines] == [
        ("xid.79", "time")
    ]


def test_a_node_whose_faults_are_released_one_by_one_is_marked_for_replacement_like_any_other() -> None:
    cluster = Cluster(fleet(10))
    for start in range(0, 40_000, 10_000):
        assert cluster.nodes["gpu-1"].record.life.replace_since is None
        cluster.tick(fault(stamp=start + 100, seconds=start), seconds=start + 1)
        cluster.tick(fault(**TEST, stamp=start + 102, seconds=start + 2), seconds=start + 3)  # type: ignore[arg-type]
        if start < 30_000:
            release_rules(cluster, start + 60, "xid.79")
            release_rules(cluster, start + 70, "xid.14")

    assert cluster.nodes["gpu-1"].record.life.replace_since is not None


def test_a_release_in_part_that_takes_the_taint_ends_a_contest() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=100), seconds=2)
    for seconds in (20, 200, 600, 1000):
        cluster.untaint_by_hand("gpu-1", "some-controller")
        cluster.tick(seconds=seconds)
        cluster.tick(seconds=seconds + 300)
    assert cluster.nodes["gpu-1"].record.life.contested_at

    release_rules(cluster, 2000, "xid.79")

    assert cluster.nodes["gpu-1"].record.life.contested_at is None
    assert not cluster.nodes["gpu-1"].record.life.claimed
    assert cluster.nodes["gpu-1"].as_read.health is None


@pytest.mark.parametrize(("reason", "warns"), [("", True), ("new riser", False)])
def test_a_release_in_part_of_a_relapse_without_a_reason_warns(reason: str, warns: bool) -> None:
    cluster = on_probation()
    cluster.tick(fault(stamp=100), seconds=1)

    change = release_selected(cluster.nodes["gpu-1"], lambda _: True, at=at(60), by="ann", reason=reason)

    assert change is not None
    assert ("failed again on probation" in change.message) is warns


RULES_OF_STORY = {"xid.79": 1, "xid.14": 1, POD_RULE: 2}
"""The faults of the story below: how many of each taint."""
STEPS = st.lists(
    st.sampled_from(
        [
            *(("fault", rule) for rule in RULES_OF_STORY),
            *(("part", rule) for rule in RULES_OF_STORY),
            *((step, "") for step in ("reset", "reboot", "replay")),
        ]
    ),
    min_size=8,
    max_size=20,
)


@settings(max_examples=200)
@given(STEPS)
def test_in_any_order_of_faults_releases_and_reboots_the_taint_is_there_for_what_was_not_released(
    steps: list[tuple[str, str]],
) -> None:
    with patch.object(change, "RECORD_INTERVAL_SECONDS", 0):
        _play_parts(steps)


def _play_parts(steps: list[tuple[str, str]]) -> None:
    cluster = on_probation(POD_RULES)
    printed: list[Fault] = []
    heard: Counter[str] = Counter()
    """By rule, the faults that count."""
    reasons: set[str] = set()
    times_out, has_failed, is_on_probation = 0, False, True
    for number, (step, rule) in enumerate(steps, 1):
        seconds = 100 * number
        state = cluster.nodes["gpu-1"]
        if step == "fault":
            found = _fault_of(rule, state.machine.boot_id, seconds)
            printed.append(found)
            cluster.tick(found, seconds=seconds)
            heard[rule] += 1
            if heard[rule] >= RULES_OF_STORY[rule]:
                reasons.add(rule)
                has_failed = has_failed or rule != "xid.14"
        elif step == "replay":
            forget(cluster)
            lines = [each for each in printed if each.finding.position.known]
            cluster.tick(*(replace(each, timestamp_ns=ns(seconds)) for each in lines), seconds=seconds)
        elif step == "reboot":
            cluster.reboot("gpu-1", f"boot-{number}", reported=seconds - 1)
            cluster.tick(seconds=seconds)
            printed.clear()
        elif change := _release(state, rule, seconds):
            cluster.apply(change)
            released = {rule} if rule else {*RULES_OF_STORY}
            is_on_probation = is_on_probation and bool(rule)
            is_last = bool(reasons) and reasons <= released
            times_out += is_last and has_failed
            is_on_probation = is_on_probation and not has_failed
            has_failed = has_failed and not is_last
            reasons -= released
            for each in released:
                heard[each] = 0
        is_on_probation = is_on_probation and not has_failed

        state = cluster.nodes["gpu-1"]
        assert {each.key.rule for each in tainting(state.record)} == reasons
        assert state.tainted is bool(reasons)
        assert len(state.record.life.quarantines) == min(1 + times_out, 10)
        assert (state.record.life.probation_until is not None) is is_on_probation


def _fault_of(rule: str, boot: str | None, seconds: float) -> Fault:
    if rule == POD_RULE:
        return uncorrectable(seconds)
    severity = Severity.TEST if rule == "xid.14" else Severity.FATAL
    return fault(rule=rule, severity=severity, boot=boot, stamp=seconds, seconds=seconds)


def _release(state: NodeState, rule: str, seconds: float) -> Change | None:
    """Release the rule's incidents, or the whole node without a rule."""
    if not rule:
        return release(state, at=at(seconds), by="ann", reason="seen", read_ns={})
    return release_selected(
        state, lambda each: each.key.rule == rule, at=at(seconds), by="ann", reason="seen"
    )
