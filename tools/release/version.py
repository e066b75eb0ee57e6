"""``python -m tools.release.version 0.2.0`` sets the version in every file, and dates the changelog."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from konductor_like import __version__
from tools.release.check import ROOT, section

PLACES = (
    "konductor_like/__init__.py",
    "Dockerfile",
    "README.md",
    "sandbox/pyproject.toml",
    "manifests/*.yaml",
    "charts/*/Chart.yaml",
    "docs/start/*.md",
    "docs/use/*.md",
    "tests/cli/transcripts/*.txt",
)
"""The files that repeat the version; the first one defines it."""


def places() -> Iterator[Path]:
    """Yield the files of ``PLACES``."""
    for pattern in PLACES:
        yield from sorted(ROOT.glob(pattern))


def with_version(text: str, old: str, new: str) -> str:
    """Return the text with the new version in the place of the old one, but not inside of 10.1.0."""
    return re.sub(rf"(?:(?<![\w.])|(?<=ref=v)){re.escape(old)}(?![\w-]|\.\d)", new, text)


def cut(changelog: str, version: str, date: str) -> str:
    """Return the changelog with this date for the version.

    A version without a section gets the one of ``[Unreleased]``, above which a new one begins.
    """
    heading = f"## [{version}] - {date}\n"
    if section(changelog, version) is not None:
        return re.sub(rf"^## \[{re.escape(version)}\].*\n", heading, changelog, flags=re.MULTILINE)
    return changelog.replace("## [Unreleased]\n", f"## [Unreleased]\n\n{heading}", 1)


def main(version: str) -> int:
    """Write the version to every place; return 2 if it is no version."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.stderr.write(f"{version!r} is no version; an example: make version V=0.2.0\n")
        return 2
    for path in places():
        text = path.read_text("utf-8")
        path.write_text(with_version(text, __version__, version), "utf-8")
    page = ROOT / "CHANGELOG.md"
    page.write_text(cut(page.read_text("utf-8"), version, f"{datetime.now(UTC):%Y-%m-%d}"), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
