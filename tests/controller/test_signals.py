"""The first signal ends the work in order, the second at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

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
