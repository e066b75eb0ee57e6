"""Which silent nodes the Node condition calls Unknown: never while Loki or a collector may be the reason."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.node_condition import NodeConditions
from konductor_like.model import Coverage
from tests.controller.test_coverage import Fleet
from tests.controller.test_node_condition import KIND, Cluster


def alone(fleet: Fleet) -> set[str]:
    return set(fleet.watch.silent_alone(len(fleet.names)))


@pytest.mark.parametrize(
    ("size", "silent", "expected"),
    [(3, 1, 1), (3, 2, 0), (100, 5, 5), (100, 6, 0), (1, 1, 1), (2, 2, 0)],
    ids=["one of 3", "two of 3", "5 %", "more than 5 %", "a fleet of one", "a fleet of two"],
)
def test_more_than_5_percent_and_at_least_two_that_fall_silent_together_do_not_count(
    size: int, silent: int, expected: int
) -> None:
    fleet, names = Fleet(size), [f"gpu-{i}" for i in range(1, silent + 1)]
    fleet.pass_(10)
    fleet.pass_(10, silent=names)

    assert len(alone(fleet)) == expected


def test_nodes_that_fall_silent_one_after_the_other_count() -> None:
    fleet = Fleet(4)
    fleet.pass_(10)
    fleet.pass_(12, silent=["gpu-1"])
    fleet.pass_(12, silent=["gpu-1", "gpu-2"])

    assert alone(fleet) == {"gpu-1", "gpu-2"}


def test_while_loki_cannot_be_read_no_node_becomes_silent_and_a_silent_one_stays_so() -> None:
    fleet = Fleet()
    fleet.pass_(10)
    fleet.pass_(10, silent=["gpu-1"])
    assert alone(fleet) == {"gpu-1"}

    fleet.pass_(600, readable=False)
    assert alone(fleet) == {"gpu-1"}
    fleet.pass_(1)
    assert alone(fleet) == set()


def test_a_new_controller_knows_the_silent_nodes_of_the_last_one() -> None:
    unknown = frozenset({"gpu-2"})
    before = Coverage(at=datetime(2026, 3, 4, tzinfo=UTC), unknown=unknown, listed_are_measured=False)
    fleet = Fleet(before=before)
    fleet.pass_(1, readable=False)

    assert alone(fleet) == {"gpu-2"}


class Watched:
    """The conditions of a fleet of 20 nodes by its heartbeats."""

    def __init__(self) -> None:
        self.fleet, self.cluster = Fleet(20), Cluster(20, heard=False)
        self.pass_(10)

    def pass_(self, minutes: int, silent: tuple[str, ...] = (), *, readable: bool = True) -> set[str]:
        """Let minutes pass; return the nodes that are Unknown then."""
        for _ in range(minutes):
            coverage = self.fleet.pass_(1, silent=silent, readable=readable)
            self.cluster.conditions.hear(coverage, frozenset(alone(self.fleet)))
            self.cluster.rounds(60)
        return {name for name in self.cluster.nodes if self.cluster.condition(name).status == "Unknown"}


def test_what_stood_stays_while_loki_cannot_be_read_and_while_much_of_the_fleet_is_silent() -> None:
    watched = Watched()
    many = tuple(f"gpu-{i}" for i in range(1, 11))

    assert watched.pass_(10, ("gpu-1",)) == {"gpu-1"}
    before = len(watched.cluster.sent)
    assert watched.pass_(60, readable=False) == {"gpu-1"}
    assert watched.pass_(60, many) == {"gpu-1"}
    assert len(watched.cluster.sent) == before
    assert watched.pass_(1) == set()


def test_a_restarted_controller_leaves_a_node_unknown_until_it_hears_it() -> None:
    watched = Watched()
    watched.pass_(10, ("gpu-1",))

    watched.fleet.watch = Fleet(20).watch  # it lost the coverage on the Lease, too
    cluster = watched.cluster
    cluster.conditions = NodeConditions(KIND, cluster, cluster.write, Metrics())

    assert watched.pass_(30, ("gpu-1",)) == {"gpu-1"}
    assert watched.pass_(1) == set()
