"""The status that people see of a controller that cannot read the kernel logs."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request

import pytest

from konductor_like.build import this_program
from konductor_like.exits import Exit
from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.story import XID_79
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import Request
from tests.benchmarks.test_steady_bench import free_port
from tests.processes.waiting import logged, until

pytestmark = pytest.mark.processes

STALE_SECONDS = 3


def test_no_node_is_healthy_while_the_kernel_logs_cannot_be_read() -> None:
    """Loki answers queries for heartbeats and refuses those for faults, so no node is known to be healthy."""
    with Stage(gpu_nodes=5) as stage:
        stage.loki.mishaps.add(Mishap(status=500, body="no"), times=None, when=_asks_for_faults)
        port = free_port()
        controller = stage.start_controller(
            KONDUCTOR_POLL_INTERVAL_SECONDS="0.2",
            KONDUCTOR_HEARTBEAT_STALE_SECONDS=str(STALE_SECONDS),
            KONDUCTOR_LISTEN=f"127.0.0.1:{port}",
        )
        until(logged(controller, "Reading Loki"), "it leads", controller)
        stage.kernel(stage.gpu_nodes[0], XID_79)
        until(lambda: unread_seconds(port) > STALE_SECONDS, "the cursor is stale", controller)

        [lease] = stage.cluster.objects("leases", "konductor-like")
        for shown in (
            "".join(controller.log),
            answer(port, "/metrics"),
            json.dumps(lease["metadata"]["annotations"]),
        ):
            assert this_program().build in shown
        assert "so every node without a recorded fault is UNKNOWN" in answer(port, "/readyz")
        single = re.findall(
            r'^konductor_like_node_state\{.*state="(\w+)"\}', answer(port, "/metrics"), re.MULTILINE
        )
        assert single == ["unknown"] * 5
        until(lambda: "\nUnread:      kernel logs since" in stage.run("status").stdout, "it says so")
        done = stage.run("status", "--exit-code")
        assert done.returncode == 5
        assert done.stdout.startswith("5 GPU nodes: 5 unknown\n")
        assert "healthy" not in done.stdout
        assert done.stderr.startswith("warning: the kernel logs have not been read since")
        assert "kernel log has not been read since" in stage.run("explain", "node", stage.gpu_nodes[0]).stdout


def test_a_taint_that_the_controller_may_not_write_is_the_first_line_of_status_and_breaks_doctor() -> None:
    with Stage(gpu_nodes=5) as stage:
        controller = stage.start_controller()
        until(logged(controller, "Reading Loki"), "it leads", controller)
        stage.cluster.access.deny("patch", "nodes")
        stage.kernel(stage.gpu_nodes[3], XID_79)
        words = "1 node should be tainted and cannot be for"

        until(lambda: stage.run("status").stdout.startswith(words), "status shows it", controller)

        done = stage.run("status", "--exit-code")
        assert done.returncode == Exit.FOUND
        assert "patch nodes is forbidden; gpu-04: xid 79" in done.stdout.splitlines()[0]
        checked = stage.run("doctor", "--timeout", "60")
        assert checked.returncode == Exit.FOUND
        assert f"broken   account           {words}" in checked.stdout


def test_the_end_of_loki_is_on_the_lease_before_the_nodes_are_unknown() -> None:
    with Stage(gpu_nodes=5) as stage:
        controller = stage.start_controller()
        until(logged(controller, "Reading Loki"), "it leads", controller)
        stage.loki.stop()

        words = "the controller cannot read kernel lines for"
        until(
            lambda: f"\nLoki:        {words}" in stage.run("status").stdout,
            "status shows it",
            controller,
        )

        done = stage.run("doctor", "--timeout", "60")
        assert done.returncode == Exit.FOUND
        assert f"broken   reading           {words}" in done.stdout
        assert "Loki answered the controller" not in done.stdout


def _asks_for_faults(request: Request) -> bool:
    query = request.param("query")
    return "NVRM" in query and "dmesg" in query


def unread_seconds(port: int) -> float:
    found = re.search(
        r'^konductor_like_unread_seconds\{source="kernel"\} (\S+)$', answer(port, "/metrics"), re.MULTILINE
    )
    return float(found[1]) if found else 0.0


def answer(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return str(response.read(), "utf-8")
    except urllib.error.HTTPError as error:
        return str(error.read(), "utf-8")
