"""The stage that the story plays on lives as long as it stands: its kernel-log readers go on beating."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import httpx
import pytest

from konductor_like.detection.heartbeat import Heartbeat, parse_heartbeat
from konductor_like.jobs import job_of_pod
from konductor_like.notify.messages import trial_message
from konductor_like.notify.webhook import webhooks
from konductor_like.settings import Settings
from konductor_like_sandbox.demo.chat import Chat
from konductor_like_sandbox.demo.fleet import settings_of, steps
from konductor_like_sandbox.demo.jobs import jobs_on
from konductor_like_sandbox.demo.stage import RunningController, Stage
from tools.generate_docs import DOCS

SECOND_NS = 1_000_000_000
TEN_MINUTES = 600
STALE_SECONDS = 300
BOOT = "b2000000-0000-4000-8000-000000000002"


class Clock:
    """Time passes only while somebody waits; ten minutes later it is over."""

    def __init__(self, end_ns: int, seconds: int = TEN_MINUTES) -> None:
        self.end_ns = end_ns
        self.now_ns = end_ns - seconds * SECOND_NS

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


def test_a_stage_that_is_kept_for_long_forgets_what_is_older_than_an_hour() -> None:
    clock = Clock(time.time_ns(), seconds=2 * 3600)
    with Stage(gpu_nodes=1) as stage:
        beats(stage, "gpu-01")

        stage.beat(clock.wait, clock)

        assert stage.loki.line_count == 61
        assert stage.loki.journal == []


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


@pytest.mark.parametrize("nodes", [40, 100, 600, 2000])
def test_the_jobs_of_a_fleet_share_no_node_and_leave_some_idle(nodes: int) -> None:
    names = [f"gpu-{number}" for number in range(nodes)]
    jobs = jobs_on(names)
    taken = [name for job in jobs for name in job.nodes]

    assert taken == names[: len(taken)]
    assert nodes * 0.8 < len(taken) < nodes
    assert len(jobs[0].nodes) == min(64, nodes // 4)
    assert len({job.name for job in jobs}) == len(jobs)
    for size in range(40, 2001, 7):
        assert sum(len(job.nodes) for job in jobs_on([str(number) for number in range(size)])) < size
    pod = jobs[0].pod(names[0])
    owners = [(owner["kind"], owner["name"]) for owner in pod["metadata"]["ownerReferences"]]
    assert job_of_pod(pod["metadata"]["labels"], owners, "training", pod["metadata"]["name"]) == (
        f"training/PyTorchJob/{jobs[0].name}"
    )


@pytest.mark.parametrize(("nodes", "singles", "row"), [(40, 1, 4), (77, 1, 4), (600, 8, 24), (2000, 8, 24)])
def test_the_story_of_a_fleet_fits_its_size(nodes: int, singles: int, row: int) -> None:
    """The brake allows as many nodes as the row has, so the story ends with some of them held."""
    stage = Stage(nodes, jobs=True)
    [start, job, single, rows] = steps(RunningController.__new__(RunningController), stage)

    assert f"{nodes} GPU nodes" in start.title
    assert f"llama-70b dies on its {len(stage.jobs[0].nodes)} nodes" in job.title
    assert f"{singles} fatal" in single.title
    assert f"the GPUs of {row} nodes" in rows.title
    assert settings_of(nodes)["KONDUCTOR_BRAKE_MAX_NODES"] == str(row)


def test_the_names_of_a_fleet_sort_by_number() -> None:
    assert Stage(600).gpu_nodes[::599] == ("gpu-001", "gpu-600")


def test_the_demos_chat_takes_a_message_as_slack_does(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    with Chat(shown.append) as chat:
        for name, value in chat.settings.items():
            monkeypatch.setenv(name, value)
        [slack] = webhooks(Settings())
        replace(slack, cluster="a < b").send(trial_message(datetime.now(UTC)))

    assert slack.cluster == "demo"
    [text] = shown
    assert "a < b" in text
    assert "&" not in text


def test_make_hands_settings_on_its_command_line_to_the_demo() -> None:
    made = subprocess.run(
        ["make", "--dry-run", "demo", "KONDUCTOR_RETURN=reboot", "WATCHED_NAMESPACES=it's", "ARGS=--keep"],
        cwd=DOCS.parent,
        env={**os.environ, "KONDUCTOR_BRAKE_MAX_NODES": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = shlex.split(made.stdout.splitlines()[-1])

    assert sorted(words[words.index("demo") :]) == sorted(
        ["demo", "--keep", "--set", "KONDUCTOR_RETURN=reboot", "--set", "WATCHED_NAMESPACES=it's"]
    )


def test_a_setting_of_the_demo_is_the_controllers_and_checked_before_it_starts() -> None:
    with Stage(gpu_nodes=1, settings={"KONDUCTOR_RETURN": "reboot"}) as stage:
        found = stage.run("check-config", "-o", "json")
        assert '"KONDUCTOR_RETURN"' in found.stdout
        assert '"reboot"' in found.stdout
    with Stage(gpu_nodes=1, settings={"KONDUCTOR_RETRUN": "reboot"}) as stage:
        assert stage.run("check-config").returncode == 2
