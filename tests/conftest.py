"""What holds for every test."""

from __future__ import annotations

import signal

import hypothesis

hypothesis.settings.register_profile("suite", deadline=None, max_examples=50)  # a busy machine is no failure
hypothesis.settings.load_profile("suite")


def pytest_configure() -> None:
    """A suite in the background of a shell ignores Ctrl-C, and so would every program that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
