"""Failure groups, read from the records of their nodes."""

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
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import IncidentState, NodeState, Role, Severity, Source
from tests.cli.scenes import NOW, failing_jobs, incident

BASE = decode_node(failing_jobs()[1])


def node(
    name: str,
    *groups: tuple[str, Role, float],
    state: IncidentState = IncidentState.ACTIVE,
    source: Source = Source.KERNEL,
    root_cause: str | None = None,
) -> NodeState:
    """Return a node that is part of these failure groups: name, role, age in seconds."""
    incidents = tuple(
        replace(
            incident(f"xid.{40 + n}", severity=Severity.APPLICATION, state=state, seconds_ago=seconds),
            failure_group=group,
            role=role,
            source=source,
            root_cause=root_cause,
        )
        for n, (group, role, seconds) in enumerate(groups)
    )
    return replace(BASE, name=name, record=replace(BASE.record, incidents=incidents))


def fleet(*states: NodeState) -> dict[str, NodeState]:
    return {state.name: state for state in states}


def test_a_job_that_one_dead_gpu_ended_is_one_failure_with_its_root_cause() -> None:
    nodes = fleet(*map(decode_node, failing_jobs()))

    probe, llama = sorted(shared_failures(nodes, NOW), key=lambda failure: failure.start_ns)

    assert (llama.shared, llama.root_causes, llama.unclear) == ("ml/Job/llama", ("gpu-1",), ())
    assert llama.collateral == tuple(f"gpu-{number}" for number in (2, 3, 4, 5, 6, 7, 8))
    assert failure_sentence(llama, NOW) == "ml/Job/llama, 3m ago, 8 nodes: began on gpu-1; 7 collateral"
    assert (probe.root_causes, set(probe.unclear)) == ((), {"gpu-9", "gpu-10"})


def ranked(
    *, source: Source = Source.POD, role: Role = Role.UNCLEAR, other: str = "ml/Job/b"
) -> FailureReport:
    """Return the latest of two failures; ``gpu-3``, its last node, was also part of the ``other``."""
    nodes = fleet(
        node("gpu-1", ("ml/Job/a", Role.UNCLEAR, 50), source=source),
        node("gpu-2", ("ml/Job/a", Role.UNCLEAR, 60), source=source),
        node("gpu-3", ("ml/Job/a", Role.UNCLEAR, 40), (other, Role.UNCLEAR, 900), source=source),
        node("gpu-4", (other, role, 990), source=source),
    )
    return shared_failures(nodes, NOW)[0]


def test_without_a_root_cause_the_node_with_the_most_failed_jobs_comes_first_then_the_earliest() -> None:
    latest = ranked()

    assert latest.unclear == ("gpu-3", "gpu-2", "gpu-1")
    assert "no known root cause; 3 unclear, the likeliest first: gpu-3, gpu-2, gpu-1" in failure_sentence(
        latest, NOW
    )


def test_a_failure_began_at_the_time_in_its_name_else_with_its_first_recorded_line() -> None:
    name = f"ml/Job/llama@{NOW - timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}"
    for group, text in ((name, "ml/Job/llama, 5m ago, 2 nodes"), ("a", "a, 9h ago, 2 nodes")):
        nodes = fleet(
            node("gpu-1", (group, Role.UNCLEAR, 9 * 3600)), node("gpu-2", (group, Role.UNCLEAR, 300))
        )
        [failure] = shared_failures(nodes, NOW)

        assert failure_sentence(failure, NOW).startswith(text)


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


def test_a_failure_with_one_node_left_is_not_shown() -> None:
    assert shared_failures(fleet(node("gpu-1", ("a", Role.UNCLEAR, 5)), node("gpu-2")), NOW) == ()


def test_an_old_failure_is_shown_while_one_of_its_nodes_has_an_open_fault() -> None:
    nodes = fleet(*map(decode_node, failing_jobs()))
    later = NOW + timedelta(days=2)

    assert {failure.shared for failure in shared_failures(nodes, later)} == {
        "ml/Job/llama",
        "ml/PyTorchJob/probe",
    }
    released = {
        name: node(name, ("a", Role.COLLATERAL, 9), state=IncidentState.RELEASED) for name in ("x", "y")
    }
    assert len(shared_failures(released, NOW)) == 1
    assert shared_failures(released, later) == ()


def test_the_latest_failures_are_shown_and_the_others_counted() -> None:
    many = [(f"job-{n}", Role.UNCLEAR, float(n)) for n in range(FAILURES_SHOWN + 3)]
    nodes = fleet(node("gpu-1", *many), node("gpu-2", *many))
    sentences = [text for _, text in failure_lines(shared_failures(nodes, NOW), NOW)]

    assert len(sentences) == FAILURES_SHOWN + 1
    assert (sentences[0][:6], sentences[-1]) == ("job-0,", "and 3 more failures")


def test_a_root_cause_in_the_others_records_is_named_whatever_its_own_record_contains() -> None:
    others = [node(name, ("a", Role.COLLATERAL, 50), root_cause="gpu-1") for name in ("gpu-2", "gpu-3")]
    dead = decode_node(failing_jobs()[0])
    own = tuple(replace(each, failure_group=None, role=None) for each in dead.record.incidents)
    dead = replace(dead, record=replace(dead.record, incidents=own))

    [failure] = shared_failures(fleet(*others, dead), NOW)
    assert (failure.root_causes, failure.gone) == (("gpu-1",), ())

    [failure] = shared_failures(fleet(*others), NOW)
    assert (failure.root_causes, failure.gone) == ((), ("gpu-1",))
    assert "began on gpu-1, without a recorded fault; 2 collateral" in failure_sentence(failure, NOW)
