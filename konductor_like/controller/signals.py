"""Running the work in a thread while the main thread waits for signals.

Setting an Event in a Python signal handler can deadlock with a main thread that waits on it, so signals are
blocked everywhere and taken with ``sigwait``. As process 1 of a container this is also what makes SIGTERM
work.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})
_FINISHED = signal.SIGUSR1
EXIT_INTERRUPTED = 130


def supervise(work: Callable[[threading.Event], int]) -> int:
    """Run ``work(stop)`` in a thread; the first SIGTERM or SIGINT sets ``stop``, a second ends us at once.

    Gives what ``work`` gives, or 130 after an interrupt from the keyboard.
    """
    stop = threading.Event()
    result: list[int] = []

    def run() -> None:
        try:
            result.append(work(stop))
        finally:
            os.kill(os.getpid(), _FINISHED)

    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOPPING, _FINISHED})
    interrupted = False
    try:
        worker = threading.Thread(target=run, name="controller")
        worker.start()
        while (received := signal.sigwait({*_STOPPING, _FINISHED})) != _FINISHED:
            if stop.is_set():
                os._exit(EXIT_INTERRUPTED)
            interrupted = received == signal.SIGINT
            stop.set()
        worker.join()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    if not result:
        return 1
    return EXIT_INTERRUPTED if interrupted and result[0] == 0 else result[0]
