"""Which incident a case is about: never one that a pod's line told, because such lines are tenants' data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from konductor_like.history.case import Case, NodeFacts, incident_of
from konductor_like.history.kernel import KernelReading
from konductor_like.model import NodeRecord, Source
from konductor_like.model.time import unix_ns
from tests.history.values import END, day, outage
from tests.policy.scenes import Cluster, fault, fleet


def test_a_case_takes_no_line_of_a_pod() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(fault())
    [told] = cluster.nodes["gpu-1"].record.incidents
    told = replace(told, first_ns=unix_ns(day(1)), last_ns=unix_ns(day(1)))

    assert incident_of(outage(), NodeRecord(incidents=(told,))) == told
    assert incident_of(outage(), NodeRecord(incidents=(replace(told, source=Source.POD),))) is None


@pytest.mark.parametrize(
    ("mine", "other", "same"),
    [
        ({"uuid": "GPU-a"}, {"uuid": "GPU-a", "gpu": "0000:5d:00"}, True),
        ({"uuid": "GPU-a"}, {"uuid": "GPU-b"}, False),
        ({"uuid": "GPU-a"}, {}, True),
        ({}, {"gpu": "0000:5d:00"}, False),
    ],
    ids=["moved", "swapped", "not noted", "another place"],
)
def test_another_outage_is_of_the_same_gpu_by_its_uuid_or_else_by_its_place(
    mine: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    kernel = KernelReading(())
    found = Case(NodeFacts("gpu-1"), outage(**mine), 1, "", None, (), kernel, (), (outage(**other),), (), END)

    assert bool(found.of_gpu) is same
    assert bool(found.of_node) is not same
