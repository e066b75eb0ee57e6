"""A demo that is kept, and how another process finds it: by a file in the user's cache directory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from konductor_like.sandbox.loki import shipped


class NoDemoError(Exception):
    """No demo is kept that can take a line; the message says why."""


@dataclass(frozen=True, slots=True)
class KeptDemo:
    """What another process needs to write a line to a node's kernel log."""

    pid: int
    kubeconfig: str
    loki: str
    """The URL of the stand-in Loki."""
    booted_ns: Mapping[str, int]
    """By GPU node, the Unix time of its boot, from which the stamps of its kernel log are counted."""

    def write_line(self, node: str, text: str) -> str:
        """Write a line to the node's kernel log, and return it with its stamp. Raises NoDemoError."""
        now_ns = time.time_ns()
        line = f"[{(now_ns - self.booted_ns[node]) / 1e9:.6f}] {text}"
        try:
            sent = httpx.post(
                f"{self.loki}/otlp/v1/logs", json=shipped(node, [(now_ns, line)]), trust_env=False
            )
            sent.raise_for_status()
        except httpx.HTTPError as error:
            raise NoDemoError(f"the stand-in Loki of the demo does not answer: {error}") from error
        return line


def find() -> KeptDemo:
    """Return the demo that this user keeps. Raises NoDemoError."""
    try:
        kept = KeptDemo(**json.loads(_file().read_text("utf-8")))
        os.kill(kept.pid, 0)  # whether the process runs
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise NoDemoError("no demo is running that was started with --keep") from error
    return kept


@contextmanager
def findable(kept: KeptDemo) -> Iterator[None]:
    """Let :func:`find` find the demo until the block ends. Raises OSError or RuntimeError."""
    file = _file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(kept)), "utf-8")
    try:
        yield
    finally:
        with suppress(OSError):  # somebody removed the file
            if f'"pid": {kept.pid},' in file.read_text("utf-8"):  # else a later demo of the user
                file.unlink()


def _file() -> Path:
    """Return the path of the file. Raises RuntimeError if the user has no home directory."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "konductor-like" / "demo.json"
