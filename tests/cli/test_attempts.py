"""`status` and `explain` show what the controller tried without success."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from konductor_like.cli.explain.node import explain_node, paragraphs
from konductor_like.cli.status.attempts import unwritten_words
from konductor_like.cli.status.report import Fleet, StatusReport, status_report
from konductor_like.cli.status.text import status_lines
from konductor_like.cluster.lease.attempts import ATTEMPTS_ANNOTATION, encode_attempts
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.exits import Exit
from konductor_like.model import Coverage, Verb
from konductor_like.model.attempts import Attempt, Attempts, Doing, Unwritten
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import HOLDER, NOW, RULES, ago, faulty, note_on_the_lease
from tests.cli.test_docs import described, names
from tests.cli.test_explain_node import RUNNING

REFUSED = Attempt(ago(900), ago(42), "patch nodes is forbidden")
TWO = Attempts(
    HOLDER,
    {Doing.KERNEL: Attempt(ago(2)), Doing.WRITE: REFUSED},
    (Unwritten("gpu-1", Verb.TAINT, "xid.79"), Unwritten("gpu-2", Verb.RECORD)),
    taints=1,
    others=1,
    heard=3,
)
FIRST = "1 node should be tainted and cannot be for 42s: patch nodes is forbidden; gpu-1: xid 79"


def test_nodes_that_are_not_named_are_counted_once() -> None:
    counted = Attempts(HOLDER, {Doing.WRITE: replace(REFUSED, error="timed out")}, taints=1)
    assert list(unwritten_words(counted, NOW)) == [
        "1 node should be tainted and cannot be for 42s: timed out"
    ]


def fleet_of(attempts: Attempts, *nodes: dict[str, object]) -> Fleet:
    made = nodes or tuple(make_node(f"gpu-{number}") for number in (1, 2, 3))
    states = {state.name: state for state in map(decode_node, made)}
    controller = replace(RUNNING, attempts=attempts, coverage=Coverage(NOW, listed_are_measured=False))
    return Fleet(NOW, states, controller, states)


def status(attempts: Attempts, *nodes: dict[str, object]) -> StatusReport:
    return status_report(fleet_of(attempts, *nodes))


def health_of(report: StatusReport) -> dict[str, str]:
    return {node.name: node.health.value for node in report.nodes}


def test_the_first_line_is_a_taint_that_could_not_be_written() -> None:
    lines = status_lines(status(TWO))

    assert lines[:2] == [FIRST, "1 node cannot be written for 42s: patch nodes is forbidden; gpu-2"]
    assert lines[2].startswith("3 GPU nodes: 1 held, 1 unknown, 1 healthy")


def test_nodes_without_a_row_for_them_are_counted() -> None:
    many = tuple(Unwritten(f"gpu-{number}", Verb.TAINT, "xid.79") for number in range(1, 8))

    [line, *_] = status_lines(status(replace(TWO, unwritten=many, taints=30, others=0)))

    assert line.startswith("30 nodes should be tainted")
    assert line.endswith("gpu-5: xid 79 and 25 more")


def test_a_node_that_cannot_be_written_is_not_healthy_and_says_why() -> None:
    report = status(TWO)

    assert health_of(report) == {"gpu-1": "held", "gpu-2": "unknown", "gpu-3": "healthy"}
    first = report.nodes[0]
    assert first.qualifier == "not written"
    why = "it should be tainted for xid 79 and cannot be: patch nodes is forbidden"
    doctor = f"{why}; `konductor-like doctor` names the cause"
    assert first.verdict.advice == f"{doctor}; until then `kubectl cordon gpu-1` keeps new jobs away"
    assert first.notes[0] == why
    assert report.nodes[1].verdict.advice.endswith("names the cause"), "this node needs no taint"
    assert any("cannot be" in line and "doctor" in line for line in status_lines(report)[5:])


def test_while_not_all_of_these_nodes_are_named_no_node_counts_as_healthy() -> None:
    found = health_of(status(replace(TWO, taints=2)))

    assert found == {"gpu-1": "held", "gpu-2": "unknown", "gpu-3": "unknown"}


def test_a_tainted_node_whose_record_cannot_be_written_stays_faulty() -> None:
    attempts = replace(TWO, unwritten=(Unwritten("gpu-1", Verb.RECORD),), taints=0)

    assert health_of(status(attempts, faulty("gpu-1"))) == {"gpu-1": "faulty"}


def test_the_node_itself_is_explained_by_the_refusal() -> None:
    found = explain_node("gpu-1", fleet_of(TWO), RULES)

    told = dict(paragraphs(found))
    assert told["Decision"] == (
        "not tainted: it should be tainted for xid 79 and cannot be: patch nodes is forbidden"
    )
    assert found.next_commands == ["konductor-like doctor"]


@pytest.mark.parametrize(
    ("doing", "lines"),
    [(Doing.KERNEL, "kernel lines"), (Doing.POD, "pod lines"), (Doing.HEARTBEAT, "heartbeats")],
)
def test_a_query_of_loki_that_fails_is_told_before_five_minutes_are_over(doing: Doing, lines: str) -> None:
    failing = Attempts(HOLDER, {doing: Attempt(ago(20), ago(9), "Loki: cannot connect: refused")})

    found = status_lines(status(failing))

    assert f"Loki:        the controller cannot read {lines} for 9s: Loki: cannot connect: refused" in found


def test_a_question_about_alerts_that_fails_is_told() -> None:
    failing = Attempts(HOLDER, {Doing.ALERTS: Attempt(ago(90), ago(60), "Prometheus answered 401")})

    assert "Alerts:      not read for 60s: Prometheus answered 401" in status_lines(status(failing))


def test_the_exit_status_and_the_document_show_it(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    cluster("healthy")
    note_on_the_lease(tmp_path, ATTEMPTS_ANNOTATION, encode_attempts(TWO))

    done = run("status", "-o", "json", "--exit-code")

    assert done.code == Exit.FOUND
    found = done.document["controller"]["attempts"]
    assert found["unwritten"][0] == {"node": "gpu-1", "verb": "taint", "rule": "xid.79"}
    assert found["latest"]["write"] == {
        "ok": "2026-05-06T11:45:00Z",
        "since": "2026-05-06T11:59:18Z",
        "error": "patch nodes is forbidden",
    }
    assert names(found) - described("Status") == set()
    assert run("status").out.splitlines()[0] == FIRST
