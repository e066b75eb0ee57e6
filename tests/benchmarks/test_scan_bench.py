"""``konductor-like scan`` of a large kernel log against ``grep -aE`` with the equivalent alternation.

``KONDUCTOR_BENCH_BYTES`` sets the size of the log (2 GB). Each program reads the log from memory and writes
to a file. The programs alternate and the best of several runs counts. grep runs in the C locale and in UTF-8.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from konductor_like.detection import packaged
from konductor_like.model import Source
from tests.benchmarks import kernel_log

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

BYTES = int(os.environ.get("KONDUCTOR_BENCH_BYTES", "2_000_000_000"))
LARGE_BYTES = 1_000_000_000
"""Bytes of a log below which the start of Python (0.3 s) distorts the comparison."""
ROUNDS = 4
LOCALES = ("C", "C.UTF-8")
EQUIVALENT = "|".join(
    (
        r"Xid \(",
        r"NVRM: .*(fallen off the bus|GFW|(RmInitAdapter|rm_init_adapter).* failed|probe routine failed)",
        r"NVRM: .*(None of the NVIDIA|Rate limiting GSP RPC|may need to be reset|Rx ?Det)",
        r"(peermem|nv_mem)[[:space:]].*(ERROR|invalid page_table)",
        r"in libnccl",
        r"mlx5_.*(health|timeout\. Will|module event\[error|insufficient power|PCIe bandwidth|ACCESS_REG)",
        r"AER: (can't recover|device recovery failed|(Multiple )?(Unc|C)orrect)",
        r"Bus Error: severity=(Unc|C)orrect",
        r"(NVSwitch|multicast team)",
        r"systemd-networkd.*Lost carrier",
    )
)
"""A short pattern that finds the same lines of this log as ``scan``."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scan") / "kern.log"
    free = shutil.disk_usage(path.parent).free
    if free < BYTES * 1.2:
        pytest.skip(f"{free:,} bytes are free, too few for a log of {BYTES:,} (KONDUCTOR_BENCH_BYTES)")
    kernel_log.write(path, BYTES)
    return path


def seconds(command: list[str], output: Path, locale: str) -> float:
    environment = {**os.environ, "LC_ALL": locale}
    with output.open("wb") as file:
        begun = time.perf_counter()
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, env=environment, check=True)
        return time.perf_counter() - begun


def test_scan_finds_what_grep_finds_in_at_most_four_times_its_time(log: Path, tmp_path: Path) -> None:
    found, grepped = tmp_path / "scan", tmp_path / "grep"
    scan = [sys.executable, "-m", "konductor_like.cli", "scan", "-o", "json", str(log)]
    anchors = [part for anchor in packaged().catalog.scan_anchors(Source.KERNEL) for part in ("-e", anchor)]
    greps = {
        "-aF, the anchors alone": ["grep", "-aF", *anchors, str(log)],
        "-aE": ["grep", "-aE", EQUIVALENT, str(log)],
        "-anE": ["grep", "-anE", EQUIVALENT, str(log)],
    }
    taken = float("inf")
    best: dict[tuple[str, str], float] = {}
    for _ in range(ROUNDS):
        taken = min(taken, seconds(scan, found, "C.UTF-8"))
        for name, locale in product(greps, LOCALES):
            least = best.get((locale, name), float("inf"))
            best[locale, name] = min(least, seconds(greps[name], grepped, locale))

    size = log.stat().st_size
    sys.stdout.write(f"\nscan of {size / 1e9:.2f} GB: {taken:.2f} s, {size / taken / 1e9:.2f} GB/s\n")
    for (locale, name), least in best.items():
        sys.stdout.write(
            f"LC_ALL={locale} grep {name}: {least:.2f} s; scan takes {taken / least:.2f} of it\n"
        )
    hits = [f"{hit['line_number']}:{hit['line']}" for hit in map(json.loads, found.read_text().splitlines())]
    assert len(hits) > size / 1e6
    assert hits == grepped.read_text("utf-8").splitlines()
    if size < LARGE_BYTES:
        return
    assert all(taken <= 4 * least for (_, name), least in best.items() if name.endswith("E"))
