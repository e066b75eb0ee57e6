"""``scan`` beyond its transcripts: gzip, streams, pipes, damaged files."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from konductor_like.cli.app import execute
from konductor_like.detection.scan import scan
from konductor_like.model import Source

FAULT = "[  512.000001] NVRM: Xid (PCI:0000:3b:00): 48, pid=733, name=trainer, DBE (double bit error) ECC\n"
NOISE = "[  512.000002] usb 1-1: new high-speed USB device number 2 using xhci_hcd\n"
COMMAND = (sys.executable, "-m", "konductor_like.cli", "scan")


def scanned(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    status = execute(["scan", *arguments], "konductor-like")
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_gzip_is_read_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kern.log.1.gz"
    path.write_bytes(gzip.compress((NOISE * 100 + FAULT).encode()))
    status, out, _ = scanned(str(path), "-o", "json", capsys=capsys)

    assert (status, json.loads(out)["line_number"]) == (0, 101)


def test_a_truncated_gzip_file_gives_its_findings_and_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(FAULT.encode() + os.urandom(2_000_000))[:1_500_000])
    status, out, err = scanned(str(path), "-o", "json", capsys=capsys)

    assert (status, len(out.splitlines())) == (1, 1)
    assert f"error: {path}: Compressed file ended" in err
    assert "Found 1 fault" in err


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 5000, b"\xff\xfe" * 5000, b"\n" * 5000, b"\x1f"],
    ids=["empty", "NUL", "not UTF-8", "blank lines", "half a gzip magic"],
)
def test_no_content_is_an_error(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(content)

    assert scanned(str(path), capsys=capsys)[:2] == (0, "")


def test_invalid_utf_8_is_shown_with_replacement_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(FAULT.encode().replace(b"trainer", b"tr\xe4iner\x1b[2J"))
    _, table, _ = scanned(str(path), capsys=capsys)
    _, line, _ = scanned(str(path), "-o", "json", capsys=capsys)

    assert "\x1b" not in table + line
    assert json.loads(line)["gpu"] == "0000:3b:00"


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    path = tmp_path / "many.log"
    path.write_text(FAULT * 20_000)
    with subprocess.Popen([*COMMAND, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        process.wait(30)

    assert said == b""


def test_a_finding_is_printed_while_the_pipe_is_still_open() -> None:
    with subprocess.Popen(
        [*COMMAND, "-o", "json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(FAULT.encode())
        process.stdin.flush()
        line = process.stdout.readline()
        process.stdin.close()
        process.wait(30)

    assert json.loads(line)["code"] == 48


def test_ctrl_c_ends_it_with_130() -> None:
    with subprocess.Popen(
        [*COMMAND, "-o", "json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(FAULT.encode())
        process.stdin.flush()
        process.stdout.readline()  # the command is running now
        status = None
        while status is None:
            # Python misses a signal that arrives just before a blocking read, so send another one.
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(2)
        said = process.stderr.read()

    assert (status, said) == (130, b"")


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    log.write_text((NOISE * 1000 + FAULT) * 1000)  # 75 MB
    tracemalloc.start()
    try:
        with log.open("rb") as stream:
            found = sum(1 for _ in scan(stream, Source.KERNEL))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert found == 1000
    assert peak < 5_000_000


def test_on_a_terminal_the_gravest_are_red(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kern.log"
    path.write_text(NOISE + FAULT)
    monkeypatch.setattr("konductor_like.cli.scan.colourful", lambda _: True)

    assert "\x1b[31mfatal" in scanned(str(path), capsys=capsys)[1]
