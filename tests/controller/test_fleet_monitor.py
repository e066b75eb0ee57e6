"""The fleet monitor concludes coverage, boots and re-registered Nodes from kernel lines."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.loki.readers.heartbeat import Reread
from konductor_like.model import (
    Coverage,
    CoverageState,
    Hearing,
    LogLine,
    Loss,
    Machine,
    MetBy,
    NodeState,
    Source,
    Unparsed,
)
from tests.controller.reconciling import monitor
from tests.policy.scenes import NOON, OURS, Cluster, at, fault, fleet, ns

BOOT_A = "aaaaaaaa-0000-4000-8000-000000000001"
BOOT_B = "bbbbbbbb-0000-4000-8000-000000000001"


def beat(node: str, seconds: float, boot: str = BOOT_A, uptime: float = 1000.0, sequence: int = 7) -> LogLine:
    wall: datetime = at(seconds)
    text = (
        f"kmsg/1 heartbeat boot={boot} seq={sequence} uptime={uptime:.6f} wall={wall:%Y-%m-%dT%H:%M:%S}.000Z"
    )
    return LogLine(Source.KERNEL, ns(seconds), text, {}, node)


def cut(node: str, seconds: float, boot: str, last: int) -> LogLine:
    """What a reader prints first if the kernel has overwritten all records up to ``last``."""
    text = f"kmsg/1 gap boot={boot} from=0 to={last} lost={last + 1}"
    return LogLine(Source.KERNEL, ns(seconds), text, {}, node)


class Scene:
    """A monitor of ``gpu-1`` to ``gpu-3``, all in boot A."""

    def __init__(self, before: Coverage | None = None, at_seconds: float = 0) -> None:
        self.nodes: dict[str, NodeState] = {
            name: replace(state, machine=replace(state.machine, boot_id=BOOT_A))
            for name, state in fleet(3).items()
        }
        self.looks: list[Reread] = []
        self.wanted: list[tuple[str, int]] = []
        self.backfilling: set[str] = set()
        self.room = True
        self.revisited: list[tuple[tuple[int, int], ...]] = []
        self.metrics = Metrics()
        self.seconds = at_seconds
        self.watch = monitor(
            self.metrics,
            lambda: ns(self.seconds),
            before=before,
            reread=self.looks.extend,
            rereading=lambda: {name for look in self.looks for name in look.nodes},
            read_node=self.read_node,
            backfilling=lambda: self.backfilling,
            revisit=self.revisited.append,
        )

    def read_node(self, node: str, since_ns: int) -> bool:
        if self.room:
            self.wanted.append((node, since_ns))
            self.backfilling.add(node)
        return self.room

    def hear(self, *lines: LogLine, seconds: float) -> Coverage:
        self.seconds = seconds
        self.watch.hear(lines, ns(seconds))
        return self.watch.update(self.nodes)

    def pending(self) -> float | None:
        return self.metrics.registry.get_sample_value("konductor_like_boots_pending")


def test_heartbeats_make_nodes_measured_and_tell_when_the_boot_began() -> None:
    scene = Scene()

    coverage = scene.hear(beat("gpu-1", 10, uptime=600.5), seconds=20)

    assert coverage.of("gpu-1") is CoverageState.MEASURED
    assert scene.watch.began_ns("gpu-1", BOOT_A) == ns(10 - 600.5)
    assert scene.watch.began_ns("gpu-1", BOOT_B) is None


@pytest.mark.parametrize(
    ("sent", "heard", "arrived"),
    [(10, 20, 10), (-3600, 20, 20 - 120), (3600, 20, 3600)],
    ids=["in step", "a node's clock is an hour behind", "it is an hour ahead"],
)
def test_the_arrival_of_the_last_heartbeat_tells_the_uptime_whatever_the_clock_of_the_node(
    sent: float, heard: float, arrived: float
) -> None:
    scene = Scene()

    scene.hear(beat("gpu-1", sent - 60, uptime=540.5), beat("gpu-1", sent, uptime=600.5), seconds=heard)
    assert scene.watch.began == {"gpu-1": (BOOT_A, ns(arrived - 600.5))}
    scene.hear(beat("gpu-1", sent - 30, uptime=570.5), seconds=heard + 1)
    assert scene.watch.began == {"gpu-1": (BOOT_A, ns(arrived - 600.5))}

    scene.nodes = {}
    scene.hear(seconds=heard + 2)
    assert scene.watch.began == {}


def test_overruns_and_lines_that_are_not_understood_are_kept_for_the_lease_and_the_next_controller() -> None:
    lines = [
        LogLine(Source.KERNEL, ns(n), "NVRM: board 3: Xid (PCI:0000:3d:00): 79", {}, name)
        for n, name in ((5, "gpu-2"), (6, "x"))
    ]
    scene = Scene()

    scene.watch.unparsed.count(lines)
    lost = LogLine(Source.KERNEL, ns(5), f"kmsg/1 gap boot={BOOT_A} from=100 to=140 lost=41", {}, "gpu-2")

    coverage = scene.hear(lost, lost, seconds=20)
    assert scene.hear(seconds=30).lost == {"gpu-2": Loss(41, ns(5), BOOT_A)}
    assert coverage.unparsed == {"gpu-2": Unparsed(1, ns(5))}
    assert Scene(before=coverage, at_seconds=60).hear(seconds=80).unparsed == coverage.unparsed
    assert scene.hear(seconds=86_500).unparsed == {}


def test_two_live_boots_make_a_name_ambiguous_on_the_lease_and_for_the_next_controller() -> None:
    scene = Scene()
    lines = [
        beat("gpu-1", 60.0 * minute + shift, boot)
        for minute in range(5)
        for shift, boot in ((0, BOOT_A), (20, BOOT_B))
    ]
    coverage = scene.hear(*lines, seconds=300)
    assert coverage.ambiguous == scene.watch.ambiguous == {"gpu-1"}

    successor = Scene(before=coverage, at_seconds=310)

    assert successor.watch.ambiguous == {"gpu-1"}
    assert successor.hear(beat("gpu-1", 300), seconds=320).ambiguous == {"gpu-1"}
    assert successor.hear(beat("gpu-1", 1290), seconds=1300).ambiguous == frozenset()


def test_a_boot_that_faults_wait_for_is_left_when_the_present_one_is_heard_and_counted_until_then() -> None:
    scene = Scene()
    cluster = Cluster(scene.nodes)
    cluster.tick(fault(boot=BOOT_B, stamp=3))
    two_machines = Scene(before=Coverage(NOON, ambiguous=frozenset({"gpu-1"})))
    scene.nodes = two_machines.nodes = cluster.nodes
    scene.hear(beat("gpu-1", 0), seconds=10)
    assert scene.watch.left == {}

    scene.hear(seconds=611)
    assert (scene.watch.left, scene.pending()) == ({}, 1)
    scene.hear(beat("gpu-1", 620), seconds=640)
    assert scene.watch.left == {"gpu-1": {BOOT_B}}

    two_machines.hear(beat("gpu-1", 0), seconds=10)
    two_machines.hear(beat("gpu-1", 300), seconds=310)
    assert two_machines.watch.left == {}  # under an ambiguous name nobody leaves a boot


def test_a_node_made_anew_is_read_since_its_boot_and_where_that_is_unknown_for_a_day() -> None:
    scene = Scene()
    scene.hear(beat("gpu-1", 0, uptime=600), seconds=10)
    scene.watch.observe(dict(scene.nodes))
    for name in ("gpu-1", "gpu-2"):
        machine = Machine("uid-anew", f"system-{name}", BOOT_A)
        scene.nodes[name] = replace(scene.nodes[name], machine=machine, created_ns=ns(100))

    scene.seconds = 110
    scene.watch.observe(dict(scene.nodes))

    assert sorted(scene.wanted) == [("gpu-1", ns(-600)), ("gpu-2", ns(110 - 86_400))]


def test_the_readers_of_faults_learn_of_a_gap_when_it_opens_and_when_it_is_closed() -> None:
    scene = Scene()
    scene.hear(beat("gpu-1", 0), seconds=20)
    for seconds in range(220, 920, 100):
        scene.hear(seconds=seconds)
    assert scene.looks[0].nodes == {"gpu-1"}  # before it is called unknown
    scene.hear(beat("gpu-1", 900), seconds=920)
    assert scene.revisited[-1] == ((ns(0), ns(900)),)

    scene.hear(*(beat("gpu-1", seconds) for seconds in range(60, 900, 60)), seconds=940)

    assert len(scene.revisited[-1]) == 0


def beats(node: str, first: int, last: int, boot: str = BOOT_A) -> list[LogLine]:
    """Heartbeats each minute, from ``first`` to ``last`` (minutes after noon)."""
    return [beat(node, 60.0 * minute, boot) for minute in range(first, last + 1)]


def test_hearing_gives_the_boot_and_its_heartbeats_of_the_nodes_that_are_heard_now() -> None:
    scene = Scene()
    scene.hear(*beats("gpu-1", 0, 3), *beats("gpu-2", 0, 3), beat("worker-9", 60), seconds=200)

    assert scene.watch.hearing == {name: Hearing(BOOT_A, ns(0), ns(180)) for name in ("gpu-1", "gpu-2")}
    scene.hear(*beats("gpu-1", 5, 6, BOOT_B), seconds=370)
    assert scene.watch.hearing["gpu-1"] == Hearing(BOOT_B, ns(300), ns(360))
    scene.hear(*beats("gpu-1", 7, 9, BOOT_B), seconds=541)

    assert scene.watch.hearing.keys() == {"gpu-1"}  # gpu-2 is silent, gpu-3 was never heard
    scene.watch.update(scene.nodes, unread_since_ns=ns(0))
    assert scene.watch.hearing == {}


def test_two_machines_under_one_name_are_not_heard() -> None:
    scene = Scene()
    two = [line for boot in (BOOT_A, BOOT_B) for line in beats("gpu-1", 0, 5, boot)]

    scene.hear(*two, *beats("gpu-2", 0, 5), seconds=310)

    assert scene.watch.hearing.keys() == {"gpu-2"}


def test_a_gap_of_a_long_reboot_is_no_gap_of_the_new_boot_and_a_later_gap_is() -> None:
    scene = Scene()
    scene.hear(*beats("gpu-1", 0, 3), seconds=200)
    scene.hear(*beats("gpu-1", 13, 14, BOOT_B), seconds=850)
    assert scene.watch.hearing["gpu-1"] == Hearing(BOOT_B, ns(780), ns(840), has_gap=False, has_any_gap=True)

    scene.hear(*beats("gpu-1", 24, 25, BOOT_B), seconds=1510)

    assert scene.watch.hearing["gpu-1"] == Hearing(BOOT_B, ns(780), ns(1500), has_gap=True, has_any_gap=True)


def test_a_controller_that_starts_after_a_gap_knows_from_the_record_whether_the_gap_is_of_this_boot() -> None:
    scene = Scene()
    cluster = Cluster(scene.nodes)
    cluster.tick(fault(boot=BOOT_A))
    state = cluster.nodes["gpu-1"]
    scene.hear(beat("gpu-1", 0), seconds=10)
    coverage = scene.hear(beat("gpu-1", 780, BOOT_B), seconds=800)
    for seen, expected in ((60, True), (700, False)):
        met = replace(state.record.incidents[0], met_ns=ns(seen), met_by=MetBy.REBOOT)
        successor = Scene(before=coverage, at_seconds=810)
        successor.nodes["gpu-1"] = replace(state, record=replace(state.record, incidents=(met,)))

        successor.hear(beat("gpu-1", 840, BOOT_B), seconds=850)

        assert successor.watch.hearing["gpu-1"].has_gap is expected, f"reboot seen after {seen} s"


def test_a_gap_that_nobody_reads_any_more_is_told_by_its_end() -> None:
    scene = Scene()
    scene.hear(*beats("gpu-1", 0, 3), seconds=200)
    assert scene.watch.gaps_given_up == {"gpu-1": ns(0)}  # what was before the first heartbeat is unknown
    scene.hear(*beats("gpu-1", 13, 14), seconds=850)
    assert scene.watch.gaps_given_up == {"gpu-1": ns(0)}

    for minute in range(15, 1460):
        scene.watch.hear([beat("gpu-1", 60.0 * minute)], ns(60 * minute + 10))
    scene.hear(seconds=60 * 1459 + 20)

    assert scene.watch.gaps_given_up == {"gpu-1": ns(780)}
    assert not scene.watch.hearing["gpu-1"].has_any_gap
    scene.nodes.pop("gpu-1")
    scene.hear(seconds=60 * 1459 + 40)
    assert scene.watch.gaps_given_up == {}


def test_records_that_the_kernel_overwrote_are_lost_for_good() -> None:
    scene = Scene()
    lost = LogLine(Source.KERNEL, ns(90), f"kmsg/1 gap boot={BOOT_A} from=100 to=140 lost=41", {}, "gpu-1")

    scene.hear(*beats("gpu-1", 0, 3), lost, seconds=200)

    assert scene.watch.gaps_given_up == {"gpu-1": ns(90)}


def test_a_new_controller_hears_from_its_own_heartbeats_and_knows_a_gap_between_two_controllers() -> None:
    scene = Scene()
    before = scene.hear(*beats("gpu-1", 0, 3), *beats("gpu-2", 0, 3), seconds=200)
    soon, late = Scene(before, at_seconds=300), Scene(before, at_seconds=1000)
    soon.hear(seconds=301)
    assert soon.watch.hearing == {}

    soon.hear(*beats("gpu-1", 4, 5), *beats("gpu-3", 4, 5), seconds=310)
    late.hear(*beats("gpu-1", 12, 16), seconds=1001)

    assert soon.watch.hearing["gpu-1"].first_ns == ns(240)
    assert soon.watch.gaps_given_up == {"gpu-3": ns(240)}
    assert late.watch.gaps_given_up == {"gpu-1": ns(720)}


def waits_to_return(scene: Scene) -> None:
    """Let ``gpu-1`` be tainted for a fault of boot A, and in boot B now."""
    cluster = Cluster(scene.nodes)
    cluster.tick(fault(boot=BOOT_A))
    state = cluster.nodes["gpu-1"]
    machine = replace(state.machine, boot_id=BOOT_B)
    scene.nodes["gpu-1"] = replace(state, machine=machine, taints=(OURS,), created_ns=ns(-900_000))


def test_a_boot_whose_beginning_nobody_heard_has_lost_records_also_for_the_next_controller() -> None:
    scene = Scene()
    scene.hear(*beats("gpu-1", 0, 3), seconds=200)
    waits_to_return(scene)

    coverage = scene.hear(cut("gpu-1", 299, BOOT_B, 39_999), *beats("gpu-1", 5, 6, BOOT_B), seconds=370)

    assert scene.watch.lost_boots == {"gpu-1": BOOT_B}
    assert coverage.lost == {"gpu-1": Loss(40_000, ns(299), BOOT_B)}
    successor = Scene(coverage, at_seconds=380)
    waits_to_return(successor)
    for hours in (1, 30):  # longer than a gap would be kept
        coverage = successor.hear(beat("gpu-1", 3600 * hours, BOOT_B), seconds=3600 * hours + 10)
        assert successor.watch.lost_boots == {"gpu-1": BOOT_B}


def test_a_reader_that_is_replaced_in_a_boot_that_was_heard_has_lost_nothing() -> None:
    scene = Scene()
    scene.hear(*beats("gpu-1", 0, 3), beat("gpu-1", 240, sequence=5_000), seconds=250)

    coverage = scene.hear(beat("gpu-1", 301), cut("gpu-1", 300, BOOT_A, 4_999), seconds=310)

    assert (coverage.lost, scene.watch.lost_boots) == ({}, {})
    successor = Scene(coverage, at_seconds=500)  # its first heartbeats are those of the new reader
    assert successor.hear(cut("gpu-1", 200, BOOT_A, 4_999), beat("gpu-1", 301), seconds=510).lost == {}


def test_lines_that_arrive_out_of_order_are_heard_in_order() -> None:
    scene = Scene()

    coverage = scene.hear(cut("gpu-1", 60, BOOT_A, 6), *beats("gpu-1", 0, 2), seconds=130)

    assert coverage.lost == {}


def test_the_beginning_of_a_boot_is_read_again_before_a_node_may_return_in_it() -> None:
    """The gap at its beginning may have come late, or while no controller ran."""
    scene = Scene()
    scene.hear(*beats("gpu-1", 0, 1), seconds=70)
    waits_to_return(scene)
    scene.looks.clear()

    scene.hear(beat("gpu-1", 260, BOOT_B, uptime=100), seconds=270)

    assert scene.looks == [Reread(ns(260 - 100 - 300), ns(260), frozenset({"gpu-1"}))]
    assert scene.watch.hearing["gpu-1"].has_gap
    scene.hear(cut("gpu-1", 199, BOOT_B, 40), beat("gpu-1", 200, BOOT_B, uptime=40), seconds=280)
    scene.looks.clear()
    scene.hear(beat("gpu-1", 320, BOOT_B, uptime=160), seconds=330)
    assert scene.looks == []
    assert scene.watch.hearing["gpu-1"] == Hearing(BOOT_B, ns(260), ns(320))  # a silence there is not known
    assert scene.watch.lost_boots == {"gpu-1": BOOT_B}


def test_only_of_nodes_that_may_return_is_the_beginning_of_a_boot_read_again() -> None:
    scene = Scene()
    cluster = Cluster(scene.nodes)
    cluster.tick(fault(boot=BOOT_A))
    scene.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=(OURS,))

    scene.hear(*(beat(name, 10) for name in scene.nodes), seconds=20)

    assert scene.looks == []


def test_a_node_that_is_still_read_back_is_read_back_by_the_next_controller_too() -> None:
    """A controller that ends meanwhile has written a part of its faults to the record."""
    scene = Scene(Coverage(at(0)), at_seconds=600)
    made = replace(scene.nodes["gpu-1"], created_ns=ns(300))
    scene.nodes["gpu-1"] = made
    scene.watch.observe(dict(scene.nodes))
    assert [name for name, _ in scene.wanted] == ["gpu-1"]
    coverage = scene.hear(seconds=610)
    assert coverage.backfill_ns == ns(300)
    cluster = Cluster({"gpu-1": made})
    cluster.tick(fault(boot=BOOT_A))

    successor = Scene(coverage, at_seconds=700)
    successor.nodes["gpu-1"] = cluster.nodes["gpu-1"]
    successor.watch.observe(dict(successor.nodes))
    assert [name for name, _ in successor.wanted] == ["gpu-1"]

    successor.backfilling.clear()
    coverage = successor.hear(seconds=710)
    assert coverage.backfill_ns is None
    last = Scene(coverage, at_seconds=800)
    last.nodes["gpu-1"] = cluster.nodes["gpu-1"]
    last.watch.observe(dict(last.nodes))
    assert last.wanted == []


def test_a_node_that_has_not_told_its_boot_is_still_to_be_read() -> None:
    scene = Scene(Coverage(at(0)), at_seconds=600)
    state = scene.nodes["gpu-1"]
    machine = replace(state.machine, boot_id=None)
    scene.nodes["gpu-1"] = replace(state, machine=machine, created_ns=ns(300))

    scene.watch.observe(dict(scene.nodes))

    assert scene.wanted == []
    assert scene.hear(seconds=610).backfill_ns == ns(300)


def test_a_node_for_which_too_many_others_wait_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(Coverage(at(0)), at_seconds=600)
    scene.nodes["gpu-1"] = replace(scene.nodes["gpu-1"], created_ns=ns(300))
    scene.room = False

    scene.watch.observe(dict(scene.nodes))

    assert "gpu-1 registered again, but too many nodes wait to be read" in caplog.text
