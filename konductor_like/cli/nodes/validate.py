"""The command ``konductor-like validate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.completion import complete_nodes
from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import examples
from konductor_like.cli.options import (
    By,
    Context,
    DryRun,
    DryRunOption,
    Kubeconfig,
    OptionalReason,
    Unasked,
    Verbose,
    node_names,
)
from konductor_like.cli.output import say, tell, warn
from konductor_like.exits import Exit
from konductor_like.model.validation import LEVELS, ValidationVerdict

if TYPE_CHECKING:
    from konductor_like.cli.nodes.validation import Wish
    from konductor_like.cluster.api.client import ReadOnlyKubeClient
    from konductor_like.settings import Settings

STATUS_OF = {
    ValidationVerdict.PASS: Exit.OK,
    ValidationVerdict.FAIL: Exit.FAILED,
    ValidationVerdict.UNKNOWN: Exit.PARTLY,
}
"""The exit status of ``--wait`` by the verdict."""


@examples("validate gpu-07 --wait", "validate gpu-07 --level 3", "validate gpu-07 --cancel")
def validate(
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE", help="Name of the node.", callback=node_names, autocompletion=complete_nodes
        ),
    ],
    *,
    level: Annotated[
        int | None,
        typer.Option(
            "--level",
            min=LEVELS[0],
            max=LEVELS[-1],
            metavar="LEVEL",
            help="Level of `dcgmi diag`: 2 takes minutes, 3 half an hour, 4 up to two hours; by default the "
            "one that the node's faults ask for.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the verdict; Ctrl-C ends only the wait.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End the validation that waits or runs; a verdict stays.")
    ] = False,
    reason: OptionalReason = "",
    by: By = None,
    dry_run: DryRunOption = DryRun.NONE,
    _yes: Unasked = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Test all GPUs of a tainted node with a Job of the controller.

    The controller needs KONDUCTOR_VALIDATION_IMAGE. The test begins when no pod uses the node's GPUs any
    more, and nothing else speaks against it: `explain NODE` says what it waits for. With
    KONDUCTOR_RETURN=validated a pass returns the node; otherwise `reset` releases it. Exit status with
    --wait: 0: all GPUs passed; 1: the test failed, or was not asked for; 3: the result is unknown.
    """
    from konductor_like.cli.nodes.validation import Cancellation, Wish
    from konductor_like.cli.nodes.writes import connected

    if cancel and (wait or level is not None):
        raise CommandError("--cancel goes with neither --level nor --wait", status=Exit.USAGE)
    with connected(dry_run, kubeconfig, context) as (client, settings):
        kind = Cancellation if cancel else Wish
        writes = kind(client, settings, dry_run, reason=reason, claimed=by)
        if isinstance(writes, Wish):
            writes.level = level
        writes.carry_out(writes.named([node]))
        if wait and isinstance(writes, Wish) and writes.done and dry_run is DryRun.NONE:
            raise typer.Exit(_wait(client, settings, node, writes))
    raise typer.Exit(Exit.of(done=writes.done, failed=writes.failed))


def _wait(client: ReadOnlyKubeClient, settings: Settings, node: str, writes: Wish) -> Exit:
    """Print each step of the validation until its verdict; return the command's exit status."""
    from konductor_like.cli.nodes.validation import follow

    def tell_step(words: str) -> None:
        say([f"node/{node} {words}"])

    def tell_trouble(words: str) -> None:
        warn(f"node/{node}: {words}")

    try:
        verdict = follow(client, settings, node, writes.asked_at, tell_step, tell_trouble)
    except KeyboardInterrupt:
        ends = f"`konductor-like validate {node} --cancel` ends it"
        tell(f"interrupted: the validation goes on; `konductor-like explain {node}` shows it, and {ends}")
        raise
    return STATUS_OF[verdict]
