"""Reading JSON that a person may have edited: take what makes sense, and name what does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, cast

from konductor_like.model.time import moment_of_text, ns_of_text

T = TypeVar("T")
_NO_JSON, _NO_OBJECT = "it is not JSON", "it is not a JSON object"
_PROBLEMS_SHOWN = 3
_MAX_INT = 1 << 64
"""Beyond what any of our numbers can be: the kernel numbers its records with 64 bits, and detection takes
numbers of up to 19 digits. It also keeps what is written back short."""
_BRACKETS_MOST = 200
"""In a field that is not ours: JSON that is nested too deep to be written again has more of them."""


class Ns(int):
    """A time in nanoseconds: RFC 3339, or an integer where that has no such time."""


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
        shown = "; ".join(self._problems[:_PROBLEMS_SHOWN])
        more = len(self._problems) - _PROBLEMS_SHOWN
        return f"{shown}; and {more} more" if more > 0 else shown

    def complain(self, what: str) -> None:
        """Add a complaint about this object."""
        self._problems.append(f"{self._where}: {what}" if self._where else what)

    def get(self, name: str, kind: type[T]) -> T | None:
        """A value of a kind of ``_KINDS``, or of an enum; None where it is absent or null."""
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
        """The same; complained of where it is absent or null, if the text is JSON at all."""
        if self._found.get(name) is None and self._problems not in ([_NO_JSON], [_NO_OBJECT]):
            self.complain(f"{name} is missing")
        return self.get(name, kind)

    def inner(self, name: str) -> Fields:
        """An object; an empty one where absent."""
        return Fields(self.get(name, dict) or {}, self._path(name), self._problems)

    def items(self, name: str) -> list[Fields]:
        """A list of objects; others in it are complained of and passed over."""
        fields = []
        for index, item in enumerate(self.get(name, list) or ()):
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
        found: list[object] = self.get(name, list) or []
        kept = tuple(_clean(item) for item in found if isinstance(item, str))
        if len(kept) != len(found):
            self._problems.append(f"{self._path(name)}: holds more than text")
        return kept

    def over(self, defaults: Fields) -> Fields:
        """These fields, completed by those of ``defaults``."""
        return Fields({**defaults._found, **self._found}, self._where, self._problems)

    def unknown(self, known: Set[str]) -> tuple[tuple[str, str], ...]:
        """All other fields, each with its JSON; such as a later version of this program may have written."""
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
    """As short as it can be, for an annotation."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read(text: str) -> Fields:
    """The fields of a JSON object; none of them, and a complaint, for any other text."""
    problems: list[str] = []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found, problems = {}, [_NO_JSON]
    if not isinstance(found, dict):
        found, problems = {}, [_NO_OBJECT]
    return Fields(found, "", problems)


def _clean(text: str) -> str:
    """Without lone surrogates, which JSON can hold and UTF-8 cannot."""
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
    bool: (bool, "is neither true nor false", bool),
    datetime: (str, "is not a time", moment_of_text),
    Ns: ((str, int), "is not a time", _ns),
    dict: (dict, "is not an object", dict),
    list: (list, "is not a list", list),
}
"""By kind: the types of JSON values, the complaint about any other, and the way to make the value."""
