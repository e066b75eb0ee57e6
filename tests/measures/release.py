"""``python -m tests.measures.release`` fails while a value that only the project's owner knows is empty."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWNERS = ("project-url", "security-contact")


def missing(pyproject: str) -> list[str]:
    """Return the owner's values that are empty."""
    values = tomllib.loads(pyproject).get("tool", {}).get("konductor-like", {})
    return [name for name in OWNERS if not str(values.get(name, "")).strip()]


def main() -> int:
    """Print the missing values; return 1 if there are any."""
    names = missing((ROOT / "pyproject.toml").read_text("utf-8"))
    for name in names:
        sys.stderr.write(
            f"pyproject.toml, [tool.konductor-like]: {name} is empty. Only the owner knows it.\n"
        )
    return int(bool(names))


if __name__ == "__main__":
    sys.exit(main())
