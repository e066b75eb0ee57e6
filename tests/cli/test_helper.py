"""One large file searched by two processes: the same as by one, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konductor_like.cli import helper as helping
from konductor_like.cli.helper import WORTH_HELP_BYTES, helper, is_of_use
from konductor_like.cli.sieve import sieve
from konductor_like.detection.scan import LINE_BYTES, Hit, anchors, judge, parts, scan
from konductor_like.model import Source

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the helper is forked, on Linux only")

FAULT = b"[  512.000001] NVRM: Xid (PCI:0000:3b:00): 48, pid=733, name=trainer, DBE (double bit error) ECC"
NOISE = b"[  512.000002] usb 1-1: new high-speed USB device number 2 using xhci_hcd"
SIEVE = sieve(anchors(Source.KERNEL))


def hits_of_two(path: Path, size: int | None = None) -> list[Hit]:
    read: list[int] = []
    with path.open("rb") as file, helper(file.fileno(), SIEVE) as two:
        length = path.stat().st_size if size is None else size
        found = list(judge(two.parts(length, read.append), Source.KERNEL))
    assert multiprocessing.active_children() == []
    assert sum(read) == length
    return found


def hits_of_one(path: Path) -> list[Hit]:
    with path.open("rb") as file:
        return list(scan(file, Source.KERNEL))


@pytest.mark.parametrize("region_bytes", [1, 70, 1000, 4 << 20])
@pytest.mark.parametrize("end", [b"", b"\n"], ids=["no line end", "line end"])
def test_two_find_what_one_finds(
    region_bytes: int, end: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helping, "REGION_BYTES", region_bytes)
    path = tmp_path / "log"
    rng = random.Random(region_bytes)
    path.write_bytes(b"\n".join(rng.choice((FAULT, NOISE, NOISE, b"", b"\r")) for _ in range(500)) + end)

    assert len(hits_of_one(path)) > 50
    assert hits_of_two(path) == hits_of_one(path)


def test_a_line_may_be_longer_than_regions_and_pieces_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helping, "REGION_BYTES", 10_000)
    path = tmp_path / "log"
    path.write_bytes(b"\n".join([NOISE, FAULT + b"x" * (LINE_BYTES + 50_000), FAULT, b"y" * 300_000, FAULT]))

    assert [hit.line_number for hit in hits_of_two(path)] == [2, 3, 5]
    assert hits_of_two(path) == hits_of_one(path)


def test_a_file_that_is_cut_short_meanwhile_gives_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helping, "REGION_BYTES", 10_000)
    path = tmp_path / "log"
    path.write_bytes((FAULT + b"\n") * 1000)

    assert len(hits_of_two(path, size=10 * path.stat().st_size)) == 1000


def test_a_helper_that_is_killed_is_an_error_and_no_hang(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes((NOISE + b"\n") * 1000)
    with path.open("rb") as file, helper(file.fileno(), SIEVE) as two:
        (child,) = multiprocessing.active_children()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        with pytest.raises(ChildProcessError, match="is gone"):
            list(two.parts(path.stat().st_size, lambda _: None))


def test_what_the_helper_cannot_read_is_an_error_here(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with helper(folder, SIEVE) as two, pytest.raises(IsADirectoryError):
            list(two.parts(1000, lambda _: None))
    finally:
        os.close(folder)


def test_who_leaves_early_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helping, "REGION_BYTES", 100_000)
    path = tmp_path / "log"
    path.write_bytes((FAULT + b"\n") * 50_000)
    with path.open("rb") as file, helper(file.fileno(), SIEVE) as two:
        first = next(judge(two.parts(path.stat().st_size, lambda _: None), Source.KERNEL))

    assert first.line_number == 1
    assert multiprocessing.active_children() == []


def test_a_small_file_is_not_worth_a_process() -> None:
    assert not is_of_use(WORTH_HELP_BYTES - 1)
    assert not is_of_use(None)
    assert is_of_use(WORTH_HELP_BYTES) == (os.cpu_count() != 1)


def test_ctrl_c_ends_both_with_130_and_no_word(tmp_path: Path) -> None:
    path = tmp_path / "big.log"
    path.write_bytes((FAULT + b"\n") * 400_000)
    assert path.stat().st_size > WORTH_HELP_BYTES
    with subprocess.Popen(
        [sys.executable, "-m", "konductor_like.cli", "scan", "-o", "json", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to both
        process.stdout.read()
        said = process.stderr.read()
        process.wait(30)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)

    assert (process.returncode, said) == (130, b"")


@given(st.binary(max_size=300), st.integers(0, 300), st.sampled_from(anchors(Source.KERNEL)))
@settings(max_examples=200)
def test_the_sieve_holds_every_anchor_back_and_nothing_else(text: bytes, at: int, anchor: bytes) -> None:
    assert SIEVE((text[:at] + anchor + text[at:]).decode("latin-1"))
    assert SIEVE(text.decode("latin-1")) == any(anchor in text for anchor in anchors(Source.KERNEL))


@given(
    st.lists(st.sampled_from([FAULT, NOISE, b"\xff" * 400, b"x" * 5000, b"NVRM", b"\r", b""]), max_size=60)
)
@settings(max_examples=60)
def test_every_line_with_an_anchor_is_held_back_and_no_other(lines: list[bytes]) -> None:
    content = b"\n".join(lines)
    held = [line for part in parts([content], SIEVE) for _, line in part.anchored]

    assert held == [line for line in lines if line in (FAULT, b"NVRM")]
