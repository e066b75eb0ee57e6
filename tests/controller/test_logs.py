"""The log in both its forms."""

from __future__ import annotations

import io
import json
import logging
import time

import pytest

from konductor_like.controller import logs


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_text() -> None:
    stream = Terminal()
    logs.set_up("auto", "info", stream=stream)

    logs.debug("not shown at this level")
    logs.info("Node gpu-7 tainted.", node="gpu-7")

    assert stream.getvalue().endswith(" INFO Node gpu-7 tainted.\n")
    assert stream.getvalue().count("\n") == 1


def test_times_are_in_utc_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.makeLogRecord({"created": 0.0, "levelname": "INFO", "msg": "Node gpu-7 tainted."})
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        line = logs.TextFormatter().format(record)
    time.tzset()

    assert line == "1970-01-01T00:00:00Z INFO Node gpu-7 tainted."


def test_a_pipe_gets_one_json_object_per_line_with_the_facts() -> None:
    stream = io.StringIO()
    logs.set_up("auto", "info", stream=stream)

    logs.warning("Node gpu-7 tainted.", node="gpu-7", held=["gpu-1"])

    entry = json.loads(stream.getvalue())
    assert entry["ts"].endswith("+00:00")
    del entry["ts"]
    assert entry == {"level": "warning", "msg": "Node gpu-7 tainted.", "node": "gpu-7", "held": ["gpu-1"]}


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_message_can_never_become_two_lines(style: str) -> None:
    stream = io.StringIO()
    logs.set_up(style, "info", stream=stream)  # type: ignore[arg-type]  # the parameter's values are right

    logs.info("first\nINFO forged")

    assert stream.getvalue().count("\n") == 1
