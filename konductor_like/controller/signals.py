"""Running the work in a thread while the main thread waits for signals.

Setting an Event in a Python signal handler can deadlock with a main thread that waits on it, so signals are
blocked everywhere and taken with ``sigwait``. As process 1 of a container this is also what makes SIGTERM
work.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

from konductor_like.exits import Exit

_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})
_FINISHED = signal.SIGUSR1


def supervise(work: Callable[[threading.Event], int], on_hangup: Callable[[], object] | None = None) -> int:
    """Run ``work(stop)`` in a thread; the first SIGTERM or SIGINT sets ``stop``, a second ends us at once.

    SIGHUP calls ``on_hangup`` where it is given; where it says that our terminal was closed, it stops us.
    Gives what ``work`` gives, or 130 after an interrupt from the keyboard.
    """
    stop = threading.Event()
    result: list[int] = []
    awaited = {*_STOPPING, _FINISHED} | ({signal.SIGHUP} if on_hangup else set())
    on_terminal = _on_terminal()

    def run() -> None:
        try:
            result.append(work(stop))
        finally:
            os.kill(os.getpid(), _FINISHED)

    previous = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    interrupted = False
    try:
        worker = threading.Thread(target=run, name="controller")
        worker.start()
        while (received := signal.sigwait(awaited)) != _FINISHED:
            if received == signal.SIGHUP and on_hangup and on_terminal == _on_terminal():
                on_hangup()
                continue
            if stop.is_set():
                os._exit(Exit.INTERRUPTED)
            interrupted = received == signal.SIGINT
            stop.set()
        worker.join()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    if not result:
        return Exit.FAILED
    return Exit.INTERRUPTED if interrupted and result[0] == Exit.OK else result[0]


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
