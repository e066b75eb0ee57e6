"""The stand-in API server as a program of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from konductor_like.sandbox.kubernetes import KubernetesServer
from konductor_like.sandbox.kubernetes.__main__ import main
from tests.contract.kubernetes_target import Target

COMMAND = [sys.executable, "-m", "konductor_like.sandbox.kubernetes"]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_a_fleet_until_it_is_told_to_stop(tmp_path: Path, end: signal.Signals) -> None:
    kubeconfig = tmp_path / "config"
    arguments = ["--nodes=3", "--cpu-nodes=1", f"--kubeconfig={kubeconfig}", "--refresh-seconds=60"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said, hint = process.stdout.readline(), process.stdout.readline()
            found = re.search(r"http://127.0.0.1:\d+", said)
            assert found is not None
            answer = Target(found[0], {}).get("/api/v1/nodes")
        finally:
            process.send_signal(end)

    assert len(answer.body["items"]) == 4
    assert (process.returncode, hint) == (0, f"try: kubectl --kubeconfig {kubeconfig} get nodes\n")
    assert found[0] in kubeconfig.read_text()


def test_a_port_that_is_taken_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    with KubernetesServer() as server:
        port = server.url.rpartition(":")[2]
        code = main([f"--port={port}", "--nodes=1"])

    assert code == 1
    assert capsys.readouterr().err.startswith(f"cannot listen on port {port}: ")
