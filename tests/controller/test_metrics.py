"""The brake's gauges: pools come and go, and the number of series is bounded."""

from __future__ import annotations

import math

import pytest

from konductor_like.controller.reporting.metrics import OTHER_POOLS, POOLS_MOST, Metrics
from konductor_like.model import BrakeState, Pace, PoolBrake

OUT = "konductor_like_brake_pool_out"


def pools(metrics: Metrics, name: str = OUT) -> dict[str, float]:
    """Return the value of the gauge for each pool."""
    [family] = [each for each in metrics.registry.collect() if each.name == name]
    return {sample.labels["pool"]: sample.value for sample in family.samples}


def value(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"konductor_like_{name}")


def test_each_pool_shows_its_nodes_and_its_bound_for_as_long_as_it_is_there() -> None:
    metrics = Metrics()

    metrics.show_brake(BrakeState(9, 1, 2, pools=(PoolBrake("a", 4, 1, 1), PoolBrake("b", 5, 0, 1))))

    assert pools(metrics) == {"a": 1, "b": 0}
    assert pools(metrics, "konductor_like_brake_pool_bound") == {"a": 1, "b": 1}

    metrics.show_brake(BrakeState(5, 0, 1, pools=(PoolBrake("b", 5, 0, 1),)))
    assert pools(metrics) == {"b": 0}


def test_more_pools_than_are_shown_are_added_up() -> None:
    metrics = Metrics()
    many = tuple(PoolBrake(f"pool-{number:04}", 5, 1, 1) for number in range(POOLS_MOST + 30))

    metrics.show_brake(BrakeState(650, 130, 130, pools=many))

    assert len(pools(metrics)) == POOLS_MOST + 1
    assert pools(metrics)[OTHER_POOLS] == 30


@pytest.mark.parametrize(
    ("pace", "taints", "most"), [(None, 0, math.inf), (Pace(2, 3, 3600, None), 2, 3)], ids=["none", "bounded"]
)
def test_the_rate_shows_what_is_used_of_it(pace: Pace | None, taints: float, most: float) -> None:
    metrics = Metrics()

    metrics.show_brake(BrakeState(5, 0, 1, pace=pace))

    assert (value(metrics, "brake_rate_taints"), value(metrics, "brake_rate_bound")) == (taints, most)
