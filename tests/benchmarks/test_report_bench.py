"""The time and memory of a report about a month of 1,000 nodes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.history.fleet_month import POOL_LABEL, RACK_LABEL

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

NODES, DAYS, COUNTS = 1000, 30, 40
SECONDS, RSS_MIB = 60.0, 512.0


def test_a_report_about_a_month_of_1000_nodes(tmp_path: Path) -> None:
    kubeconfig, page = tmp_path / "kubeconfig", tmp_path / "report.html"
    arguments = (str(kubeconfig), str(NODES), str(DAYS), str(COUNTS))
    command = (sys.executable, "-m", "tests.benchmarks.month", *arguments)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as servers:
        assert servers.stdout is not None
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KONDUCTOR_")}
        settings = {"LOG_ENDPOINT": servers.stdout.readline().strip(), "KUBECONFIG": str(kubeconfig)}
        labels = {"KONDUCTOR_RACK_LABEL": RACK_LABEL, "KONDUCTOR_POOL_LABEL": POOL_LABEL}
        begun = time.monotonic()
        process = subprocess.Popen(
            (sys.executable, "-m", "konductor_like.cli", "report", "--since", f"{DAYS}d", "-o", str(page)),
            env={**kept, **settings, **labels},
            stdout=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begun
        servers.communicate("")
    assert process.returncode == 0
    memory, size = usage.ru_maxrss / 1024, page.stat().st_size
    sys.stdout.write(
        f"\nreport of {NODES:,} nodes, {DAYS} days: {seconds:.1f} s (target {SECONDS:g}), CPU "
        f"{usage.ru_utime + usage.ru_stime:.1f} s, at most {memory:.0f} MiB ({RSS_MIB:g}); page of "
        f"{size / 1024:.0f} KiB\n"
    )
    assert "xid 119" in page.read_text("utf-8")
    assert seconds <= SECONDS
    assert memory <= RSS_MIB
