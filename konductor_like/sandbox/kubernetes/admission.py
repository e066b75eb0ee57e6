"""The hook for whoever judges writes beyond types and rules, as admission policies do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from konductor_like.sandbox.kubernetes import errors


@dataclass(frozen=True, slots=True)
class Review:
    """One write that the server would carry out."""

    user: str
    operation: str
    """CREATE, UPDATE (every patch is one) or DELETE."""
    group: str
    resource: str
    """The plural: ``nodes``."""
    name: str
    subresource: str
    object: Mapping[str, Any] | None
    """As it would be; None of a deletion."""
    old_object: Mapping[str, Any] | None
    """As it is; None of a creation."""


Admission = Callable[[Review], str]
"""Why the write is denied; empty where it is not."""


def admit_all(_review: Review) -> str:
    """Denies nothing."""
    return ""


def check(admission: Admission, review: Review) -> None:
    """Raises ``ApiError`` (403) when the write is denied."""
    why = admission(review)
    if why:
        raise errors.denied(review.group, review.resource, review.name, why)
