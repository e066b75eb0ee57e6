"""A node that falls silent makes one Event; much of the fleet at once makes one Event too."""

from __future__ import annotations

import logging

import pytest

from konductor_like.controller.fleet.coverage import CoverageChanges, OpenSpan
from konductor_like.controller.fleet.coverage_report import CoverageReport
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.detection import Overrun
from konductor_like.model import Change, Coverage, EventReason, Gap, NodeState
from tests.policy.scenes import NOON, fleet, ns


class Scene:
    """A report, with the Events it sends and the log it writes."""

    def __init__(self, size: int, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "konductor_like")
        self.caplog = caplog
        self.nodes = fleet(size)
        self.metrics = Metrics()
        self.events: list[tuple[str, EventReason | None, str]] = []
        self.fleet_events: list[str] = []
        self.report = CoverageReport(
            self.metrics, self, lambda reason, message: self.fleet_events.append(f"{reason}: {message}")
        )

    def announce(self, state: NodeState, change: Change) -> None:
        self.events.append((state.name, change.event, change.message))

    def tell(self, seconds: float, changes: CoverageChanges | None = None, **coverage: object) -> None:
        self.report.tell(changes or CoverageChanges(), Coverage(NOON, **coverage), self.nodes, ns(seconds))  # type: ignore[arg-type]  # its own fields

    def silent(self, *names: str, seconds: float, since: float = 0) -> None:
        self.tell(seconds, CoverageChanges(silent=[(name, (ns(since), None)) for name in names]))

    @property
    def log(self) -> list[str]:
        return [record.message for record in self.caplog.records]


def names(*numbers: int) -> list[str]:
    return [f"gpu-{number}" for number in numbers]


@pytest.mark.parametrize("size", [100, 7], ids=["", "in a fleet of few"])
def test_a_silent_node_has_one_event_of_its_own(size: int, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(size, caplog)
    scene.silent("gpu-7", "gpu-6", seconds=301)
    scene.tell(330, CoverageChanges(heard=[("gpu-6", (ns(0), ns(0)))]))  # at once: not worth a word
    assert scene.events == []

    for seconds in (376, 400, 430):
        scene.tell(seconds)

    assert [(name, reason) for name, reason, _ in scene.events] == [("gpu-7", EventReason.SILENT)]
    assert "since 2026-03-04T12:00:00Z" in scene.events[0][2]
    assert scene.fleet_events == []
    assert len(scene.log) == 1


def test_more_than_a_twentieth_of_the_fleet_is_one_event_however_it_is_noticed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Heartbeats come once a minute, so a pipeline that fails silences one node after the other."""
    scene = Scene(1000, caplog)
    for step in range(60):
        scene.silent(*names(*range(10 * step + 1, 10 * step + 11)), seconds=301 + step, since=step)
    scene.tell(400)

    assert scene.events == []
    assert len(scene.fleet_events) == 1
    assert "600 nodes" in scene.fleet_events[0]
    assert "and 595 more" in scene.fleet_events[0]
    assert len(scene.log) == 1


def test_after_an_event_about_the_fleet_further_silent_nodes_get_no_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(100, caplog)
    scene.silent(*names(*range(1, 21)), seconds=301)
    scene.tell(377)
    scene.silent("gpu-50", seconds=400)
    scene.tell(500)
    scene.silent("gpu-51", seconds=1000)
    scene.tell(1100)

    assert len(scene.fleet_events) == 1
    assert [name for name, _, _ in scene.events] == ["gpu-51"]
    assert len(scene.log) == 3


def heard(*names: str) -> CoverageChanges:
    return CoverageChanges(heard=[(name, (ns(0), ns(900))) for name in names])


@pytest.mark.parametrize("size", [100, 7], ids=["", "in a fleet of few"])
def test_the_end_of_a_reported_silence_is_one_event_and_a_short_silence_has_none(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(size, caplog)
    scene.silent("gpu-6", "gpu-7", seconds=301)
    scene.tell(330, heard("gpu-6"))
    scene.tell(400)
    scene.events.clear()

    scene.tell(900, heard("gpu-7", "gpu-8"))
    assert scene.events == []
    for seconds in (976, 1000, 1100):
        scene.tell(seconds)

    [(name, reason, message)] = scene.events
    assert (name, reason) == ("gpu-7", EventReason.RESTORED)
    assert "The silence began at 2026-03-04T12:00:00Z." in message


def test_a_node_that_falls_silent_again_at_once_has_neither_an_end_nor_a_second_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(100, caplog)
    scene.silent("gpu-7", seconds=301)
    scene.tell(400)

    scene.tell(900, heard("gpu-7"))
    scene.silent("gpu-7", seconds=910)
    for seconds in (990, 1100):
        scene.tell(seconds)
    assert [reason for _, reason, _ in scene.events] == [EventReason.SILENT]

    scene.tell(2000, heard("gpu-7"))
    scene.tell(2100)
    assert [reason for _, reason, _ in scene.events] == [EventReason.SILENT, EventReason.RESTORED]


def test_much_of_the_fleet_heard_again_is_one_event_with_the_number_that_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(100, caplog)
    scene.silent(*names(*range(1, 22)), seconds=301)
    scene.tell(377)
    scene.silent("gpu-50", seconds=400)  # no Event of its own so soon after
    scene.tell(500)
    del scene.nodes["gpu-20"], scene.nodes["gpu-21"]

    scene.tell(900, heard(*names(*range(1, 18)), "gpu-20", "gpu-50"))
    scene.tell(980)

    assert scene.events == []
    _, again = scene.fleet_events
    assert again.startswith("KernelLogRestored: The kernel log of 17 nodes arrives again: gpu-1, gpu-10, ")
    assert "That of 2 is still missing." in again


def test_a_silence_after_the_told_end_of_the_fleets_is_told_although_the_fleets_was_minutes_ago(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(100, caplog)
    scene.silent(*names(*range(1, 22)), seconds=301)
    scene.tell(377)
    scene.tell(400, heard(*names(*range(1, 22))))
    scene.tell(480)

    scene.silent("gpu-3", seconds=500)
    scene.tell(580)

    assert [(name, reason) for name, reason, _ in scene.events] == [("gpu-3", EventReason.SILENT)]


def test_gaps_of_many_nodes_open_and_close_with_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(100, caplog)
    missed: list[tuple[str, OpenSpan]] = [
        (name, (ns(0), ns(900 + number))) for number, name in enumerate(names(*range(1, 31)))
    ]

    scene.tell(950, CoverageChanges(heard=missed))
    scene.tell(1000, CoverageChanges(closed=missed))
    scene.tell(1100, CoverageChanges(given_up=missed[:1]))

    assert len(scene.log) == 3
    assert "gpu-1, gpu-10, gpu-11, gpu-12, gpu-13 and 25 more arrives again" in scene.log[0]
    assert "from 2026-03-04T12:00:00Z to 2026-03-04T12:15:29Z arrived late" in scene.log[1]
    assert "too old now" in scene.log[2]


def test_an_overrun_is_logged_with_its_number_and_has_an_event(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(2, caplog)

    scene.report.overran("gpu-1", Overrun("boot-a", 100, 140, 41), scene.nodes["gpu-1"])

    assert scene.events[0][:2] == ("gpu-1", EventReason.OVERRUN)
    assert "41 records" in scene.events[0][2]
    assert scene.metrics.registry.get_sample_value("konductor_like_kernel_records_lost_total") == 41


def test_logs_that_are_heard_for_the_first_time_without_their_beginning_are_one_line_and_no_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(2, caplog)
    scene.report.began_late([])
    scene.report.began_late([(f"gpu-{n}", Overrun("boot-a", 0, 40, 41)) for n in range(1, 9)])

    assert scene.events == []
    assert len(scene.log) == 1
    assert "gpu-1, gpu-2, gpu-3, gpu-4, gpu-5 and 3 more is heard for the first time" in scene.log[0]
    assert scene.metrics.registry.get_sample_value("konductor_like_kernel_records_lost_total") == 0


def test_nodes_that_registered_again_are_one_line_and_those_that_cannot_be_read_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(2, caplog)
    scene.report.registered_again([], [])
    scene.report.registered_again({"gpu-2", "gpu-1"}, ["gpu-3"])

    assert [line.partition(" registered again")[0] for line in scene.log] == ["gpu-1, gpu-2", "gpu-3"]
    assert "konductor-like taint" in scene.log[1]


def test_an_ambiguous_name_and_a_boot_that_is_over_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(2, caplog)
    for seconds in (0, 20, 40):
        scene.tell(seconds, ambiguous=frozenset({"gpu-1"}))
    scene.tell(60)

    assert [(name, reason) for name, reason, _ in scene.events] == [
        ("gpu-1", EventReason.AMBIGUOUS),
        ("gpu-1", EventReason.RESTORED),
    ]
    scene.tell(70, ambiguous=frozenset({"gpu-2"}))
    del scene.nodes["gpu-2"]
    scene.tell(80)
    assert [reason for _, reason, _ in scene.events[2:]] == [EventReason.AMBIGUOUS]
    for _ in range(3):
        scene.report.left({"gpu-1": frozenset({"boot-b"})})
    assert len(scene.log) == 5


def test_the_metrics_count_nodes(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(10, caplog)
    gaps = (Gap(ns(0), None, frozenset({"gpu-1"})), Gap(ns(0), ns(600), None))

    scene.tell(0, gaps=gaps, ambiguous=frozenset({"gpu-2"}), unknown=frozenset({"gpu-1"}))

    sample = scene.metrics.registry.get_sample_value
    assert sample("konductor_like_nodes_ambiguous") == 1
    assert sample("konductor_like_nodes_coverage", {"state": "unknown"}) == 1
