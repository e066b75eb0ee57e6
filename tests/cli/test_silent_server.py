"""An API server that accepts connections and answers nothing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from konductor_like.cli import session
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeTimeout
from konductor_like.exits import Exit
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cli.conftest import Run
from tests.cli.transcripts import forget_settings

COMMANDS = (
    ("status",),
    ("explain", "gpu-1"),
    ("reset", "gpu-1", "--reason", "x"),
    ("taint", "gpu-1", "--reason", "x"),
    ("pause", "--reason", "x"),
    ("brake", "status"),
    ("test", "gpu-1"),
)


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Listen, and answer nothing; commands wait for a fifth of a second."""
    forget_settings(monkeypatch)
    monkeypatch.setattr(session, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(session, "KUBE_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        cluster = {"server": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        config = {
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield listener


def connections(listener: socket.socket) -> int:
    """Return the number of connections that clients have made."""
    found = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return found
        found += 1


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_says_early_that_there_is_no_answer_and_waits_for_one_request_only(
    command: tuple[str, ...], silent: socket.socket, run: Run
) -> None:
    done = run(*command)

    port = silent.getsockname()[1]
    first, *rest = done.err.splitlines()
    assert first == f"warning: no answer yet from http://127.0.0.1:{port} after 0.05 s"
    assert "no complete answer in time" in rest[0]
    assert done.code == Exit.FAILED
    assert connections(silent) == 1


def test_a_process_that_stays_asks_again(silent: socket.socket) -> None:
    client = ReadOnlyKubeClient.connect(None, None, 0.05)

    for _ in range(2):
        with pytest.raises(KubeTimeout):
            client.group_names()

    assert connections(silent) == 2


def test_a_server_that_has_answered_may_be_slow_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with KubernetesServer() as kube:
        client = ReadOnlyKubeClient.connect(str(kube.kubeconfig(tmp_path / "kubeconfig")), None, 0.2)
        client.give_up_early()
        assert client.group_names()
        monkeypatch.setattr(session, "SILENT_SECONDS", 0.0)
        with session._told_of_silence(client):
            time.sleep(0.05)
        assert capsys.readouterr().err == ""

        kube.mishaps.add(Mishap(delay_seconds=0.4))
        with pytest.raises(KubeTimeout):
            client.group_names()

        assert client.group_names()


def test_a_server_that_refuses_connections_is_told_from_a_silent_one(silent: socket.socket, run: Run) -> None:
    silent.close()

    err = run("status").err

    assert "cannot connect: " in err
    assert "no complete answer in time" not in err
