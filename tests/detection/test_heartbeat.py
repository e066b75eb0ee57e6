"""The heartbeats and overruns of our kernel-log reader."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from konductor_like.detection import (
    HEARTBEAT_ANCHOR,
    Heartbeat,
    Overrun,
    packaged,
    parse_heartbeat,
    parse_overrun,
)
from konductor_like.model import Source

BOOT = "0b6f3c1e-7d52-4a8e-9a53-1f2e3d4c5b6a"
LINE = f"kmsg/1 heartbeat boot={BOOT} seq=5512 uptime=812.300441 wall=2026-03-03T10:00:00.250Z"
BEAT = Heartbeat(BOOT, 5512, 812_300_441, datetime(2026, 3, 3, 10, 0, 0, 250_000, tzinfo=UTC))


def test_its_wall_time_comes_out_in_utc() -> None:
    heartbeat = parse_heartbeat(LINE.replace("T10:00:00.250Z", "T12:00:00.250+02:00"))
    assert heartbeat == BEAT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1.000000] usb 1-1: new device",
        HEARTBEAT_ANCHOR,
        LINE.partition(" wall")[0],
        LINE.replace("seq=5512", "seq=many"),
        LINE.replace("2026-03-03", "2026-13-03"),
        LINE.replace(".250Z", ".250"),
        LINE.replace("2026-03-03T10:00:00.250Z", "0001-01-01T00:00:00+14:00"),
        LINE + " and more",
        f"saw {LINE}",
        f"kmsg/1 boot={BOOT} seq=1 facility=1 priority=6 [1.000000] {LINE}",
    ],
)
def test_anything_else_is_no_heartbeat(text: str) -> None:
    assert parse_heartbeat(text) is None


def test_the_fault_query_does_not_fetch_heartbeats() -> None:
    assert not any(anchor in LINE for source in Source for anchor in packaged().anchors(source))


def test_wall_time_less_uptime_is_when_the_boot_began() -> None:
    began = BEAT.wall - timedelta(seconds=812, microseconds=300_441)

    assert BEAT.boot_ns == round(began.timestamp() * 1_000_000) * 1000


OVERRUN = f"kmsg/1 gap boot={BOOT} from=100 to=140 lost=41"


@pytest.mark.parametrize(
    "text", [OVERRUN, f"2026-03-03T10:00:00.25Z stdout F {OVERRUN}\n"], ids=["bare", "CRI"]
)
def test_an_overrun_is_read(text: str) -> None:
    assert parse_overrun(text) == Overrun(BOOT, 100, 140, 41)


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        OVERRUN.replace("lost=41", "lost=many"),
        f"{OVERRUN} and more",
        f"kmsg/1 boot={BOOT} seq=1 facility=1 priority=6 [1.000000] {OVERRUN}",
    ],
    ids=["a heartbeat", "bad count", "tail", "by a user"],
)
def test_anything_else_is_no_overrun(text: str) -> None:
    assert parse_overrun(text) is None
