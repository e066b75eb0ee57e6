"""Read JSON that a person may have edited: use the valid fields, and report the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, cast

from konductor_like.model import ReleaseHow
from konductor_like.model.time import moment_of_text, ns_of_text

T = TypeVar("T")
_NO_JSON, _NO_OBJECT = "it is not JSON", "it is not a JSON object"
_PROBLEMS_SHOWN = 3
_MAX_INT = 1 << 64
"""Numbers in the JSON must be smaller than this. All our numbers are: the kernel's sequence numbers have
64 bits, and detection accepts numbers of up to 19 digits."""
_BRACKETS_MOST = 200
"""Brackets in the value of an unknown field, at most. A value with more is dropped: JSON that is nested too
deep cannot be written again."""


class Ns(int):
    """Nanoseconds since 1970. In JSON an RFC 3339 text, or an integer after the year 9999."""


class Fields:
    """One JSON object and its path in the text. Problems are collected, never raised."""

    def __init__(self, found: dict[str, Any], where: str, problems: list[str]) -> None:
        self._found = found
        self._where = where
        self._problems = problems

    @property
    def problem(self) -> str | None:
        """The problems found until now, in one line; None if there are none."""
        if not self._problems:
            return None
        shown = "; ".join(self._problems[:_PROBLEMS_SHOWN])
        more = len(self._problems) - _PROBLEMS_SHOWN
        return f"{shown}; and {more} more" if more > 0 else shown

    def complain(self, what: str) -> None:
        """Add a problem of this object."""
        self._problems.append(f"{self._where}: {what}" if self._where else what)

    def get(self, name: str, kind: type[T]) -> T | None:
        """Return a field as one of ``_KINDS`` or an enum; None if it is absent, null or of another kind."""
        found = self._found.get(name)
        if found is None:
            return None
        taken, complaint, make = _KINDS.get(kind) or _kind_of_enum(cast("type[StrEnum]", kind))
        try:
            if not isinstance(found, taken) or (isinstance(found, bool) and kind is not bool):
                raise ValueError(complaint)  # noqa: TRY301 -- handled right here, like what ``make`` raises
            value: T = make(found)
        except (ValueError, OverflowError):
            self._problems.append(f"{self._path(name)} {complaint}")
            return None
        return value

    def need(self, name: str, kind: type[T]) -> T | None:
        """Return a field like ``get``, and report the problem if it is absent or null."""
        if self._found.get(name) is None and self._problems not in ([_NO_JSON], [_NO_OBJECT]):
            self.complain(f"{name} is missing")
        return self.get(name, kind)

    def inner(self, name: str) -> Fields:
        """Return the fields of an inner object; no fields if it is absent."""
        return Fields(self.get(name, dict) or {}, self._path(name), self._problems)

    def items(self, name: str) -> list[Fields]:
        """Return the objects of a list. Items that are not objects are reported and left out."""
        fields = []
        for index, item in enumerate(self.get(name, list) or ()):
            where = f"{self._path(name)}[{index}]"
            if isinstance(item, dict):
                fields.append(Fields(item, where, self._problems))
            else:
                self._problems.append(f"{where}: is not an object")
        return fields

    def decoded(self, name: str, decode: Callable[[Fields], T | None]) -> tuple[T, ...]:
        """Decode each object of a list. Objects for which ``decode`` returns None are left out."""
        return tuple(found for item in self.items(name) if (found := decode(item)) is not None)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings. Other items are reported and left out."""
        found: list[object] = self.get(name, list) or []
        kept = tuple(_clean(item) for item in found if isinstance(item, str))
        if len(kept) != len(found):
            self._problems.append(f"{self._path(name)}: has an item that is not text")
        return kept

    def over(self, defaults: Fields) -> Fields:
        """Return these fields, and the fields of ``defaults`` that are missing here."""
        return Fields({**defaults._found, **self._found}, self._where, self._problems)

    def unknown(self, known: Set[str]) -> tuple[tuple[str, str], ...]:
        """Return the other fields, each with its JSON: a later version of this program may write them."""
        kept = []
        for name in self._found.keys() - known:
            with suppress(RecursionError):
                text = dumps(self._found[name])
                if text.count("[") + text.count("{") <= _BRACKETS_MOST:
                    kept.append((name, text))
        return tuple(sorted(kept))

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name


def dumps(value: object) -> str:
    """Return the value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read(text: str) -> Fields:
    """Return the fields of a JSON object; for any other text no fields, and a problem."""
    problems: list[str] = []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found, problems = {}, [_NO_JSON]
    if not isinstance(found, dict):
        found, problems = {}, [_NO_OBJECT]
    return Fields(found, "", problems)


def _clean(text: str) -> str:
    """Replace lone surrogates, which JSON can contain and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def _measured(number: float) -> float:
    return float(_counted(number))


def _counted(number: T) -> T:
    if not 0 <= number < _MAX_INT:  # type: ignore[operator]  # a number
        raise ValueError
    return number


def _ns(found: str | int) -> int:
    return _counted(found) if isinstance(found, int) else ns_of_text(found)


@cache
def _kind_of_enum(kind: type[StrEnum]) -> Kind:
    return str, f"is none of {', '.join(kind)}", kind


Kind = tuple[Any, str, Callable[[Any], Any]]
_KINDS: Mapping[type, Kind] = {
    str: (str, "is not text", _clean),
    int: (int, "is not a whole number", _counted),
    float: ((int, float), "is not a number", _measured),
    bool: (bool, "is not true or false", bool),
    datetime: (str, "is not a time", moment_of_text),
    Ns: ((str, int), "is not a time", _ns),
    ReleaseHow: (str, "is not text", lambda text: ReleaseHow(_clean(text))),
    dict: (dict, "is not an object", dict),
    list: (list, "is not a list", list),
}
"""By kind: the accepted types of JSON values, the message for any other, and the function that converts."""
