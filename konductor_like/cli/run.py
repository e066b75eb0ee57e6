"""``konductor-like run``: the controller, as ``python -m konductor_like.controller.launch``."""

from __future__ import annotations

from typing import Annotated

import typer

from konductor_like.cli.help import examples
from konductor_like.cli.options import Context, Kubeconfig, Verbose


@examples("run --once --dry-run", "run --context staging --dry-run -v")
def run(
    *,
    once: Annotated[bool, typer.Option("--once", help="Read once, act, and exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing in the cluster; log what would be done.")
    ] = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Run the controller: read Loki, taint broken nodes.

    Configured by the environment; `konductor-like check-config` shows how.
    """
    from konductor_like.cli.session import load_settings
    from konductor_like.controller import launch

    settings = load_settings()
    if verbose:
        settings = settings.model_copy(update={"log_level": "debug"})
    raise typer.Exit(launch.run(settings, once=once, dry_run=dry_run, kubeconfig=kubeconfig, context=context))
