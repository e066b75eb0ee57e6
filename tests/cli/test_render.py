"""A report in every format, and what the two sentences above the table say."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import yaml

from konductor_like.cli.render import (
    HEADERS,
    WIDE_HEADERS,
    Output,
    brake_sentence,
    controller_sentence,
    render,
)
from konductor_like.cli.report import ControllerReport, StatusReport, node_reports
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.model import BrakeState, Coverage, Held, Pace, PoolBrake, Severity, Source
from konductor_like.sandbox.fleet import make_node
from tests.cli.scenes import NOW, ago, ago_ns, every_state, incident, with_record

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


@pytest.mark.parametrize("output", [Output.TABLE, Output.WIDE])
def test_a_table_starts_with_the_brake(output: Output) -> None:
    lines = render(report(), output)

    assert lines[0].startswith("Brake:")
    assert lines[1].startswith("Controller:")
    assert tuple(lines[3].split()) == (HEADERS if output is Output.TABLE else WIDE_HEADERS)


def test_without_headers_there_is_one_line_per_node() -> None:
    assert len(render(report(), Output.TABLE, headers=False)) == len(report().nodes)


def test_the_pipe_gets_whole_names_and_whole_lines() -> None:
    node = make_node("ip-10-0-113-217.eu-central-1.compute.internal.example.com")
    long_line = "NVRM: Xid (PCI:0000:9b:00): 79, " + "x" * 400
    with_record(node, incident(evidence=long_line, severity=Severity.SUSPECT))
    wide = StatusReport(NOW, BrakeState(1, 0, 1), CONTROLLER, node_reports([decode_node(node)], None))

    row = render(wide, Output.TABLE, headers=False)[0]

    assert node["metadata"]["name"] in row
    assert decode_node(node).record.incidents[0].evidence in row


def test_further_faults_are_counted_beside_the_gravest() -> None:
    node = with_record(make_node("gpu-1"), incident(), incident("xid.48", seconds_ago=300), tainted=True)
    one = StatusReport(NOW, BrakeState(1, 1, 1), CONTROLLER, node_reports([decode_node(node)], None))

    assert "xid 48 (+1)" in render(one, Output.TABLE, headers=False)[0]


def test_yaml_says_the_same_as_json() -> None:
    as_json = json.loads("\n".join(render(report(), Output.JSON)))
    as_yaml = yaml.safe_load("\n".join(render(report(), Output.YAML)))

    assert as_yaml == as_json
    assert (as_json["apiVersion"], as_json["kind"]) == ("konductor-like/v1", "Status")


def test_every_node_of_the_document_has_the_same_fields() -> None:
    document = json.loads("\n".join(render(report(), Output.JSON)))

    assert len({tuple(node) for node in document["nodes"]}) == 1
    assert len({tuple(fault) for node in document["nodes"] for fault in node["faults"]}) == 1


def test_names_can_be_given_to_kubectl() -> None:
    assert render(report(), Output.NAME)[0] == "node/gpu-1"
