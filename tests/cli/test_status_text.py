"""The lines above the table of ``status``: the brake, the controller, which kernel logs arrive."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from konductor_like.build import Program, this_program
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.coverage import coverage_lines, coverage_report, notes_on
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import StatusReport
from konductor_like.cli.status.text import brake_sentence, controller_sentence, summary
from konductor_like.model import (
    BrakeState,
    Coverage,
    Gap,
    Held,
    Loss,
    Misnamed,
    Pace,
    PoolBrake,
    Source,
    Unparsed,
)
from tests.cli.scenes import NOW, ago, ago_ns, incident

FLEET = [f"gpu-{number}" for number in range(1, 13)]


def waiting(number: int) -> tuple[Held, ...]:
    return tuple(Held(f"gpu-{each}", incident()) for each in range(1, number + 1))


@pytest.mark.parametrize(
    ("brake", "words"),
    [
        (
            BrakeState(10, 2, 2),
            "2 out of service, at most 2 of 10 GPU nodes; the next would be held back",
        ),
        (BrakeState(1, 1, 1, waiting(1)), "holding 1 node; 1 out of service, at most 1 of 1 GPU node"),
        (
            BrakeState(5, 0, 1, waiting(2), cooling=1, rearms_at=NOW + timedelta(minutes=4)),
            "0 out of service and 1 released recently, at most 1 of 5 GPU nodes; cooling down until 2026",
        ),
        (
            BrakeState(9, 1, 3, waiting(2), 1, cooling=4, deleted=1, rearms_at=NOW + timedelta(minutes=4)),
            "1 out of service, 3 released recently, 1 deleted recently and 1 unavailable, at most 3",
        ),
        (
            BrakeState(10, 1, 2, pools=(PoolBrake("a", 5, 1, 1), PoolBrake("b", 5, 0, 1))),
            "at most 2 of 10 GPU nodes; limit reached in 1 pool: a (1 of 5 out)",
        ),
        (
            BrakeState(10, 1, 2, pace=Pace(2, 3, 3600, NOW + timedelta(minutes=20))),
            "rate 2 of at most 3 taints in the last 60m; the oldest counts until 2026-05-06T12:20:00Z (in",
        ),
    ],
    ids=["full", "holds", "cools down", "counts all", "pool is full", "rate"],
)
def test_the_brake_in_one_sentence(brake: BrakeState, words: str) -> None:
    assert words in brake_sentence(brake, NOW)


@pytest.mark.parametrize(
    ("controller", "sentence"),
    [
        (
            ControllerReport("ns/lease", holder="me", renewed=ago(3_600), duration_seconds=30),
            "not running: me last renewed the Lease ns/lease 60m ago",
        ),
        (
            ControllerReport("ns/lease", renewed=ago(60), read_ns={Source.KERNEL: ago_ns(61)}),
            "not running: nobody holds the Lease ns/lease; kernel logs read up to 61s ago",
        ),
        (ControllerReport("ns/lease", problem="403"), "unknown: 403"),
        (
            ControllerReport(
                "ns/lease", holder="me", renewed=ago(1), duration_seconds=30, problem="bad cursor"
            ),
            "running; bad cursor",
        ),
    ],
    ids=["expired", "released", "out of reach", "mangled"],
)
def test_the_controller_in_one_sentence(controller: ControllerReport, sentence: str) -> None:
    assert controller_sentence(controller, NOW) == sentence


@pytest.mark.parametrize(
    ("program", "renewed", "told"),
    [
        (Program("0.0.9", "3f2a91c0d4e5"), ago(1), "controller 0.0.9 (build 3f2a91c0d4e5), this command "),
        (replace(this_program(), build="3f2a91c0d4e5"), ago(1), f"this command {this_program()}"),
        (this_program(), ago(1), ""),
        (None, ago(1), ""),
        (Program("0.0.9", "3f2a91c0d4e5"), ago(3_600), ""),
    ],
    ids=["other version", "same version, other build", "same", "not known", "does not run"],
)
def test_a_running_controller_of_another_build_than_the_command_is_named(
    program: Program | None, renewed: datetime, told: str
) -> None:
    controller = ControllerReport("l", holder="me", renewed=renewed, duration_seconds=30, program=program)
    report = StatusReport(NOW, BrakeState(0, 0, 0), controller, ())
    shown = {line.label: line.text for line in summary(report)}.get("Builds", "")

    assert (told in shown, bool(shown)) == (True, bool(told))
    assert status_document(report)["controller"]["otherBuild"] == (
        shown.removeprefix("not the same: ") or None
    )


@pytest.mark.parametrize(
    ("brake", "renewed", "coverage", "alarms"),
    [
        (BrakeState(0, 0, 0), ago(1), {}, []),
        (BrakeState(0, 0, 0), ago(3_600), {}, ["Controller"]),
        (BrakeState(1, 0, 1, held=waiting(1)), ago(1), {}, ["Brake"]),
        (BrakeState(0, 0, 0), ago(1), {"unknown": frozenset(FLEET[:1])}, ["Coverage"]),
        (BrakeState(0, 0, 0), ago(1), {"ambiguous": frozenset(FLEET[:1])}, ["Ambiguous"]),
    ],
    ids=["nothing", "not running", "holds", "a log stopped", "two machines"],
)
def test_the_lines_that_report_a_problem_are_flagged(
    brake: BrakeState, renewed: datetime, coverage: dict[str, Any], alarms: list[str]
) -> None:
    controller = ControllerReport("l", holder="me", renewed=renewed, duration_seconds=30)
    given = Coverage(ago(20), **{"listed_are_measured": False, "listed": frozenset(FLEET), **coverage})
    found = coverage_report(FLEET, given, None)
    report = StatusReport(NOW, brake, controller, (), coverage=found)

    assert [line.label for line in summary(report) if line.is_alarm] == alarms


def lines(*, unread: bool = False, **coverage: Any) -> list[str]:
    given = Coverage(ago(20), **{"listed_are_measured": False, **coverage})
    report = coverage_report(FLEET, given, ago(400) if unread else None)
    return [f"{line.label}: {line.text}" for line in coverage_lines(report, NOW)]


def test_the_coverage_is_one_short_line_with_the_numbers_before_the_names() -> None:
    (line,) = lines(unknown=frozenset(FLEET[:7]), listed=frozenset({"gpu-12"}))

    assert lines() == ["Coverage: 12 of 12 kernel logs arrive"]
    assert lines(unread=True) == [
        "Coverage: not known: the controller has not read the kernel logs since 2026-05-06T11:53:20Z"
    ]
    assert line == (
        "Coverage: 4 of 12 kernel logs arrive; 7 unknown: gpu-1, gpu-2, gpu-3, gpu-4, gpu-5 and 2 more; "
        "1 not measured: gpu-12"
    )


def test_a_gap_is_shown_with_its_nodes_its_length_and_its_age() -> None:
    lasting = Gap(ago_ns(720), None, frozenset({"gpu-7"}))
    past = Gap(ago_ns(7200), ago_ns(3600), None)

    assert lines(gaps=(past, lasting))[1:] == [
        "Missing: all 12 nodes for 60m, 120m ago; 1 node for 12m until now: gpu-7"
    ]


def test_many_gaps_are_counted_and_a_gap_of_deleted_nodes_is_not_shown() -> None:
    gaps = tuple(Gap(ago_ns(4000 + n), ago_ns(3000), frozenset({"gpu-1"})) for n in range(7))

    assert lines(gaps=gaps)[1].endswith("; and 4 more spans")
    assert lines(gaps=(Gap(ago_ns(720), None, frozenset({"gpu-99"})),)) == lines()


def test_lost_records_and_ambiguous_names_have_lines_of_their_own() -> None:
    told = lines(ambiguous=frozenset({"gpu-3"}), lost={"gpu-4": Loss(41, ago_ns(60))}, backfill_ns=ago_ns(60))

    assert told[1:] == [
        "Lost: records of 1 node are lost (overwritten, or without the node's name): gpu-4 (41 records)",
        "Reread: older kernel lines of Nodes that registered since 2026-05-06T11:59:00Z are still to be read",
        "Ambiguous: 1 name that two machines use, not tainted: gpu-3",
    ]


def test_nodes_whose_xids_could_not_be_parsed_are_named() -> None:
    unparsed = {f"gpu-{number}": Unparsed(number, ago_ns(60)) for number in (4, 1, 2)}

    assert lines(unparsed=unparsed)[1:] == [
        (
            "Unparsed: 3 nodes with an Xid that is not understood (see the controller's log): "
            "gpu-1 (1 line), gpu-2 (2 lines), gpu-4 (4 lines)"
        )
    ]
    assert len(list(notes_on("gpu-2", Coverage(NOW, unparsed=unparsed)))) == 1


def test_names_in_faults_without_a_node_are_shown_with_advice() -> None:
    names = {f"gpu-{number}.example.com": Misnamed(2, ago_ns(number * 60)) for number in range(1, 8)}

    (line,) = lines(misnamed=names)[1:]

    assert line.startswith("Misnamed: kernel faults of 7 names without a Node: gpu-1.example.com, gpu-2.")
    assert (
        " and 2 more (14 faults, the last 60s ago); unless the nodes were deleted, check KONDUCTOR_NODE_LABEL"
        in line
    )
    assert "1 name without a Node: GPU-3 (1 fault," in lines(misnamed={"GPU-3": Misnamed(1, ago_ns(60))})[1]


def test_faults_that_came_without_a_name_have_a_line_of_their_own() -> None:
    names = {"GPU-3": Misnamed(1, ago_ns(60)), "boot 0b6f3c1e": Misnamed(2, ago_ns(120))}

    misnamed, nameless = lines(misnamed=names)[1:]

    assert misnamed.startswith("Misnamed: kernel faults of 1 name without a Node: GPU-3 (1 fault,")
    assert nameless == (
        "Nameless: kernel faults without a node's name, and no GPU Node alone has their boot id: "
        "boot 0b6f3c1e (2 faults, the last 2m ago); the collector must name the node on each line"
    )


def test_without_coverage_or_gpu_nodes_there_are_no_coverage_lines() -> None:
    for report in (
        coverage_report(FLEET, None, None),
        coverage_report([], Coverage(NOW), None),
    ):
        assert list(coverage_lines(report, NOW)) == []


def test_the_notes_on_a_node_have_the_start_and_end_of_a_gap() -> None:
    coverage = Coverage(
        NOW,
        gaps=(
            Gap(ago_ns(7200), ago_ns(3600), frozenset({"gpu-1", "gpu-3"})),
            Gap(ago_ns(720), None, frozenset({"gpu-1"})),
        ),
        lost={"gpu-1": Loss(41, ago_ns(60))},
    )

    assert list(notes_on("gpu-1", coverage)) == [
        "its kernel log is missing from 2026-05-06T10:00:00Z to 2026-05-06T11:00:00Z",
        "its kernel log is missing from 2026-05-06T11:48:00Z on",
        "41 records of its kernel log are lost (overwritten, or without the node's name)",
    ]
    assert list(notes_on("gpu-2", coverage)) == []
