"""A record of an earlier build, in which a person released some of the faults (`reset --rule`)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from konductor_like.cluster.node.record import decode, encode
from konductor_like.model import IncidentState, NodeRecord, Release, ReleaseHow
from konductor_like.policy.node.endings import release_ns
from konductor_like.policy.node.undone import reminders
from tests.policy.answers import answer
from tests.policy.recorded_decisions import HEARD, NOON, ONE, THREE
from tests.policy.scenes import Cluster, at, fault, fleet, node, ns

READ_US = 34_000_000_000
"""The last line of the fault that the release covers."""
COVER = {"rule": "xid.79", "gpu": ONE, "at": "2026-03-04T11:30:00Z", "boot": "boot-a", "us": READ_US}
RELEASE = {
    "at": "2026-03-04T11:30:00Z",
    "by": "ann",
    "reason": "",
    "how": f"reset of xid 79 on GPU {ONE}",
    "read": {},
}


def asked(*us: int, gpu: str = ONE, **of_cover: Any) -> dict[str, Any]:
    """Return the answer about a node in service with this cover, whose kernel log is read (again)."""
    record = {
        "v": 2,
        "machine": {"uid": "uid-1", "system": "system-1", "boot": "boot-a"},
        "read": {"us": 30_000_000_000},
        "releases": [RELEASE],
        "part_covers": [COVER | of_cover],
        "failed": "xid.79",
    }
    ask = HEARD | {"now": NOON.isoformat(), "faults": [[79, gpu, "boot-a", each] for each in us]}
    return answer({"record": json.dumps(record), "node": {"boot": "boot-a"}, "ask": ask})


def test_a_ring_that_is_read_again_taints_nothing() -> None:
    assert asked(READ_US - 2_000_000, READ_US - 1_000_000, READ_US).get("verb") != "taint"


@pytest.mark.parametrize(
    "line",
    [{"us": READ_US + 1_000_000, "gpu": ONE}, {"us": READ_US, "gpu": THREE}],
    ids=["a later line", "another GPU"],
)
def test_a_new_fault_taints(line: dict[str, Any]) -> None:
    assert asked(line["us"], gpu=line["gpu"])["verb"] == "taint"


@pytest.mark.parametrize("cover", [{"boot": "boot-0"}, {"us": None}, {"at": "soon"}, {"rule": 7}], ids=str)
def test_a_cover_of_another_boot_or_without_its_place_covers_nothing(cover: dict[str, Any]) -> None:
    assert asked(READ_US, **cover)["verb"] == "taint"


def test_the_cover_is_written_as_a_released_incident_from_then_on() -> None:
    text = answer_text()

    again, problem = decode(text)

    assert problem is None
    assert "part_covers" not in text
    assert "failed" not in text
    (incident,) = (each for each in again.incidents if each.key.gpu == ONE)
    assert incident.state is IncidentState.RELEASED
    assert incident.last.stamp_us == READ_US
    assert again.releases[0].how is ReleaseHow.PART
    assert encode(again) == text


def answer_text() -> str:
    """Return the record that a new fault on another GPU makes this code write."""
    text: str = asked(READ_US, gpu=THREE)["record"]
    return text


def test_a_release_in_part_is_neither_when_a_fault_was_released_nor_hides_an_earlier_warning() -> None:
    part = Release(at(20), "ann", "", ReleaseHow.PART)
    whole = Release(at(10), "kim", "", ReleaseHow.RESET, warning="The hold of the node was overridden.")
    cluster = Cluster(fleet(1))
    cluster.tick(fault(seconds=15), seconds=16)
    [incident] = cluster.nodes["gpu-1"].record.incidents
    closed = replace(incident, state=IncidentState.RELEASED, released_ns=incident.last_ns)
    after = replace(node(), record=NodeRecord(releases=(part, whole)))

    assert release_ns(closed, (replace(whole, at=at(30)), part)) == ns(30)
    assert reminders(after) == [whole.warning]
