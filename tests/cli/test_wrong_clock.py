"""The clock of the person's machine is wrong: the commands go by the API server's clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from konductor_like.cli import session
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import NOW
from tests.cli.test_status_watch import watching

HOUR = 3600.0
COMMANDS = ("status", "status -o json", "explain gpu-1", "brake status -o json", "test gpu-1 --dry-run")


def be_behind(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Put this machine's clock back, or with a negative number ahead; the server's Date shows it."""
    monkeypatch.setattr(session, "now", lambda: NOW - timedelta(seconds=seconds))
    monkeypatch.setattr("konductor_like.cluster.api.transport.seconds_ahead", lambda *_: seconds)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_wrong_clock_of_the_laptop_changes_no_output(
    seconds: float, command: str, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("one faulty")
    right = run(*command.split())

    be_behind(monkeypatch, seconds)

    assert run(*command.split()) == right


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_watch_goes_by_the_clock_of_the_api_server(
    seconds: float, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("healthy")
    be_behind(monkeypatch, seconds)

    with watching() as found:
        times = [next(found).now, next(found).now]

    assert times == [NOW, NOW]


def test_a_controller_that_died_is_not_running_on_a_laptop_that_is_an_hour_behind(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("healthy")
    monkeypatch.setattr(session, "now", lambda: NOW - timedelta(seconds=HOUR - 400))
    monkeypatch.setattr("konductor_like.cluster.api.transport.seconds_ahead", lambda *_: HOUR)

    done = run("status")

    assert "Controller:  not running" in done.out
    assert "2 unknown" in done.out
