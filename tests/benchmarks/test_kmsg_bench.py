"""The kernel-log reader's figures: loss over a million records, records a second, and memory."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.kmsg.machine import audited_flood
from tests.kmsg.process import reader_process
from tests.kmsg.scripted import record

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

MILLION = 1_000_000
TEXT = "NVRM: Xid (PCI:0000:4e:00): 13, pid=41187, name=python3, Graphics Exception: ESR 0x505730=0x104000e"


def test_each_of_a_million_records_is_printed_or_named_in_a_gap() -> None:
    account = audited_flood(MILLION, seed=2)

    sys.stdout.write(
        f"\n{MILLION:,} records: {account.lines:,} lines, {account.joined:,} fragments joined, "
        f"{account.lost:,} overwritten and named in {account.gaps:,} gaps; 0 lost, 0 invented\n"
    )


def test_the_reader_reads_50000_records_a_second_in_20_mib(tmp_path: Path) -> None:
    batch = [record(i, TEXT) for i in range(MILLION // 2)]
    with reader_process(tmp_path) as reader:
        reader.feed(batch[:1])
        reader.until("heartbeat")
        began = time.perf_counter()
        reader.feed(batch[1:])
        reader.feed([record(len(batch), "last")])
        reader.until("] last\n")
        rate = len(batch) / (time.perf_counter() - began)
        peak_mib = reader.peak_bytes() / (1 << 20)
        with reader.output.open("rb") as file:
            printed = sum(b"] " in line for line in file)

    sys.stdout.write(f"\n{rate:,.0f} records/s from a pipe to a file; at most {peak_mib:.1f} MiB in use\n")
    assert printed == len(batch) + 1
    assert rate >= 50_000
    assert peak_mib <= 20
