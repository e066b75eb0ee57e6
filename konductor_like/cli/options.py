"""Options that several commands share, with kubectl's names."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer

from konductor_like.cli.completion import complete_nodes
from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import Command
from konductor_like.cli.output import tell
from konductor_like.exits import Exit
from konductor_like.model.text import clipped

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""The names that the API server accepts for a Node."""
_SHOWN_CHARS = 60
"""Characters of a wrong name that a message shows, and the most characters of a person's name."""
_REASON_CHARS = 500
"""Most characters of a reason; a record may keep only the first 120."""


class DryRun(StrEnum):
    """The values of ``--dry-run``, as in kubectl."""

    NONE = "none"
    CLIENT = "client"
    """Nothing is sent."""
    SERVER = "server"
    """The server checks every write, and stores nothing."""


def not_empty(value: Any) -> Any:
    """Refuse an empty word: `reset "$NODE"` with NODE unset must not mean all nodes. Raises BadParameter."""
    words = [value] if isinstance(value, str) else value or ()
    if not all(word.strip() for word in words):
        raise typer.BadParameter("an empty word; is a shell variable not set?")
    return value


def one_line(value: str | None) -> str | None:
    """Refuse an empty text, control characters and bytes that are no text. Raises BadParameter."""
    not_empty(value)
    if value and not value.isprintable():
        raise typer.BadParameter(f"{clipped(value, _SHOWN_CHARS)!r} has characters that cannot be printed")
    return value


def labels(value: str | None) -> str | None:
    """Refuse an empty selector, and an option in its place (``-l $LABELS --yes``). Raises BadParameter."""
    if value and value.startswith("-"):
        raise typer.BadParameter(
            f"{clipped(value, _SHOWN_CHARS)!r} is an option; is a shell variable not set?"
        )
    return one_line(value)


def node_names(value: Any) -> Any:
    """Return the names without ``node/``, as in the output of ``-o name``.

    Raises BadParameter for a text that is empty or that no Node can have as its name.
    """
    not_empty(value)
    if isinstance(value, str):
        return _node_name(value)
    return value and [_node_name(name) for name in value]


def _node_name(typed: str) -> str:
    name = re.sub(r"^(nodes?|no)/", "", typed.strip())
    if not _NODE_NAME.fullmatch(name):
        raise typer.BadParameter(f"{clipped(typed, _SHOWN_CHARS)!r} cannot be the name of a node")
    return name


def person_name(name: str | None) -> str | None:
    """Refuse a name that is empty, too long for the record or not one line. Raises BadParameter."""
    not_empty(name)
    if name is not None and (len(name) > _SHOWN_CHARS or not name.isprintable()):
        raise typer.BadParameter(f"a name is one line of at most {_SHOWN_CHARS} characters")
    return name and name.strip()


def not_blank(reason: str) -> str:
    """Refuse a blank reason. Raises CommandError or BadParameter."""
    if not reason.strip():
        raise CommandError("a reason is missing: --reason TEXT", status=Exit.USAGE)
    return short_reason(reason)


def short_reason(reason: str) -> str:
    """Refuse a reason that is long or not one line; it may be empty. Raises BadParameter."""
    if len(reason) > _REASON_CHARS or not reason.strip().isprintable():
        raise typer.BadParameter(
            f"a reason is one line of at most {_REASON_CHARS} characters, without control characters"
        )
    return reason.strip()


def _log_to_stderr(verbose: bool) -> bool:
    if verbose:
        logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("konductor_like").setLevel(logging.DEBUG)
    return verbose


def tell_if_verbose(message: str) -> None:
    """Print the message if the user gave ``-v``."""
    if logging.getLogger("konductor_like").isEnabledFor(logging.DEBUG):
        tell(message)


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NODE",
        help="Names of nodes; none for all nodes.",
        callback=node_names,
        autocompletion=complete_nodes,
    ),
]
Node = Annotated[
    str,
    typer.Argument(metavar="NODE", help="The node.", callback=node_names, autocompletion=complete_nodes),
]
Back = Annotated[
    str,
    typer.Option("--since", metavar="SPAN|TIME", help="Look for outages since: 30d, 2026-03-01."),
]
Context = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="Context of the kubeconfig to use.", callback=one_line),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig; otherwise $KUBECONFIG, ~/.kube/config, or the pod's own account.",
        callback=not_empty,
    ),
]
Selector = Annotated[
    str | None,
    typer.Option(
        "-l",
        "--selector",
        metavar="LABELS",
        help="Only nodes with these labels: a=b,c!=d.",
        callback=labels,
    ),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Reason, kept on the node.", callback=not_blank)
]
By = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Your name, if you share a user of the cluster; recorded as a claim.",
        callback=person_name,
    ),
]
Unasked = Annotated[
    bool, typer.Option("-y", "--yes", help="Accepted as by `reset`; this command asks nothing.")
]
OptionalReason = Annotated[
    str,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Reason, kept on the node.",
        show_default=False,
        callback=short_reason,
    ),
]
TextNameOrJson = Annotated[
    Literal["text", "name", "json"], typer.Option("-o", "--output", help="Output format.")
]
Format = Literal["table", "json", "yaml", "name"]
"""The formats of every command that prints data; ``name`` prints one name a line, for other commands."""
FormatOption = Annotated[Format, typer.Option("-o", "--output", help="Output format.")]
DryRunOption = Annotated[
    DryRun, typer.Option("--dry-run", help="Change nothing; alone it means --dry-run=client.")
]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Log every step; show tracebacks.", callback=_log_to_stderr)
]
"""The callback switches the logging on; commands ignore the value."""


class DryRunCommand(Command):
    """A command that reads ``--dry-run`` without a value as ``--dry-run=client``, as kubectl does."""

    status_of_closed_pipe = Exit.PARTLY  # it writes and prints node by node

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # see below
        # typer annotates the context with a class that it vendors; typer.Context is its public subclass
        return super().parse_args(ctx, with_plain_dry_run(args))


def with_plain_dry_run(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with ``--dry-run=client`` for a ``--dry-run`` that has no value."""
    options = list(arguments)
    end = options.index("--") if "--" in options else len(options)
    options[:end] = [f"--dry-run={DryRun.CLIENT}" if each == "--dry-run" else each for each in options[:end]]
    return options
