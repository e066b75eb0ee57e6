"""The stage that the story plays on lives as long as it stands: its kernel-log readers go on beating."""

from __future__ import annotations

import time
from itertools import pairwise

import httpx

from konductor_like.demo.stage import Stage
from konductor_like.detection.heartbeat import Heartbeat, parse_heartbeat

SECOND_NS = 1_000_000_000
TEN_MINUTES = 600
STALE_SECONDS = 300
BOOT = "b2000000-0000-4000-8000-000000000002"


class Clock:
    """Time passes only while somebody waits; ten minutes later it is over."""

    def __init__(self, end_ns: int) -> None:
        self.end_ns = end_ns
        self.now_ns = end_ns - TEN_MINUTES * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> bool:
        """Let that time pass; whether it is over."""
        self.now_ns += round(seconds * SECOND_NS)
        return self.now_ns > self.end_ns


def beats(stage: Stage, node: str) -> list[Heartbeat]:
    """The heartbeats of a node that Loki holds, the oldest first."""
    query = {"query": f'{{k8s_pod_name="dmesg-{node}"}}', "direction": "forward"}
    answer = httpx.get(f"{stage.loki.url}/loki/api/v1/query_range", params=query).raise_for_status().json()
    lines = [line for stream in answer["data"]["result"] for _, line, *_ in stream["values"]]
    return [beat for line in lines if (beat := parse_heartbeat(line))]


def test_every_node_beats_for_as_long_as_the_stage_is_kept() -> None:
    clock = Clock(time.time_ns())
    with Stage(gpu_nodes=2) as stage:
        stage.beat(clock.wait, clock)

        for name in stage.gpu_nodes:
            heard = beats(stage, name)
            walls = [beat.wall.timestamp() for beat in heard]
            pauses = [after - before for before, after in pairwise(walls)]
            assert walls[-1] - walls[0] >= TEN_MINUTES - STALE_SECONDS / 2
            assert max(pauses) < STALE_SECONDS / 2
            assert max(beat.boot_ns for beat in heard) - min(beat.boot_ns for beat in heard) < SECOND_NS


def test_a_node_that_somebody_deletes_ends_no_other_ones_heartbeats() -> None:
    clock = Clock(time.time_ns())
    with Stage(gpu_nodes=2) as stage:
        stage.cluster.delete_node("gpu-01")

        stage.beat(clock.wait, clock)

        assert beats(stage, "gpu-01") == []
        assert len(beats(stage, "gpu-02")) > 1


def test_after_a_reboot_the_heartbeats_of_a_node_are_of_a_boot_that_began_then() -> None:
    clock = Clock(time.time_ns())
    with Stage(gpu_nodes=1) as stage:
        stage.heartbeats(clock())
        rebooted_ns = clock() + 60 * SECOND_NS
        stage.cluster.edit_node("gpu-01", lambda node: node["status"]["nodeInfo"].update(bootID=BOOT))

        stage.heartbeats(rebooted_ns)

        first, last = beats(stage, "gpu-01")
        assert (first.boot_id == BOOT, last.boot_id) == (False, BOOT)
        assert abs(last.boot_ns - rebooted_ns) < SECOND_NS


def test_a_setting_of_the_demo_is_the_controllers_and_checked_before_it_starts() -> None:
    with Stage(gpu_nodes=1, settings={"KONDUCTOR_RETURN": "reboot"}) as stage:
        found = stage.run("check-config", "-o", "json")
        assert '"KONDUCTOR_RETURN"' in found.stdout
        assert '"reboot"' in found.stdout
    with Stage(gpu_nodes=1, settings={"KONDUCTOR_RETRUN": "reboot"}) as stage:
        assert stage.run("check-config").returncode == 2
