"""GPU pods that a node's kubelet refuses: when they are a fault, and what ends it (rule 45)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from konductor_like.model import (
    NO_GPUS,
    REFUSES_PODS,
    ConditionsSeen,
    EventReason,
    GpuCount,
    Growth,
    Hearing,
    IncidentState,
    Life,
    MetBy,
    NodeRecord,
    PartCover,
    PodsSeen,
    RecentEvidence,
    RefusedPod,
    RefusedPods,
    Release,
    ReleaseHow,
    ReportedCondition,
    Severity,
    Snapshot,
    Source,
)
from konductor_like.policy.decide import decide
from konductor_like.policy.node.refused_pods import REASON, SETTLED_NS, SPAN_NS, names_nvml
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, ns, reset_node
from tests.policy.test_conditions import policy

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
FILE = Path(__file__).parents[1] / "data" / "refusals" / "messages.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
LOST = ROWS[0]["message"]
SETTLED, SPAN = SETTLED_NS / 1e9, SPAN_NS / 1e9
TEAMS = ("team-a", "team-b", "team-c")
RULE = "node.refuses_pods"


class Pods:
    """Twenty GPU nodes, of which ``gpu-1`` refuses pods; the records are written as a controller decides."""

    def __init__(self, overrides: str = "", nodes: int = 20, **more: Any) -> None:
        self.policy = policy(overrides, **more)
        self.nodes = {
            name: replace(state, gpus=GpuCount(8, 8), ready_since_ns=ns(-DAY))
            for name, state in fleet(nodes).items()
        }
        self.seen: dict[str, PodsSeen] = {}
        self.grown: Mapping[str, tuple[Growth, ...]] = {}
        self.hearing: dict[str, Hearing] = {}
        self.events: list[tuple[EventReason | None, str]] = []
        self.counted: list[tuple[str, int]] = []
        self.window = RecentEvidence()
        self.restart()
        self.step(0)  # the controller sees the nodes for the first time

    def restart(self) -> None:
        """Start another controller, which remembers nothing but what is seen of the pods again."""
        self.memory, self.grown = RefusedPods(), {}

    def refuses(self, *times: float, name: str = "gpu-1", namespaces: Sequence[str] = TEAMS) -> None:
        """Let the kubelet refuse a pod at each of these times, in one namespace after the other."""
        more = (RefusedPod(ns(each), namespaces[n % len(namespaces)]) for n, each in enumerate(times))
        before = self.seen.get(name, PodsSeen())
        self.seen[name] = replace(before, refused=tuple(sorted((*before.refused, *more))), message=LOST)

    def admits(self, seconds: float) -> None:
        self.seen["gpu-1"] = replace(self.seen.get("gpu-1", PodsSeen()), admitted_ns=ns(seconds))

    def change(self, name: str = "gpu-1", **fields: Any) -> None:
        self.nodes[name] = replace(self.nodes[name], **fields)

    def boots(self, boot: str = "boot-b") -> None:
        self.change(machine=replace(self.state.machine, boot_id=boot))

    @property
    def state(self) -> Any:
        return self.nodes["gpu-1"]

    def step(self, seconds: float) -> list[str]:
        """Decide at this time, and write the plan. Return the texts of what was counted."""
        snapshot = Snapshot(
            self.nodes,
            refused_pods=replace(self.memory, seen=self.seen),
            conditions=ConditionsSeen(ns(-DAY)),
            grown=self.grown,
            hearing=self.hearing,
            window=self.window,
        )
        plan = decide(snapshot, (), self.policy, at(seconds))
        assert plan.refused_pods is not None
        self.plan, self.memory, self.grown = plan, plan.refused_pods, plan.grown
        self.window = plan.window
        for change in plan.changes:
            state = self.nodes[change.node]
            read = replace(state.as_read, record="{}", health=change.health, needs=change.needs)
            taints = (OURS,) if change.verb == "taint" else state.taints
            self.change(change.node, record=change.record or NodeRecord(), as_read=read, taints=taints)
            self.events += [(change.event, change.message), *change.also]
        ours = [each for each in plan.counted if each.finding.rule == RULE]
        self.counted += [(str(each.node), each.times) for each in ours]
        return [each.finding.text for each in ours]

    def counts(self, name: str = "gpu-1") -> list[tuple[int, IncidentState]]:
        found = (each for each in self.nodes[name].record.incidents if each.key == REFUSES_PODS)
        return [(each.count, each.state) for each in found]


OPEN = [(3, IncidentState.ACTIVE)]
THREE = (HOUR, HOUR + 100, HOUR + 200)


def refusing(**more: Any) -> Pods:
    """Return a fleet whose first node is suspect since an hour after noon."""
    pods = Pods(**more)
    pods.refuses(*THREE)
    assert pods.step(HOUR + 240) == [TOLD]
    return pods


TOLD = (
    "refused 3 GPU pods of 3 namespaces in 4 min: Allocate failed … "
    "error creating nvml.Device 3: nvml: GPU is lost"
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_only_a_plugin_that_cannot_use_nvml_accuses_a_node(row: dict[str, Any]) -> None:
    assert (row["reason"] == REASON and names_nvml(row["message"])) is row["accuses"]


def test_every_message_has_a_source() -> None:
    assert all(row["source"] for row in ROWS)
    assert {row["accuses"] for row in ROWS} == {True, False}


def test_refused_pods_make_a_suspect_that_is_told_once_and_not_tainted() -> None:
    pods = refusing()

    assert pods.counts() == OPEN
    assert (pods.state.as_read.health, pods.state.as_read.needs) == ("suspect", "reboot")
    assert not pods.state.tainted
    [(event, words)] = pods.events
    assert event is EventReason.RECORDED
    assert words.startswith("node refuses pods: The kubelet refuses GPU pods because NVML fails. Cordon the ")
    assert words.endswith(f" R{TOLD[1:]}. Needs: reboot.")


def test_further_pods_are_counted_each_once_and_announced_no_more() -> None:
    pods = refusing()
    for number in range(1, 5):
        pods.refuses(HOUR + 240 + number * 60, namespaces=("team-a",))
        pods.step(HOUR + 250 + number * 60)
        pods.step(HOUR + 255 + number * 60)
    pods.step(HOUR + 1200)

    assert pods.counts() == [(7, IncidentState.ACTIVE)]
    assert pods.counted == [("gpu-1", 3), *[("gpu-1", 1)] * 4]
    assert [event for event, _ in pods.events if event] == [EventReason.RECORDED]


@pytest.mark.parametrize(
    ("times", "namespaces"),
    [
        (THREE[:2], TEAMS),
        ((*THREE, HOUR + 210, HOUR + 220), ("team-a",)),
        ((HOUR, HOUR + 10, HOUR + 2000), TEAMS),
    ],
    ids=["two pods", "one namespace", "too long apart"],
)
def test_a_few_pods_accuse_no_node(times: tuple[float, ...], namespaces: Sequence[str]) -> None:
    pods = Pods()
    pods.refuses(*times, namespaces=namespaces)
    for seconds in (HOUR + 240, HOUR + 2010):
        assert pods.step(seconds) == []
    assert pods.counts() == []


def test_pods_of_two_namespaces_are_enough() -> None:
    pods = Pods()
    pods.refuses(*THREE, namespaces=TEAMS[:2])

    assert len(pods.step(HOUR + 240)) == 1


def test_a_pod_of_the_future_waits() -> None:
    pods = Pods()
    pods.refuses(*THREE)

    assert pods.step(HOUR + 199) == []
    assert pods.step(HOUR + 200) == [TOLD]


CHANGES: dict[str, dict[str, Any]] = {
    "a boot": {},
    "Ready": {"ready_since_ns": ns(HOUR)},
    "fewer GPUs": {"gpus": GpuCount(7, 8)},
    "more GPUs": {"gpus": GpuCount(9, 9)},
    "another layout": {"gpus": GpuCount(8, 8, layout="replicas=4")},
}


@pytest.mark.parametrize("what", CHANGES)
def test_pods_that_are_refused_soon_after_a_change_never_count(what: str) -> None:
    pods = Pods()
    pods.change(**CHANGES[what])
    if what == "a boot":
        pods.boots()
    pods.step(HOUR)
    soon = HOUR + SETTLED - 1
    pods.refuses(soon - 2, soon - 1, soon, soon)
    for seconds in (soon + 1, HOUR + SETTLED + 60, HOUR + SPAN):
        assert pods.step(seconds) == []

    pods.refuses(HOUR + SETTLED, HOUR + SETTLED + 1, HOUR + SETTLED + 2)
    assert len(pods.step(HOUR + SETTLED + 3)) == 1
    assert pods.counts() == OPEN


def test_a_change_that_is_undone_between_two_pods_counts_too() -> None:
    pods = Pods()
    pods.change(ready=False)
    pods.step(HOUR)
    pods.change(ready=True)
    pods.step(HOUR + 60)
    pods.refuses(HOUR + SETTLED + 30, HOUR + SETTLED + 40, HOUR + SETTLED + 50)

    assert pods.step(HOUR + SETTLED + 55) == []


def test_other_news_of_the_node_make_it_no_less_steady() -> None:
    pods = Pods()
    pods.change(unschedulable=True, last_writer="kubectl", pool="a")
    pods.refuses(*THREE)

    assert pods.step(HOUR + 240) == [TOLD]


@pytest.mark.parametrize(
    "odd", [{"ready": False}, {"gpus": GpuCount(0, 8, paused=True)}, {"is_gpu_node": False}], ids=str
)
def test_pods_of_a_node_that_is_away_or_whose_driver_is_replaced_accuse_nobody(odd: dict[str, Any]) -> None:
    pods = Pods()
    pods.change(**odd)
    pods.step(60)
    pods.refuses(*THREE)

    assert pods.step(HOUR + 240) == []


def test_a_node_that_tells_of_no_gpu_may_refuse_pods() -> None:
    pods = Pods()
    pods.change(gpus=NO_GPUS)
    pods.step(60)
    pods.refuses(*THREE)

    assert pods.step(HOUR + 240) == [TOLD]


@pytest.mark.parametrize(
    ("nodes", "many", "found"), [(3, 1, 1), (20, 1, 1), (20, 2, 0), (40, 2, 2), (40, 3, 0)]
)
def test_nodes_that_refuse_pods_at_once_are_not_accused_if_they_are_many(
    nodes: int, many: int, found: int
) -> None:
    pods = Pods(nodes=nodes)
    for number in range(1, many + 1):
        pods.refuses(*(THREE if number == 1 else (*THREE, HOUR + 300)), name=f"gpu-{number}")

    assert len(pods.step(HOUR + 400)) == found


def test_nodes_without_a_gpu_do_not_make_the_fleet_larger() -> None:
    pods = Pods(nodes=40)
    for number in range(20, 41):
        pods.change(f"gpu-{number}", is_gpu_node=False)
    pods.refuses(*THREE)
    pods.refuses(*THREE, name="gpu-2")

    assert pods.step(HOUR + 240) == []


def test_one_refused_pod_of_another_node_is_enough_to_be_at_once() -> None:
    pods = Pods()
    pods.refuses(*THREE)
    pods.refuses(HOUR + 100, name="gpu-2")
    assert pods.step(HOUR + 240) == []

    pods.refuses(*(HOUR + 1800 + each for each in (100, 200, 300)))
    assert len(pods.step(HOUR + 100 + SPAN + 240)) == 1  # that pod is too long ago by now


def test_a_node_that_refuses_pods_for_long_does_not_protect_the_next_one() -> None:
    pods = refusing()
    later = HOUR + SPAN + 300
    pods.refuses(later, later + 1, later + 2, name="gpu-2")
    pods.refuses(later, later + 1)
    pods.step(later + 10)

    assert (pods.counts("gpu-2"), pods.counts()) == (OPEN, [(5, IncidentState.ACTIVE)])


def test_a_restart_repeats_nothing_and_trusts_no_pod_of_its_first_minutes() -> None:
    pods = refusing()
    pods.restart()
    pods.step(HOUR + 300)
    pods.refuses(HOUR + 310, HOUR + 320, HOUR + 330)
    assert pods.step(HOUR + 1300) == []

    pods.refuses(HOUR + 300 + SETTLED)
    assert len(pods.step(HOUR + 310 + SETTLED)) == 1
    assert pods.counts() == [(4, IncidentState.ACTIVE)]


def test_pods_that_are_counted_and_not_yet_written_are_not_counted_again() -> None:
    pods = refusing()
    pods.refuses(HOUR + 300)
    pods.step(HOUR + 310)
    assert pods.grown
    pods.step(HOUR + 320)

    assert pods.plan.ignored == ()
    assert sum(times for _, times in pods.counted) == 4


@pytest.mark.parametrize("part", [False, True])
def test_a_release_covers_the_pods_that_were_refused_before(part: bool) -> None:
    pods = refusing()
    if part:
        cover = PartCover("boot-a", rule=RULE, at=at(HOUR + 300))
        pods.change(record=NodeRecord(machine=pods.state.machine, part_covers=(cover,), life=Life()))
    else:
        cluster = Cluster({"gpu-1": pods.state})
        reset_node(cluster, "gpu-1", HOUR + 300)
        pods.nodes["gpu-1"] = cluster.nodes["gpu-1"]
        pods.change(record=replace(pods.state.record, incidents=()))
    pods.refuses(HOUR + 290)
    assert pods.step(HOUR + 310) == []

    pods.refuses(HOUR + 320, HOUR + 330)
    assert pods.step(HOUR + 340) == []
    pods.refuses(HOUR + 350)
    assert len(pods.step(HOUR + 360)) == 1


@pytest.mark.parametrize(("began", "found"), [(HOUR + 150, False), (HOUR - 10, True)])
def test_a_return_after_a_validation_covers_the_pods_of_before_it_began(began: float, found: bool) -> None:
    pods = Pods()
    mark = Release(
        at(HOUR + 210), "the controller", "", ReleaseHow.VALIDATED, read_ns={Source.KERNEL: ns(began)}
    )
    pods.change(record=NodeRecord(machine=pods.state.machine, releases=(mark,)))
    pods.refuses(*THREE)

    assert bool(pods.step(HOUR + 240)) is found


def test_a_person_may_let_refused_pods_taint() -> None:
    pods = Pods("node.refuses_pods.severity: fatal")
    pods.refuses(*THREE)
    pods.step(HOUR + 240)

    assert pods.state.tainted


def test_in_shadow_mode_each_pod_is_found_once_and_nothing_is_recorded() -> None:
    pods = Pods("node.refuses_pods.mode: shadow")
    pods.refuses(*THREE)
    found = []
    for number in range(5):
        pods.step(HOUR + 240 + number)
        found += [each.times for each in pods.plan.shadowed]
    pods.refuses(HOUR + 300, HOUR + 310, HOUR + 320)
    pods.step(HOUR + 330)
    found += [each.times for each in pods.plan.shadowed]

    assert (found, pods.counts()) == ([3, 3], [])


def test_a_rule_that_is_off_finds_nothing() -> None:
    pods = Pods("node.refuses_pods.mode: 'off'")
    pods.refuses(*THREE)

    assert pods.step(HOUR + 240) == []


def test_if_nobody_looks_at_pods_nothing_is_found() -> None:
    plan = decide(Snapshot(fleet(3)), (), policy(), at(0))

    assert (plan.counted, plan.refused_pods) == ((), None)


def second_witness(pods: Pods, seconds: float, kind: str) -> None:
    told = ReportedCondition(kind, "True", "", "", ns(seconds), ns(seconds))
    pods.change(reported=(told,))


@pytest.mark.parametrize("kind", ["GPUMissing", "GpuCount", "GPUProblem"])
def test_with_a_condition_that_counts_gpus_within_an_hour_the_node_is_tainted(kind: str) -> None:
    pods = refusing()
    second_witness(pods, HOUR + 600, kind)
    pods.step(HOUR + 610)

    assert pods.state.tainted
    [incident] = [each for each in pods.state.record.incidents if each.key == REFUSES_PODS]
    assert kind in incident.escalated_because


@pytest.mark.parametrize("rule", ["node.gpus_missing", "alert.KonductorGPUsMissing"])
def test_missing_gpus_confirm_refused_pods(rule: str) -> None:
    pods = refusing()
    snapshot = Snapshot(pods.nodes, refused_pods=pods.memory, window=pods.window)
    missing = fault("gpu-1", seconds=HOUR + 700, rule=rule, severity=Severity.SUSPECT, gpu=None, stamp=None)
    plan = decide(snapshot, (missing,), pods.policy, at(HOUR + 710))

    assert [(change.node, change.verb) for change in plan.changes] == [("gpu-1", "taint")]


@pytest.mark.parametrize(("kind", "later"), [("GpuXid", 600.0), ("GPUMissing", HOUR + 600)])
def test_another_word_or_one_of_much_later_is_no_second_witness(kind: str, later: float) -> None:
    pods = refusing()
    second_witness(pods, HOUR + later, kind)
    pods.step(HOUR + later + 10)

    assert not pods.state.tainted


def test_a_reboot_ends_the_suspicion_and_later_pods_begin_a_new_one() -> None:
    pods = refusing()
    pods.boots()
    pods.step(2 * HOUR)
    assert pods.counts() == [(3, IncidentState.RELEASED)]
    [incident] = pods.state.record.incidents
    assert incident.met_by is MetBy.REBOOT

    pods.refuses(3 * HOUR)
    pods.step(3 * HOUR + 10)
    assert pods.counts() == [(3, IncidentState.RELEASED)]
    pods.refuses(3 * HOUR + 20, 3 * HOUR + 30)
    pods.step(3 * HOUR + 40)
    assert pods.counts()[-1] == (3, IncidentState.ACTIVE)


def test_a_fault_of_an_earlier_boot_that_keeps_the_taint_makes_no_single_pod_count() -> None:
    pods = Pods("node.refuses_pods.severity: fatal")
    pods.refuses(*THREE)
    pods.step(HOUR + 240)
    pods.boots()
    pods.step(2 * HOUR)
    pods.refuses(3 * HOUR)

    assert pods.step(3 * HOUR + 10) == []
    assert pods.counts() == OPEN


@pytest.mark.parametrize(
    ("admitted", "ends"), [(None, False), (HOUR, False), (HOUR + 300, True), (8 * DAY, True)], ids=str
)
def test_quiet_ends_the_suspicion_only_if_a_pod_was_admitted_since(
    admitted: float | None, ends: bool
) -> None:
    pods = refusing()
    pods.hearing = {"gpu-1": Hearing("boot-a", ns(-DAY), ns(9 * DAY))}
    if admitted is not None:
        pods.admits(admitted)
    pods.step(9 * DAY)

    assert (pods.counts() != OPEN) is ends


def test_a_quiet_node_stays_a_suspect_while_its_pods_are_not_looked_at() -> None:
    pods = refusing()
    hearing = {"gpu-1": Hearing("boot-a", ns(-DAY), ns(9 * DAY))}
    plan = decide(Snapshot(pods.nodes, hearing=hearing), (), pods.policy, at(9 * DAY))

    assert plan.changes == ()


def test_the_end_says_that_pods_are_admitted_again() -> None:
    pods = refusing()
    pods.hearing = {"gpu-1": Hearing("boot-a", ns(-DAY), ns(9 * DAY))}
    pods.admits(HOUR + 300)
    pods.step(9 * DAY)

    event, words = pods.events[-1]
    assert event is EventReason.ENDED
    assert words == (
        "node refuses pods ended: the kernel log was heard for 7 days without it, and GPU pods were admitted."
    )
