"""A stand-in for a chat: it takes the controller's notifications, and hands their text to the terminal."""

from __future__ import annotations

import html
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.server import LoopbackServer

_GATHERED_SECONDS = 8.0
"""The controller gathers the news of a message for five seconds, and begins with the first of them."""


class Chat:
    """A context manager. ``show`` gets the text of each message, from a thread of its own."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._server = LoopbackServer(self._take)
        self._exits = ExitStack()
        self._last = 0.0

    def __enter__(self) -> Self:
        folder = self._exits.enter_context(tempfile.TemporaryDirectory(prefix="konductor-like-chat-"))
        self._file = Path(folder) / "url"
        self._exits.enter_context(self._server)
        self._file.write_text(f"{self._server.url}/demo\n", "utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def settings(self) -> dict[str, str]:
        """The controller's settings that make it send messages here, as it would to Slack."""
        return {"KONDUCTOR_NOTIFY_SLACK_FILE": str(self._file), "KONDUCTOR_NOTIFY_CLUSTER": "demo"}

    def wait(self) -> None:
        """Wait until no message came for some seconds."""
        self._last = time.monotonic()
        while (left := self._last + _GATHERED_SECONDS - time.monotonic()) > 0:
            time.sleep(left)

    def _take(self, request: Request) -> Reply:
        self._show(html.unescape(json.loads(request.body)["text"]))
        self._last = time.monotonic()
        return Reply.of_text("ok")
