"""Reconciling a cluster in memory: which lines taint, which faults wait, and where the checkpoint is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from konductor_like.cluster.api.errors import KubeTimeout
from konductor_like.cluster.node.writer import Outcome, WriteResult
from konductor_like.controller.fleet.fleet_monitor import FleetMonitor
from konductor_like.controller.loop.retries import thinned
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.detection import detect
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.model import EventReason, LogLine, Misnamed, NodeRecord, NodeState, Source, Verb
from tests.controller.reconciling import ANY, FORBIDDEN, Scene, monitor, xid
from tests.policy.scenes import at, fleet, ns


def test_a_line_with_a_fault_becomes_a_taint_an_event_and_a_count_and_other_lines_do_nothing() -> None:
    scene = Scene()

    scene.run(xid(), replace(xid("gpu-2"), text="[1.0] NVRM: loading module"), seconds=2)
    assert len(scene.cluster.written) == 1

    assert scene.cluster.tainted == {"gpu-1"}
    assert scene.cluster.events == [("gpu-1", EventReason.TAINTED)]
    assert scene.count("faults_total", source="kernel", kind="xid", code="79", severity="fatal") == 1
    assert scene.count("actions_total", verb="taint", result="applied") == 1
    assert scene.count("nodes_tainted") == 1
    assert scene.kernel_checkpoint == ns(2)


def test_the_drivers_lines_before_the_fault_name_the_gpu_on_the_node() -> None:
    scene = Scene(detect=MultilineDetector().detect)
    uuid, serial = "GPU-f1906b9b-557a-e961-045c-9fe4be3ce012", "1653923026510"
    before = (f"GPU at PCI:0000:4e:00: {uuid}", f"GPU Board Serial Number: {serial}")
    named = [replace(xid(), text=f"[99.9{number}] NVRM: {text}") for number, text in enumerate(before)]

    scene.run(*named, xid(), xid("gpu-2"), seconds=2)

    told = {
        c.node: [(i.uuid, i.serial) for i in c.record.incidents] for c in scene.cluster.written if c.record
    }
    assert told == {"gpu-1": [(uuid, serial)], "gpu-2": [("", "")]}


def test_a_fault_of_an_unknown_node_waits_for_it_and_is_then_given_up() -> None:
    scene = Scene()
    scene.run(xid("gpu-99", seconds=1), xid("nobody", seconds=1), seconds=2)
    scene.run(xid("nobody", seconds=598, stamp=900), seconds=600)
    assert scene.kernel_checkpoint == ns(1)

    scene.cluster.problem = KubeTimeout("no answer")
    scene.run(seconds=650)
    assert scene.kernel_checkpoint == ns(1)  # nothing is given up while the nodes cannot be seen
    scene.cluster.problem = None
    scene.cluster.nodes["gpu-99"] = fleet(99)["gpu-99"]
    scene.run(seconds=660)
    assert scene.cluster.tainted == {"gpu-99"}
    assert scene.kernel_checkpoint == ns(598)  # each waits its own time

    scene.run(seconds=1300)
    assert scene.kernel_checkpoint == ns(1300)


def test_names_of_kernel_faults_that_no_node_has_are_remembered_and_reported_once() -> None:
    scene = Scene()
    names = ("gpu-1.example.com", "GPU-2", "10.0.0.3")
    of_a_pod = LogLine(Source.POD, ns(1), "CUDA error: an illegal memory access was encountered", {}, "gpu-x")

    scene.run(*(xid(name) for name in names), xid("GPU-2", stamp=101), of_a_pod, seconds=2)
    assert scene.reconciler.misnamed(at(500)) == {}
    scene.run(seconds=700)

    assert scene.reconciler.misnamed(at(700)) == {
        "gpu-1.example.com": Misnamed(1, ns(1)),
        "GPU-2": Misnamed(2, ns(1)),
        "10.0.0.3": Misnamed(1, ns(1)),
    }
    scene.run(xid("GPU-2", seconds=701, stamp=150), seconds=702)
    scene.run(seconds=1400)
    [(reason, message)] = scene.fleet_events
    assert reason is EventReason.MISNAMED
    assert "10.0.0.3, GPU-2, gpu-1.example.com" in message
    assert "check KONDUCTOR_NODE_LABEL" in message

    scene.cluster.nodes["GPU-2"] = fleet(1)["gpu-1"]
    assert set(scene.reconciler.misnamed(at(1410))) == {"gpu-1.example.com", "10.0.0.3"}
    assert scene.reconciler.misnamed(at(86_402)) == {}


def test_of_the_names_that_no_node_has_the_newest_few_are_kept() -> None:
    scene = Scene()
    names = ["x" * 300, *(f"name-{number}" for number in range(1, 60))]
    scene.run(*(xid(name, seconds=100 - number) for number, name in enumerate(names)), seconds=101)
    scene.run(seconds=800)

    known = scene.reconciler.misnamed(at(800))

    assert list(known) == ["x" * 253, *names[1:50]]


def test_the_fleet_is_observed_once_before_each_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def observe(_self: FleetMonitor, nodes: Mapping[str, NodeState]) -> Mapping[str, NodeRecord]:
        seen.append(len(nodes))
        return {}

    monkeypatch.setattr(FleetMonitor, "observe", observe)
    scene = Scene(fleet=monitor(Metrics()))

    scene.run(xid(), seconds=2)
    assert seen == [10]

    scene.cluster.moods["gpu-2"] = [WriteResult(ANY, Outcome.CONFLICT)]
    scene.run(xid("gpu-2", seconds=3), seconds=4)
    assert seen == [10, 10, 10]
    assert scene.cluster.tainted == {"gpu-1", "gpu-2"}


def test_an_exception_in_a_reconcile_loses_no_line() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [RuntimeError("a mistake of ours")]
    line = xid(seconds=1)

    with pytest.raises(RuntimeError):
        scene.run(line, seconds=2)
    assert scene.kernel_checkpoint == ns(0)

    scene.run(line, seconds=3)
    assert scene.cluster.tainted == {"gpu-1"}
    assert scene.kernel_checkpoint == ns(3)


def test_an_exception_in_a_reconcile_loses_no_fault_that_waited() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [FORBIDDEN, RuntimeError("a mistake of ours")]
    scene.run(xid(seconds=1), seconds=2)

    with pytest.raises(RuntimeError):
        scene.run(seconds=30)
    scene.run(seconds=60)

    assert scene.cluster.tainted == {"gpu-1"}


def test_a_fault_of_an_unknown_node_stays_known_when_another_node_is_decided_again() -> None:
    scene = Scene()
    scene.cluster.moods["gpu-1"] = [WriteResult(ANY, Outcome.CONFLICT)]

    scene.run(xid("gpu-99", seconds=1), xid(seconds=1.5), seconds=2)
    scene.cluster.nodes["gpu-99"] = fleet(99)["gpu-99"]
    scene.run(seconds=3)

    assert scene.cluster.tainted == {"gpu-1", "gpu-99"}


def test_lines_from_before_the_first_start_are_recorded_and_do_not_taint() -> None:
    scene = Scene()

    scene.run(xid(seconds=-1000), seconds=2)

    assert scene.cluster.tainted == set()
    assert scene.cluster.nodes["gpu-1"].record.incidents[0].before_install


def test_a_node_with_more_incidents_than_its_annotation_holds_is_not_written_again_and_again() -> None:
    """Eight GPUs with a dozen codes each: the reconciler remembers what the annotation cannot contain."""
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


def test_records_of_a_whole_fleet_are_written_over_several_reconciles_and_taints_first() -> None:
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


def test_a_flood_of_lines_for_an_unknown_node_is_thinned() -> None:
    scene = Scene()
    for second in range(1, 40):
        scene.run(
            *(xid("nobody", seconds=second, stamp=second + i / 1000) for i in range(100)), seconds=second
        )

    assert scene.reconciler.unfinished <= 2000
    assert scene.kernel_checkpoint == ns(1)


def test_thinning_keeps_what_taints_between_lines_of_its_rule_that_do_not() -> None:
    scene = Scene()
    none, reset = "0x0 (None)", "0x1 (GPU Reset Required)"
    changes = [(none, none), (none, reset), (reset, none)]
    lines = [
        f"[{100 + n}.000000] NVRM: Xid (PCI:0000:4e:00): 154, GPU recovery action changed from {old} to {new}"
        for n, (old, new) in enumerate(changes)
    ]
    scene.run(
        *(LogLine(Source.KERNEL, ns(1) + n, text, {}, "gpu-99") for n, text in enumerate(lines)),
        *(xid("nobody", seconds=1 + n / 1000, stamp=n) for n in range(2100)),
        seconds=5,
    )
    assert scene.reconciler.unfinished < 10

    scene.cluster.nodes["gpu-99"] = fleet(99)["gpu-99"]
    scene.run(seconds=10)

    assert scene.cluster.tainted == {"gpu-99"}


def test_thinning_a_replayed_log_keeps_the_latest_place_and_not_the_latest_time() -> None:
    first, last, replayed = (xid(seconds=s, stamp=stamp) for s, stamp in ((1, 100), (2, 200), (3, 150)))
    faults = [detect(line) for line in (first, last, replayed)]

    assert thinned(fault for fault in faults if fault) == [faults[0], faults[1]]


def test_a_job_that_fails_on_the_whole_fleet_is_counted_line_by_line() -> None:
    nodes, lines_each = 200, 25
    scene = Scene(nodes + 1)
    text = "[100.{:06d}] NVRM: Xid (PCI:0000:4e:00): 13, pid=1, name=python, Graphics Exception"
    lines = [
        LogLine(Source.KERNEL, ns(1) + number, text.format(number), {}, f"gpu-{n}")
        for number in range(lines_each)
        for n in range(1, nodes + 1)
    ]
    scene.run(*lines[:2500], seconds=2)
    scene.run(*lines[2500:], seconds=3)
    for second in range(4, 20):
        scene.run(seconds=second)
    scene.run(seconds=700)
    for second in range(1300, 1320):
        scene.run(seconds=second)

    counts = Counter(sum(i.count for i in state.record.incidents) for state in scene.cluster.nodes.values())
    assert scene.reconciler.unfinished == 0
    assert counts == {lines_each: nodes, 0: 1}
    labels = {"source": "kernel", "kind": "xid", "code": "13", "severity": "application"}
    assert scene.count("faults_total", **labels) == nodes * lines_each
