"""A silent node is unknown, not healthy; one never heard is not measured (design rule 14)."""

from __future__ import annotations

from datetime import UTC, datetime

from konductor_like.controller.coverage import CoverageTracker
from konductor_like.model import Coverage, CoverageState

SECOND = 1_000_000_000
START = 1_772_625_600 * SECOND
FLEET = dict.fromkeys(("gpu-1", "gpu-2", "gpu-3"), 0)


def tracker(before: Coverage | None = None) -> CoverageTracker:
    return CoverageTracker(300, before=before, now_ns=START)


def test_a_node_that_was_never_heard_is_not_measured() -> None:
    coverage = tracker().coverage(FLEET, START + 3600 * SECOND)

    assert {coverage.of(name) for name in FLEET} == {CoverageState.NOT_MEASURED}


def test_a_heartbeat_makes_a_node_measured_and_its_end_makes_it_unknown() -> None:
    watch = tracker()
    watch.heard("gpu-1", START)

    assert watch.coverage(FLEET, START + 300 * SECOND).of("gpu-1") is CoverageState.MEASURED
    assert watch.coverage(FLEET, START + 301 * SECOND).of("gpu-1") is CoverageState.UNKNOWN


def test_an_old_heartbeat_that_arrives_late_does_not_turn_time_back() -> None:
    watch = tracker()
    watch.heard("gpu-1", START + 100 * SECOND)
    watch.heard("gpu-1", START)

    assert watch.coverage(FLEET, START + 390 * SECOND).of("gpu-1") is CoverageState.MEASURED


def test_only_the_exceptions_are_listed_either_way() -> None:
    mostly = tracker()
    for name in ("gpu-1", "gpu-2"):
        mostly.heard(name, START)
    hardly = tracker()
    hardly.heard("gpu-3", START)

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
    watch.heard("gpu-1", START)
    watch.coverage({"gpu-2": 0}, START)

    assert watch.coverage(FLEET, START).of("gpu-1") is CoverageState.NOT_MEASURED


def test_a_node_that_joined_while_no_controller_ran_was_never_measured() -> None:
    before = Coverage(at=datetime(2026, 3, 4, tzinfo=UTC), listed_are_measured=False)
    joined_ns = round(before.at.timestamp() * 1e9) + SECOND

    coverage = tracker(before).coverage({"gpu-1": 0, "gpu-9": joined_ns}, START)

    assert coverage.of("gpu-1") is CoverageState.MEASURED
    assert coverage.of("gpu-9") is CoverageState.NOT_MEASURED
