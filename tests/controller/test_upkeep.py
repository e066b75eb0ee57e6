"""Writes that are not urgent are limited, delay nothing, and are not lost (rule 35)."""

from __future__ import annotations

from konductor_like.controller.loop.retries import UPKEEP_A_MINUTE, Upkeep
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.model import Change, Hearing, LogLine, NodeState, Severity, Source, Verb
from tests.controller.reconciling import FORBIDDEN, UNANSWERED, Scene, monitor, xid
from tests.policy.scenes import Cluster, at, fault, fleet, ns

WEEK = 7 * 86_400.0


def suspects(size: int) -> dict[str, NodeState]:
    """Nodes that have each had an Xid 63 at noon, and no line since."""
    cluster = Cluster(fleet(size))
    doubt = [
        fault(name, rule="xid.63", severity=Severity.SUSPECT, needs="inspection") for name in cluster.nodes
    ]
    cluster.tick(*doubt)
    return cluster.nodes


def scene_of(nodes: dict[str, NodeState]) -> Scene:
    """A reconciler that has heard all these nodes for long."""
    watch = monitor(Metrics(), lambda: ns(WEEK))
    watch.hearing = dict.fromkeys(nodes, Hearing("boot-a", ns(0), ns(WEEK)))
    return Scene(nodes=nodes, fleet=watch)


def ended(scene: Scene) -> int:
    return sum(state.as_read.health is None for state in scene.cluster.nodes.values())


def test_ten_changes_without_haste_are_due_in_any_minute() -> None:
    upkeep, change = Upkeep(), Change("gpu-1", Verb.RECORD, None, None, upkeep=True)

    found = [len(upkeep.due([change] * 6, at(seconds))) for seconds in (0, 30, 59, 61, 90, 91)]

    assert found == [6, 4, 0, 6, 4, 0]


def test_many_endings_are_written_ten_a_minute_and_none_is_lost() -> None:
    scene = scene_of(suspects(24))
    found = []

    for seconds in (0, 5, 30, 61, 65, 125, 130):
        scene.run(seconds=WEEK + seconds)
        found.append(ended(scene))

    assert found == [10, 10, 10, 20, 20, 24, 24]
    assert not scene.reconciler.more_to_write
    assert len(scene.cluster.written) == 24


def test_taints_and_new_suspicions_never_wait_for_upkeep() -> None:
    scene = scene_of(suspects(24))
    scene.run(seconds=WEEK)
    new = LogLine(
        Source.KERNEL, ns(WEEK + 5), f"[{WEEK}] NVRM: Xid (PCI:0000:1b:00): 63, pid=1", {}, "gpu-23"
    )

    scene.run(xid("gpu-24", seconds=WEEK + 5, stamp=WEEK), new, seconds=WEEK + 6)

    assert scene.cluster.tainted == {"gpu-24"}
    assert {change.node for change in scene.cluster.written[UPKEEP_A_MINUTE:]} == {"gpu-23", "gpu-24"}
    assert scene.kernel_checkpoint == ns(WEEK + 6)


def test_a_replay_on_a_node_that_waits_for_its_upkeep_does_not_hold_the_cursor_back() -> None:
    scene = scene_of(suspects(24))
    scene.run(seconds=WEEK)
    waiting = next(name for name, state in scene.cluster.nodes.items() if state.as_read.health)
    old = "[100.0] NVRM: Xid (PCI:0000:4e:00): 63, pid=1"

    scene.run(LogLine(Source.KERNEL, ns(WEEK + 5), old, {}, waiting), seconds=WEEK + 6)

    assert scene.reconciler.unfinished == 0
    assert scene.kernel_checkpoint == ns(WEEK + 6)


def test_an_upkeep_of_a_node_with_lines_is_written_once() -> None:
    scene = scene_of(suspects(1))
    old = "[100.0] NVRM: Xid (PCI:0000:4e:00): 63, pid=1"

    scene.run(LogLine(Source.KERNEL, ns(WEEK), old, {}, "gpu-1"), seconds=WEEK)

    assert [change.upkeep for change in scene.cluster.written] == [True]


def test_an_upkeep_that_fails_is_tried_again_later() -> None:
    scene = scene_of(suspects(1))
    scene.cluster.moods["gpu-1"] = [FORBIDDEN]

    scene.run(seconds=WEEK)
    assert ended(scene) == 0
    scene.run(seconds=WEEK + 30)

    assert ended(scene) == 1


def scene_of_a_test() -> Scene:
    """A cluster whose gpu-1 is tainted for a test, an Xid 14."""
    scene = Scene()
    line = "[100.0] NVRM: Xid (PCI:0000:4e:00): 14, pid=1"
    scene.run(LogLine(Source.KERNEL, ns(0), line, {}, "gpu-1"), seconds=1)
    assert scene.cluster.tainted == {"gpu-1"}
    return scene


def test_the_end_of_a_test_whose_answer_is_lost_is_one_write_and_no_removal_by_hand() -> None:
    """One patch removes taint and claim, so the Node shows either both of them or neither."""
    scene = scene_of_a_test()
    other = Scene(nodes=scene.cluster.nodes)
    scene.cluster.moods["gpu-1"] = [UNANSWERED]
    scene.run(seconds=3601)
    assert scene.cluster.tainted == {"gpu-1"}

    other.run(seconds=3601)
    scene.cluster.nodes["gpu-1"] = other.cluster.nodes["gpu-1"]  # the watch brings what was written
    scene.run(seconds=3605)
    scene.run(seconds=3700)

    state = scene.cluster.nodes["gpu-1"]
    assert not state.tainted
    assert [(mark.by, mark.how) for mark in state.record.releases] == [("konductor-like", "time")]
    assert [change.verb for change in scene.cluster.written] == [Verb.TAINT]
    assert [change.verb for change in other.cluster.written] == [Verb.UNTAINT]


def test_the_end_of_a_test_that_was_not_written_is_written_later() -> None:
    scene = scene_of_a_test()
    scene.cluster.moods["gpu-1"] = [UNANSWERED]

    scene.run(seconds=3601)
    scene.run(seconds=3630)

    assert [change.verb for change in scene.cluster.written] == [Verb.TAINT, Verb.UNTAINT]
    assert scene.cluster.tainted == set()
