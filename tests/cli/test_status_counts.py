"""``status`` of a fleet: numbers first, each fault once, and only the nodes that a person has to see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.counts import advice_by_fault, fault_groups
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import StatusReport, node_reports
from konductor_like.cli.status.text import Order, View, status_lines
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import (
    OPT_OUT_LABEL,
    BrakeState,
    Coverage,
    IncidentState,
    KernelPosition,
    MetBy,
    Release,
    ReleaseHow,
)
from konductor_like.policy.node.health import Health
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_node
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import (
    NOW,
    OUR_TAINT,
    ago,
    boot_of,
    every_state,
    faulty,
    fleet_of_300,
    held,
    incident,
    with_record,
)

ALL_HEARD = Coverage(NOW, listed_are_measured=False)
REMINDER = "The node has not rebooted since: xid 79 on GPU 0000:9b:00: Reboot the node."


def report(nodes: list[dict[str, object]], coverage: Coverage = ALL_HEARD) -> StatusReport:
    brake, controller = BrakeState(12, 2, 2), ControllerReport("ns/lease", coverage=coverage)
    reports = node_reports(map(decode_node, nodes), controller, brake, NOW)
    return StatusReport(NOW, brake, replace(controller, coverage=None), reports, fleet_size=len(nodes))


def names(nodes: list[dict[str, object]], view: View) -> list[str]:
    return [node.name for node in view.chosen(report(nodes))]


def reset(name: str, *, tainted: bool = False) -> dict[str, object]:
    """Return a node that was reset and has not rebooted."""
    node = make_node(name)
    mark = Release(ago(60), "kim", "", ReleaseHow.RESET, KernelPosition(boot_of(node)), warning=REMINDER)
    return with_record(node, *([incident()] if tainted else []), tainted=tainted, release=mark)


def test_the_needs_of_a_fault_leave_out_none_beside_another() -> None:
    met = with_record(make_node("gpu-2"), replace(incident(), met_ns=1, met_by=MetBy.REBOOT), tainted=True)

    assert [group.needs for group in fault_groups(report([faulty("gpu-1"), met]).nodes)] == ["reboot"]
    assert [group.needs for group in fault_groups(report([met]).nodes)] == ["none"]


def test_a_fault_has_the_title_of_a_node_whose_record_still_has_one() -> None:
    """A record in short may have lost it."""
    short = with_record(make_node("gpu-1"), replace(incident(), title=""), tainted=True)

    [group] = fault_groups(report([short, faulty("gpu-2")]).nodes)

    assert group.title == incident().title


def test_the_first_line_has_the_numbers() -> None:
    assert status_lines(report(fleet_of_300()))[0] == (
        "300 GPU nodes: 5 faulty, 2 held, 4 suspect, 289 healthy"
    )
    chosen = replace(report([faulty("gpu-1")]), fleet_size=300)
    assert status_lines(chosen)[0] == "1 of 300 GPU nodes: 1 faulty"


def test_a_tainted_node_without_a_gpu_counts_as_a_node() -> None:
    tainted = make_cpu_node("cpu-1")
    tainted["spec"]["taints"] = [dict(OUR_TAINT)]

    assert status_lines(report([tainted]))[0] == "1 node: 1 faulty"


def test_cordoned_and_not_ready_nodes_are_counted_marked_and_chosen() -> None:
    away = make_node("gpu-2", ready=False)
    away["spec"]["unschedulable"] = True
    found = report([faulty("gpu-1"), away, make_node("gpu-3")])

    assert status_lines(found)[0] == "3 GPU nodes: 1 faulty, 2 healthy (1 cordoned, 1 not ready)"
    for word in ("cordoned", "not ready"):
        lines = status_lines(found, View(states=frozenset({word})))
        assert next(line for line in lines if line.startswith("gpu-")).startswith(
            "gpu-2   healthy (cordoned, not ready)"
        )
    node = status_document(found, {"cordoned"})["nodes"]
    assert [(each["name"], each["cordoned"], each["ready"]) for each in node] == [("gpu-2", True, False)]


def test_a_fault_of_an_ignored_node_is_counted_in_a_column_of_its_own() -> None:
    ignored = with_record(make_node("gpu-2"), incident(state=IncidentState.HELD))
    ignored["metadata"]["labels"][OPT_OUT_LABEL] = "true"
    lines = status_lines(report([faulty("gpu-1"), ignored, make_node("gpu-3")]))

    assert lines[0] == "3 GPU nodes: 1 faulty, 1 ignored, 1 healthy"
    [head] = [line for line in lines if line.startswith("FAULT ")]
    [row] = [line for line in lines if line.startswith("xid 79 ")]
    assert dict(zip(head.split()[1:5], row.split()[2:6], strict=True)) == {
        "FAULTY": "1", "HELD": "0", "SUSPECT": "0", "IGNORED": "1",
    }  # fmt: skip
    [row] = [line for line in lines if line.startswith("gpu-2 ")]
    assert row.split()[1:2] == ["ignored"]
    assert "xid 79" in row


def test_each_fault_and_its_advice_come_once_and_their_numbers_add_up() -> None:
    found = report(fleet_of_300())
    groups = fault_groups(found.nodes)
    lines = status_lines(found)

    assert [(each.rule, *(each.counts[health] for health in Health)) for each in groups] == [
        ("xid.79", 5, 0, 1, 0, 0, 0, 0, 0),
        ("xid.95", 0, 2, 0, 0, 0, 0, 0, 0),
        ("xid.63", 0, 0, 3, 0, 0, 0, 0, 0),
    ]
    assert sum("Work may go on" in line for line in lines) == 1
    assert len(lines) < 30


def test_different_advice_on_one_fault_is_told_with_the_nodes_it_is_for() -> None:
    replaced = with_record(make_node("gpu-3"), replace(incident(), advice="Have it replaced."), tainted=True)
    found = report([faulty("gpu-1"), faulty("gpu-2"), replaced])

    assert advice_by_fault(fault_groups(found.nodes), found.nodes) == [
        ("xid 79", ["2 nodes: Drain the node and reboot it.", "gpu-3: Have it replaced."])
    ]


def test_a_row_names_the_need_of_each_of_its_nodes_the_gravest_first() -> None:
    again = with_record(make_node("gpu-2"), replace(incident(), needs="inspection"), tainted=True)
    found = report([faulty("gpu-1"), again, faulty("gpu-3")])

    [row] = [line for line in status_lines(found) if line.startswith("xid 79 ")]

    assert "inspection, reboot" in row


def test_a_node_with_several_faults_counts_for_the_gravest_need_and_the_other_rows_say_so() -> None:
    milder = replace(incident("xid.48", "0000:1b:00", seconds_ago=900), needs="gpu-reset")
    both = with_record(make_node("gpu-1"), milder, incident(), tainted=True)
    found = report([both, with_record(make_node("gpu-2"), milder, tainted=True), faulty("gpu-3")])

    rows = {line[:6]: line for line in status_lines(found) if line.startswith("xid ")}

    assert rows["xid 79"].split()[2:5] == ["2", "0", "0"]
    assert rows["xid 48"].split()[2:5] == ["1", "0", "0"]
    assert rows["xid 48"].endswith("(also on 1 further node)")
    [row] = [line for line in status_lines(found) if line.startswith("gpu-1 ")]
    assert "xid 79 (+1)   0000:9b:00" in row


@pytest.mark.parametrize(
    ("view", "shown"),
    [
        (View(), ["gpu-1", "gpu-6", "gpu-2", "gpu-3", "gpu-5", "gpu-10", "gpu-8"]),
        (View(states=frozenset({Health.HELD})), ["gpu-2"]),
        (View(states=frozenset({Health.HELD, Health.FAULTY}), order=Order.NAME), ["gpu-1", "gpu-2", "gpu-6"]),
        (View(order=Order.AGE), ["gpu-2", "gpu-1", "gpu-5", "gpu-3", "gpu-6", "gpu-10", "gpu-8"]),
        (View(order=Order.FAULT), ["gpu-1", "gpu-3", "gpu-5", "gpu-2", "gpu-6", "gpu-10", "gpu-8"]),
    ],
    ids=["not healthy", "one state", "by name", "by age", "by fault"],
)
def test_the_options_choose_and_order_the_nodes(view: View, shown: list[str]) -> None:
    assert names(every_state(), view) == shown


def test_healthy_nodes_are_listed_if_they_are_asked_for(cluster: Cluster, run: Run) -> None:
    cluster("healthy")

    assert "gpu-1 " not in run("status").out
    for options in (["--show-healthy"], ["gpu-1"], ["--state", "healthy"]):
        assert "\ngpu-1   healthy" in run("status", *options).out


def test_the_names_are_those_of_the_table(cluster: Cluster, run: Run) -> None:
    cluster("one faulty")

    assert run("status", "-o", "name").out == "node/gpu-1\n"
    assert run("status", "-o", "name", "--show-healthy").out.startswith("node/gpu-1\nnode/gpu-2\n")


def test_nodes_that_are_not_measured_are_only_counted() -> None:
    """Where people use a reader of their own, no node has heartbeats: a row for each says nothing."""
    listed = Coverage(NOW, listed=frozenset({"gpu-1"}), listed_are_measured=False)

    assert "gpu-1" not in "".join(status_lines(report([make_node("gpu-1")], listed)))
    assert status_lines(report([make_node("gpu-1")], listed))[0] == "1 GPU node: 1 not measured"


def test_an_unknown_state_is_refused_with_the_known_ones(run: Run) -> None:
    done = run("status", "--state", "faulty,broken")

    assert done.code == 2
    assert done.err == (
        "error: --state: 'broken' is not a state; "
        "the states are faulty, held, suspect, probation, ignored, unknown, not-measured, healthy, "
        "cordoned, not-ready\n"
    )


def test_a_node_that_was_released_with_a_need_is_counted_and_marked() -> None:
    found = report([reset("gpu-1"), make_node("gpu-2")])
    lines = status_lines(found, View(everything=True))

    assert lines[0] == "2 GPU nodes: 2 healthy (1 released with a need)"
    assert lines[-2].startswith("gpu-1   healthy (released with need: reboot)")
    assert found.nodes[0].alarms == []
    assert found.nodes[0].warnings == [REMINDER]


def test_a_node_that_is_tainted_again_is_not_reminded_of_a_reboot() -> None:
    (node,) = report([reset("gpu-1", tainted=True)]).nodes

    assert (node.qualifier, node.warnings) == ("", [])


def test_the_document_has_the_numbers_of_all_chosen_nodes() -> None:
    document = status_document(report([faulty("gpu-1"), held("gpu-2"), reset("gpu-3")]), {Health.HELD})

    assert document["summary"] == {
        "nodes": 3,
        "faulty": 1,
        "held": 1,
        "suspect": 0,
        "probation": 0,
        "ignored": 0,
        "unknown": 0,
        "notMeasured": 0,
        "healthy": 1,
        "notRebooted": 1,
        "releasedWithNeed": 1,
        "cordoned": 0,
        "notReady": 0,
        "validationsWaiting": 0,
        "validationsRunning": 0,
    }
    assert [node["name"] for node in document["nodes"]] == ["gpu-2"]
