"""Error messages: what failed and what to do about it. Expected errors have no traceback."""

from __future__ import annotations

import logging
import re
import traceback

import typer

from konductor_like.cli.help import Group, usage_hint_of
from konductor_like.cli.output import tell
from konductor_like.exits import Exit
from konductor_like.model.edge_errors import EdgeError
from konductor_like.model.text import clipped

FIND_NODE = "kubectl get nodes lists the names of the nodes"
"""Hint after a name that no node has."""
_NAME_CHARS = 200
_CHOICES = re.compile(r"(?<=is not one of ).*")


class CommandError(Exception):
    """An error that ends a command: its problems, a hint and the command's exit status."""

    def __init__(self, *problems: str, hint: str = "", status: Exit = Exit.FAILED) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.hint = hint
        self.status = status


def print_error(error: Exception) -> Exit | None:
    """Print an expected error and return its exit status; return None for an error that is a bug."""
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


def print_usage_error(error: typer.TyperException) -> Exit:
    """Print what is wrong with the command line, and the command whose help shows it right."""
    message = error.format_message().removeprefix("Invalid value: ").replace("Value error, ", "", 1)
    message = _CHOICES.sub(lambda choices: choices[0].replace("'", ""), message)
    tell(f"error: {message[:1].lower()}{message[1:].rstrip('.')}")
    if context := getattr(error, "ctx", None):
        if isinstance(context.command, Group) and (option := getattr(error, "option_name", "")):
            tell(f"hint: options stand behind the command: `{context.command_path} COMMAND {option}`")
        if hint := usage_hint_of(context.command.callback):
            tell(f"hint: {hint}")
        tell(f"hint: see `{context.command_path} --help`")
    return Exit.USAGE


def describe(error: Exception) -> str:
    """Return the error in one sentence; for an operating system's error the file and the reason."""
    if isinstance(error, IsADirectoryError) and error.filename:
        return f"{clipped(str(error.filename), _NAME_CHARS)}: is a directory, not a file"
    if isinstance(error, OSError) and error.strerror:
        return (
            f"{clipped(str(error.filename), _NAME_CHARS)}: {error.strerror}"
            if error.filename
            else error.strerror
        )
    return str(error) or type(error).__name__


def status_of(error: Exception) -> Exit | None:
    """Return the exit status of an expected error; None for an unexpected error."""
    from konductor_like.catalog.rules_file import CatalogError
    from konductor_like.cluster.api.errors import KubeConfigError, KubeSelectorInvalid
    from konductor_like.loki.query.errors import LokiMisconfigured

    match error:
        case CommandError():
            return error.status
        case KubeConfigError() | KubeSelectorInvalid() | LokiMisconfigured() | CatalogError():
            return Exit.USAGE
        case EdgeError() | OSError():
            return Exit.FAILED
        case _:
            return None
