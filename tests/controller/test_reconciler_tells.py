"""The log lines of a reconcile: each fact once, storms in few lines."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from konductor_like.controller import logs
from konductor_like.detection import Detector
from konductor_like.model import EventReason, LogLine, Needs, NodeState, Source, Verb
from konductor_like.policy.node.release import release
from tests.catalog.user_files import POD_RULE, read
from tests.controller.reconciling import Scene, xid
from tests.policy.scenes import at, fleet, ns


@pytest.fixture
def log() -> io.StringIO:
    logs.set_up("text", "info", stream=(stream := io.StringIO()))
    return stream


def released(state: NodeState, *, seconds: float) -> NodeState:
    """Return the node after ``konductor-like reset``; everything before that was read."""
    read_ns = {Source.KERNEL: ns(seconds)}
    change = release(state, at=at(seconds), by="ann", reason="", read_ns=read_ns)
    assert change is not None
    assert change.record is not None
    return replace(state, taints=(), record=change.record)


def said(capture: io.StringIO) -> list[str]:
    return [line.split(" INFO ")[-1] for line in capture.getvalue().splitlines()]


def test_faults_of_a_rule_in_shadow_mode_are_counted_and_logged_once_and_write_nothing(
    log: io.StringIO,
) -> None:
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
    assert [line.split("`")[1] for line in said] == ["gpu-1", "gpu-2", "gpu-3"]
    assert "(rule xid.79 is in shadow mode): NVRM: Xid (PCI:0000:4e:00): 79" in said[0]


def test_a_removed_taint_is_logged_and_a_node_made_anew_is_not_taken_for_one(
    log: io.StringIO,
) -> None:
    scene = Scene()
    scene.run(xid("gpu-1"), xid("gpu-2"), seconds=2)
    removed, made_anew = scene.cluster.nodes["gpu-1"], fleet(2)["gpu-2"]
    without = replace(removed.as_read, taints=None)
    scene.cluster.nodes["gpu-1"] = replace(removed, taints=(), as_read=without, removed_by="kubectl-taint")
    scene.cluster.nodes["gpu-2"] = replace(made_anew, as_read=replace(made_anew.as_read, uid="another"))

    scene.run(seconds=3)

    assert [line for line in said(log) if "taint removed." in line] == [
        "Node gpu-1 taint removed. By kubectl-taint."
    ]


def test_a_storm_makes_few_lines_of_the_log(log: io.StringIO) -> None:
    scene = Scene()
    for second in range(1, 11):
        scene.run(
            *(xid(seconds=second + i / 500, stamp=second + i / 500) for i in range(500)), seconds=second + 1
        )
    scene.run(seconds=603)

    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 5000
    assert scene.cluster.nodes["gpu-1"].record.incidents[0].count == 5000
    errors = [line for line in said(log) if "has dmesg error" in line]
    assert [line.partition("NVRM")[0] for line in errors] == [
        "node `gpu-1` has dmesg error: ",
        "node `gpu-1` has dmesg error (repeated 499 times): ",
        "node `gpu-1` has dmesg error (repeated 4,500 times): ",
    ]


def test_ignored_faults_are_counted_one_by_one_and_logged_together(log: io.StringIO) -> None:
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


def test_a_fatal_line_that_a_reset_covered_before_it_was_read_is_logged(log: io.StringIO) -> None:
    scene = Scene()
    scene.run(xid(stamp=100), seconds=2)
    scene.cluster.apply(released(scene.cluster.nodes["gpu-1"], seconds=10))

    scene.run(replace(xid(seconds=20, stamp=90), text=xid(stamp=90).text.replace("4e", "5d")), seconds=21)
    scene.run(replace(xid(seconds=30), timestamp_ns=ns(30)), seconds=31)  # a replay of what it covers

    assert scene.cluster.tainted == set()
    [told] = [line for line in log.getvalue().splitlines() if "ignored" in line]
    assert "xid.79 of node gpu-1 ignored: the line has no boot id and may be new" in told


def test_the_nodes_are_counted_by_what_they_need_and_every_need_has_a_number() -> None:
    scene = Scene()

    scene.run(xid(), seconds=2)

    assert scene.count("nodes_needing", needs="reboot") == 1
    for needs in Needs:
        value = scene.metrics.registry.get_sample_value(
            "konductor_like_nodes_needing", {"needs": needs.value}
        )
        assert value == (1 if needs is Needs.REBOOT else 0)


def test_while_the_api_server_refuses_the_label_for_needs_no_node_is_written_for_it() -> None:
    scene = Scene()
    scene.cluster.labels_needs = False
    scene.run(xid(), seconds=2)
    assert [(change.verb, change.needs) for change in scene.cluster.written] == [(Verb.TAINT, None)]

    scene.run(seconds=3)
    assert len(scene.cluster.written) == 1

    scene.cluster.labels_needs = True
    scene.run(seconds=4)
    assert [(change.needs, change.upkeep) for change in scene.cluster.written[1:]] == [("reboot", True)]
