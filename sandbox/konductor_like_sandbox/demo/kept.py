"""Demos that are kept, and how another process finds one: by its file in the user's cache directory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from konductor_like_sandbox.loki import shipped


class NoDemoError(Exception):
    """No demo is found that can take a line; the message says why, and ``hint`` what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


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
    """Return the demo that KUBECONFIG names, else the only one that this user keeps. Raises NoDemoError."""
    demos = _running()
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if chosen := [demo for demo in demos if demo.kubeconfig in named]:
        return chosen[0]
    if named and not any(Path(path).exists() for path in named):
        raise NoDemoError(
            f"no demo is running that has the KUBECONFIG {os.pathsep.join(named)}", _choice(demos)
        )
    if len(demos) > 1:
        raise NoDemoError(f"{len(demos)} demos are running", _choice(demos))
    if not demos:
        raise NoDemoError("no demo is running that was started with --keep")
    return demos[0]


@contextmanager
def findable(kept: KeptDemo) -> Iterator[None]:
    """Let :func:`find` find the demo until the block ends. Raises OSError or RuntimeError."""
    file = _folder() / f"demo-{kept.pid}.json"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(kept)), "utf-8")
    try:
        yield
    finally:
        with suppress(OSError):  # somebody removed the file
            file.unlink()


def _choice(demos: list[KeptDemo]) -> str:
    """Return the hint that says how to choose one of these demos."""
    choices = " or ".join(f"KUBECONFIG={demo.kubeconfig}" for demo in demos)
    return f"choose one: export {choices}" if choices else ""


def _running() -> list[KeptDemo]:
    """Return the demos that this user keeps, the oldest process first."""
    try:
        files = list(_folder().glob("demo-*.json"))
    except (OSError, RuntimeError):
        return []
    found = []
    for file in files:
        with suppress(OSError, ValueError, TypeError):  # it has ended, or its file is of another version
            kept = KeptDemo(**json.loads(file.read_text("utf-8")))
            os.kill(kept.pid, 0)  # whether the process runs
            found.append(kept)
    return sorted(found, key=lambda kept: kept.pid)


def _folder() -> Path:
    """Return the user's folder for demos. Raises RuntimeError if the user has no home directory."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "konductor-like"
