"""The demo is the first thing that people see: it must come true, and say so when it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from konductor_like_sandbox.demo import story
from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.story import Step, StoryError, play

pytestmark = pytest.mark.processes


def test_the_demo_comes_true_as_a_user_runs_it() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "konductor_like.cli", "demo"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "KONDUCTOR_BRAKE_MAX_PERCENT": "100", "WATCHED_NAMESPACES": "not/a/namespace"},
    )

    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "gpu-04 is tainted" in shown.stdout
    assert "the node stays released" in shown.stdout
    assert "All steps passed." in shown.stdout
    assert "audit: taint" not in shown.stdout
    assert max(len(line) for line in shown.stdout.split("$ konductor-like status")[0].splitlines()) <= 90
    assert "10 of 10 kernel logs arrive" in shown.stdout
    assert "not measured" not in shown.stdout
    assert "\x1b[" not in shown.stdout


def test_a_demo_that_is_kept_takes_everything_with_it_when_it_ends(tmp_path: Path) -> None:
    folder, cache = tmp_path / "temporary", tmp_path / "cache"
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder), "XDG_CACHE_HOME": str(cache)}
    kept = subprocess.Popen(
        [sys.executable, "-m", "konductor_like.cli", *["demo", "--nodes=40", "--jobs", "--keep", "-v"]],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert kept.stdout is not None
    with kept, kept.stdout as lines:
        pasted: list[str] = []
        shown = ""
        for line in lines:
            shown += line
            if pasted or "export " in line:
                # a busy machine is slow, and a young controller has not heard the nodes yet
                patient = "until konductor-like doctor --timeout 60; do sleep 3; done"
                pasted.append(line.strip().replace("konductor-like doctor", patient))
            if "demo xid gpu-03 79" in line:
                break
        assert "Node gpu-04 tainted." in shown
        assert "gpu-04 is tainted as the root cause; 9 nodes are collateral and stay in service" in shown
        assert "Failures:    training/PyTorchJob/llama-70b, " in shown
        assert next(folder.iterdir()).name.startswith("konductor-like-")

        # every printed line can be pasted, and the Xid taints the node
        pasted.append("until konductor-like status --state faulty gpu-03 | grep 'xid 79'; do sleep 1; done")
        shell = ["bash", "-euxc", "\n".join(pasted)]
        done = subprocess.run(
            shell, env=environment, capture_output=True, text=True, check=False, timeout=100
        )
        assert done.returncode == 0, done.stderr
        assert "gpu-03: [123" in done.stdout
        assert "19 links: 19 ok, 0 warn" in done.stdout
        assert "audit: taint of node gpu-04 applied" in done.stdout

        kept.terminate()
        assert kept.wait(timeout=60) == 128 + signal.SIGTERM
    assert list(folder.iterdir()) == []
    assert list(cache.rglob("demo-*.json")) == []
    assert [name for name in Path("/proc").glob("[0-9]*") if str(folder) in environment_of(name)] == []


def environment_of(process: Path) -> str:
    """Return the environment of a process; an empty text for a process that ended or is somebody else's."""
    try:
        return (process / "environ").read_text(errors="replace")
    except OSError:
        return ""


def step(happens: Callable[[Stage], bool], must_not: Callable[[Stage], bool]) -> Step:
    return Step("nothing", lambda _stage: None, happens, lambda _stage, _seconds: "", must_not)


def test_a_story_that_does_not_come_true_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "STEP_SECONDS", 0.1)
    with Stage(gpu_nodes=1) as stage:
        controller = stage.start_controller()
        with pytest.raises(StoryError, match=r"Timed out after 0\.1 s\."):
            play(step(lambda _: False, lambda _: False), stage, controller)
        with pytest.raises(StoryError, match="Unexpected state"):
            play(step(lambda _: True, lambda _: True), stage, controller)

        controller.kill()
        with pytest.raises(StoryError, match="ended with exit code"):
            play(step(lambda _: False, lambda _: False), stage, controller)
