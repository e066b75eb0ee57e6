"""``konductor-like test``: writes a fake Xid into a node's kernel log, waits for the taint, releases it."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.completion import complete_nodes
from konductor_like.cli.errors import FIND_NODE, CommandError
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
from konductor_like.cli.output import close_quietly, say, tell, warn
from konductor_like.exits import Exit
from konductor_like.model.text import clipped, listed, span_text

if TYPE_CHECKING:
    from konductor_like.cli.chain_test.chain import Tainted
    from konductor_like.cli.chain_test.forecast import Forecast
    from konductor_like.cli.status.report import Fleet
    from konductor_like.cluster.api.client import KubeClient, ReadOnlyKubeClient
    from konductor_like.cluster.reader_pods import ReaderPod
    from konductor_like.settings import Settings

REASON = "test of the alarm chain"
PAGE = "docs/use/test-a-node.md says what each stage needs; `konductor-like doctor` looks at the whole chain"
_EXEC_SECONDS = 30.0
_RECORD_SECONDS = 10.0
"""Longest wait for the record of a test that is to be released early."""
_WAITS = f": waits up to {_RECORD_SECONDS:g} s for the test's record, to release it; Ctrl-C ends this at once"
_JOBS_NAMED = 5


@examples("test gpu-07", "test gpu-07 --dry-run")
def chain_test(
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE", help="Name of the node.", callback=node_names, autocompletion=complete_nodes
        ),
    ],
    *,
    dry_run: DryRunOption = DryRun.NONE,
    with_jobs: Annotated[
        bool, typer.Option("--with-jobs", help="Also test a node on which jobs use GPUs; they go on.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the taint; `reset` releases the node.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, max=3600, metavar="SECONDS", help="Longest wait in all.")
    ] = 120,
    reason: OptionalReason = "",
    by: By = None,
    _yes: Unasked = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Test the whole chain on one node.

    The kernel-log reader's pod on the node writes an Xid 14, the driver's own fake error, to the kernel log.
    The command waits until the line is in Loki (if LOG_ENDPOINT is set), until the controller has tainted the
    node, and until the Event is there. Then it releases the test. Running pods stay; meanwhile nothing new is
    scheduled on the node. Exit status 1: nothing was written; 3: a stage did not come in time.
    """
    from konductor_like.cli import session
    from konductor_like.cli.nodes.writes import connected
    from konductor_like.cli.status.report import collect
    from konductor_like.cluster.api.client import KubeClient

    with connected(dry_run, kubeconfig, context) as (client, settings):
        fleet = collect(client, settings)
        reader = _checked(node, client, settings, fleet, with_jobs=with_jobs)
        if dry_run is not DryRun.NONE or not isinstance(client, KubeClient):
            from konductor_like.cli.chain_test.forecast import line_of

            say([f"node/{node} would get by pod {reader.name}: {line_of('TOKEN', keep=keep)} (dry run)"])
            return
        with session.ending_by_signal():
            is_whole = _run(
                client, settings, fleet, node, reader, timeout=timeout, keep=keep, by=by, reason=reason
            )
    raise typer.Exit(Exit.OK if is_whole else Exit.PARTLY)


def _checked(
    node: str, client: ReadOnlyKubeClient, settings: Settings, fleet: Fleet, *, with_jobs: bool
) -> ReaderPod:
    """Return the reader's pod on the node. Raises CommandError with everything that would stop the test."""
    from konductor_like.cli.chain_test.forecast import forecast
    from konductor_like.cli.rules import load
    from konductor_like.cli.similar_names import did_you_mean
    from konductor_like.cluster.reader_pods import reader_on

    state = fleet.nodes.get(node)
    if state is None:
        hint = did_you_mean([node], fleet.nodes) or FIND_NODE
        raise CommandError(f"node/{node} not found", hint=hint)
    found: Forecast = forecast(state, fleet, load(settings.rules_file))
    reader = reader_on(client, settings, node)
    found.stops += _reader_stops(client, settings, reader)
    if not with_jobs:
        _look_at_jobs(client, node, fleet, found)
    for note in found.notes:
        warn(f"node/{node}: {note}")
    if found.stops or reader is None:
        raise CommandError(*(f"node/{node} not tested: {stop}" for stop in found.stops), hint=PAGE)
    return reader


def _reader_stops(client: ReadOnlyKubeClient, settings: Settings, reader: ReaderPod | None) -> list[str]:
    from konductor_like.cluster.preflight import chain_test_permissions, denied_permissions
    from konductor_like.cluster.reader_pods import reader_place

    namespace, container = reader_place(settings)
    stops = []
    if reader is None:
        stops.append(f"no kernel-log reader runs on it: no pod with the container {container} in {namespace}")
    elif reader.problem:
        stops.append(f"its kernel-log reader, pod {reader.name} in {namespace}, {reader.problem}")
    denied = denied_permissions(client, chain_test_permissions(namespace))
    stops += [f"you may not {permission} (docs/use/permissions.md)" for permission in denied]
    return stops


def _look_at_jobs(client: ReadOnlyKubeClient, node: str, fleet: Fleet, found: Forecast) -> None:
    from konductor_like.cluster.api.errors import KubeForbidden
    from konductor_like.cluster.pods import jobs_on

    try:
        jobs = sorted(jobs_on(client, node, fleet.now).names)
    except KubeForbidden as error:
        found.stops.append(f"whether jobs run on it is not known: {error}; --with-jobs tests it all the same")
        return
    if jobs:
        names = listed([clipped(job, 80) for job in jobs], _JOBS_NAMED)
        found.stops.append(
            f"jobs use its GPUs: {names}. They go on, but new pods find no place there; "
            "--with-jobs tests it all the same"
        )


def _run(
    client: KubeClient,
    settings: Settings,
    fleet: Fleet,
    node: str,
    reader: ReaderPod,
    *,
    timeout: float,
    keep: bool,
    by: str | None,
    reason: str,
) -> bool:
    """Write the line, follow it, and release the test; return whether every stage came."""
    from konductor_like.cli import session
    from konductor_like.cli.chain_test.chain import InLoki, Reported, Tainted, follow
    from konductor_like.cli.chain_test.forecast import line_of
    from konductor_like.cluster.api.errors import KubeError
    from konductor_like.cluster.node.decoder import node_decoder

    token = secrets.token_hex(3)
    is_set = "log_endpoint" in settings.model_fields_set or client.in_cluster
    loki = InLoki(settings, node, token, reachable=is_set)
    tainted = Tainted(client, settings, node_decoder(), fleet.nodes[node], token)
    stages = [loki, tainted, Reported(client, node, token, tainted)]
    how = _how_it_ends(fleet, node, keep=keep)

    def end(wait_seconds: float) -> bool:
        if keep:
            tell(f"hint: {how}")
            return True
        return _release(client, settings, node, tainted, how, wait_seconds=wait_seconds, by=by, reason=reason)

    try:
        is_certain = _write(client, node, reader, line_of(token, keep=keep))
        missing = follow(stages, timeout, lambda text: say([f"node/{node} {text}"]))
        if tainted.missed:
            tell(f"node/{node} {tainted.name}: {tainted.missed}")
            end(_RECORD_SECONDS)
            return False
        for stage in missing:
            tell(f"node/{node} {stage.name}: not within {timeout:g} s: {stage.why_missing()}")
        if missing:
            lost = "" if is_certain else "the line may never have been written; "
            tell(f"hint: {lost}{PAGE}")
        return end(0) and not missing
    except (CommandError, KubeError):  # nothing was written
        raise
    except BaseException:
        # The output may be closed, by `| head -1` or with the terminal; the release must not depend on it.
        try:
            session.ignore_signals()
            with suppress(OSError):
                close_quietly()
                tell(f"interrupted{'' if keep else _WAITS}")
            with suppress(OSError):
                end(_RECORD_SECONDS)
        except KeyboardInterrupt:
            with suppress(OSError):
                tell(f"hint: {how}")
        raise
    finally:
        loki.close()


def _how_it_ends(fleet: Fleet, node: str, *, keep: bool) -> str:
    """Return how the test ends if this command does not release it."""
    from konductor_like.cli.chain_test.forecast import line_of
    from konductor_like.policy.node.endings import seconds_of_test

    seconds = seconds_of_test(line_of("", keep=keep), fleet.controller.policy)
    itself = f"; the test ends by itself after {span_text(round(seconds))}" if seconds else ""
    return f"`konductor-like reset {node}` releases the node{itself}"


def _write(client: KubeClient, node: str, reader: ReaderPod, line: str) -> bool:
    """Write the line; return whether that is certain. Raises CommandError or KubeError if it was not."""
    from konductor_like.cluster.api.errors import KubeError
    from konductor_like.cluster.reader_pods import write_line

    try:
        done = write_line(client, reader, line, _EXEC_SECONDS)
    except KubeError as error:
        if not error.outcome_unknown:
            raise
        warn(f"{error}: whether the line was written is not known, so the test goes on")
        return False
    if done.exit_code:
        said = clipped(" ".join(done.output.split()), 300)
        raise CommandError(f"node/{node} not tested: pod {reader.name} cannot write to /dev/kmsg: {said}")
    say([f"node/{node} Xid 14 written to its kernel log by pod {reader.name}"])
    return True


def _release(
    client: KubeClient,
    settings: Settings,
    node: str,
    tainted: Tainted,
    how: str,
    *,
    wait_seconds: float,
    by: str | None,
    reason: str,
) -> bool:
    """Release the test once it is recorded, or say how to; return whether nothing is left to do."""
    from konductor_like.cli import session
    from konductor_like.cli.chain_test.chain import EndOfTest, Recorded, follow
    from konductor_like.cluster.api.errors import KubeError

    recorded = Recorded(tainted)
    follow([recorded], wait_seconds, lambda _: None)
    if tainted.incident is None:
        why = recorded.last or "no fault of the test is recorded"
        tell(f"hint: {why}. If the line comes late, it taints the node; {how}")
        return True
    if not tainted.is_open:
        return True
    end = EndOfTest(client, settings, DryRun.NONE, reason=reason or REASON, claimed=by)
    try:
        with session.uninterrupted():
            end.carry_out(end.named([node]))
    except KubeError as error:
        end.fail(node, f"was not released: {error}")
    if end.failed:
        tell(f"hint: {how}")
    return not end.failed
