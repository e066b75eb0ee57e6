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
from konductor_like.cli.output import Screen
from konductor_like.cli.scan import ROWS_MOST
from konductor_like.detection.scan import scan
from konductor_like.model import Source

FAULT = "[  512.000001] NVRM: Xid (PCI:0000:3b:00): 48, pid=733, name=trainer, DBE (double bit error) ECC\n"
UNPARSED = "[  512.000003] NVRM: Xid (weird): abc\n"
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

    assert (status, len(out.splitlines())) == (3, 1)
    assert f"error: {path}: the gzip file is cut off; the faults up to there are shown\n" in err
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
    command = [*COMMAND, "-o", "json", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        process.wait(30)

    assert (process.returncode, said) == (0, b"")


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


def test_ctrl_c_ends_it_with_130_and_what_was_found() -> None:
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

    assert status == 130
    assert said.splitlines() == [b"Found 1 fault in 97 bytes of kernel log: 1 fatal."]


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
    monkeypatch.setattr("konductor_like.cli.output.colourful", lambda _: True)

    assert "\x1b[31mxid 48\x1b[0m" in scanned(str(path), capsys=capsys)[1]


def test_the_table_has_a_row_for_each_fault_and_gpu_the_gravest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kern.log"
    application = FAULT.replace("): 48", "): 31")
    path.write_text((application + NOISE) * 1000 + FAULT * 2 + FAULT.replace("3b:00", "5d:00"))
    status, out, err = scanned(str(path), capsys=capsys)

    header, *rows = (line.split(maxsplit=5) for line in out.splitlines())
    assert status == 0
    assert header[:4] == ["SEVERITY", "FAULT", "GPU", "COUNT"]
    assert [(severity, code, gpu, number) for severity, _, code, gpu, number, _ in rows] == [
        ("fatal", "48", "0000:3b:00", "2"),
        ("fatal", "48", "0000:5d:00", "1"),
        ("application", "31", "0000:3b:00", "1000"),
    ]
    assert ["Replace it if" in what for *_, what in rows] == [
        True,
        False,
        False,
    ]  # once for a fault
    assert "Look for a bug in the job first." in rows[-1][-1]
    assert "Found 1003 fault lines of 3 faults in" in err


def test_the_table_is_bounded_and_counts_what_it_does_not_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fleet.log"
    codes = "".join(FAULT.replace("): 48", f"): {1000 + number}") for number in range(ROWS_MOST + 50))
    path.write_text(codes * 2 + FAULT)
    _, out, err = scanned(str(path), capsys=capsys)

    _, fatal, *others, last = out.splitlines()
    assert fatal.startswith("fatal ")
    assert len(others) == ROWS_MOST
    assert last.split()[:4] == ["suspect", "others", "<none>", "100"]
    assert f"Found {2 * (ROWS_MOST + 50) + 1} fault lines in" in err


def test_less_grave_faults_can_be_left_out_and_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kern.log"
    path.write_text(FAULT + FAULT.replace("): 48", "): 31"))
    for view in ((), ("-o", "json"), ("-o", "yaml"), ("-o", "name")):
        status, out, err = scanned(str(path), "--min-severity", "suspect", *view, capsys=capsys)

        assert (status, "48" in out, "31," in out) == (0, True, False)
        assert "Left out 1 fault below --min-severity suspect." in err


@pytest.mark.parametrize(
    ("content", "arguments", "status"),
    [
        (FAULT, (), 4),
        (FAULT, ("-o", "json"), 4),
        (FAULT, ("nowhere.log",), 4),
        (FAULT.replace("): 48", "): 31"), ("--min-severity", "fatal"), 0),
        (NOISE, (), 0),
        (NOISE + UNPARSED, (), 5),
        (FAULT + UNPARSED, (), 4),
        (NOISE, ("nowhere.log",), 3),
        ("", (), 5),
    ],
)
def test_the_exit_status_tells_whether_a_fault_was_found(
    content: str, arguments: tuple[str, ...], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kern.log"
    path.write_text(content)

    assert scanned("--exit-code", *arguments, str(path), capsys=capsys)[0] == status


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (os.urandom(200_000), 5),
        (b"\x00" * 5000, 5),
        (gzip.compress(os.urandom(200_000)), 5),
        (NOISE.encode("utf-16"), 5),
        (b"\x00" * 5000 + b"\n" + FAULT.encode(), 4),
        (NOISE.encode() + b"\x00\xff\n" + NOISE.encode(), 0),
        ("\x1b[31mRechner läuft\x1b[0m\n".encode() * 50, 0),
    ],
    ids=["random", "NUL", "random in gzip", "UTF-16", "a fault after NUL", "two odd bytes", "colours"],
)
def test_binary_data_without_a_fault_is_no_proof_of_health(
    content: bytes, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(content)
    exit_status, _, err = scanned("--exit-code", str(path), capsys=capsys)

    assert (exit_status, "because it is not text" in err) == (status, status == 5)


def test_a_line_with_an_xid_in_an_unknown_form_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kern.log").write_text(NOISE + UNPARSED * 5)
    unknown = "an Xid in a form that is not understood"
    _, _, err = scanned("kern.log", capsys=capsys)

    assert err.splitlines()[:-1] == [
        *(f"warning: kern.log:{line}: names {unknown}; it is not counted" for line in (2, 3, 4)),
        f"warning: 2 more lines name {unknown}",
    ]
    assert unknown not in scanned("--source", "pod", "kern.log", capsys=capsys)[2]


def test_a_folder_is_refused_with_an_example_of_the_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()

    said = "error: logs: is a directory, not a file; name the files, such as logs/*.log\n"
    assert scanned("logs", capsys=capsys) == (1, "", said)


def test_rows_that_are_too_wide_for_the_terminal_are_folded_at_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kern.log"
    path.write_text("".join(f"2026-05-06T12:00:0{second}Z gpu-1 kernel: {FAULT[15:]}" for second in (0, 9)))
    whole = scanned(str(path), capsys=capsys)[1].splitlines()
    monkeypatch.setattr("konductor_like.cli.scan.Screen.of", lambda _: Screen(80))

    assert len(whole) == 2
    assert [line[41:] for line in scanned(str(path), capsys=capsys)[1].splitlines()[:4]] == [
        "WHAT, WHEN, TO DO",
        "Uncorrectable double-bit memory error",
        "(ECC), 2026-05-06T12:00:00Z to",
        "2026-05-06T12:00:09Z. Run",
    ]


def test_a_file_name_is_shown_only_where_there_are_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text(FAULT)
    (tmp_path / "b.log").write_text(FAULT)

    assert "a.log" not in scanned("a.log", capsys=capsys)[1]
    both = scanned("a.log", "b.log", capsys=capsys)[1]
    assert (both.count("a.log:"), both.count("b.log:")) == (1, 1)


@pytest.mark.parametrize(
    ("magic", "program"),
    [(b"\xfd7zXZ\x00", "xzcat"), (b"\x28\xb5\x2f\xfd", "zstdcat"), (b"LPKSHHRH", "journalctl")],
)
def test_a_file_without_lines_is_an_error_that_names_the_program_to_read_it(
    magic: bytes, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd"
    path.write_bytes(magic + bytes(100))
    status, out, err = scanned(str(path), capsys=capsys)

    assert (status, out) == (1, "")
    assert f"try: {program} " in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", [".", "nowhere.log", "a" * 5000, "\x1b[2J.log"])
def test_a_file_that_cannot_be_read_is_one_short_error(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = scanned(name, capsys=capsys)

    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert err.startswith("error: ")
    assert len(err) < 400
    assert "\x1b" not in err


def test_a_line_of_ten_megabytes_hides_no_other_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.log"
    path.write_text("x" * 10_000_000 + "\n" + FAULT)

    assert json.loads(scanned(str(path), "-o", "json", capsys=capsys)[1])["line_number"] == 2
