"""Install the packages of lock files with uv, or with pip if uv cannot.

uv takes a fifth of pip's CPU time, but reads no configuration of pip. So this module hands over where pip
finds packages. pip installs if its configuration has anything else that matters, and if uv fails. The hashes
in the lock files are the same for both. Runs before any package is installed.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV_LOCK = ROOT / "requirements-dev.lock"
PIP = (sys.executable, "-m", "pip")
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
}
"""The variable of uv for an option of pip."""
WITHOUT_EFFECT = {
    *("constraint", "timeout", "default-timeout", "retries", "disable-pip-version-check", "no-input"),
    *("cache-dir", "no-cache-dir", "quiet", "no-color", "progress-bar", "require-virtualenv"),
    *("root-user-action", "break-system-packages", "no-warn-script-location", "no-compile"),
}
"""Options of pip that change neither where a locked package comes from nor which one is installed."""


def main(locks: Sequence[str]) -> int:
    files = [word for lock in locks for word in ("-r", lock)]
    listed = subprocess.run((*PIP, "config", "list"), check=True, capture_output=True, text=True).stdout
    variables = uv_variables(listed.splitlines())
    if variables is not None:
        _install_uv()
        uv = (str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--require-hashes")
        done = subprocess.run(
            (*uv, "--python", sys.executable, *files),
            env={"UV_CACHE_DIR": str(ROOT / ".cache" / "uv"), **variables, **os.environ},
            check=False,
        )
        if done.returncode == 0:
            return 0
    return _pip_install(*files)


def uv_variables(configured: Iterable[str]) -> dict[str, str] | None:
    """Return uv's variables for the lines of ``pip config list``; None if uv cannot do the same as pip."""
    found = {}
    order = {"global": 0, "install": 1, ":env:": 2}  # a later one overrides
    settings = [(*line.partition("=")[0].rsplit(".", 1), line.partition("=")[2]) for line in configured]
    relevant = [each for each in settings if each[0] in order]
    for _, name, value in sorted(relevant, key=lambda each: order[each[0]]):
        if name in UV_NAMES:
            words = str(ast.literal_eval(value)).split()
            found[UV_NAMES[name]] = ("," if name == "find-links" else " ").join(words)
        elif name not in WITHOUT_EFFECT:
            return None
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **found}  # pip asks all indexes, too


def locked(package: str, lock: str) -> str:
    """Return the lines of one package in a lock file. Raises LookupError."""
    found = re.search(rf"^{re.escape(package)}==.*\n(?:[ ].*\n)*", lock, re.MULTILINE)
    if found is None:
        raise LookupError(f"{package} is not in the lock: run make lock")
    return found[0]


def _install_uv() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "uv.lock"
        file.write_text(locked("uv", UV_LOCK.read_text("utf-8")), "utf-8")
        _pip_install("-r", str(file))


def _pip_install(*arguments: str) -> int:
    # Without --no-compile pip compiles every module of every package, and few of them are ever imported.
    options = ("install", "--quiet", "--no-compile", "--require-hashes")
    return subprocess.run((*PIP, *options, *arguments), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
