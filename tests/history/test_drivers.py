"""Faults by driver: nodes are counted, and a sentence needs five failed nodes and a fourfold share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from konductor_like.history.drivers import DriverShare, DriverTable, driver_table
from konductor_like.history.outages import Outage
from konductor_like.model import Hardware, NodeState
from tests.history.values import END, MODEL, START, fleet_of, outage

OLD, NEW = "550.1", "570.2"


def fleet(new: int, old: int, **more: str) -> dict[str, NodeState]:
    """Nodes ``new-1`` and so on, and ``old-1`` and so on, by their driver."""
    names = [(f"new-{number}", NEW) for number in range(1, new + 1)]
    return fleet_of([*names, *((f"old-{number}", OLD) for number in range(1, old + 1))], **more)


def failed(*names: str, **more: Any) -> list[Outage]:
    driver = {"new": NEW, "old": OLD}
    fixed: dict[str, Any] = {"model": MODEL, "rule": "xid.119"}
    return [
        outage(name, number, **(fixed | {"driver": driver[name[:3]]} | more))
        for number, name in enumerate(names, 1)
    ]


def table_of(outages: Iterable[Outage], nodes: dict[str, NodeState]) -> DriverTable:
    return driver_table(outages, START, END, nodes)


def counts(table: DriverTable) -> dict[str, tuple[int, int]]:
    """Return failed nodes and nodes, by driver."""
    return {each.driver: (each.failed, each.have) for each in table.shares}


def names(kind: str, number: int) -> list[str]:
    return [f"{kind}-{each}" for each in range(1, number + 1)]


def conspicuous(table: DriverTable) -> list[DriverShare]:
    return [each for each in table.shares if each.conspicuous]


def test_failed_nodes_are_counted_of_the_nodes_that_have_the_driver() -> None:
    table = table_of(failed("new-1", "new-2", "old-1"), fleet(4, 6))

    assert counts(table) == {NEW: (2, 4), OLD: (1, 6)}
    assert [(each.failed_all, each.have_all) for each in table.shares] == [(3, 10), (3, 10)]


@pytest.mark.parametrize(
    ("failures", "new", "old", "found"),
    [
        (4, 4, 36, 0),  # ten times as frequent, on four nodes
        (5, 10, 29, 0),  # 5 of 5 against 10 of 39: 3.9-fold
        (5, 10, 30, 1),  # 5 of 5 against 10 of 40: fourfold
    ],
)
def test_a_driver_is_conspicuous_from_five_nodes_and_a_fourfold_share_on(
    failures: int, new: int, old: int, found: int
) -> None:
    table = table_of(failed(*names("new", failures)), fleet(new, old))

    assert len(conspicuous(table)) == found


def test_failures_with_other_drivers_make_the_share_smaller() -> None:
    table = table_of(failed(*names("new", 5), "old-1"), fleet(10, 30))

    assert conspicuous(table) == []


def test_a_node_that_fails_twice_counts_once() -> None:
    assert counts(table_of(failed("new-1", "new-1"), fleet(2, 2))) == {NEW: (1, 2), OLD: (0, 2)}


def test_a_failure_group_counts_as_one_failed_node() -> None:
    group = failed(*names("new", 9), failure_group="rack r1@2026-04-08T12:00:00Z")

    assert counts(table_of(group, fleet(9, 90))) == {NEW: (1, 9), OLD: (0, 90)}
    assert len(conspicuous(table_of(failed(*names("new", 9)), fleet(9, 90)))) == 1


def test_a_node_of_a_failure_group_counts_if_it_fails_alone_too() -> None:
    group = failed("new-1", "new-2", failure_group="rack r1@2026-04-08T12:00:00Z")

    assert counts(table_of([*group, *failed("new-2")], fleet(3, 3)))[NEW] == (2, 3)


def test_nodes_are_compared_within_one_model_and_one_pool() -> None:
    nodes = fleet(2, 2, pool="train") | {
        f"{name}-serve": replace(state, name=f"{name}-serve")
        for name, state in fleet(3, 0, pool="serve").items()
    }
    table = table_of(failed("new-1", "new-1-serve"), nodes)

    assert {each.cohort.pool for each in table.shares} == {"train"}  # the other pool has one driver
    assert counts(table) == {NEW: (1, 2), OLD: (0, 2)}
    assert table.uniform == 1


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("the node had another driver", {"driver": OLD}),
        ("the node had other GPUs", {"model": "NVIDIA-H200"}),
        ("the driver was not known", {"driver": ""}),
        ("the fault is not known", {"rule": ""}),
        ("only the record tells of it, which names no group", {"in_trail": False, "in_record": True}),
    ],
)
def test_a_failure_is_left_out_if(what: str, changed: dict[str, object]) -> None:
    table = table_of(failed("new-1", **changed), fleet(2, 2))

    assert table.shares == (), what
    assert table.left_out == 1


def test_a_node_that_is_gone_is_left_out_and_a_node_without_a_label_is_not_of_the_fleet() -> None:
    nodes = fleet(2, 3)
    nodes["old-3"] = replace(nodes["old-3"], hardware=Hardware(MODEL, ""))
    table = table_of(failed("new-1", "new-9", "old-3"), nodes)

    assert counts(table) == {NEW: (1, 2), OLD: (0, 2)}
    assert table.left_out == 2


def test_tests_acts_of_people_and_older_failures_do_not_count() -> None:
    table = table_of(
        [
            *failed("new-1", rule="xid.14"),
            *failed("new-2", rule="operator"),
            outage("new-1", -1, 48, driver=NEW, model=MODEL),
        ],
        fleet(2, 2),
    )

    assert (table.shares, table.left_out) == ((), 0)


def test_labels_that_are_empty_on_both_sides_are_no_driver() -> None:
    nodes = {name: replace(state, hardware=Hardware(MODEL, "")) for name, state in fleet(9, 0).items()}

    table = table_of(failed(*names("new", 9), driver=""), nodes | fleet(0, 2))

    assert (table.shares, table.left_out) == ((), 9)
