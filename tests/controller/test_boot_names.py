"""Lines of the kernel-log reader that came without a node's name are named by their boot id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from konductor_like.controller.fleet.boot_names import BootNames
from konductor_like.controller.fleet.fleet_monitor import FleetMonitor
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.detection.heartbeat import reader_boot
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.model import LogLine, Loss, Misnamed, NodeState, Source
from konductor_like.model.time import moment_of
from konductor_like.policy.node.machines import Heard
from tests.controller.reconciling import Scene as Reconciling
from tests.controller.reconciling import monitor
from tests.policy.scenes import at, fleet, ns

BOOTS = {f"gpu-{number}": f"{number}a6f3c1e-7d52-4a8e-9a53-1f2e3d4c5b6a" for number in range(1, 5)}
BOOT_1, BOOT_2 = BOOTS["gpu-1"], BOOTS["gpu-2"]
STRANGE = "ffff3c1e-7d52-4a8e-9a53-1f2e3d4c5b6a"
XID = "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus."


def booted(state: NodeState, boot_id: str) -> NodeState:
    return replace(state, machine=replace(state.machine, boot_id=boot_id))


def nodes(**boots: str) -> dict[str, NodeState]:
    """Return four Nodes with the boots above, or with others: ``gpu_1="…"``."""
    other = {name.replace("_", "-"): boot for name, boot in boots.items()}
    return {name: booted(state, other.get(name, BOOTS[name])) for name, state in fleet(4).items()}


def line(
    boot_id: str = BOOT_1, seconds: float = 1, sequence: int = 5555, node: str | None = None, text: str = XID
) -> LogLine:
    said = f"kmsg/1 boot={boot_id} seq={sequence} facility=0 priority=3 [  100.{sequence:06}] {text}"
    return LogLine(Source.KERNEL, ns(seconds), said, {}, node, "dmesg-logging", "dmesg-x2x4k", "dmesg")


def beat(seconds: float, boot_id: str = BOOT_1, sequence: int = 6000, node: str | None = None) -> LogLine:
    wall = f"{at(seconds):%Y-%m-%dT%H:%M:%S}.000Z"
    said = f"kmsg/1 heartbeat boot={boot_id} seq={sequence} uptime={1000 + seconds:.6f} wall={wall}"
    return replace(line(), text=said, timestamp_ns=ns(seconds), node=node)


class Scene:
    """A reconciler and its monitor over four Nodes."""

    def __init__(self, states: Mapping[str, NodeState] | None = None) -> None:
        self.seconds = 0.0
        self.watch: FleetMonitor = monitor(Metrics(), lambda: ns(self.seconds))
        self.scene = Reconciling(
            nodes=nodes() if states is None else states, fleet=self.watch, detect=MultilineDetector().detect
        )
        self.run(seconds=0)

    def run(self, *lines: LogLine, seconds: float) -> set[str]:
        """Reconcile with these lines; return the tainted nodes."""
        self.seconds = seconds
        self.scene.run(*lines, seconds=seconds)
        return self.scene.cluster.tainted

    def hear(self, *lines: LogLine, seconds: float) -> None:
        """Hear heartbeats as the leadership does."""
        self.seconds = seconds
        self.watch.hear(self.watch.boot_names.named(lines, self.scene.cluster.snapshot()), ns(seconds))
        self.watch.update(self.scene.cluster.snapshot())

    @property
    def nameless(self) -> list[str]:
        return list(self.scene.reconciler.misnamed(moment_of(ns(self.seconds))))


@pytest.mark.parametrize("said", [BOOT_1, BOOT_1.upper()])
def test_a_line_without_a_name_belongs_to_the_node_that_has_its_boot(said: str) -> None:
    scene = Scene()

    assert scene.run(line(said), seconds=2) == {"gpu-1"}
    assert scene.nameless == []


def test_lines_that_are_named_by_their_boot_are_joined_as_the_nodes_own() -> None:
    scene = Scene()
    lost = (
        "NVRM: The NVIDIA GPU 0000:c7:00.0",
        "NVRM: fallen off the bus and is not responding to commands.",
    )

    scene.run(line(sequence=7, text=lost[0]), line(sequence=8, text=lost[1], node="gpu-1"), seconds=2)

    state = scene.scene.cluster.nodes["gpu-1"]
    assert [incident.key.gpu for incident in state.record.incidents] == ["0000:c7:00"]


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(line(node="nobody"), id="a name that is unknown"),
        pytest.param(line(STRANGE), id="a boot that no Node has"),
        pytest.param(replace(line(), text=f"[ 100.5] {line().text}"), id="the words of another line"),
        pytest.param(replace(line(), text=f"monitor: {line().text}"), id="a quotation"),
        pytest.param(replace(line(), namespace=None), id="no container's stream"),
        pytest.param(replace(line(), container=None), id="no container"),
        pytest.param(replace(line(), source=Source.POD), id="a pod"),
    ],
)
def test_no_other_line_is_named_by_a_boot(strange: LogLine) -> None:
    scene = Scene()

    assert scene.run(strange, seconds=2) == set()
    assert scene.run(seconds=700) == set()


@pytest.mark.parametrize(
    ("states", "why"),
    [
        (nodes(gpu_2=BOOT_1), "two Nodes of one kernel, as kind has them"),
        ({**nodes(), "gpu-1": replace(nodes()["gpu-1"], is_gpu_node=False)}, "no GPU node"),
    ],
)
def test_a_boot_that_names_no_single_gpu_node_names_none(states: Mapping[str, NodeState], why: str) -> None:
    scene = Scene(states)

    assert scene.run(line(), seconds=2) == set(), why


@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "rebooted"])
def test_a_node_that_had_the_boot_within_the_hour_keeps_it_from_naming_another(*, gone: bool) -> None:
    scene = Scene(nodes(gpu_2=BOOT_1))
    scene.run(seconds=10)
    scene.scene.cluster.nodes["gpu-2"] = booted(scene.scene.cluster.nodes["gpu-2"], STRANGE)
    if gone:
        del scene.scene.cluster.nodes["gpu-2"]
    scene.run(seconds=20)

    assert scene.run(line(seconds=3000), seconds=3001) == set()
    assert scene.run(line(seconds=3700, sequence=5556), seconds=3701) == {"gpu-1"}


def test_heartbeats_of_the_boot_under_another_name_keep_it_from_naming_a_node() -> None:
    scene = Scene()
    scene.hear(beat(1, node="gpu-3"), seconds=2)

    assert scene.run(line(seconds=3), seconds=4) == set()


def test_a_node_that_is_made_again_under_its_name_still_has_its_boot() -> None:
    scene = Scene()
    old = scene.scene.cluster.nodes.pop("gpu-1")
    scene.run(seconds=10)
    scene.scene.cluster.nodes["gpu-1"] = replace(old, machine=replace(old.machine, node_uid="anew"))

    assert "gpu-1" in scene.run(line(seconds=20), seconds=21)


def test_a_line_waits_for_the_node_that_has_yet_to_tell_its_boot() -> None:
    """The reader's first lines may arrive before the kubelet has reported the new boot."""
    scene = Scene(nodes(gpu_1=STRANGE))
    assert scene.run(line(), seconds=2) == set()

    scene.scene.cluster.nodes["gpu-1"] = nodes()["gpu-1"]

    assert scene.run(seconds=30) == {"gpu-1"}
    scene.run(seconds=700)
    assert scene.nameless == []


def test_a_line_that_cannot_be_named_is_dropped_after_a_while_and_shown() -> None:
    scene = Scene()
    scene.run(line(STRANGE), seconds=2)
    assert scene.scene.kernel_checkpoint == ns(1), "a restart reads it again"
    assert scene.nameless == [f"boot {STRANGE}"], "shown at once"

    for seconds in (700, 701):
        scene.run(seconds=seconds)
        assert scene.scene.reconciler.misnamed(at(seconds)) == {f"boot {STRANGE}": Misnamed(1, ns(1))}

    assert scene.scene.kernel_checkpoint == ns(701)
    [(_, message)] = scene.scene.fleet_events
    assert f"boot {STRANGE}" in message


def test_heartbeats_without_a_name_are_heard_as_the_nodes_own() -> None:
    scene = Scene()

    scene.hear(beat(10), beat(11, STRANGE), seconds=20)

    assert set(scene.watch.hearing) == {"gpu-1"}


def test_heartbeats_that_count_a_line_that_nobody_has_are_a_gap() -> None:
    scene = Scene(nodes(gpu_2=BOOT_1))
    scene.hear(beat(1, sequence=5000, node="gpu-1"), seconds=2)
    scene.run(line(seconds=3), seconds=4)
    scene.hear(beat(5, sequence=5001, node="gpu-1"), seconds=6)
    assert not scene.watch.hearing["gpu-1"].has_gap, "the heartbeat does not count the line yet"

    scene.hear(beat(60, sequence=6000, node="gpu-1"), seconds=61)
    assert scene.watch.hearing["gpu-1"].has_gap, "the line may still be named"
    scene.run(seconds=700)
    scene.hear(beat(119, sequence=5002, node="gpu-1"), seconds=700)
    assert scene.watch.update(scene.scene.cluster.snapshot()).lost == {}, "a heartbeat of before the line"
    scene.hear(beat(120, sequence=6001, node="gpu-1"), seconds=701)

    coverage = scene.watch.update(scene.scene.cluster.snapshot())
    assert coverage.lost == {"gpu-1": Loss(1, ns(120), BOOT_1)}
    assert scene.watch.gaps_given_up["gpu-1"] == ns(120)
    assert "gpu-2" not in coverage.lost


def test_a_line_that_was_dropped_is_one_loss_however_often_it_is_counted() -> None:
    scene = Scene(nodes(gpu_2=BOOT_1))
    scene.run(line(seconds=3), seconds=4)
    scene.run(seconds=700)
    for seconds in range(710, 1000, 60):
        scene.hear(beat(seconds, node="gpu-1"), seconds=seconds + 1)

    assert scene.watch.update(scene.scene.cluster.snapshot()).lost["gpu-1"].records == 1


@pytest.mark.parametrize(
    ("text", "boot"),
    [
        (line().text, BOOT_1),
        (beat(1).text, BOOT_1),
        (f"kmsg/1 gap boot={BOOT_2} from=0 to=7 lost=8", BOOT_2),
        (f"2026-05-06T11:56:48.1Z stdout F {line().text}", BOOT_1),
        (f"    {line().text}", None),
        (f"[ 1.5] {line().text}", None),
        ("kmsg/1 boot=none seq=1", None),
        ("NVRM", None),
    ],
)
def test_the_boot_is_read_from_the_readers_own_lines_only(text: str, boot: str | None) -> None:
    assert reader_boot(text) == boot


def test_many_lines_without_a_name_look_through_the_fleet_once() -> None:
    looks: list[int] = []

    def heard() -> dict[str, Heard]:
        looks.append(1)
        return {}

    names = BootNames(lambda: ns(0), heard)

    named = names.named([line(boot_id) for boot_id in BOOTS.values()], nodes())

    assert [each.node for each in named] == list(BOOTS)
    assert len(looks) == 1
