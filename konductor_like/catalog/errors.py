"""Errors of the catalogue's files and of a user's.

ValueError
├── CatalogError    a file of the catalogue is broken: says which file, line, entry and field
└── RulesError      a user's rules file is broken: all of its problems, each a CatalogError
"""

from __future__ import annotations

from collections.abc import Sequence

from konductor_like.model.text import clipped

SHOWN_CHARS = 80
"""A message shows no more than this of what a user wrote, so that a log line stays one that can be read."""


def short(text: str) -> str:
    """A user's text, for a message: on one line, and cut."""
    shown = text if text.isprintable() else repr(text)[1:-1]
    return clipped(shown, SHOWN_CHARS)


def quoted(value: object) -> str:
    """The same in quotes, as Python writes a value."""
    if not isinstance(value, str):
        return short(repr(value))
    return repr(clipped(value, SHOWN_CHARS))


class CatalogError(ValueError):
    """One thing wrong in one file; nothing of the file is used. ``line`` counts from 1, where it is known."""

    hint = "The catalogue is part of the package: reinstall konductor-like, or undo the change to the file."

    def __init__(self, file: str, entry: str, field: str, reason: str, line: int | None = None) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}, {short(entry)}, {short(field)}: {reason}")
        self.line = line


class RulesError(ValueError):
    """A user's rules file is refused as a whole, for ``problems``, in the order of their lines."""

    hint = "Correct the file and check it with `konductor-like rules test FILE`."

    def __init__(self, problems: Sequence[CatalogError]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(str(problem) for problem in self.problems))
