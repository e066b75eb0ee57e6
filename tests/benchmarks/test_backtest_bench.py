"""The time and memory of a backtest over a month of a fleet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

LINES = int(os.environ.get("KONDUCTOR_BENCH_LINES", "2000000"))
NODES, DAYS = 1000, 30
MINUTES, RSS_MIB = 10.0, 256.0


def test_a_backtest_of_1000_nodes_over_a_month(tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text("".join(f"gpu-{number:04}\n" for number in range(1, NODES + 1)))
    command = (sys.executable, "-m", "tests.benchmarks.history", str(LINES), str(NODES), str(DAYS))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loki:
        assert loki.stdout is not None
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KONDUCTOR_")}
        environment = {**kept, "LOG_ENDPOINT": loki.stdout.readline().strip()}
        begun = time.monotonic()
        arguments = ("backtest", "--since", "30d", "--nodes", "nodes.txt", "-o", "json")
        with (tmp_path / "out.json").open("w") as out:
            process = subprocess.Popen(
                (sys.executable, "-m", "konductor_like.cli", *arguments),
                cwd=tmp_path,
                env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdout=out,
                stderr=subprocess.DEVNULL,
            )
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begun
        loki.communicate("")
    assert process.returncode == 0
    found = json.loads((tmp_path / "out.json").read_text())
    memory = usage.ru_maxrss / 1024
    sys.stdout.write(
        f"\nbacktest of {found['history']['lines']['kernel']:,} lines, {NODES:,} nodes, {DAYS} days: "
        f"{seconds / 60:.1f} minutes (target {MINUTES:g}), CPU {usage.ru_utime + usage.ru_stime:.0f} s, "
        f"at most {memory:.0f} MiB ({RSS_MIB:g}); {found['history']['queries']} queries, "
        f"{len(found['verdicts']['outages'])} outages\n"
    )
    assert found["history"]["lines"]["kernel"] >= LINES * 0.99
    assert len(found["verdicts"]["outages"]) > 100 * LINES / 2_000_000
    assert seconds <= MINUTES * 60
    assert memory <= RSS_MIB
