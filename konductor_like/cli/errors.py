"""Errors as people read them: what failed, and the way out. No traceback for anything expected."""

from __future__ import annotations

import logging
import traceback

from konductor_like.cli.output import tell
from konductor_like.exits import Exit


class CommandError(Exception):
    """A command that cannot go on: its problems, the way out, and the exit status it ends with."""

    def __init__(self, *problems: str, hint: str = "", status: Exit = Exit.FAILED) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.hint = hint
        self.status = status


def report(error: Exception) -> Exit | None:
    """Tell the person about an expected error and give its exit status; None for one that is a bug."""
    status = status_of(error)
    if status is None:
        return None
    if logging.getLogger("konductor_like").isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    for problem in error.problems if isinstance(error, CommandError) else [describe(error)]:
        tell(f"error: {problem}")
    if hint := getattr(error, "hint", ""):
        tell(f"hint: {hint}")
    return status


def describe(error: Exception) -> str:
    """The error in one sentence; of an operating system's error the file and the reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def status_of(error: Exception) -> Exit | None:
    """The exit status that an expected error leads to; None for an unexpected one."""
    from konductor_like.catalog.errors import CatalogError
    from konductor_like.cluster.errors import KubeConfigError, KubeError
    from konductor_like.loki.errors import LokiError, LokiMisconfigured

    match error:
        case CommandError():
            return error.status
        case KubeConfigError() | LokiMisconfigured() | CatalogError():
            return Exit.USAGE
        case KubeError() | LokiError() | OSError():
            return Exit.FAILED
        case _:
            return None
