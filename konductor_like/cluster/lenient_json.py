"""Reading JSON that a person may have edited: take what makes sense, and say what did not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from konductor_like.model.time import moment_of_text, ns_of_text

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
_TOLD = 3
_MAX_INT = 1 << 64
"""Beyond what any of our numbers can be: the kernel numbers its records with 64 bits, and detection takes
numbers of up to 19 digits. It also keeps what is written back short."""


class Fields:
    """One JSON object and where it stands in the text; complaints are collected, never raised."""

    def __init__(self, found: dict[str, Any], where: str, problems: list[str]) -> None:
        self._found = found
        self._where = where
        self._problems = problems

    @property
    def problem(self) -> str | None:
        """All complaints so far in one line, or None."""
        if not self._problems:
            return None
        told = "; ".join(self._problems[:_TOLD])
        more = len(self._problems) - _TOLD
        return f"{told}; and {more} more" if more > 0 else told

    def complain(self, what: str) -> None:
        """Add a complaint about this object."""
        self._problems.append(f"{self._where}: {what}" if self._where else what)

    def text(self, name: str) -> str | None:
        """A string."""
        return self._read(name, str, "is not text", _clean)

    def number(self, name: str) -> int | None:
        """An integer of 0 or more."""
        return self._read(name, int, "is not a whole number", _counted)

    def real(self, name: str) -> float | None:
        """A finite number of 0 or more."""
        found = self._found.get(name)
        kind = int if isinstance(found, int) else float
        return self._read(name, kind, "is not a number", _measured)

    def flag(self, name: str) -> bool:
        """A boolean; False where absent."""
        return bool(self._read(name, bool, "is neither true nor false", bool))

    def moment(self, name: str) -> datetime | None:
        """An RFC 3339 time."""
        return self._read(name, str, "is not a time", moment_of_text)

    def ns(self, name: str) -> int | None:
        """An RFC 3339 time, or an integer, as nanoseconds."""
        found = self._found.get(name)
        if isinstance(found, int):
            return self._read(name, int, "is not a time", _counted)
        return self._read(name, str, "is not a time", ns_of_text)

    def choice(self, name: str, kind: type[E]) -> E | None:
        """One of an enum's values."""
        return self._read(name, str, f"is none of {', '.join(kind)}", kind)

    def inner(self, name: str) -> Fields:
        """An object; an empty one where absent."""
        found = self._read(name, dict, "is not an object", dict)
        return Fields(found or {}, self._path(name), self._problems)

    def items(self, name: str) -> list[Fields]:
        """A list of objects; others in it are complained of and passed over."""
        fields = []
        for index, item in enumerate(self._read(name, list, "is not a list", list) or ()):
            where = f"{self._path(name)}[{index}]"
            if isinstance(item, dict):
                fields.append(Fields(item, where, self._problems))
            else:
                self._problems.append(f"{where}: is not an object")
        return fields

    def decoded(self, name: str, decode: Callable[[Fields], T | None]) -> tuple[T, ...]:
        """What each object of a list was decoded to; those that gave None are left out."""
        return tuple(found for item in self.items(name) if (found := decode(item)) is not None)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        found: list[object] = self._read(name, list, "is not a list", list) or []
        kept = tuple(_clean(item) for item in found if isinstance(item, str))
        if len(kept) != len(found):
            self._problems.append(f"{self._path(name)}: holds more than text")
        return kept

    def over(self, defaults: Fields) -> Fields:
        """These fields, completed by those of ``defaults``."""
        return Fields({**defaults._found, **self._found}, self._where, self._problems)

    def is_null(self, name: str) -> bool:
        """Whether the field is absent, or null."""
        return self._found.get(name) is None

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def _read(self, name: str, kind: type, complaint: str, make: Callable[[Any], T]) -> T | None:
        found = self._found.get(name)
        if found is None:
            return None
        try:
            if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
                raise ValueError(complaint)  # noqa: TRY301 -- handled right here, like what ``make`` raises
            return make(found)
        except (ValueError, OverflowError):
            self._problems.append(f"{self._path(name)} {complaint}")
            return None


def json_object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object within an object; an empty one where there is none."""
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def present(parts: Mapping[str, Any]) -> dict[str, Any]:
    """These fields without those that are None."""
    return {name: value for name, value in parts.items() if value is not None}


def dumps(parts: Mapping[str, Any]) -> str:
    """As short as it can be, for an annotation."""
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def read(text: str) -> Fields:
    """The fields of a JSON object; none of them, and a complaint, for any other text."""
    problems: list[str] = []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found, problems = {}, ["it is not JSON"]
    if not isinstance(found, dict):
        found, problems = {}, ["it is not a JSON object"]
    return Fields(found, "", problems)


def _clean(text: str) -> str:
    """Without lone surrogates, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def _measured(number: float) -> float:
    if not 0 <= number < _MAX_INT:
        raise ValueError
    return float(number)


def _counted(number: int) -> int:
    if not 0 <= number < _MAX_INT:
        raise ValueError
    return number
