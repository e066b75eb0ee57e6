"""A tick against a cluster in memory: what is written, what is kept, and how far the checkpoint goes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from konductor_like.cluster.errors import KubeForbidden, KubeOverloaded, KubeTimeout
from konductor_like.cluster.writer import Outcome, RehearsedWriter, WriteResult
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.report import Report
from konductor_like.controller.tick import Tick
from konductor_like.detection import Detector, detect
from konductor_like.model import (
    Change,
    Checkpoint,
    EventReason,
    Fault,
    KernelPosition,
    LogLine,
    NodeState,
    Source,
    Verb,
)
from konductor_like.policy import Rules
from tests.catalog.user_files import POD_RULE, read
from tests.policy.scenes import OURS, at, fleet, ns

XID_79 = (
    "[{stamp}] NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


class Cluster:
    """Nodes in memory, a writer with moods, and a list of the Events that were announced."""

    problem: Exception | None = None

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self.nodes = dict(nodes)
        self.moods: dict[str, list[WriteResult | Exception]] = {}
        self.written: list[Change] = []
        self.events: list[tuple[str, EventReason | None]] = []

    def snapshot(self) -> Mapping[str, NodeState]:
        return dict(self.nodes)

    def apply(self, state: NodeState) -> None:
        self.nodes[state.name] = state

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        return [self._write(state, change) for state, change in pairs]

    def _write(self, state: NodeState, change: Change) -> WriteResult:
        moods = self.moods.get(change.node)
        if moods:
            mood = moods.pop(0)
            if isinstance(mood, Exception):
                raise mood
            return replace(mood, change=change)
        self.written.append(change)
        return RehearsedWriter().write(state, change)

    def announce(self, state: NodeState, change: Change) -> None:
        self.events.append((state.name, change.event))

    @property
    def tainted(self) -> set[str]:
        return {name for name, state in self.nodes.items() if state.tainted}


class Scene:
    """One tick object over one cluster."""

    def __init__(self, size: int = 10, detect: Callable[[LogLine], Fault | None] = detect) -> None:
        self.cluster = Cluster(fleet(size))
        self.metrics = Metrics()
        self.tick = Tick(
            self.cluster,
            self.cluster,
            self.cluster,
            Report(self.metrics),
            self.metrics,
            rules=Rules,
            start=Checkpoint({Source.KERNEL: ns(0), Source.POD: ns(0)}, act_from_ns=ns(-900)),
            unknown_node_seconds=600,
            detect=detect,
        )

    def run(self, *lines: LogLine, seconds: float, read: float | None = None) -> None:
        reached = {Source.KERNEL: ns(seconds if read is None else read)}
        self.tick.run(lines, reached, at(seconds))

    @property
    def kernel_checkpoint(self) -> int:
        return self.tick.checkpoint().read_ns[Source.KERNEL]

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"konductor_like_{name}", labels) or 0.0


def xid(node: str = "gpu-1", *, seconds: float = 1, stamp: float = 100.5) -> LogLine:
    return LogLine(Source.KERNEL, ns(seconds), XID_79.format(stamp=f"{stamp:.6f}"), {}, node)


ANY = Change("", Verb.RECORD, None, None)
SLOW = WriteResult(ANY, Outcome.UNDER_WAY, outcome_unknown=True)
FORBIDDEN = WriteResult(ANY, Outcome.FAILED, error=KubeForbidden("cannot patch nodes/gpu-1"))
UNANSWERED = WriteResult(
    ANY, Outcome.FAILED, error=KubeTimeout("no answer", outcome_unknown=True), outcome_unknown=True
)


def test_a_line_becomes_a_taint_an_event_and_a_count() -> None:
    scene = Scene()

    scene.run(xid(), seconds=2)

    assert scene.cluster.tainted == {"gpu-1"}
    assert scene.cluster.events == [("gpu-1", EventReason.TAINTED)]
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 1
    assert scene.count("actions_total", verb="taint", result="applied") == 1
    assert scene.count("nodes_tainted") == 1
    assert scene.kernel_checkpoint == ns(2)


def test_what_a_rule_in_shadow_finds_is_counted_and_said_once_and_leads_to_nothing() -> None:
    log = io.StringIO()
    logs.set_up("text", "info", stream=log)
    rules = read(
        "overrides:\n  xid.79.mode: shadow\n" + POD_RULE.replace("title:", "mode: shadow\n    title:")
    )
    scene = Scene(detect=Detector(rules.catalog).detect)
    flux = LogLine(Source.POD, ns(1), "ERROR: the flux is broken", {}, "gpu-2")

    scene.run(xid(), xid(stamp=101.5), flux, xid("gpu-3"), seconds=2)
    scene.run(xid(stamp=102.5), seconds=3)

    assert scene.cluster.written == []
    assert scene.cluster.events == [(f"gpu-{number}", EventReason.SHADOW) for number in (1, 2, 3)]
    assert scene.count("refusals_total", why="shadow") == 3
    assert scene.kernel_checkpoint == ns(3)
    assert scene.count("faults_shadow_total", source="kernel", rule="xid.79", severity="fatal") == 4
    assert scene.count("faults_shadow_total", source="pod", rule="site.flux", severity="fatal") == 1
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 0
    said = [line for line in log.getvalue().splitlines() if "would have tainted it" in line]
    assert ["`gpu-1`" in said[0], "`gpu-2`" in said[1], "`gpu-3`" in said[2], len(said)] == [
        True,
        True,
        True,
        3,
    ]
    assert "(rule xid.79 is in shadow mode): NVRM: Xid (PCI:0000:4e:00): 79" in said[0]


def test_a_users_rule_may_taint_for_a_line_of_a_pod() -> None:
    scene = Scene(detect=Detector(read(POD_RULE).catalog).detect)

    scene.run(LogLine(Source.POD, ns(1), "ERROR: the flux is broken", {}, "gpu-2"), seconds=2)

    assert scene.cluster.tainted == {"gpu-2"}
    assert scene.count("faults_total", source="pod", kind="custom", code="", severity="fatal") == 1


def test_the_checkpoint_stays_behind_a_fault_that_could_not_be_written() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [FORBIDDEN]

    scene.run(xid(seconds=1), xid("gpu-2", seconds=1.5), seconds=2)

    assert scene.cluster.tainted == {"gpu-2"}
    assert scene.kernel_checkpoint == ns(1)
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 1

    scene.run(seconds=30)

    assert scene.cluster.tainted == {"gpu-1", "gpu-2"}
    assert scene.kernel_checkpoint == ns(30)
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 2


def test_a_node_whose_writes_fail_is_tried_less_and_less_often() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [FORBIDDEN] * 100

    scene.run(xid(), seconds=2)
    for second in range(3, 303):
        scene.run(seconds=second)

    tries = 100 - len(scene.cluster.moods["gpu-1"])
    assert 6 <= tries <= 10


def test_a_conflict_is_decided_again_on_the_fresh_node() -> None:
    """Somebody tainted the node with our taint meanwhile: nothing is left to taint, only to record."""
    scene = Scene()
    fresh = replace(scene.cluster.nodes["gpu-1"], taints=(OURS,))
    scene.cluster.moods["gpu-1"] = [WriteResult(ANY, Outcome.CONFLICT, fresh)]

    scene.run(xid(), seconds=2)

    assert [change.verb for change in scene.cluster.written] == [Verb.RECORD]
    assert scene.count("actions_total", verb="taint", result="conflict") == 1
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 1


def test_a_fault_whose_node_goes_while_its_write_is_refused_waits_for_the_node() -> None:
    scene = Scene()
    state = scene.cluster.nodes["gpu-1"]
    scene.cluster.moods["gpu-1"] = [WriteResult(ANY, Outcome.CONFLICT)]
    seen = scene.cluster._write

    def deleted_meanwhile(state: NodeState, change: Change) -> WriteResult:
        scene.cluster.nodes.pop("gpu-1", None)
        return seen(state, change)

    scene.cluster._write = deleted_meanwhile  # type: ignore[method-assign]  # the watch is faster
    scene.run(xid(), seconds=2)
    scene.cluster._write = seen  # type: ignore[method-assign]  # as before
    assert scene.kernel_checkpoint == ns(1)

    scene.cluster.nodes["gpu-1"] = state
    scene.run(seconds=30)

    assert scene.cluster.tainted == {"gpu-1"}


def test_a_node_that_never_stops_changing_is_left_for_the_next_tick() -> None:
    scene = Scene()
    same = scene.cluster.nodes["gpu-1"]
    scene.cluster.moods["gpu-1"] = [WriteResult(ANY, Outcome.CONFLICT, same)] * 5

    scene.run(xid(seconds=1), seconds=2)
    assert scene.cluster.tainted == set()
    assert scene.kernel_checkpoint == ns(1)

    scene.run(seconds=3)
    assert scene.cluster.tainted == {"gpu-1"}


def test_a_write_without_an_answer_counts_against_the_brake() -> None:
    scene = Scene(size=5)
    scene.cluster.moods["gpu-1"] = [UNANSWERED]

    scene.run(xid(), seconds=2)
    scene.run(xid("gpu-2", seconds=2.5), seconds=3)
    assert scene.cluster.tainted == set()

    scene.run(seconds=10)
    assert scene.cluster.tainted == {"gpu-1"}


def test_a_write_without_an_answer_that_did_happen_is_not_repeated() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [UNANSWERED]
    scene.run(xid(), seconds=2)
    elsewhere = Scene()
    elsewhere.run(xid(), seconds=2)
    scene.cluster.nodes["gpu-1"] = elsewhere.cluster.nodes["gpu-1"]

    scene.run(seconds=10)
    scene.run(seconds=20)

    assert scene.cluster.written == []
    assert scene.cluster.tainted == {"gpu-1"}
    assert scene.kernel_checkpoint == ns(20)


def test_a_slow_write_that_happens_in_the_end_is_told_and_counted_once() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [SLOW, SLOW]
    scene.run(xid(), xid("gpu-2"), seconds=2)
    assert scene.cluster.tainted == {"gpu-2"}
    assert scene.kernel_checkpoint == ns(1)
    elsewhere = Scene()
    elsewhere.run(xid(), seconds=2)
    scene.cluster.nodes["gpu-1"] = elsewhere.cluster.nodes["gpu-1"]

    scene.run(seconds=3)
    scene.run(seconds=10)

    assert scene.cluster.events == [("gpu-2", EventReason.TAINTED), ("gpu-1", EventReason.TAINTED)]
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 2
    assert scene.count("actions_total", verb="taint", result="applied") == 2
    assert scene.kernel_checkpoint == ns(10)


def test_counts_that_were_written_without_an_answer_are_not_added_twice() -> None:
    scene = Scene()
    scene.run(xid(), seconds=2)
    for second in range(3, 13):
        scene.run(xid(seconds=second, stamp=100.5 + second), seconds=second)
    scene.cluster.moods["gpu-1"] = [UNANSWERED]
    before = scene.cluster.nodes["gpu-1"]
    scene.run(seconds=80)
    assert scene.cluster.moods["gpu-1"] == []
    [incident] = before.record.incidents
    last = KernelPosition("boot-a", None, 112_500_000)
    written = replace(incident, count=11, last=last, last_ns=ns(12))
    record = replace(before.record, incidents=(written,))
    scene.cluster.nodes["gpu-1"] = replace(before, record=record)

    scene.run(seconds=100)
    scene.run(xid(seconds=101, stamp=300), seconds=101)
    scene.run(seconds=1000)

    assert scene.cluster.nodes["gpu-1"].record.incidents[0].count == 12


def test_a_server_that_asks_for_patience_gets_it() -> None:
    scene = Scene()
    busy = KubeOverloaded("too many requests", retry_after_seconds=30)
    scene.cluster.moods["gpu-1"] = [WriteResult(ANY, Outcome.FAILED, error=busy)] * 2

    scene.run(xid(), seconds=2)
    scene.run(seconds=31)
    assert len(scene.cluster.moods["gpu-1"]) == 1
    scene.run(seconds=33)
    assert scene.cluster.moods["gpu-1"] == []


def test_a_fault_of_an_unknown_node_waits_for_it_and_is_then_given_up() -> None:
    scene = Scene()
    scene.run(xid("gpu-99", seconds=1), xid("nobody", seconds=1), seconds=2)
    assert scene.kernel_checkpoint == ns(1)

    newcomer = fleet(99)["gpu-99"]
    scene.cluster.nodes["gpu-99"] = newcomer
    scene.run(seconds=60)
    assert scene.cluster.tainted == {"gpu-99"}
    assert scene.kernel_checkpoint == ns(1)

    scene.run(seconds=700)
    assert scene.kernel_checkpoint == ns(700)


def test_a_mistake_in_a_tick_loses_nothing() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [RuntimeError("a mistake of ours")]
    line = xid(seconds=1)

    with pytest.raises(RuntimeError):
        scene.run(line, seconds=2)
    assert scene.kernel_checkpoint == ns(0)

    scene.run(line, seconds=3)
    assert scene.cluster.tainted == {"gpu-1"}
    assert scene.kernel_checkpoint == ns(3)


def test_lines_from_before_the_first_start_are_recorded_and_do_not_taint() -> None:
    scene = Scene()

    scene.run(xid(seconds=-1000), seconds=2)

    assert scene.cluster.tainted == set()
    assert scene.cluster.nodes["gpu-1"].record.incidents[0].before_install


def test_a_line_that_is_no_fault_costs_nothing() -> None:
    scene = Scene()

    scene.run(LogLine(Source.KERNEL, ns(1), "[1.0] NVRM: loading module", {}, "gpu-1"), seconds=2)

    assert scene.cluster.written == []
    assert scene.kernel_checkpoint == ns(2)


def test_a_node_with_more_incidents_than_its_annotation_holds_is_not_written_again_and_again() -> None:
    """Eight GPUs and a dozen codes each: what had no room on the node is still remembered here."""
    scene = Scene()
    text = "[{stamp:.6f}] NVRM: Xid (PCI:0000:{gpu:02x}:00): {code}, pid=4711, name=python3, " + "x" * 200

    def lines(seconds: float) -> list[LogLine]:
        return [
            LogLine(
                Source.KERNEL,
                ns(seconds),
                text.format(stamp=100 + seconds + gpu / 100, gpu=gpu, code=code),
                {},
                "gpu-1",
            )
            for gpu in range(1, 9)
            for code in (13, 31, 43, 45, 63, 68, 69, 92)
        ]

    scene.run(*lines(1), seconds=2)
    assert len(scene.cluster.nodes["gpu-1"].record.incidents) < 64
    for second in range(3, 33):
        scene.run(*lines(second), seconds=second)

    assert len(scene.cluster.written) == 1
    scene.run(seconds=2 + 601 + 32)
    assert len(scene.cluster.written) == 2
    assert (
        scene.count("faults_total", source="kernel", kind="xid", code="31", severity="application") == 31 * 8
    )


GONE = WriteResult(ANY, Outcome.GONE)


def test_one_404_is_not_believed() -> None:
    """A proxy may say 404 of anything; a Node that is really gone leaves the watch as well."""
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [GONE]

    scene.run(xid(seconds=1), seconds=2)
    assert scene.kernel_checkpoint == ns(1)

    scene.run(seconds=10)
    assert scene.cluster.tainted == {"gpu-1"}


def test_a_node_that_is_gone_ends_as_an_unknown_one() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [GONE]
    scene.run(xid(seconds=1), seconds=2)
    del scene.cluster.nodes["gpu-1"]

    scene.run(seconds=10)
    scene.run(seconds=611)

    assert scene.kernel_checkpoint == ns(611)
    assert scene.count("faults_ignored_total", reason="no such node") == 1


def test_nothing_is_given_up_while_the_nodes_cannot_be_seen() -> None:
    scene = Scene()
    scene.run(xid("gpu-99", seconds=1), seconds=2)
    scene.cluster.problem = KubeTimeout("no answer")
    scene.run(seconds=5000)
    scene.cluster.problem = None
    scene.cluster.nodes["gpu-99"] = fleet(99)["gpu-99"]

    scene.run(seconds=5001)

    assert scene.cluster.tainted == {"gpu-99"}


def test_each_fault_of_an_unknown_node_waits_its_own_time() -> None:
    scene = Scene()
    scene.run(xid("gpu-99", seconds=1), seconds=2)
    scene.run(xid("gpu-99", seconds=598, stamp=900), seconds=600)
    scene.run(seconds=603)

    assert scene.kernel_checkpoint == ns(598)


def test_a_reset_that_arrives_between_decision_and_write_is_not_overwritten() -> None:
    """What was decided is written only onto the state that it was decided on."""
    scene = Scene()
    scene.run(xid(), seconds=2)
    decided_on = scene.cluster.nodes["gpu-1"]
    moments = iter([decided_on])

    def snapshot() -> Mapping[str, NodeState]:
        newer = replace(decided_on, taints=(), as_read=replace(decided_on.as_read, resource_version="99"))
        return {**scene.cluster.nodes, "gpu-1": next(moments, newer)}

    written: list[NodeState] = []

    def write_all(pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        written.extend(state for state, _ in pairs)
        return [RehearsedWriter().write(*pair) for pair in pairs]

    scene.cluster.snapshot = snapshot  # type: ignore[method-assign]  # a view that changes under us
    scene.cluster.write_all = write_all  # type: ignore[method-assign]  # to see what it was given
    second_gpu = LogLine(
        Source.KERNEL,
        ns(3),
        "[200.0] NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.",
        {},
        "gpu-1",
    )

    scene.run(second_gpu, seconds=4)

    assert written == [decided_on]


def test_a_record_without_an_answer_takes_no_room_from_the_brake() -> None:
    scene = Scene(size=5)
    scene.cluster.moods["gpu-2"] = [UNANSWERED]
    suspect = LogLine(Source.KERNEL, ns(1), "[9.0] NVRM: Xid (PCI:0000:1b:00): 63, pid=1", {}, "gpu-2")
    scene.run(suspect, seconds=2)

    scene.run(xid("gpu-1", seconds=2.5), seconds=3)

    assert scene.cluster.tainted == {"gpu-1"}


def test_a_taint_never_waits_for_a_record_that_could_not_be_written() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [FORBIDDEN] * 6
    suspect = LogLine(Source.KERNEL, ns(1), "[9.0] NVRM: Xid (PCI:0000:1b:00): 63, pid=1", {}, "gpu-1")
    for second in (2, 5, 10, 20, 40, 80):
        scene.run(*([suspect] if second == 2 else []), seconds=second)
    assert scene.cluster.moods["gpu-1"] == []

    scene.run(xid("gpu-1", seconds=81), seconds=82)

    assert scene.cluster.tainted == {"gpu-1"}


def test_bookkeeping_of_a_whole_fleet_is_spread_over_ticks_and_taints_go_first() -> None:
    scene = Scene(size=100)
    lines = [
        LogLine(Source.KERNEL, ns(1), f"[9.0] NVRM: Xid (PCI:0000:1b:00): 63, pid={i}", {}, f"gpu-{i}")
        for i in range(1, 100)
    ]

    scene.run(*lines, xid("gpu-100", seconds=1.5), seconds=2)

    assert scene.cluster.written[0].verb is Verb.TAINT
    assert len(scene.cluster.written) == 33
    for second in (3, 4, 5):
        scene.run(seconds=second)
    assert len(scene.cluster.written) == 100
    assert scene.kernel_checkpoint == ns(5)


def test_a_taint_whose_answer_was_lost_is_announced_once_it_shows() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [UNANSWERED]
    scene.run(xid(), seconds=2)
    elsewhere = Scene()
    elsewhere.run(xid(), seconds=2)
    scene.cluster.nodes["gpu-1"] = elsewhere.cluster.nodes["gpu-1"]

    scene.run(seconds=10)
    scene.run(seconds=20)

    assert scene.cluster.events == [("gpu-1", EventReason.TAINTED)]
    assert scene.count("actions_total", verb="taint", result="applied") == 1


def test_a_flood_of_lines_for_a_node_that_nobody_knows_is_thinned() -> None:
    scene = Scene()
    for second in range(1, 40):
        scene.run(
            *(xid("nobody", seconds=second, stamp=second + i / 1000) for i in range(100)), seconds=second
        )

    assert scene.tick.unfinished <= 2000
    assert scene.kernel_checkpoint == ns(1)


def said(capture: io.StringIO) -> list[str]:
    return [line.split(" INFO ")[-1] for line in capture.getvalue().splitlines()]


def test_a_taint_that_somebody_removed_is_said_and_a_node_made_anew_is_not_mistaken_for_it() -> None:
    log = io.StringIO()
    logs.set_up("text", "info", stream=log)
    scene = Scene()
    scene.run(xid("gpu-1"), xid("gpu-2"), seconds=2)
    removed, made_anew = scene.cluster.nodes["gpu-1"], fleet(2)["gpu-2"]
    without = replace(removed.as_read, taints=None)
    scene.cluster.nodes["gpu-1"] = replace(removed, taints=(), as_read=without)
    scene.cluster.nodes["gpu-2"] = replace(made_anew, as_read=replace(made_anew.as_read, uid="another"))

    scene.run(seconds=3)

    assert [line for line in said(log) if "taint removed" in line] == [
        "Node gpu-1 taint removed. By somebody."
    ]


def test_a_storm_is_a_few_lines_of_the_log_and_not_one_for_each_of_its_own() -> None:
    log = io.StringIO()
    logs.set_up("text", "info", stream=log)
    scene = Scene()
    for second in range(1, 11):
        scene.run(
            *(xid(seconds=second + i / 500, stamp=second + i / 500) for i in range(500)), seconds=second + 1
        )
    scene.run(seconds=75)

    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 5000
    assert scene.cluster.nodes["gpu-1"].record.incidents[0].count == 5000
    errors = [line for line in said(log) if "has dmesg error" in line]
    assert [line.partition("NVRM")[0] for line in errors] == [
        "node `gpu-1` has dmesg error: ",
        "node `gpu-1` has dmesg error 499 times more, lately: ",
        "node `gpu-1` has dmesg error 4,500 times more, lately: ",
    ]


def test_lines_that_lead_to_nothing_are_counted_one_by_one_and_told_together() -> None:
    log = io.StringIO()
    logs.set_up("text", "info", stream=log)
    scene = Scene()

    def nameless(seconds: float, count: int) -> None:
        stray = (replace(xid(seconds=seconds, stamp=seconds + i / 500), node=None) for i in range(count))
        scene.run(*stray, seconds=seconds)

    nameless(1, 1)
    for second in range(2, 12):
        nameless(second, 500)
    scene.run(seconds=700)

    assert scene.count("faults_ignored_total", reason="the line names no node") == 5001
    assert [line.split(" WARNING ")[-1] for line in log.getvalue().splitlines() if "ignored" in line] == [
        "xid.79 of node <none> ignored: the line names no node.",
        "xid.79 of node <none> ignored 5,000 times: the line names no node.",
    ]
