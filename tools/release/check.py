"""``python -m tools.release.check`` prints why this commit cannot be released, and fails then."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from konductor_like import __version__

ROOT = Path(__file__).parents[2]
OWNERS = ("project-url", "registry", "security-contact")


def owners_values(pyproject: str) -> dict[str, str]:
    """Return the values that only the project's owner knows."""
    values = tomllib.loads(pyproject).get("tool", {}).get("konductor-like", {})
    return {name: str(values.get(name, "")).strip() for name in OWNERS}


def missing(pyproject: str) -> list[str]:
    """Return the owner's values that are empty or still an example."""
    values = owners_values(pyproject)
    return [name for name, value in values.items() if not value or "example." in value]


def section(changelog: str, version: str) -> tuple[str, str] | None:
    """Return what follows the version in its heading, such as a date, and the text of its section."""
    heading = re.search(rf"^## \[{re.escape(version)}\](?: - (.*))?\n", changelog, re.MULTILINE)
    if heading is None:
        return None
    return heading[1] or "", re.split(r"^## ", changelog[heading.end() :], flags=re.MULTILINE)[0].strip()


def problems(pyproject: str, changelog: str, version: str, changed: str, tags: str) -> Iterator[str]:
    """Yield a sentence for each reason against a release.

    ``changed`` is the output of ``git status --porcelain``, ``tags`` the tags of the commit.
    """
    for name in missing(pyproject):
        yield f"pyproject.toml: the owner's value {name} is empty or an example, [tool.konductor-like]."
    date, _ = section(changelog, version) or (None, "")
    if date is None:
        yield f"CHANGELOG.md has no section [{version}]: run `make version V={version}`."
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        yield f"CHANGELOG.md: the section [{version}] has no date: run `make version V={version}`."
    if changed.strip():
        yield "The tree has changes that are not committed. Commit them, or remove them."
    if f"v{version}" not in tags.split():
        yield f"The commit does not have the tag v{version}: run `git tag -s v{version}`."


def git(*arguments: str) -> str:
    """Return the output of git. Raises CalledProcessError if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main() -> int:
    """Print the problems; return 1 if there are any."""
    found = list(
        problems(
            (ROOT / "pyproject.toml").read_text("utf-8"),
            (ROOT / "CHANGELOG.md").read_text("utf-8"),
            __version__,
            git("status", "--porcelain"),
            git("tag", "--points-at", "HEAD"),
        )
    )
    sys.stderr.writelines(f"{problem}\n" for problem in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
