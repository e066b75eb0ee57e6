"""Verdicts of one step of a validation, in the words that people read."""

from __future__ import annotations

from konductor_like.model import ValidationResult, ValidationVerdict
from konductor_like.model.text import clipped, printable

WHY_CHARS = 200
"""Characters of a reason, at most."""
_QUOTED_CHARS = 60

PASSED = ValidationResult(ValidationVerdict.PASS)


def failed(why: str) -> ValidationResult:
    """Return the verdict for a fault that the hardware itself reports."""
    return ValidationResult(ValidationVerdict.FAIL, clipped(why, WHY_CHARS))


def unknown(why: str) -> ValidationResult:
    """Return the verdict for an output that shows neither a fault nor the absence of one."""
    return ValidationResult(ValidationVerdict.UNKNOWN, clipped(why, WHY_CHARS))


def quoted(text: object) -> str:
    """Return the beginning of a foreign text, safe to print; empty for anything but a text."""
    # The words of a deep list would exceed the recursion limit.
    words = text[:1000].split() if isinstance(text, str) else []
    return clipped(printable(" ".join(words)), _QUOTED_CHARS)


def exit_words(code: int, program: str) -> str:
    """Return what an exit code of a shell says about the program that it started."""
    if code == 126:
        return f"{program} cannot be executed in the image"
    if code == 127:
        return f"{program}: command not found; the image needs it"
    return f"{program} ended with exit code {code}"
