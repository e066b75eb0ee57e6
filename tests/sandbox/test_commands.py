"""The stand-ins as programs of their own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.__main__ import main
from tests.contract.kubernetes_target import Answer, Target


def served(module: str, *arguments: str, path: str, end: signal.Signals) -> tuple[str, Answer, int]:
    """What a stand-in says and answers until it is told to stop, and its exit code."""
    command = [sys.executable, "-m", f"konductor_like_sandbox.{module}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            found = re.search(r"http://127.0.0.1:\d+", said)
            assert found is not None
            answer = Target(found[0], {}).get(path)
        finally:
            process.send_signal(end)
        return said + process.stdout.read(), answer, process.wait(30)


def test_the_api_server_serves_a_fleet_until_it_is_told_to_stop(tmp_path: Path) -> None:
    config = tmp_path / "config"
    arguments = ("--nodes=3", "--cpu-nodes=1", f"--kubeconfig={config}", "--refresh-seconds=60")

    said, nodes, code = served("kubernetes", *arguments, path="/api/v1/nodes", end=signal.SIGINT)

    assert (len(nodes.body["items"]), code) == (4, 0)
    assert f"try: kubectl --kubeconfig {config} get nodes\n" in said
    assert config.exists()


def test_loki_serves_until_it_is_told_to_stop() -> None:
    said, ready, code = served("loki", path="/ready", end=signal.SIGTERM)

    assert said.startswith("serving an empty Loki on http://127.0.0.1:")
    assert (ready.body, code) == ("ready\n", 0)


def test_a_port_that_is_taken_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    with KubernetesServer() as server:
        port = server.url.rpartition(":")[2]
        code = main([f"--port={port}", "--nodes=1"])

    assert code == 1
    assert capsys.readouterr().err.startswith(f"cannot listen on port {port}: ")
