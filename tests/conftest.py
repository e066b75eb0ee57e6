"""What holds for every test."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
from collections.abc import Generator, Iterator
from multiprocessing import forkserver
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("suite", deadline=None, max_examples=50)  # a busy machine is no failure
hypothesis.settings.load_profile("suite")


def pytest_configure() -> None:
    """A suite in the background of a shell ignores Ctrl-C, and so would every program that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let one worker collect before the others: it compiles every module, and they read its bytecode.

    On a clean clone each worker would otherwise compile everything.
    """
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(folder, fcntl.LOCK_SH)
        return (yield)
    finally:
        os.close(folder)


def pytest_sessionfinish() -> None:
    """End the fork server of the processes under test, so that ``make test`` counts their CPU time."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # nothing public ends it before the interpreter


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo the change of ``-v`` to the logging of the whole process."""
    root, ours = logging.getLogger(), logging.getLogger("konductor_like")
    before = (list(root.handlers), ours.level)
    yield
    root.handlers[:] = before[0]
    ours.setLevel(before[1])
