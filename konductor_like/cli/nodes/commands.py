"""The commands ``konductor-like reset`` and ``taint``."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.columns import count
from konductor_like.cli.completion import complete_nodes
from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import examples, usage_hint
from konductor_like.cli.options import (
    By,
    Context,
    DryRun,
    DryRunOption,
    Kubeconfig,
    OptionalReason,
    Reason,
    Selector,
    TextNameOrJson,
    Unasked,
    Verbose,
    node_names,
    short_reason,
)
from konductor_like.cli.output import ask, ask_text, can_answer, tell, warn
from konductor_like.exits import Exit
from konductor_like.model.text import clipped, listed

if TYPE_CHECKING:
    from konductor_like.cli.nodes.acts import Purge, Reset
    from konductor_like.model import NodeState

NAMES_ASKED_ABOUT = 10
"""Number of nodes that the question names; it counts the others."""
WARNINGS_SHOWN = 10
"""Number of different warnings before a release; the nodes of the others are counted."""
_OWN_RULE = re.compile(r"(?!(?:xid|sxid|cuda|fm)[. ])[a-z][a-z0-9_]*([. ][a-z0-9_]+)+")
"""A rule of the user's own file, as its id or as words: ``site.nic_down``, ``site nic down``; no code."""
_EMPTY_VALUE = re.compile(r"[=(,]\s*[,)]|[=,]\s*$")
"""An empty value in a selector, as in ``pool!=`` and ``pool notin ()``: many nodes match it, or all."""
_NOTHING_TO_RELEASE = "Nothing to release: no node has the taint, and the brake holds no node"
_ONE, _ALL = "konductor-like reset NODE", "konductor-like reset --all"
TO_TYPE = f"`{_ONE} --yes` releases one node, `{_ALL} --yes` all nodes that are tainted or held"


@examples(
    "reset gpu-07 gpu-08 --reason 'GPU replaced'",
    "reset --all --yes --dry-run",
)
@usage_hint(TO_TYPE)
def reset(
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NODE",
            help="Names of nodes. Without any, on a terminal, all nodes, after a question.",
            callback=node_names,
            autocompletion=complete_nodes,
        ),
    ] = None,
    *,
    everywhere: Annotated[
        bool,
        typer.Option("--all", help="Release all nodes that have the taint or that the brake holds."),
    ] = False,
    dry_run: DryRunOption = DryRun.NONE,
    reason: OptionalReason = "",
    by: By = None,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="Also delete the labels and the record of faults; old log lines may taint again."
        ),
    ] = False,
    selector: Selector = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    output: TextNameOrJson = "text",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Release nodes: remove the taint, and close the faults so far. No GPU is reset.

    The command releases the named nodes, those of a selector, or with --all every node that has the taint or
    that the brake holds. On a terminal `reset` alone means all of them, too. For nodes without names it says
    for which faults, and asks first. With names it asks only about a node whose fault, of its present boot,
    still needs a repair, such as a reboot. On a terminal it also asks for the reason.

    Without a terminal it needs --yes instead of an answer, and asks for no reason. A script gives names, a
    selector or --all: --yes alone releases nothing. --dry-run prints what the command would print, and ends
    with the same exit status.

    Faults that the controller has read so far never taint again. A new fault taints at once. With --all,
    --purge is for every node that has anything of Konductor-like.
    """
    from konductor_like.cli.nodes.acts import Purge, Reset
    from konductor_like.cli.nodes.writes import connected

    if sum(map(bool, (nodes, selector, everywhere))) > 1:
        raise CommandError("give names, a selector or --all: only one of them", status=Exit.USAGE)
    if not nodes:
        _refuse_fleet(selector, everywhere=everywhere, purge=purge, yes=yes)
    with connected(dry_run, kubeconfig, context) as (client, settings):
        writes = (Purge if purge else Reset)(
            client, settings, dry_run, reason=reason, claimed=by, output=output
        )
        states = writes.named(nodes) if nodes else writes.affected(selector)
        if not states and not nodes:
            tell("Nothing to purge." if purge else f"{_NOTHING_TO_RELEASE}.")
        is_unmet = _warn_first(writes, states)
        if states and not yes:
            _ask_first(writes, states, fleet_wide=not nodes, is_unmet=is_unmet, purge=purge)
            if not reason and not purge and dry_run is DryRun.NONE:
                writes.reason = _asked_reason(states)
        writes.carry_out(states)
    raise typer.Exit(Exit.of(done=writes.done, failed=writes.failed))


@examples(
    "taint gpu-07 --reason 'riser swap, ticket 4711'",
    "taint gpu-07 gpu-08 --reason 'rack move' --dry-run=server",
)
def taint(
    nodes: Annotated[
        list[str],
        typer.Argument(
            metavar="NODE", help="Names of nodes.", callback=node_names, autocompletion=complete_nodes
        ),
    ],
    *,
    reason: Reason,
    by: By = None,
    dry_run: DryRunOption = DryRun.NONE,
    _yes: Unasked = False,
    output: TextNameOrJson = "text",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Taint nodes for a reason of your own.

    The node's record shows your name, and the node counts as out of service; `reset` releases it. The
    brake does not stop a person's taint: the command warns if the brake would have held it back.
    """
    from konductor_like.cli.nodes.acts import OperatorTaint
    from konductor_like.cli.nodes.writes import connected

    with connected(dry_run, kubeconfig, context) as (client, settings):
        writes = OperatorTaint(client, settings, dry_run, reason=reason, claimed=by, output=output)
        writes.carry_out(writes.named(nodes))
    raise typer.Exit(Exit.of(done=writes.done, failed=writes.failed))


def _refuse_fleet(selector: str | None, *, everywhere: bool, purge: bool, yes: bool) -> None:
    """Refuse a release without names that nobody has asked for in so many words, such as ``reset $NODE``.

    Raises CommandError with the command to type.
    """
    also = " --purge" if purge else ""
    all_nodes = (
        "every node with anything of Konductor-like" if purge else "all nodes that are tainted or held"
    )
    if selector is not None and _EMPTY_VALUE.search(selector):
        raise CommandError(
            f"the selector {clipped(selector, 60)!r} has an empty value; is a shell variable not set?",
            hint=TO_TYPE,
            status=Exit.USAGE,
        )
    is_chosen = everywhere or selector is not None
    if not is_chosen and (yes or purge or not can_answer()):
        raise CommandError(
            "no node is named; is a shell variable not set?",
            hint=f"`{_ONE}{also} --yes` is for one node, `{_ALL}{also} --yes` for {all_nodes}",
            status=Exit.USAGE,
        )
    if not yes and not can_answer():
        chosen = "--all" if selector is None else f"-l {shlex.quote(selector)}"
        raise CommandError(
            "there is no terminal to ask on",
            hint=f"`konductor-like reset {chosen}{also} --yes` asks nothing",
            status=Exit.USAGE,
        )


def _warn_first(writes: Purge | Reset, states: Sequence[NodeState]) -> bool:
    """Print what the release leaves undone, the gravest first; return whether a need is among it."""
    from konductor_like.cli.nodes.writes import NODES_IN_WARNING
    from konductor_like.policy.node.needs import RANK

    found = [(state.name, writes.undone(state)) for state in states]
    needy = sorted((each for each in found if each[1].needs), key=lambda each: -RANK[each[1].needs[0].needs])
    by_sentence: dict[str, list[str]] = {}
    for name, left in (*needy, *((name, left._replace(needs=())) for name, left in found)):
        for sentence in left.sentences[:1] if left.needs else left.sentences:
            by_sentence.setdefault(sentence, []).append(name)
    for sentence, names in [*by_sentence.items()][:WARNINGS_SHOWN]:
        warn(f"{listed([f'node/{name}' for name in names], NODES_IN_WARNING)}: {sentence}")
    further = {name for names in [*by_sentence.values()][WARNINGS_SHOWN:] for name in names}
    if further:
        warn(f"and {count(len(further), 'more node')}: see `konductor-like status`")
    writes.told = {(name, sentence) for sentence, names in by_sentence.items() for name in names}
    return bool(needy)


def _ask_first(
    writes: Purge | Reset, states: Sequence[NodeState], *, fleet_wide: bool, is_unmet: bool, purge: bool
) -> None:
    """Ask before all nodes are released, or one whose fault nothing has repaired.

    Raises CommandError if the answer is no, or if there is no terminal to ask on.
    """
    from konductor_like.cli.nodes.acts import asked_about

    needs = ((state.name, need) for state in states for need in writes.undone(state).needs)
    writes.may_release = {(name, asked_about(need)) for name, need in needs}
    if not (fleet_wide or is_unmet):
        return
    if not can_answer():
        raise CommandError(
            "nothing was changed: there is no terminal to ask on",
            hint="repair the nodes first (`konductor-like explain NODE`), or give --yes",
            status=Exit.USAGE,
        )
    if fleet_wide:
        causes = Counter(map(writes.cause, states)).most_common()
        tell(
            f"{count(len(states), 'node')}: {', '.join(f'{number} for {cause}' for cause, number in causes)}"
        )
    if not _confirmed(states, purge=purge, is_dry_run=writes.dry_run is not DryRun.NONE):
        raise CommandError("nothing was changed")


def _asked_reason(states: Sequence[NodeState]) -> str:
    """Ask on the terminal why nodes that failed are released; empty if nobody says. Raises BadParameter."""
    from konductor_like.policy.node.lifecycle import open_failures

    if not can_answer() or not any(open_failures(state.record) for state in states):
        return ""
    return short_reason(ask_text("Reason, for the record (Enter for none): "))


def _confirmed(states: Sequence[NodeState], *, purge: bool, is_dry_run: bool) -> bool:
    """Ask on the terminal; for a purge, the question warns of what is lost. A dry run only shows it."""
    names = listed([state.name for state in states], NAMES_ASKED_ABOUT)
    nodes = f"{count(len(states), 'node')}: {names}"
    question = f"Release {nodes}? [y/N] "
    if purge:
        lost = "Their record of faults and releases is lost, and old kernel-log lines may taint them again."
        question = f"Purge {nodes}? {lost} [y/N] "
    if is_dry_run:
        tell(question)
    return is_dry_run or ask(question)
