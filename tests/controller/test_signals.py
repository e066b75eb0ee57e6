"""The first signal ends the work in order, the second at once. Work may ask to be started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def start(work: str, stderr: int | None = None) -> subprocess.Popen[str]:
    program = f"""
        import sys, threading
        from konductor_like.controller.launch import supervise

        def work(stop: threading.Event) -> int:
            print("ready", flush=True)
            {work}

        sys.exit(supervise(work, on_hangup=lambda: print("again", flush=True)))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_lets_the_work_finish(sent: signal.Signals, code: int) -> None:
    with start("stop.wait(); print('finished', flush=True); return 0") as process:
        process.send_signal(sent)

        output, _ = process.communicate(timeout=20)

    assert output == "finished\n"
    assert process.returncode == code


def test_a_second_signal_does_not_wait() -> None:
    with start("stop.wait(); print('stopping', flush=True); threading.Event().wait()") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=20) == 130


def test_work_that_ends_by_itself_gives_its_own_code() -> None:
    with start("return 2") as process:
        assert process.wait(timeout=20) == 2


def test_a_hangup_calls_back_and_ends_nothing() -> None:
    with start("stop.wait(); return 0") as process:
        assert process.stdout is not None
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            assert process.stdout.readline() == "again\n"
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=20) == 0


def test_a_hangup_of_our_own_terminal_ends_the_work() -> None:
    ours, theirs = os.openpty()
    with start("stop.wait(); print('finished', flush=True); return 0", stderr=theirs) as process:
        os.close(theirs)
        os.close(ours)
        process.send_signal(signal.SIGHUP)

        output, _ = process.communicate(timeout=20)

    assert output == "finished\n"
    assert process.returncode == 0


# Starting again

AGAIN = """
import os, signal, sys, threading
from pathlib import Path
from konductor_like.controller.launch import start_again, supervise

mark, code = Path(sys.argv[1]), int(sys.argv[2])

def work(stop: threading.Event) -> int:
    number = len(mark.read_text()) if mark.exists() else 0
    mark.write_text("x" * (number + 1))
    print("run", number, os.getpid(), os.environ["KEPT"], flush=True)
    if number == 0:
        start_again()
        start_again()
    stop.wait()
    print("ends", number, flush=True)
    if number == 0:
        sys.stdin.readline()
    return code

def kill_and_start(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    execv(*arguments)

execv = os.execv
if sys.argv[3:] == ["late"]:
    os.execv = kill_and_start
sys.exit(supervise(work, on_hangup=lambda: None))
"""


def again(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start work that asks at once to be started again; its first run ends after a line on stdin."""
    return subprocess.Popen(
        [sys.executable, "-c", AGAIN, str(folder / "mark"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "KEPT": "yes"},
    )


def lines(process: subprocess.Popen[str], number: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(number)]


def end_first(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_the_work_ends_and_the_same_process_runs_the_same_program_again(tmp_path: Path) -> None:
    with again(tmp_path, "0") as process:
        assert lines(process, 2) == [f"run 0 {process.pid} yes", "ends 0"]
        end_first(process)
        assert lines(process, 1) == [f"run 1 {process.pid} yes"]

        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        assert lines(process, 2) == ["ends 1", ""]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_before_the_new_start_makes_it_an_end(
    sent: signal.Signals, code: int, tmp_path: Path
) -> None:
    with again(tmp_path, "0") as process:
        assert lines(process, 2) == [f"run 0 {process.pid} yes", "ends 0"]
        process.send_signal(sent)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)  # the first signal waits for the work
        end_first(process)

        assert process.wait(timeout=20) == code
        assert lines(process, 1) == [""]


def test_a_signal_that_arrives_while_the_program_is_replaced_is_not_lost(tmp_path: Path) -> None:
    with again(tmp_path, "0", "late") as process:
        end_first(process)

        assert process.wait(timeout=20) == 0
        assert lines(process, 5) == [
            *(f"run 0 {process.pid} yes", "ends 0"),
            *(f"run 1 {process.pid} yes", "ends 1"),
            "",
        ]


def test_work_that_failed_is_not_started_again(tmp_path: Path) -> None:
    with again(tmp_path, "2") as process:
        end_first(process)

        assert process.wait(timeout=20) == 2
        assert lines(process, 3) == [f"run 0 {process.pid} yes", "ends 0", ""]
