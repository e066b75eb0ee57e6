"""Returns by reboot in the reconciler: pauses, the list on the Lease, Events, metrics, the fleet's stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from konductor_like.cluster.node.patch import OUR_TAINT
from konductor_like.cluster.node.writer import DryRunWriter, WriteResult
from konductor_like.controller.fleet.boot_names import BootNames
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.model import (
    Act,
    Change,
    Checkpoint,
    Control,
    ControlAct,
    Controls,
    EventReason,
    Hearing,
    NodeRecord,
    Release,
    ReleaseHow,
    Source,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.recovery.guards import to_publish
from konductor_like.policy.recovery.returns import settled_by_resume
from tests.controller.reconciling import FORBIDDEN, SLOW, UNANSWERED, Cluster, Scene, xid
from tests.policy.scenes import at, fleet, ns
from tests.policy.test_guards import HEARD, RECORD, RULES, STATE

if TYPE_CHECKING:
    from konductor_like.controller.fleet.fleet_monitor import FleetMonitor
    from konductor_like.controller.loop.operator_controls import OperatorControls

RETURNED, RELAPSED = EventReason.RETURNED, EventReason.RELAPSED
STOPPED, RESUMED = EventReason.RETURNS_STOPPED, EventReason.RETURNS_RESUMED
PAUSE = ControlAct(Control.PAUSE, at(0), "kim", "move")


class Story:
    """A fleet with nodes that may return, a Lease in memory, and one controller after another."""

    def __init__(self, *waiting: int, rules: PolicyConfig = RULES) -> None:
        self.rules = replace(rules, brake_max_percent=100)
        self.nodes = fleet(10)
        for number in waiting:
            name = f"gpu-{number}"
            machine = replace(STATE.machine, node_uid=f"uid-{name}", system_id=f"system-{name}")
            record = replace(RECORD, machine=machine)
            seen = replace(STATE.as_read, uid=machine.node_uid, taints=(dict(OUR_TAINT),))
            self.nodes[name] = replace(STATE, name=name, machine=machine, record=record, as_read=seen)
        self.hearing: dict[str, Hearing] = {f"gpu-{number}": HEARD for number in waiting}
        self.lost_boots: dict[str, str] = {}
        self.lease = Controls()
        self.unread = False
        self.before_write: Callable[[], object] = lambda: None
        self.scene = self.successor()

    def successor(self) -> Scene:
        """Start another controller; it finds the Lease as the last renewal left it."""
        fleet = SimpleNamespace(
            ambiguous=frozenset(),
            left={},
            hearing=self.hearing,
            began={},
            gaps_given_up={},
            lost_boots=self.lost_boots,
            observe=lambda _: {},
            note_written=lambda _: None,
            unparsed=SimpleNamespace(count=lambda _: None),
            boot_names=BootNames(lambda: ns(0), dict),
        )
        start = Checkpoint({Source.KERNEL: ns(0), Source.POD: ns(0)}, act_from_ns=ns(-900))
        found = Scene(
            start=start,
            cluster=self.scene.cluster if hasattr(self, "scene") else Cluster(self.nodes),
            fleet=cast("FleetMonitor", fleet),
            controls=cast("OperatorControls", self),
        )
        found.reconciler.policy = self.rules
        if hasattr(self, "scene"):
            found.fleet_events = self.scene.fleet_events
        self.scene = found
        return found

    def update(self, _now: object, *, at_once: bool = False) -> Controls:
        """Return the controls on the Lease, like OperatorControls."""
        if at_once:
            self.before_write()
        return self.lease

    def renew(self) -> None:
        """Write the Lease, as the keeper does with its renewals."""
        if self.scene.reconciler.returned():
            self.lease = replace(self.lease, returned=self.scene.reconciler.returned())

    def run(self, *lines: Any, seconds: float) -> None:
        self.scene.run(*lines, seconds=seconds)
        self.renew()

    def relapse(self, *numbers: int, seconds: float) -> None:
        """Let these nodes fail again."""
        self.run(*(xid(f"gpu-{n}", seconds=seconds, stamp=9000 + seconds) for n in numbers), seconds=seconds)

    def told(self) -> list[EventReason]:
        return [reason for reason, _ in self.scene.fleet_events if reason in (STOPPED, RESUMED)]


def test_a_return_is_reported_counted_and_noted_for_the_lease(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    story = Story(1)
    story.unread = True
    story.run(seconds=4)
    story.unread = False

    story.run(seconds=5)
    story.run(seconds=6)

    assert story.scene.cluster.events == [("gpu-1", RETURNED)]
    assert story.scene.cluster.tainted == set()
    counts = story.scene.count
    assert (counts("returns_total"), counts("nodes_on_probation"), counts("returns_stopped")) == (1, 1, 0)
    assert [(each.name, each.returned_at) for each in story.lease.returned] == [("gpu-1", at(5))]
    audits = [getattr(each, "facts", {}) for each in caplog.records]
    assert [each["verb"] for each in audits if each.get("audit")] == ["untaint"]
    assert any("Node gpu-1 taint removed. By konductor-like." in each for each in caplog.messages)


def test_a_node_whose_boot_has_lost_lines_stays_tainted() -> None:
    story = Story(1, 2)
    story.lost_boots["gpu-1"] = "boot-b"

    story.run(seconds=5)

    assert story.scene.cluster.tainted == {"gpu-1"}


def test_a_relapse_is_a_taint_in_log_and_metrics_and_has_its_own_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    story = Story(1)
    story.run(seconds=5)

    story.relapse(1, seconds=60)

    assert story.scene.cluster.events == [("gpu-1", RETURNED), ("gpu-1", RELAPSED)]
    counts = story.scene.count
    assert counts("actions_total", verb="taint", result="applied") == 1
    assert counts("fault_to_taint_seconds_count") == 1
    assert (counts("relapses_total"), counts("nodes_on_probation"), counts("nodes_tainted")) == (1, 0, 1)
    audits = [facts for each in caplog.records if (facts := getattr(each, "facts", {})).get("audit")]
    assert (audits[-1]["verb"], audits[-1]["rule"], audits[-1]["why"]) == ("taint", "xid.79", RELAPSED.value)
    assert "Node gpu-1 tainted." in caplog.messages
    assert [(each.name, each.relapsed_at) for each in story.lease.returned] == [("gpu-1", at(60))]


def test_the_guard_that_keeps_a_node_out_is_counted_and_published_only_if_nobody_else_can_know_it() -> None:
    story = Story(1, 2)
    story.hearing["gpu-1"] = replace(HEARD, has_gap=True)
    story.lost_boots["gpu-2"] = "boot-b"

    story.run(seconds=5)

    kept = story.scene.reconciler.kept_out()
    assert kept == {"gpu-1": "gap", "gpu-2": "lines-lost"}
    assert to_publish(kept) == {"gpu-1": "gap"}
    assert story.scene.count("nodes_kept_out", guard="gap") == 1
    story.hearing["gpu-1"] = HEARD
    story.run(seconds=6)
    assert story.scene.reconciler.kept_out() == {"gpu-2": "lines-lost"}
    assert story.scene.count("nodes_kept_out", guard="gap") == 0


def test_a_pause_that_is_written_just_before_the_return_prevents_it() -> None:
    story = Story(1)
    story.before_write = lambda: setattr(story, "lease", Controls((PAUSE,)))

    story.run(seconds=5)

    assert story.scene.cluster.tainted == {"gpu-1"}
    assert story.scene.cluster.events == []


def test_while_the_lease_cannot_be_read_no_node_returns() -> None:
    story = Story(1)
    story.unread = True
    story.run(seconds=5)
    assert story.scene.cluster.tainted == {"gpu-1"}

    story.unread = False
    story.run(seconds=6)
    assert story.scene.cluster.tainted == set()


def test_with_the_default_settings_nothing_is_written_and_nothing_is_noted() -> None:
    story = Story(1, rules=PolicyConfig())

    for seconds in (5, 60, 86_400):
        story.run(seconds=seconds)

    assert story.scene.cluster.written == []
    assert story.scene.cluster.tainted == {"gpu-1"}
    assert story.lease == Controls()


def test_the_third_relapse_stops_the_fleet_until_a_person_resumes_and_each_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    story = Story(1, 2, 3, 4)
    story.rules = story.scene.reconciler.policy = replace(story.rules, returns_per_hour=3)
    story.run(seconds=5)
    assert story.scene.cluster.tainted == {"gpu-4"}

    story.relapse(1, 2, seconds=60)
    assert story.told() == []
    story.relapse(3, seconds=70)
    story.run(seconds=4000)
    assert story.told() == [STOPPED]
    assert story.scene.count("returns_stopped") == 1
    assert "gpu-4" in story.scene.cluster.tainted  # an hour later there is room, but returns are stopped

    first = story.scene.fleet_events[-1]
    story.successor()
    story.run(seconds=4010)
    assert story.scene.fleet_events[-1] == first  # the same words, so the API server keeps one Event
    resume = ControlAct(
        Control.RESUME, at(4020), "kim", relapses=settled_by_resume(story.lease), act="c0ffee"
    )
    story.lease = story.lease.with_act(resume)
    story.run(seconds=4020)
    story.run(seconds=4030)

    assert story.told() == [STOPPED, STOPPED, RESUMED]
    assert story.scene.fleet_events[-1][1] == (
        "kim allowed nodes to return by themselves again at 2026-03-04T13:07:00Z."
    )
    audits = [facts for each in caplog.records if (facts := getattr(each, "facts", {})).get("audit")]
    resumed = [each for each in audits if each["verb"] == "resume"]
    assert [(each["by"], each["act"], each["why"]) for each in resumed] == [
        ("kim", "c0ffee", "automatic returns")
    ]
    assert story.scene.count("returns_stopped") == 0
    assert "gpu-4" not in story.scene.cluster.tainted


@pytest.mark.parametrize("renewed", [True, False])
def test_deleted_nodes_and_a_new_controller_do_not_lift_the_stop(*, renewed: bool) -> None:
    story = Story(1, 2, 3, 4)
    story.rules = story.scene.reconciler.policy = replace(story.rules, returns_per_hour=3)
    story.run(seconds=5)
    story.relapse(1, 2, 3, seconds=60)
    if renewed:
        for number in (1, 2, 3):
            del story.scene.cluster.nodes[f"gpu-{number}"]
    else:  # the controller crashed before it renewed the Lease; the records show the returns
        story.lease = Controls()

    story.successor()
    story.run(seconds=4000)

    assert "gpu-4" in story.scene.cluster.tainted
    assert [each.name for each in story.lease.returned if each.relapsed_at] == ["gpu-3", "gpu-2", "gpu-1"]


def test_a_node_that_is_deleted_right_after_its_return_stays_noted() -> None:
    story = Story(1)
    apply = story.scene.cluster.apply

    def applied_and_gone(state: Any) -> None:
        apply(state)
        del story.scene.cluster.nodes["gpu-1"]

    story.scene.cluster.apply = applied_and_gone  # type: ignore[method-assign]  # the watch is faster
    story.run(seconds=5)

    assert [each.name for each in story.lease.returned] == ["gpu-1"]


def test_a_return_that_is_not_yet_on_the_lease_stays_known_although_its_node_is_deleted() -> None:
    story = Story(1)
    story.scene.run(seconds=5)
    del story.scene.cluster.nodes["gpu-1"]

    story.scene.run(seconds=6)

    assert [each.name for each in story.scene.reconciler.returned()] == ["gpu-1"]


def test_a_node_does_not_return_while_a_fault_of_the_time_in_which_it_must_be_heard_waits() -> None:
    story = Story(1)
    heard = story.hearing.pop("gpu-1")
    story.run(xid("nobody", seconds=-400), seconds=5)
    story.hearing["gpu-1"] = heard

    story.run(seconds=6)
    assert story.scene.cluster.tainted == {"gpu-1"}

    story.run(seconds=700)  # the fault is given up
    story.run(seconds=701)
    assert story.scene.cluster.tainted == set()


def test_a_return_without_an_answer_is_made_once() -> None:
    story = Story(1)
    story.run(seconds=5)
    story.run(seconds=6)
    story.successor()
    story.run(seconds=7)

    assert [change.verb for change in story.scene.cluster.written] == [Verb.UNTAINT]


def test_four_nodes_whose_return_is_refused_keep_no_other_node_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story(*range(1, 9))
    refused = {f"gpu-{number}" for number in range(1, 5)}  # they would return first
    story.scene.cluster.moods |= {name: [FORBIDDEN] * 1000 for name in refused}

    story.run(seconds=5)
    assert len(story.scene.cluster.tainted) == 8
    assert "Could not release node gpu-1: Cannot patch nodes/gpu-1" in caplog.text
    story.run(seconds=6)
    assert story.scene.cluster.tainted == refused

    for name in refused:
        del story.scene.cluster.moods[name]
    story.run(seconds=3700)
    assert story.scene.cluster.tainted == set()


@pytest.mark.parametrize("result", [SLOW, UNANSWERED], ids=["slow", "without an answer"])
def test_a_return_whose_answer_comes_late_or_never_is_reported_once_the_node_shows_it(
    result: WriteResult,
) -> None:
    story = Story(1)
    cluster = story.scene.cluster
    cluster.moods["gpu-1"] = [result]
    story.run(seconds=5)
    assert cluster.events == []
    plan = cluster.unanswered["gpu-1"]
    cluster.nodes["gpu-1"] = (
        DryRunWriter().write(cluster.nodes["gpu-1"], plan).state or cluster.nodes["gpu-1"]
    )

    story.run(seconds=6)
    story.run(seconds=7)

    assert cluster.events == [("gpu-1", RETURNED)]
    assert story.scene.count("returns_total") == 1


def test_the_removal_of_a_taint_by_another_client_is_not_announced_as_our_return() -> None:
    story = Story(1)
    cluster = story.scene.cluster
    state = cluster.nodes["gpu-1"]
    state = replace(state, record=replace(state.record, act=Act("an-earlier-write", at(-3590))))
    cluster.nodes["gpu-1"] = state
    cluster.moods["gpu-1"] = [UNANSWERED]
    story.run(seconds=5)

    cluster.nodes["gpu-1"] = replace(state, taints=(), removed_by="kubectl-taint")
    story.run(seconds=6)
    story.run(seconds=60)

    assert cluster.events == [("gpu-1", EventReason.RELEASED)]


def test_a_return_without_an_answer_is_not_announced_while_the_taint_stands() -> None:
    story = Story(1)
    cluster = story.scene.cluster
    cluster.moods["gpu-1"] = [UNANSWERED]
    story.run(seconds=5)
    before = cluster.nodes["gpu-1"]
    written = DryRunWriter().write(before, cluster.unanswered["gpu-1"]).state
    assert written is not None

    cluster.nodes["gpu-1"] = replace(written, taints=before.taints)  # somebody added the taint again
    story.run(seconds=6)

    assert ("gpu-1", RETURNED) not in cluster.events


@pytest.mark.parametrize(("how", "counted"), [("reboot", 1), ("validated", 1), ("time", 0), ("reset", 0)])
def test_only_a_return_with_a_probation_counts_as_a_return(how: str, counted: int) -> None:
    metrics = Metrics()
    mark = Release(at(0), "konductor-like", "", ReleaseHow(how))

    Report(metrics).applied(Change("gpu-1", Verb.UNTAINT, NodeRecord(releases=(mark,)), None), at(0))

    assert metrics.registry.get_sample_value("konductor_like_returns_total") == counted
