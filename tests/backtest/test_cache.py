"""The cache of a history: files are whole, private and bounded, and damaged files are removed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from konductor_like.backtest.cache import HistoryCache, cache_name
from konductor_like.loki.query.response import Entry
from konductor_like.loki.query.window_query import TimeWindow

LABELS = {"k8s_node_name": "gpu-1", "k8s_namespace_name": "dmesg-logging"}
NAME = cache_name("http://loki:3100", "tenant", "{}")


def entries(*at: int) -> list[Entry]:
    return [Entry(ns, f"NVRM: Xid {ns} \N{SNOWMAN}", LABELS) for ns in at]


def files(root: Path) -> Iterable[Path]:
    return sorted((root / NAME).iterdir())


def test_a_stored_window_is_there_for_the_next_run(tmp_path: Path) -> None:
    HistoryCache(tmp_path, NAME).store(TimeWindow(100, 200), entries(100, 150, 199))

    found = HistoryCache(tmp_path, NAME).window_at(150)

    assert found == (TimeWindow(100, 200), entries(100, 150, 199))


def test_of_two_windows_around_a_moment_the_one_that_ends_later_is_taken(tmp_path: Path) -> None:
    cache = HistoryCache(tmp_path, NAME)
    for window in (TimeWindow(100, 200), TimeWindow(150, 300), TimeWindow(160, 170), TimeWindow(400, 500)):
        cache.store(window, entries(window.start_ns))

    found = cache.window_at(165)

    assert found is not None
    assert found[0] == TimeWindow(150, 300)
    assert cache.window_at(300) is None
    assert cache.next_ns(300) == 400
    assert cache.next_ns(400) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda _: b"",
        lambda _: bytes(40),
        lambda _: None,
    ],
    ids=["cut", "one bit", "empty", "no history", "removed by another process"],
)
def test_a_damaged_file_goes_and_its_window_is_as_if_never_kept(
    tmp_path: Path, damage: Callable[[bytes], bytes | None]
) -> None:
    cache = HistoryCache(tmp_path, NAME)
    cache.store(TimeWindow(100, 200), entries(100))
    [file] = files(tmp_path)
    damaged = damage(file.read_bytes())
    if damaged is None:
        file.unlink()
    else:
        file.write_bytes(damaged)

    assert cache.window_at(100) is None
    assert list(files(tmp_path)) == []
    assert cache.next_ns(0) is None


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    HistoryCache(tmp_path / "new", NAME).store(TimeWindow(100, 200), entries(100))

    (file,) = files(tmp_path / "new")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_the_windows_used_longest_ago_are_removed(tmp_path: Path) -> None:
    cache = HistoryCache(tmp_path, NAME, bytes_most=2000)
    for number in range(1, 31):
        cache.store(TimeWindow(100 * number, 100 * number + 100), entries(100 * number))
        os.utime(tmp_path / NAME / f"{100 * number}-{100 * number + 100}", (number, number))
        if number == 10:
            assert cache.window_at(900) is not None  # used just now

    again = HistoryCache(tmp_path, NAME)
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 2000
    assert again.window_at(100) is None
    assert again.window_at(900) is not None
    assert again.window_at(3000) is not None
