"""The demo is the first thing that people see: it must come true, and say so when it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from konductor_like.demo import story
from konductor_like.demo.stage import Stage
from konductor_like.demo.story import Step, StoryError, play

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
    assert "the reset stays reset" in shown.stdout
    assert "Node gpu-04 tainted." in shown.stdout
    assert "The story came true." in shown.stdout
    assert "10 of 10 kernel logs arrive" in shown.stdout
    assert "not measured" not in shown.stdout
    assert "\x1b[" not in shown.stdout


def test_a_demo_that_is_kept_takes_everything_with_it_when_it_ends(tmp_path: Path) -> None:
    kept = subprocess.Popen(
        [sys.executable, "-m", "konductor_like.cli", "demo", "--keep"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert kept.stdout is not None
    with kept, kept.stdout as lines:
        for line in lines:
            if "konductor-like reset" in line and "trying it out" in line:
                break
        assert next(tmp_path.iterdir()).name.startswith("konductor-like-")
        kept.terminate()

        assert kept.wait(timeout=60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def step(happens: Callable[[Stage], bool], must_not: Callable[[Stage], bool]) -> Step:
    return Step("nothing", lambda _stage: None, happens, lambda _stage, _seconds: "", must_not)


def test_a_story_that_does_not_come_true_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "STEP_SECONDS", 0.1)
    with Stage(gpu_nodes=1) as stage:
        controller = stage.start_controller()
        with pytest.raises(StoryError, match="state did not come within"):
            play(step(lambda _: False, lambda _: False), stage, controller)
        with pytest.raises(StoryError, match="must never come"):
            play(step(lambda _: True, lambda _: True), stage, controller)

        controller.kill()
        with pytest.raises(StoryError, match="ended with exit code"):
            play(step(lambda _: False, lambda _: False), stage, controller)
