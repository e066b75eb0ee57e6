"""The version and the build of this program; two builds of one version differ in at least one file.

An image tag, and so a version, may be used again for other code. The build shows that: it is a hash of the
package's own files, so it needs neither git nor a build server.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from konductor_like import __version__

SUFFIXES = frozenset({".css", ".csv", ".j2", ".json", ".py", ".sh", ".toml", ".yaml"})
"""Endings of the files that count. Bytecode does not: it differs between two installations of one wheel."""
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Program:
    """One program of this name, such as the controller or the command line."""

    version: str
    build: str
    """The first 12 hexadecimal digits of a SHA-256 over the package's files."""

    def __str__(self) -> str:
        return f"{self.version} (build {self.build})"


@cache
def this_program() -> Program:
    """Return this process's version and build. The first call reads about 220 files."""
    return Program(__version__, build_of(Path(__file__).parent))


def build_of(package: Path) -> str:
    """Return the build of the package in this folder, from the names and contents of its files."""
    digest = hashlib.sha256()
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.*")}
    for name in sorted(files):
        if files[name].suffix in SUFFIXES and files[name].is_file():  # Emacs locks a file by a broken link
            content = files[name].read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:_DIGITS]
