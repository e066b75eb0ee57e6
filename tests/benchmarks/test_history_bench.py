"""The time and memory of ``history`` over a month of audit trail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

MIB, NODES, RSS_MIB = 100, 1000, 128.0


def test_the_history_of_100_mib_of_trail(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tests.benchmarks.trail", str(MIB), str(NODES))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loki:
        assert loki.stdout is not None
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KONDUCTOR_")}
        environment = {**kept, "LOG_ENDPOINT": loki.stdout.readline().strip(), "KUBECONFIG": "none"}
        environment["KONDUCTOR_LOKI_BUDGET_MIB_PER_MINUTE"] = "100000"
        begun = time.monotonic()
        with (tmp_path / "out.csv").open("w") as out:
            process = subprocess.Popen(
                (sys.executable, "-m", "konductor_like.cli", "history", "--since", "30d", "-o", "csv"),
                cwd=tmp_path,
                env={
                    **environment,
                    "HOME": str(tmp_path),
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
                stdout=out,
                stderr=subprocess.DEVNULL,
            )
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begun
        loki.communicate("")
    outages = len((tmp_path / "out.csv").read_text().splitlines()) - 1
    memory = usage.ru_maxrss / 1024
    sys.stdout.write(
        f"\nhistory of {MIB} MiB of trail: {outages:,} outages in {seconds:.0f} s, "
        f"CPU {usage.ru_utime + usage.ru_stime:.0f} s, at most {memory:.0f} MiB (target {RSS_MIB:g})\n"
    )
    assert process.returncode == 3  # there is no cluster
    assert outages > 10_000
    assert memory <= RSS_MIB
