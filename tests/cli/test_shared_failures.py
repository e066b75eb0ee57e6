"""Events on many nodes, read from their nodes' records: one thing each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from konductor_like.cli.status.shared_failures import (
    FAILURES_SHOWN,
    FailureReport,
    failure_lines,
    failure_sentence,
    shared_failures,
)
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.model import IncidentState, NodeState, Role, Severity, Source
from tests.cli.scenes import NOW, ago_ns, in_event, incident

BASE = decode_node(in_event()[1])


def node(
    name: str,
    *events: tuple[str, Role, float],
    state: IncidentState = IncidentState.ACTIVE,
    source: Source = Source.KERNEL,
) -> NodeState:
    """A node that is part of these events: name, role, how many seconds ago."""
    incidents = tuple(
        replace(
            incident(f"xid.{40 + n}", severity=Severity.APPLICATION, state=state, seconds_ago=seconds),
            failure_group=event,
            role=role,
            source=source,
        )
        for n, (event, role, seconds) in enumerate(events)
    )
    return replace(BASE, name=name, record=replace(BASE.record, incidents=incidents))


def fleet(*states: NodeState) -> dict[str, NodeState]:
    return {state.name: state for state in states}


def test_a_job_that_one_dead_gpu_ended_is_one_event_with_its_origin() -> None:
    nodes = fleet(*map(decode_node, in_event()))

    probe, llama = sorted(shared_failures(nodes, NOW), key=lambda event: event.start_ns)

    assert (llama.shared, llama.root_causes, llama.unclear) == ("ml/Job/llama", ("gpu-1",), ())
    assert llama.collateral == tuple(f"gpu-{number}" for number in (2, 3, 4, 5, 6, 7, 8))
    assert failure_sentence(llama, NOW) == "ml/Job/llama, 3m ago, 8 nodes: began on gpu-1; 7 collateral"
    assert (probe.root_causes, set(probe.unclear)) == ((), {"gpu-9", "gpu-10"})


def ranked(
    *, source: Source = Source.POD, role: Role = Role.UNCLEAR, other: str = "ml/Job/b"
) -> FailureReport:
    """The latest of two events; ``gpu-3``, the last to tell of it, was part of the ``other``, too."""
    nodes = fleet(
        node("gpu-1", ("ml/Job/a", Role.UNCLEAR, 50), source=source),
        node("gpu-2", ("ml/Job/a", Role.UNCLEAR, 60), source=source),
        node("gpu-3", ("ml/Job/a", Role.UNCLEAR, 40), (other, Role.UNCLEAR, 900), source=source),
        node("gpu-4", (other, role, 990), source=source),
    )
    return shared_failures(nodes, NOW)[0]


def test_with_no_origin_in_sight_the_node_of_the_most_failed_jobs_comes_first_then_the_earliest() -> None:
    latest = ranked()

    assert latest.unclear == ("gpu-3", "gpu-2", "gpu-1")
    assert "no root cause in sight; 3 unclear, the likeliest first: gpu-3, gpu-2, gpu-1" in failure_sentence(
        latest, NOW
    )


def test_an_event_began_when_its_name_says_however_old_its_nodes_incidents_are() -> None:
    name = f"ml/Job/llama@{NOW - timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}"
    nodes = fleet(node("gpu-1", (name, Role.UNCLEAR, 9 * 3600)), node("gpu-2", (name, Role.UNCLEAR, 300)))

    [event] = shared_failures(nodes, NOW)

    assert failure_sentence(event, NOW).startswith("ml/Job/llama, 5m ago, 2 nodes")


@pytest.mark.parametrize(
    "latest",
    [
        pytest.param(ranked(role=Role.ROOT_CAUSE), id="one that began elsewhere"),
        pytest.param(ranked(source=Source.KERNEL), id="one that was cancelled: no pod says that it failed"),
        pytest.param(ranked(other="ml/PyTorchJob/a"), id="the same job again"),
        pytest.param(ranked(other="domain rack-7"), id="no job at all"),
    ],
)
def test_as_for_the_controller_this_is_no_further_failed_job(latest: FailureReport) -> None:
    assert latest.unclear == ("gpu-2", "gpu-1", "gpu-3")


def test_what_is_left_on_one_node_is_no_event() -> None:
    assert shared_failures(fleet(node("gpu-1", ("a", Role.UNCLEAR, 5)), node("gpu-2")), NOW) == ()


def test_an_old_event_is_shown_for_as_long_as_anything_stands_against_its_nodes() -> None:
    nodes = fleet(*map(decode_node, in_event()))
    later = NOW + timedelta(days=2)

    assert {event.shared for event in shared_failures(nodes, later)} == {
        "ml/Job/llama",
        "ml/PyTorchJob/probe",
    }
    released = {
        name: node(name, ("a", Role.COLLATERAL, 9), state=IncidentState.RELEASED) for name in ("x", "y")
    }
    assert len(shared_failures(released, NOW)) == 1
    assert shared_failures(released, later) == ()


def test_the_latest_few_are_shown_and_the_others_counted() -> None:
    many = [(f"job-{n}", Role.UNCLEAR, float(n)) for n in range(FAILURES_SHOWN + 3)]
    lines = list(failure_lines(shared_failures(fleet(node("gpu-1", *many), node("gpu-2", *many)), NOW), NOW))

    assert [label for label, _ in lines] == ["Failures"] * (FAILURES_SHOWN + 1)
    assert lines[0][1].startswith("job-0, ")
    assert lines[-1][1] == "and 3 more failures"


def test_an_event_begins_with_its_first_line_on_record() -> None:
    nodes = fleet(node("gpu-1", ("a", Role.ROOT_CAUSE, 60)), node("gpu-2", ("a", Role.COLLATERAL, 58)))

    [event] = shared_failures(nodes, NOW)

    assert event.start_ns == ago_ns(60)
    assert event.nodes == ("gpu-1", "gpu-2")


def test_an_origin_that_is_known_by_the_others_is_named_whatever_its_own_record_says() -> None:
    wake = [node(name, ("a", Role.COLLATERAL, 50)) for name in ("gpu-2", "gpu-3")]
    wake = [
        replace(
            state,
            record=replace(
                state.record,
                incidents=tuple(replace(i, root_cause="gpu-1") for i in state.record.incidents),
            ),
        )
        for state in wake
    ]
    dead = replace(decode_node(in_event()[0]), name="gpu-1")
    dead = replace(
        dead,
        record=replace(
            dead.record,
            incidents=tuple(replace(i, failure_group=None, role=None) for i in dead.record.incidents),
        ),
    )

    [told] = shared_failures(fleet(*wake, dead), NOW)
    assert (told.root_causes, told.gone) == (("gpu-1",), ())

    [told] = shared_failures(fleet(*wake), NOW)
    assert (told.root_causes, told.gone) == ((), ("gpu-1",))
    assert "began on gpu-1, of which nothing is on record; 2 collateral" in failure_sentence(told, NOW)
