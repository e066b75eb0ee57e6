"""What a restarted controller knows of the day before, in the real controller: the window, read again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from konductor_like.demo.stage import RunningController, Stage
from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.http import Request
from konductor_like.sandbox.loki import otlp_body, otlp_record
from tests.processes.waiting import says, until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

XID_94 = "NVRM: Xid (PCI:0000:4e:00): 94, pid=4711, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
NCCL = "{pod}:87:912 [3] net_socket.cc:493 NCCL WARN socketProgress: Connection closed by remote peer"
READ = "The past is read again: {0} lines, {0} faults"
HOUR = 3600.0
A_DAY_BACK = {"KONDUCTOR_FIRST_START_ACT_SECONDS": "86400", "KONDUCTOR_LATENESS_SECONDS": "86400"}
"""As if the controller had run for a day: what is that old was acted upon when it came."""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(gpu_nodes=20) as ready:
        yield ready


def job_fails(stage: Stage, job: str, nodes: list[str], hours_ago: float = 0) -> None:
    """Every pod of a JobSet complains about its peers, and no kernel says anything."""
    now_ns = time.time_ns() - round(hours_ago * HOUR * 1e9)
    for number, node in enumerate(nodes):
        pod = f"{job}-workers-0-{number}-x7k2p"
        resource = {
            "k8s.namespace.name": "default",
            "k8s.pod.name": pod,
            "k8s.container.name": "main",
            "k8s.node.name": node,
            "jobset.name": job,
        }
        record = otlp_record(NCCL.format(pod=pod), now_ns + number, now_ns + number)
        stage.loki.push_otlp(otlp_body(resource, [record]))


def xid_94(stage: Stage, node: str, number: int, hours_ago: float = 0) -> None:
    """The kernel tells of contained memory trouble, each time later in the same boot."""
    now_ns = time.time_ns() - round(hours_ago * HOUR * 1e9)
    resource = {
        "k8s.namespace.name": "dmesg-logging",
        "k8s.pod.name": f"dmesg-{node}",
        "k8s.container.name": "dmesg",
        "k8s.node.name": node,
    }
    text = f"[{1_000_000 + 7200 * number}.000000] {XID_94}"
    stage.loki.push_otlp(otlp_body(resource, [otlp_record(text, now_ns, now_ns)]))


def cursor_is_saved(stage: Stage) -> bool:
    [lease] = stage.cluster.objects("leases", "konductor-like")
    return "trainy.konduktor.ai/cursor" in lease["metadata"].get("annotations", {})


def tainted(stage: Stage) -> set[str]:
    return {node.name for node in stage.nodes() if node.tainted}


def suspects(stage: Stage) -> set[str]:
    return {node.name for node in stage.nodes() if node.health == "suspect"}


def started(stage: Stage, **settings: str) -> RunningController:
    controller = stage.start_controller(KONDUCTOR_POLL_INTERVAL_SECONDS="0.2", **settings)
    until(says(controller, "Reading Loki"), "it leads", controller)
    return controller


@pytest.mark.parametrize("restart", [False, True])
def test_of_four_jobs_that_fail_in_a_day_the_one_common_node_is_tainted(
    stage: Stage, *, restart: bool
) -> None:
    names = list(stage.gpu_nodes)
    for number in range(3):
        rest = names[1 + 3 * number : 4 + 3 * number]
        job_fails(stage, f"run-{number}", [names[0], *rest], hours_ago=8 - 2 * number)
    controller = started(stage, **A_DAY_BACK)
    until(lambda: len(suspects(stage)) == 10, "three jobs are judged", controller)
    assert tainted(stage) == set()

    if restart:
        controller.stop()
        controller = started(stage)
        until(says(controller, READ.format(12)), "it reads the past", controller)
        assert tainted(stage) == set()
    job_fails(stage, "run-3", [names[0], *names[10:13]])

    until(lambda: bool(tainted(stage)), "the common node is tainted", controller)
    until(lambda: len(suspects(stage)) == 12, "the fourth job is judged", controller)
    assert tainted(stage) == {names[0]}
    assert "the only node common to 4 jobs" in stage.run("explain", names[0]).stdout
    [event] = [line for line in stage.run("status").stdout.splitlines() if "/run-3," in line]
    assert f"the likeliest first: {names[0]}, " in event


@pytest.mark.parametrize("killed", [False, True])
def test_a_third_xid_94_after_a_restart_taints_and_the_second_does_not(stage: Stage, *, killed: bool) -> None:
    node = stage.gpu_nodes[0]
    xid_94(stage, node, 0, hours_ago=6)
    xid_94(stage, node, 1, hours_ago=4)
    controller = started(stage, **A_DAY_BACK)
    until(lambda: node in suspects(stage), "both are recorded", controller)

    if killed:
        until(lambda: cursor_is_saved(stage), "the cursor is on the Lease", controller)
        controller.kill()
    else:
        controller.stop()
    controller = started(stage)
    until(says(controller, READ.format(2)), "it reads the past", controller)
    assert tainted(stage) == set()
    xid_94(stage, node, 3)

    until(lambda: tainted(stage) == {node}, "the third taints", controller)


def test_a_fault_does_not_wait_for_a_past_that_cannot_be_read(stage: Stage) -> None:
    before = stage.start_controller("--once", **A_DAY_BACK)
    until(lambda: before.process.poll() == 0, "all is read once", before)

    def is_of_the_past(request: Request) -> bool:
        start_ns = int(request.param("start", "0"))
        return "query_range" in request.path and start_ns < time.time_ns() - 2 * HOUR * 1e9

    stage.loki.fail(Mishap(503, "too many outstanding requests"), times=None, when=is_of_the_past)
    controller = started(stage)
    until(says(controller, "cannot read history lines"), "the past is refused", controller)
    stage.kernel(stage.gpu_nodes[0], "NVRM: Xid (PCI:0000:4e:00): 79, pid=1, GPU has fallen off the bus.")
    until(lambda: tainted(stage) == {stage.gpu_nodes[0]}, "it is tainted", controller)
    assert not says(controller, READ.format(0))()

    stage.loki.mishaps.clear()
    until(says(controller, "The past is read again"), "what was refused is read after all", controller)
