"""The time of a line is shown with its zone, or with a note that there is none."""

from __future__ import annotations

import pytest

from konductor_like.detection.line_time import time_text
from konductor_like.model import KernelPosition

SINCE_BOOT = KernelPosition(stamp_us=81_234_567_890)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("2026-05-06T11:56:48+02:00 gpu-1 kernel: NVRM", "2026-05-06T09:56:48Z"),
        ("2026-05-06T11:56:48,123456+0200 gpu-1 kernel: NVRM", "2026-05-06T09:56:48Z"),
        ("2026-05-06T11:56:48.1Z stderr F RuntimeError", "2026-05-06T11:56:48Z"),
        ("Wed 2026-05-06 11:56:48 UTC gpu-1 kernel: NVRM", "2026-05-06T11:56:48Z"),
        ("Wed 2026-05-06 11:56:48 CEST gpu-1 kernel: NVRM", "2026-05-06 11:56:48 CEST"),
        ("2026-05-06 11:56:48,123 ERROR cuda", "2026-05-06 11:56:48 (no zone)"),
        ("May  6 11:56:48 gpu-1 kernel: [81234.567890] NVRM", "May  6 11:56:48 (no zone)"),
        ("[Wed May  6 11:56:48 2026] NVRM", "May  6 11:56:48 2026 (no zone)"),
        ("1778068608.123456 gpu-1 kernel: NVRM", "2026-05-06T11:56:48Z"),
        ('{"MESSAGE":"NVRM","__REALTIME_TIMESTAMP":"1778068608123456"}', "2026-05-06T11:56:48Z"),
        ('{"log":"NVRM","stream":"stdout","time":"2026-05-06T11:56:48.1Z"}', "2026-05-06T11:56:48Z"),
        ("[81234.567890] NVRM: Xid", "81234s after boot"),
        ("2026-13-41T99:56:48Z NVRM", "2026-13-41 99:56:48 (no zone)"),
        ("0001-01-01T00:00:00+14:00 NVRM", "0001-01-01 00:00:00 (no zone)"),
    ],
)
def test_the_time_of_a_line(line: str, text: str) -> None:
    assert time_text(line, SINCE_BOOT) == text


def test_a_line_without_a_time_has_none() -> None:
    assert time_text("NVRM: Xid (PCI:0000:9b:00): 79", KernelPosition()) == ""
