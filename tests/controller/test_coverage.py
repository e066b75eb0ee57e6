"""A silent node is unknown, not healthy; a node that was never heard is not measured (rule 14)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.controller.fleet.coverage import GAPS_MOST, LOSSES_MOST, CoverageTracker, grouped, joined
from konductor_like.loki.readers.heartbeat import Reread
from konductor_like.model import Coverage, CoverageState, Loss

SECOND = 1_000_000_000
START = 1_772_625_600 * SECOND
FLEET = dict.fromkeys(("gpu-1", "gpu-2", "gpu-3"), 0)


def tracker(before: Coverage | None = None) -> CoverageTracker:
    return CoverageTracker(300, before=before, now_ns=START)


def test_a_heartbeat_makes_a_node_measured_and_its_end_makes_it_unknown() -> None:
    watch = tracker()
    watch.note_heartbeat("gpu-1", START)

    coverage = watch.coverage(FLEET, START + 300 * SECOND)
    assert coverage.of("gpu-1") is CoverageState.MEASURED
    assert coverage.of("gpu-2") is CoverageState.NOT_MEASURED
    assert watch.coverage(FLEET, START + 301 * SECOND).of("gpu-1") is CoverageState.UNKNOWN


def test_an_old_heartbeat_that_arrives_late_makes_no_node_older() -> None:
    watch = tracker()
    watch.note_heartbeat("gpu-1", START + 100 * SECOND)
    watch.note_heartbeat("gpu-1", START)

    assert watch.coverage(FLEET, START + 390 * SECOND).of("gpu-1") is CoverageState.MEASURED


def test_only_the_exceptions_are_listed_either_way() -> None:
    mostly = tracker()
    for name in ("gpu-1", "gpu-2"):
        mostly.note_heartbeat(name, START)
    hardly = tracker()
    hardly.note_heartbeat("gpu-3", START)

    assert mostly.coverage(FLEET, START).listed == {"gpu-3"}
    assert hardly.coverage(FLEET, START).listed == {"gpu-3"}
    assert mostly.coverage(FLEET, START).of("gpu-1") is CoverageState.MEASURED
    assert hardly.coverage(FLEET, START).of("gpu-1") is CoverageState.NOT_MEASURED


def test_a_new_controller_expects_the_nodes_that_the_last_one_heard() -> None:
    before = Coverage(
        at=datetime(2026, 3, 4, tzinfo=UTC), unknown=frozenset({"gpu-2"}), listed=frozenset({"gpu-1"})
    )
    watch = tracker(before)

    early, late = watch.coverage(FLEET, START + SECOND), watch.coverage(FLEET, START + 301 * SECOND)

    assert [early.of(name).value for name in sorted(FLEET)] == ["measured", "unknown", "not measured"]
    assert [late.of(name).value for name in sorted(FLEET)] == ["unknown", "unknown", "not measured"]


def test_a_node_that_left_the_cluster_is_forgotten() -> None:
    watch = tracker()
    watch.note_heartbeat("gpu-1", START)
    watch.coverage({"gpu-2": 0}, START)

    assert watch.coverage(FLEET, START).of("gpu-1") is CoverageState.NOT_MEASURED


def test_a_node_that_joined_while_no_controller_ran_was_never_measured() -> None:
    before = Coverage(at=datetime(2026, 3, 4, tzinfo=UTC), listed_are_measured=False)
    joined_ns = round(before.at.timestamp() * 1e9) + SECOND

    coverage = tracker(before).coverage({"gpu-1": 0, "gpu-9": joined_ns}, START)

    assert coverage.of("gpu-1") is CoverageState.MEASURED
    assert coverage.of("gpu-9") is CoverageState.NOT_MEASURED


MINUTE = 60 * SECOND


class Fleet:
    """Nodes with a heartbeat a minute, a collector that may keep them back, and a tracker that reads."""

    def __init__(self, size: int = 3, before: Coverage | None = None) -> None:
        self.names = {f"gpu-{i}": 0 for i in range(1, size + 1)}
        self.watch = CoverageTracker(300, before=before, now_ns=START)
        self.at = 0
        self.last = Coverage(at=datetime(2026, 3, 4, tzinfo=UTC))

    def pass_(self, minutes: int, *, silent: Iterable[str] = (), readable: bool = True) -> Coverage:
        """Let minutes pass in which all nodes but the silent ones are heard, if Loki can be read."""
        for _ in range(minutes):
            self.at += 1
            if readable:
                for name in self.names.keys() - set(silent):
                    self.watch.note_heartbeat(name, self.now)
                self.watch.read_up_to(self.now, self.now)
            self.last = self.watch.coverage(self.names, self.now)
        return self.last

    def deliver(self, name: str, first: int, last: int) -> Coverage:
        """Read the heartbeats of these minutes late."""
        for minute in range(first, last + 1):
            self.watch.note_heartbeat(name, START + minute * MINUTE)
        self.last = self.watch.coverage(self.names, self.now)
        return self.last

    @property
    def now(self) -> int:
        return START + self.at * MINUTE


def spans(coverage: Coverage) -> list[tuple[int, int | None, list[str]]]:
    """Return the gaps in minutes since the start, with their nodes."""
    return [
        (
            (gap.start_ns - START) // MINUTE,
            None if gap.end_ns is None else (gap.end_ns - START) // MINUTE,
            [name for name in sorted(FLEET) if gap.concerns(name)],
        )
        for gap in coverage.gaps
    ]


def test_a_silent_node_has_a_gap_that_stays_whole_until_its_heartbeats_and_then_its_lines_were_read() -> None:
    fleet = Fleet()
    fleet.pass_(10)
    assert spans(fleet.pass_(5, silent=["gpu-1"])) == []
    assert spans(fleet.pass_(15, silent=["gpu-1"])) == [(10, None, ["gpu-1"])]
    assert fleet.last.of("gpu-1") is CoverageState.UNKNOWN

    assert spans(fleet.pass_(1)) == [(10, 31, ["gpu-1"])]
    assert fleet.watch.revisit_spans == ((START + 10 * MINUTE, START + 31 * MINUTE),)
    assert spans(fleet.deliver("gpu-1", 25, 30)) == [(10, 31, ["gpu-1"])]  # with a silence before them
    assert fleet.watch.revisit_spans == ((START + 10 * MINUTE, START + 31 * MINUTE),)
    assert spans(fleet.deliver("gpu-1", 11, 20)) == [(10, 31, ["gpu-1"])]
    assert fleet.watch.revisit_spans == ((START + 20 * MINUTE, START + 31 * MINUTE),)
    assert spans(fleet.deliver("gpu-1", 21, 30)) == [(10, 31, ["gpu-1"])]
    assert len(fleet.watch.revisit_spans) == 0
    assert [name for name, _ in fleet.watch.take_changes().closed] == []
    assert spans(fleet.pass_(2)) == []
    assert [name for name, _ in fleet.watch.take_changes().closed] == ["gpu-1"]


@pytest.mark.parametrize("found", [0, 20])
def test_after_two_outages_a_node_has_one_longer_gap(found: int) -> None:
    fleet = Fleet()
    fleet.pass_(10)
    fleet.pass_(20, silent=["gpu-1"])
    fleet.pass_(1)
    fleet.deliver("gpu-1", 11, found)
    fleet.pass_(1)
    fleet.pass_(10, silent=["gpu-1"])

    assert spans(fleet.last) == [(10, None, ["gpu-1"])]
    assert spans(fleet.pass_(1)) == [(10, 43, ["gpu-1"])]
    fleet.deliver("gpu-1", found + 1, 42)
    assert spans(fleet.pass_(2)) == []


def test_a_gap_that_is_too_old_is_given_up_and_reported() -> None:
    fleet = Fleet()
    fleet.pass_(10)
    fleet.pass_(20, silent=["gpu-1"])
    fleet.pass_(1)
    fleet.watch.take_changes()

    assert spans(fleet.pass_(24 * 60 - 1)) == [(10, 31, ["gpu-1"])]
    assert spans(fleet.pass_(1)) == []
    changes = fleet.watch.take_changes()
    assert [name for name, _ in changes.given_up] == ["gpu-1"]
    assert changes.closed == []


def test_while_loki_cannot_be_read_the_whole_fleet_has_one_gap_and_nobody_is_called_silent() -> None:
    fleet = Fleet()
    fleet.pass_(10)

    coverage = fleet.pass_(20, readable=False)

    assert spans(coverage) == [(10, None, sorted(FLEET))]
    assert {coverage.of(name) for name in FLEET} == {CoverageState.UNKNOWN}
    assert fleet.watch.take_changes().silent == []
    assert fleet.watch.rereads(fleet.now) == []


def test_after_loki_is_back_each_node_closes_its_own_gap() -> None:
    fleet = Fleet()
    fleet.pass_(10)
    fleet.pass_(20, readable=False)
    fleet.pass_(1)
    assert spans(fleet.last) == [(10, 31, sorted(FLEET))]

    fleet.deliver("gpu-1", 11, 30)
    fleet.deliver("gpu-2", 11, 30)
    fleet.pass_(2, silent=["gpu-3"])

    assert spans(fleet.last) == [(10, 31, ["gpu-3"])]


def test_nodes_that_are_not_measured_keep_lokis_gap_until_its_age_passes() -> None:
    fleet = Fleet()
    fleet.pass_(10, silent=["gpu-3"])
    fleet.pass_(20, readable=False)
    fleet.pass_(1, silent=["gpu-3"])
    fleet.deliver("gpu-1", 11, 30)
    fleet.deliver("gpu-2", 11, 30)
    fleet.pass_(2, silent=["gpu-3"])

    assert spans(fleet.last) == [(10, 31, ["gpu-3"])]
    assert spans(fleet.pass_(24 * 60, silent=["gpu-3"])) == []


def test_the_next_controller_goes_on_with_the_gaps_of_the_last() -> None:
    fleet = Fleet()
    fleet.pass_(10)
    fleet.pass_(20, silent=["gpu-1", "gpu-2"])
    fleet.pass_(1, silent=["gpu-2"])
    before = fleet.last

    fleet.watch = CoverageTracker(300, before=before, now_ns=fleet.now)
    restarted = fleet.pass_(1, silent=["gpu-2"])

    assert spans(restarted) == [(10, 31, ["gpu-1"]), (10, None, ["gpu-2"])]
    assert spans(fleet.pass_(1))[-1] == (10, 33, ["gpu-2"])
    fleet.deliver("gpu-2", 11, 32)
    fleet.deliver("gpu-1", 11, 30)
    assert spans(fleet.pass_(2)) == []


def test_after_a_time_without_a_controller_only_nodes_that_are_not_heard_at_once_have_a_gap() -> None:
    fleet = Fleet()
    fleet.pass_(10)
    before = fleet.last
    fleet.at += 120

    fleet.watch = CoverageTracker(300, before=before, now_ns=fleet.now)

    assert spans(fleet.pass_(6, silent=["gpu-1"])) == [(10, None, ["gpu-1"])]


def test_before_a_node_is_called_unknown_its_late_heartbeats_are_read_once_more() -> None:
    fleet = Fleet()
    fleet.pass_(10)
    for _ in range(4):
        fleet.pass_(1, silent=["gpu-1"])
        assert fleet.watch.rereads(fleet.now) == []

    fleet.pass_(1, silent=["gpu-1"])
    assert fleet.watch.rereads(fleet.now) == [Reread(START + 10 * MINUTE, fleet.now, frozenset({"gpu-1"}))]
    fleet.deliver("gpu-1", 14, 14)  # a collector that lags
    assert fleet.pass_(1, silent=["gpu-1"]).of("gpu-1") is CoverageState.MEASURED


def test_the_heartbeats_of_a_gap_are_read_again_at_once_then_every_ten_minutes_and_later_every_hour() -> None:
    fleet = Fleet()
    fleet.pass_(10)
    fleet.pass_(20, silent=["gpu-1"])
    fleet.watch.rereads(fleet.now)
    fleet.pass_(1)
    assert fleet.watch.rereads(fleet.now) == [
        Reread(START + 10 * MINUTE, START + 31 * MINUTE, frozenset({"gpu-1"}))
    ]

    rounds = []
    for minute in range(23 * 60):
        fleet.pass_(1)
        if fleet.watch.rereads(fleet.now):
            rounds.append(minute)

    steps = [later - earlier for earlier, later in pairwise(rounds)]
    assert steps[:5] == [10] * 5
    assert set(steps[7:]) == {60}
    assert len(rounds) < 32


def test_a_lasting_silence_gives_the_readers_a_span_that_does_not_change() -> None:
    fleet = Fleet()
    fleet.pass_(10)
    fleet.pass_(6, silent=["gpu-1"])
    told = fleet.watch.revisit_spans

    fleet.pass_(100, silent=["gpu-1"])

    assert fleet.watch.revisit_spans == told == ((START + 10 * MINUTE, START + 70 * MINUTE),)
    assert spans(fleet.deliver("gpu-1", 11, 20)) == [(20, None, ["gpu-1"])]


def test_an_overrun_is_counted_once_however_often_its_line_is_read() -> None:
    fleet = Fleet()
    fleet.pass_(1)

    told = [fleet.watch.overrun("gpu-1", "boot-a", 100, 41, START) for _ in range(3)]
    told.append(fleet.watch.overrun("gpu-1", "boot-a", 300, 1, START + MINUTE))

    assert told == [True, False, False, True]
    assert fleet.pass_(1).lost == {"gpu-1": Loss(42, START + MINUTE, "boot-a")}
    restarted = CoverageTracker(300, before=fleet.last, now_ns=fleet.now)
    assert not restarted.overrun("gpu-1", "boot-a", 300, 1, START + MINUTE)


def test_a_loss_is_remembered_for_a_day_and_of_a_node_that_waits_to_return_for_as_long_as_it_waits() -> None:
    fleet = Fleet()
    fleet.pass_(1)
    for name in ("gpu-1", "gpu-2"):
        fleet.watch.overrun(name, "boot-a", 0, 41, START)
    later = START + 25 * 3600 * SECOND

    waiting = fleet.watch.coverage(fleet.names, later, ["gpu-1"])

    assert waiting.lost_boots == {"gpu-1": "boot-a"}
    assert fleet.watch.coverage(fleet.names, later).lost == {}


def test_of_many_losses_those_of_nodes_that_wait_to_return_are_kept() -> None:
    fleet = Fleet(size=LOSSES_MOST + 50)
    fleet.pass_(1)
    for number, name in enumerate(fleet.names):
        fleet.watch.overrun(name, "boot-a", 0, 41, START + number)

    lost = fleet.watch.coverage(fleet.names, fleet.now, ["gpu-1"]).lost

    assert len(lost) == LOSSES_MOST
    assert {"gpu-1", f"gpu-{LOSSES_MOST + 50}"} <= lost.keys()


def test_the_boot_of_a_loss_is_that_of_the_latest_line() -> None:
    watch = tracker()
    for boot, seconds in (("boot-b", 60), ("boot-a", 30)):
        watch.overrun("gpu-1", boot, 0, 1, START + seconds * SECOND)

    assert watch.coverage(FLEET, START + MINUTE).lost == {"gpu-1": Loss(2, START + MINUTE, "boot-b")}


HOUR = 3600 * SECOND
NAMES = [f"gpu-{i}" for i in range(40)]
MOMENTS = st.integers(0, 7 * 24).map(lambda hours: hours * HOUR)
SPANS = st.tuples(MOMENTS, MOMENTS).map(sorted).filter(lambda pair: pair[0] < pair[1]).map(tuple)
MISSING = st.lists(st.tuples(st.sampled_from(NAMES), SPANS), max_size=300)


@given(MISSING)
def test_many_gaps_become_few_that_cover_all_of_them(
    missing: list[tuple[str, tuple[int, int]]],
) -> None:
    gaps = grouped(missing)

    assert len(gaps) <= GAPS_MOST
    for node, (start_ns, end_ns) in missing:
        assert any(
            gap.concerns(node)
            and gap.start_ns <= start_ns
            and gap.end_ns is not None
            and end_ns <= gap.end_ns
            for gap in gaps
        )


def test_nodes_that_fell_silent_in_the_same_minute_share_a_gap() -> None:
    missing = [(name, (number * SECOND, None)) for number, name in enumerate(NAMES)]

    assert len(grouped(missing)) == 1


@given(st.lists(SPANS, max_size=20), MOMENTS)
def test_joined_spans_cover_the_same_moments(spans: list[tuple[int, int]], moment: int) -> None:
    found = joined([(span, "gpu-1") for span in spans], oldest_ns=0)

    covered = any(each.start_ns <= moment < each.end_ns for each in found)
    assert covered == any(start <= moment < end for start, end in spans)
