"""The reader as the DaemonSet runs it: one file, its exit codes, its signals, its memory."""

from __future__ import annotations

import ast
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from konductor_like.kmsg import WAKE_SECONDS, EndOfLogError, reader_of
from tests.kmsg.process import AS_A_FILE, AS_A_MODULE, FILE, PATIENCE_SECONDS, reader_process
from tests.kmsg.scripted import record, records

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
PIPE_BYTES = 4096


def run(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Run the reader to its end."""
    return subprocess.run(
        (*AS_A_FILE, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )


def small_pipe() -> tuple[int, int]:
    """Return a pipe with a capacity of ``PIPE_BYTES``."""
    theirs, ours = os.pipe()
    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return theirs, ours


def until_full(pipe: int) -> None:
    """Wait until a small pipe is full."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0] < PIPE_BYTES:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_reader_is_one_file_of_python_3_9_with_the_standard_library_only() -> None:
    tree = ast.parse(Path(FILE).read_text(encoding="utf-8"), feature_version=(3, 9))

    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert "os" in imported
    assert imported <= sys.stdlib_module_names


@pytest.mark.parametrize("command", [AS_A_FILE, AS_A_MODULE], ids=["as a file", "as a module"])
def test_the_reader_prints_records_of_this_boot_as_they_come(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    with reader_process(tmp_path, command) as reader:
        reader.feed(records(range(3)))
        reader.until("heartbeat")
        reader.feed([record(5, "five")])
        reader.until("] five\n")
        lines = reader.printed()

    assert lines[:3] == [
        f"kmsg/1 boot={BOOT} seq={i} facility=0 priority=6 [    0.000000] {i}" for i in range(3)
    ]
    assert lines[3].startswith(f"kmsg/1 heartbeat boot={BOOT} seq=2 uptime=")
    assert lines[4:] == [
        f"kmsg/1 gap boot={BOOT} from=3 to=4 lost=2",
        f"kmsg/1 boot={BOOT} seq=5 facility=0 priority=6 [    0.000000] five",
    ]


def test_the_longest_record_of_the_kernel_is_read_completely(tmp_path: Path) -> None:
    # A read with less room than the record takes fails with EINVAL, each time again. Only a socket holds
    # packets of this size: those of a pipe end at 4096 bytes.
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    longest = record(0, "x" * 8192)[: 8192 - len(b"\n SUBSYSTEM=pci\n")] + b"\n SUBSYSTEM=pci\n"
    with theirs, (tmp_path / "output").open("w+b") as output:
        with ours:
            ours.sendall(longest)
        with pytest.raises(EndOfLogError):
            reader_of(theirs.fileno(), output.fileno(), BOOT).run()
        output.seek(0)
        [line] = output.read().splitlines()

    assert len(longest) == 8192
    assert line.endswith(longest.partition(b";")[2].partition(b"\n")[0])


def test_the_reader_wakes_up_for_each_record(tmp_path: Path) -> None:
    with reader_process(tmp_path) as reader:
        began = time.monotonic()
        for i in range(10):
            reader.feed([record(i, str(i))])
            reader.until(f"] {i}\n")

        assert time.monotonic() - began < 10 * WAKE_SECONDS / 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_reader_with_all_lines_printed(tmp_path: Path, number: signal.Signals) -> None:
    with reader_process(tmp_path) as reader:
        reader.feed([record(0, "one")])
        reader.until("heartbeat")
        reader.process.send_signal(number)

        assert reader.ended() == (0, "")
        assert "] one" in reader.printed()[0]


def test_a_signal_while_the_output_is_blocked_loses_no_record_that_was_read(tmp_path: Path) -> None:
    stuck, stdout = small_pipe()
    with reader_process(tmp_path, stdout=stdout) as reader:
        os.close(stdout)
        reader.feed(records(range(200)))
        until_full(stuck)
        reader.process.terminate()
        with os.fdopen(stuck, "rb") as output:
            printed = output.read()

        assert reader.ended() == (0, "")
    texts = [line.rpartition(b"] ")[2] for line in printed.splitlines() if b"] " in line]
    assert len(printed) > PIPE_BYTES
    assert printed.endswith(b"\n")
    assert texts == [b"%d" % i for i in range(len(texts))]


def test_a_closed_output_ends_the_reader_with_an_error(tmp_path: Path) -> None:
    gone, stdout = os.pipe()
    os.close(gone)
    with reader_process(tmp_path, stdout=stdout) as reader:
        os.close(stdout)
        reader.feed([record(1, "one")])

        assert reader.ended() == (1, "kmsg: [Errno 32] Broken pipe\n")


def test_a_non_blocking_output_gets_every_line(tmp_path: Path) -> None:
    slow, stdout = small_pipe()
    os.set_blocking(stdout, False)
    with reader_process(tmp_path, stdout=stdout) as reader:
        os.close(stdout)
        reader.feed(records(range(200)))
        until_full(slow)
        reader.end()
        with os.fdopen(slow, "rb") as output:
            printed = output.read()

        assert reader.ended() == (1, "kmsg: the kernel log ended\n")
    assert sum(b"] " in line for line in printed.splitlines()) == 200


def test_the_reader_does_not_start_without_an_output() -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *AS_A_FILE, "--device", "/dev/null"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith("kmsg: ")
    assert "Traceback" not in ended.stderr


def test_a_log_that_cannot_be_opened_ends_the_reader_with_the_remedy() -> None:
    ended = run("--device", "/nowhere/kmsg")

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "/nowhere/kmsg" in ended.stderr
    assert "privileged" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("arguments", [["--what"], ["extra"], ["--device"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    ended = run(*arguments)

    assert ended.returncode == 2
    assert "usage: kmsg" in ended.stderr


def test_the_reader_never_uses_more_than_20_mib(tmp_path: Path) -> None:
    with reader_process(tmp_path) as reader:
        reader.feed(record(i, f"{i} " + "x" * 900) for i in range(30_000))
        reader.feed([record(30_000, "last")])
        reader.until("] last\n")

        assert reader.output.stat().st_size > 30_000 * 900
        assert reader.peak_bytes() < 20 << 20
