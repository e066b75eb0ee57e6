"""``konductor-like explain``: describes a fault and what the controller does about it; or a node's state."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from konductor_like.cli.completion import complete_rules_or_nodes
from konductor_like.cli.errors import FIND_NODE, CommandError, status_of
from konductor_like.cli.help import examples
from konductor_like.cli.options import Context, Format, FormatOption, Kubeconfig, Verbose, not_empty
from konductor_like.cli.output import API_VERSION, Paragraph, say, say_document, say_paragraphs, tell, warn
from konductor_like.cli.rules import RULES_VARIABLE, digest_of, load
from konductor_like.exits import Exit
from konductor_like.model import Source
from konductor_like.model.text import clipped

if TYPE_CHECKING:
    from konductor_like.catalog import Catalog, UserRules
    from konductor_like.cli.explain.node import NodeExplanation

STDIN = "-"
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""A word that may be the name of a node."""
_SHOWN_CHARS = 80
_LINE_CHARS = 65_536
"""Characters after which a line on standard input is cut."""


@examples("explain xid 79", "explain gpu-04", "explain -o json '[5.1] NVRM: Xid (PCI:0000:9b:00): 48, pid=7'")
def explain(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="RULE|LINE|NODE",
            help="xid 79, nccl.socket, a pasted line, a node (or: node NAME), an alert, or - for stdin.",
            autocompletion=complete_rules_or_nodes,
        ),
    ],
    *,
    source: Annotated[
        Source | None,
        typer.Option("--source", help="Source of a pasted line; both by default."),
    ] = None,
    output: FormatOption = "table",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Explain a fault, a line of a log, or a node.

    For a fault: what it is, its usual cause, what the controller does, and which other faults to look for.
    For a line: the same for its fault, or why the line is not a fault. For a node: its recorded faults, the
    last decision of the controller, what is held back, and what to do next. For an alert or the reason of an
    Event: its runbook. With --context or --kubeconfig the command warns if the controller of that cluster
    runs other rules.
    """
    from konductor_like.cli.explain import fault
    from konductor_like.cli.explain.runbook import runbook_of
    from konductor_like.detection import Detector

    if len(what) == 2 and what[0] == "node" and source is None:
        missing = CommandError(f"node/{what[1]} not found", hint=FIND_NODE)
        _show_node(_explain_node(not_empty(what[1]), kubeconfig, context, missing), output)
        return
    text = (_standard_input() if what == [STDIN] else " ".join(what)).strip()
    if text == "node" and source is None:
        hint = "name it: konductor-like explain node gpu-03"
        raise CommandError("which node?", hint=hint, status=Exit.USAGE)
    if runbook := runbook_of(text):
        rows = (("Name", runbook.name), ("Runbook", runbook.path))
        head = {"apiVersion": API_VERSION, "kind": "Runbook"}
        _show(rows, head | runbook._asdict(), runbook.name, output)
        if output == "table":
            say(["", *runbook.plain.splitlines()])
        return
    file = os.environ.get(RULES_VARIABLE)
    rules = load(Path(file) if file else None)  # as the controller does; other settings may be wrong
    try:
        answer = fault.explain_text(text, source, Detector(rules.catalog))
        if (
            answer.line
            and not (source or answer.source)
            and len(what) > 1
            and all(map(_NAME.fullmatch, what))
        ):
            raise CommandError(
                f"{clipped(text, _SHOWN_CHARS)!r} is neither a fault nor a line of a log",
                hint=f"{_one_by_one(what, rules.catalog)}; a line of a log needs quotation marks",
                status=Exit.USAGE,
            )
    except fault.NoFaultError as error:
        _show_node(_explain_word(text, kubeconfig, context, error), output)
    else:
        if kubeconfig or context:
            _warn_of_other_rules(rules, kubeconfig, context)
        name = answer.explanation.entry.rule if answer.explanation else ""
        _show(fault.paragraphs(answer), fault.document(answer), name, output)


def _one_by_one(words: list[str], catalog: Catalog) -> str:
    """Return the commands for words that are several names: faults (``79``, ``xid 79``) and nodes."""
    from konductor_like.catalog.fault_names import parse_fault_name

    faults, nodes, left = list[str](), list[str](), words
    while left:
        taken = next((n for n in (2, 1) if parse_fault_name(" ".join(left[:n]), catalog)[0]), 0)
        (faults if taken else nodes).append(" ".join(left[: taken or 1]))
        left = left[taken or 1 :]
    found = (("fault", faults), ("node", nodes))
    return "; ".join(
        f"for a {what}: konductor-like explain {clipped(names[0], _SHOWN_CHARS)}"
        for what, names in found
        if names
    )


def _explain_node(
    name: str, kubeconfig: str | None, context: str | None, missing: CommandError
) -> NodeExplanation:
    """Explain a node. Raises ``missing`` if the cluster has no such node, KubeConfigError or KubeError."""
    from konductor_like.cli import session
    from konductor_like.cli.explain.node import explain_node
    from konductor_like.cli.similar_names import did_you_mean
    from konductor_like.cli.status.report import collect
    from konductor_like.cluster.api.client import ReadOnlyKubeClient

    with session.connected(ReadOnlyKubeClient, kubeconfig, context) as (client, settings):
        fleet = collect(client, settings)
        if name not in fleet.nodes:
            if suggestion := did_you_mean([name], fleet.nodes):
                missing.hint = suggestion
            raise missing
        return explain_node(name, fleet, digest_of(settings.rules_file))


def _explain_word(
    word: str, kubeconfig: str | None, context: str | None, no_fault: CommandError
) -> NodeExplanation:
    """Explain the node of that name. If there is none, raises CommandError: no rule, no line, no node."""
    from konductor_like.cluster.api.errors import KubeConfigError, KubeError

    missing = f"{no_fault}, and the cluster has no such node"
    hint, status = no_fault.hint, no_fault.status
    try:
        return _explain_node(word, kubeconfig, context, CommandError(missing, hint=hint, status=status))
    except KubeError as error:
        if isinstance(error, KubeConfigError) and not (kubeconfig or context):  # most likely a typing mistake
            message = f"{no_fault}; to look for a node of that name, a working kubeconfig is needed"
        else:
            message = (
                f"{clipped(word, _SHOWN_CHARS)!r} is no fault, and cannot be looked up as a node: {error}"
            )
            hint = error.hint or hint
        raise CommandError(message, hint=hint, status=status_of(error) or status) from error


def _warn_of_other_rules(rules: UserRules, kubeconfig: str | None, context: str | None) -> None:
    """Warn if the controller of that cluster runs other rules than these, or if its rules are not known."""
    from konductor_like.cli import session
    from konductor_like.cluster.api.client import ReadOnlyKubeClient

    with session.connected(ReadOnlyKubeClient, kubeconfig, context) as (client, settings):
        controller = session.read_controller(client, settings)
    if warning := controller.why_settings_unknown or controller.other_rules(rules.digest):
        warn(warning)


def _standard_input() -> str:
    """Return the start of the first line that is not blank.

    A line with quotation marks is hard to pass as an argument.
    """
    if sys.stdin.isatty():
        tell("Paste one line, and press Enter.")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    return next((line for line in iter(partial(sys.stdin.readline, _LINE_CHARS), "") if line.strip()), "")


def _show_node(node: NodeExplanation, output: Format) -> None:
    from konductor_like.cli.explain.node import document, paragraphs  # slow: imports the Kubernetes client

    _show(paragraphs(node), document(node), f"node/{node.report.name}", output)


def _show(paragraphs: Iterable[Paragraph], document: dict[str, Any], name: str, output: Format) -> None:
    match output:
        case "table":
            say_paragraphs(paragraphs)
        case "name":
            say([name] if name else [])
        case _:
            say_document(document, output)
