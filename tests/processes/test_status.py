"""What people are told of a controller elsewhere: its settings, and whether it reads the kernel logs."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from konductor_like.demo.stage import Stage
from konductor_like.demo.story import XID_79
from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.http import Request
from tests.benchmarks.test_steady_bench import free_port
from tests.processes.waiting import says, until

pytestmark = pytest.mark.processes

STALE_SECONDS = 3


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(gpu_nodes=5) as ready:
        yield ready


def test_a_brake_that_lets_nothing_through_is_told_as_it_is_from_anywhere(stage: Stage) -> None:
    """The way to look before anything is written: everything is held, and ``status`` lists it."""
    controller = stage.start_controller(
        KONDUCTOR_POLL_INTERVAL_SECONDS="0.2",
        KONDUCTOR_BRAKE_MAX_NODES="0",
        KONDUCTOR_LOKI_BEARER_TOKEN="s3cret-token",
        KONDUCTOR_LOKI_TENANT="s3cret-tenant",
    )
    until(says(controller, "Reading Loki"), "it leads", controller)
    name = stage.gpu_nodes[0]
    stage.kernel(name, XID_79)
    until(lambda: stage.node(name).health == "held", "it is held", controller)
    until(says(controller, "0 may be: the settings allow no taint at all."), "it says why", controller)

    assert not says(controller, "Releasing nodes makes room")()
    held = f"{name}   xid 79"
    told = stage.run("brake", "status").stdout
    assert held in told
    assert "0 of 5 GPU nodes are out, the brake allows 0" in told
    assert "at most 0 of 5 GPU nodes may be" in stage.run("status").stdout
    story = stage.run("explain", "node", name).stdout
    assert "Held back:    xid 79 on GPU 0000:4e:00: 0 of 5 GPU nodes are out, the brake allows 0" in story
    assert "other rules" not in story
    dry_run = stage.run("taint", stage.gpu_nodes[1], "--reason", "x", "--dry-run")
    assert "the controller would not have tainted it now" in dry_run.stderr
    (lease,) = stage.cluster.objects("leases", "konductor-like")
    stored = json.dumps(lease)
    assert "trainy.konduktor.ai/settings" in stored
    assert "s3cret" not in stored
    assert stage.loki.url not in stored


def test_nobody_is_healthy_while_the_kernel_logs_cannot_be_read(stage: Stage) -> None:
    """Heartbeats are answered, the query for faults is refused: silence of a node means nothing."""
    stage.loki.mishaps.add(Mishap(status=500, body="no"), times=None, when=_asks_for_faults)
    port = free_port()
    controller = stage.start_controller(
        KONDUCTOR_POLL_INTERVAL_SECONDS="0.2",
        KONDUCTOR_HEARTBEAT_STALE_SECONDS=str(STALE_SECONDS),
        KONDUCTOR_LISTEN=f"127.0.0.1:{port}",
    )
    until(says(controller, "Reading Loki"), "it leads", controller)
    stage.kernel(stage.gpu_nodes[0], XID_79)
    until(lambda: unread_seconds(port) > STALE_SECONDS, "the cursor is stale", controller)

    assert "so every node that nothing stands against counts as unknown" in answer(port, "/readyz")
    until(lambda: stage.run("status").stdout.startswith("Unread:      kernel logs since"), "it says so")
    done = stage.run("status", "--exit-code")
    assert done.returncode == 5
    assert done.stdout.count(" unknown ") == 5
    assert "healthy" not in done.stdout
    assert done.stderr.startswith("warning: the kernel logs have not been read since")
    assert "kernel log has not been read since" in stage.run("explain", "node", stage.gpu_nodes[0]).stdout


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
