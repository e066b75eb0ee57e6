"""Which incident a case is about: never one that a pod's line told, because such lines are tenants' data."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.history.case import incident_of
from konductor_like.model import NodeRecord, Source
from konductor_like.model.time import unix_ns
from tests.history.values import day, outage
from tests.policy.scenes import Cluster, fault, fleet


def test_a_case_takes_no_line_of_a_pod() -> None:
    cluster = Cluster(fleet(3))
    cluster.tick(fault())
    [told] = cluster.nodes["gpu-1"].record.incidents
    told = replace(told, first_ns=unix_ns(day(1)), last_ns=unix_ns(day(1)))

    assert incident_of(outage(), NodeRecord(incidents=(told,))) == told
    assert incident_of(outage(), NodeRecord(incidents=(replace(told, source=Source.POD),))) is None
