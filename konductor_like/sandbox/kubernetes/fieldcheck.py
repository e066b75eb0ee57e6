"""Fields that an object's kind does not have, lacks or holds with a wrong type: refused as the server does.

Which fields a kind has is for the owner of the stand-in to say (``Schema``); without one, nothing is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from konductor_like.sandbox.kubernetes.errors import ApiError, Cause
from konductor_like.sandbox.kubernetes.resources import Resource
from konductor_like.sandbox.kubernetes.schema import DecodeError


class Flaw(StrEnum):
    """What is wrong with a field."""

    UNKNOWN = "unknown"
    WRONG_TYPE = "wrong type"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that is wrong."""

    flaw: Flaw
    place: str
    """Such as ``spec.template.spec.containers[0].image``."""
    said: str = ""
    """Of a wrong type: what was expected and what was found."""


Schema = Callable[[Mapping[str, Any]], Iterable[FieldProblem]]
"""Everything that is wrong with the fields of an object, ``apiVersion`` and ``kind`` included."""


def no_schema(_item: Mapping[str, Any]) -> tuple[FieldProblem, ...]:
    """Takes every field for known."""
    return ()


def check_decodable(schema: Schema, item: Mapping[str, Any], *, strict: bool) -> None:
    """Raises ``DecodeError`` for a wrong type, and if ``strict`` for a field that nobody knows."""
    found = list(schema(item))
    wrong = [f"{problem.place}: {problem.said}" for problem in found if problem.flaw is Flaw.WRONG_TYPE]
    if wrong:
        raise DecodeError(f"json: {', '.join(wrong)}")
    unknown = [f'unknown field "{problem.place}"' for problem in found if problem.flaw is Flaw.UNKNOWN]
    if strict and unknown:
        raise DecodeError(f"strict decoding error: {', '.join(unknown)}")


def check_applicable(schema: Schema, resource: Resource, item: Mapping[str, Any], where: str) -> None:
    """What server-side apply asks of an object: it is always strict, and refuses with a 500 (``ApiError``).

    ``where`` is namespace and name.
    """
    wrong = [
        f".{problem.place}: {problem.said or 'field not declared in schema'}"
        for problem in schema(item)
        if problem.flaw is not Flaw.MISSING
    ]
    if wrong:
        said = wrong[0] if len(wrong) == 1 else "\n  ".join(("errors:", *wrong))
        about = f"({where}; {resource.api_version}, Kind={resource.kind})"
        raise ApiError(500, "", f"failed to create typed patch object {about}: {said}")


def missing(schema: Schema, item: Mapping[str, Any]) -> list[Cause]:
    """A cause for every field that must be there and is not."""
    return [Cause.required(problem.place) for problem in schema(item) if problem.flaw is Flaw.MISSING]
