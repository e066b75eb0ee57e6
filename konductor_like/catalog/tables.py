"""Reading the catalogue's tables and saying exactly what is wrong with them."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from konductor_like.catalog.errors import CatalogError, quoted

E = TypeVar("E", bound=StrEnum)


class Record:
    """One entry of a file: its fields, and enough to name it in an error."""

    def __init__(
        self,
        file: str,
        name: str,
        fields: Mapping[str, Any],
        line: int | None = None,
        lines: Mapping[str, int] | None = None,
    ) -> None:
        self.file = file
        self.name = name
        self._fields = fields
        self.line = line
        self._lines = lines or {}

    def error(self, field: str, reason: str, number: int | None = None) -> CatalogError:
        """The error that says what is wrong with a field of this entry, or with item ``number`` of it."""
        line = self._lines.get(field, self.line)
        return CatalogError(self.file, self.name, field, reason, self._lines.get(f"{field} {number}", line))

    def text(self, field: str) -> str:
        """A text that must be there."""
        value = self.optional_text(field)
        if not value:
            raise self.error(field, "is missing")
        return value

    def optional_text(self, field: str) -> str:
        """A text, empty where there is none."""
        value = self._fields.get(field, "")
        if not isinstance(value, str):
            raise self.error(field, f"{quoted(value)} is not a text")
        return value

    def integer(self, field: str) -> int:
        """A number, decimal or 0x…, that must be there."""
        value = self._fields.get(field, "")
        if isinstance(value, int):
            return value
        try:
            return int(value, 0)
        except (TypeError, ValueError):
            raise self.error(field, f"{quoted(value)} is not a number") from None

    def optional_integer(self, field: str) -> int | None:
        """A number; None where there is none."""
        return None if self._fields.get(field, "") == "" else self.integer(field)

    def one_of(self, field: str, kind: type[E]) -> E:
        """A value of a closed list, which must be there."""
        value = self.text(field)
        try:
            return kind(value)
        except ValueError:
            raise self.error(field, f"{quoted(value)} is not one of {', '.join(kind)}") from None

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of at least one text, none of them empty."""
        value = self._fields.get(field)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise self.error(field, "must be a list of texts")
        for number, item in enumerate(value):
            if not item:
                raise self.error(field, "has an empty text", number)
        return tuple(value)

    def optional_texts(self, field: str) -> tuple[str, ...]:
        """A list of texts, or one text alone; none where the field is missing."""
        value = self._fields.get(field)
        if value is None or isinstance(value, str):
            return (value,) if value else ()
        return self.texts(field)

    def only(self, known: frozenset[str]) -> None:
        """Refuse misspelt fields."""
        for field in self._fields:
            if field not in known:
                raise self.error(field, "is not a known field")


def read_csv(folder: Traversable, file: str) -> Iterator[Record]:
    """The rows of a table; lines that start with ``#`` are comments. Raises CatalogError."""
    lines = read_text(folder, file).splitlines()
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    rows = csv.reader(line for _, line in numbered)
    header = next(rows, None)
    if header is None:
        raise CatalogError(file, "line 1", "header", "the file is empty")
    for (number, _), row in zip(numbered[1:], rows, strict=False):
        name = f"line {number} ({row[0]})"
        if len(row) != len(header):
            raise CatalogError(file, name, "columns", f"{len(row)} instead of {len(header)}")
        yield Record(file, name, dict(zip(header, row, strict=True)))


def read_toml(folder: Traversable, file: str) -> Iterator[Record]:
    """The tables ``[name]`` of a TOML file, in order. Raises CatalogError."""
    try:
        document = tomllib.loads(read_text(folder, file))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(file, "the file", "syntax", str(error)) from error
    for name, fields in document.items():
        if not isinstance(fields, dict):
            raise CatalogError(file, name, "content", "is not a table")
        yield Record(file, name, fields)


def read_text(folder: Traversable, file: str) -> str:
    """The text of a file. Raises CatalogError."""
    try:
        return folder.joinpath(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(file, "the file", "content", str(error)) from error
