"""A report in every format, and what the two sentences above the table say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import StatusReport, node_reports
from konductor_like.cli.status.text import (
    brake_sentence,
    controller_sentence,
)
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.model import BrakeState, Coverage, Held, Pace, PoolBrake, Source
from tests.cli.scenes import NOW, ago, ago_ns, every_state, incident

CONTROLLER = ControllerReport(
    "ns/lease",
    holder="me",
    renewed=ago(4),
    duration_seconds=30,
    read_ns={Source.POD: ago_ns(90), Source.KERNEL: ago_ns(6)},
)


def report() -> StatusReport:
    """A report on every state."""
    nodes = node_reports(map(decode_node, every_state()), Coverage(NOW, listed_are_measured=False))
    return StatusReport(NOW, BrakeState(12, 2, 2), CONTROLLER, nodes)


def waiting(number: int) -> tuple[Held, ...]:
    return tuple(Held(f"gpu-{each}", incident()) for each in range(1, number + 1))


@pytest.mark.parametrize(
    ("brake", "sentence"),
    [
        (BrakeState(10, 1, 2), "armed; 1 out of service, at most 2 of 10 GPU nodes may be"),
        (
            BrakeState(10, 2, 2),
            "armed; 2 out of service, at most 2 of 10 GPU nodes may be; the next would be held",
        ),
        (
            BrakeState(1, 1, 1, waiting(1)),
            "HOLDING 1 node back: gpu-1; 1 out of service, at most 1 of 1 GPU node may be",
        ),
        (
            BrakeState(40, 8, 8, waiting(7)),
            (
                "HOLDING 7 nodes back: gpu-1, gpu-2, gpu-3, gpu-4, gpu-5 and 2 more; "
                "8 out of service, at most 8 of 40 GPU nodes may be"
            ),
        ),
        (
            BrakeState(5, 0, 1, waiting(2), cooling=1, rearms_at=NOW + timedelta(minutes=4)),
            (
                "HOLDING 2 nodes back: gpu-1, gpu-2; 0 out of service, at most 1 of 5 GPU nodes may be; "
                "COOLING DOWN after 1 release, arms itself again 2026-05-06T12:04:00Z (in 4m)"
            ),
        ),
        (
            BrakeState(10, 1, 2, pools=(PoolBrake("a", 5, 1, 1), PoolBrake("b", 5, 0, 1))),
            "armed; 1 out of service, at most 2 of 10 GPU nodes may be; no room in pool a (1 of 5 out)",
        ),
        (
            BrakeState(10, 1, 2, pace=Pace(2, 3, 3600, NOW + timedelta(minutes=20))),
            (
                "armed; 1 out of service, at most 2 of 10 GPU nodes may be; rate 2 of at most 3 taints in "
                "the last 60m; the oldest counts until 2026-05-06T12:20:00Z (in 20m)"
            ),
        ),
    ],
    ids=["room", "full", "holds one", "holds many", "cools down", "pool is full", "rate"],
)
def test_the_brake_in_one_sentence(brake: BrakeState, sentence: str) -> None:
    assert brake_sentence(brake, NOW) == sentence


@pytest.mark.parametrize(
    ("controller", "sentence"),
    [
        (
            CONTROLLER,
            (
                "me holds the Lease ns/lease, renewed 4s ago; "
                "kernel logs read up to 6s ago, pod logs read up to 90s ago"
            ),
        ),
        (
            ControllerReport("ns/lease", holder="me", renewed=ago(3_600), duration_seconds=30),
            "NOT RUNNING: me last renewed the Lease ns/lease 60m ago",
        ),
        (
            ControllerReport("ns/lease", renewed=ago(60), read_ns={Source.KERNEL: ago_ns(61)}),
            "NOT RUNNING: nobody holds the Lease ns/lease; kernel logs read up to 61s ago",
        ),
        (
            ControllerReport("ns/lease", exists=False),
            "none: there is no Lease ns/lease, so none has ever run",
        ),
        (ControllerReport("ns/lease", problem="403"), "unknown: 403"),
        (
            ControllerReport(
                "ns/lease", holder="me", renewed=ago(1), duration_seconds=30, problem="bad cursor"
            ),
            "me holds the Lease ns/lease, renewed 1s ago; bad cursor",
        ),
    ],
    ids=["running", "expired", "released", "never", "out of reach", "mangled"],
)
def test_the_controller_in_one_sentence(controller: ControllerReport, sentence: str) -> None:
    assert controller_sentence(controller, NOW) == sentence


def test_every_node_of_the_document_has_the_same_fields() -> None:
    document = status_document(report())

    assert len({tuple(node) for node in document["nodes"]}) == 1
    assert len({tuple(fault) for node in document["nodes"] for fault in node["faults"]}) == 1
