"""The command ``konductor-like history``: its options and its exit status."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import examples
from konductor_like.cli.options import Context, Kubeconfig, Names, Verbose
from konductor_like.exits import Exit

Output = Literal["table", "wide", "csv", "json", "yaml", "name"]
Since = Annotated[
    str, typer.Option("--since", metavar="SPAN|TIME", help="Start: 30d, 36h, 22:00, 2026-03-01 (UTC).")
]
Until = Annotated[str | None, typer.Option("--until", metavar="SPAN|TIME", help="End; now by default.")]


@examples(
    "history",
    "history gpu-07 --since 90d",
    "history --timeline --since 22:00",
    "history --gpu GPU-509665ad --since 180d",
    "history -o csv",
)
def history(
    names: Names = None,
    *,
    since: Since = "30d",
    until: Until = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu", metavar="UUID|SERIAL", help="Only outages of this GPU, on whatever node it was."
        ),
    ] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Every write, refusal and act of a person, in order of time.")
    ] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = "table",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Show past outages: node, GPU, fault, from when to when, and who or what ended each.

    The command reads the controller's audit trail in Loki and the records on the Nodes, and changes nothing.
    """
    from konductor_like.cli.history import document, text
    from konductor_like.cli.history.gather import read_cluster, read_history, span_of_options
    from konductor_like.cli.history.timeline import Timeline
    from konductor_like.cli.output import say, say_document, tell, warn
    from konductor_like.cli.similar_names import did_you_mean

    if gpu is not None:
        _check(gpu, timeline=timeline)
    sources = read_cluster(kubeconfig, context)
    start, end = span_of_options(since, until, sources.now)
    if timeline:
        if output == "wide" or output == "name":
            raise CommandError(
                f"--timeline has no format {output}", hint="-o table, csv, json or yaml", status=Exit.USAGE
            )
        shown = Timeline(set(names or ()), start, output)
        found = read_history(sources, start, end, names or (), also=shown.take)
        shown.finish()
    else:
        found = read_history(sources, start, end, names or ())
        if gpu is not None:
            found = found.of_gpu(gpu)
        match output:
            case "table" | "wide":
                text.show(found, wide=output == "wide")
            case "csv":
                say(document.csv_lines(found.outages, found.end))
            case "name":
                say(dict.fromkeys(f"node/{each.node}" for each in found.outages))
            case _:
                say_document(document.document(found), output)
    for message in text.gaps(found):
        warn(message)
    if found.unknown_names and not found.problem:
        for name in found.unknown_names:
            tell(f"node/{name} not found, and no outage of it")
        if hint := did_you_mean(found.unknown_names, sources.states):
            tell(f"hint: {hint}")
        raise typer.Exit(Exit.of(len(names or ()) - len(found.unknown_names), len(found.unknown_names)))
    raise typer.Exit(Exit.OK if found.trail.is_whole and not found.problem else Exit.PARTLY)


def _check(gpu: str, *, timeline: bool) -> None:
    """Refuse what names no GPU, and a timeline of one GPU."""
    from konductor_like.history.outages import GPU_NAME

    if not GPU_NAME.fullmatch(gpu):
        words = "a GPU's UUID (its begin is enough: GPU-509665ad) or its serial number"
        raise CommandError(f"--gpu must be {words}", status=Exit.USAGE)
    if timeline:
        raise CommandError("--timeline and --gpu do not go together", status=Exit.USAGE)
