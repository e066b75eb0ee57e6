"""``konductor-like pause``, ``resume`` and ``brake``: write people's acts on the controller's Lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.columns import age, columns, fault_name, stamp
from konductor_like.cli.durations import is_span, span_of, typed_moment
from konductor_like.cli.errors import CommandError
from konductor_like.cli.options import Context, Kubeconfig, TableOrJson, Verbose, not_blank, tell_if_verbose
from konductor_like.cli.output import API_VERSION, say, say_json, warn
from konductor_like.exits import Exit
from konductor_like.model.time import moment_of

if TYPE_CHECKING:
    from konductor_like.cli.session import ControllerReport
    from konductor_like.cluster.lease_annotations import LeaseView
    from konductor_like.model import BrakeState, Control, ControlAct, Controls


def pause(
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; status shows it.", callback=not_blank)
    ],
    span: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="Duration: 90s, 30m, 2h, 1d12h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Until when: 2026-05-06T18:00:00Z.")
    ] = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Pause tainting, for a while or until `resume`.

    The controller holds nodes that it would taint; after the pause it taints those whose fault is still open.
    When the command returns, the pause is in force for every taint except one that is being written.
    """
    from konductor_like.cli import session
    from konductor_like.model import Control
    from konductor_like.policy.wording import pause_words

    if span is not None and until is not None:
        raise CommandError("give --for or --until, not both", status=Exit.USAGE)
    if until is not None and is_span(until):
        raise CommandError(f"--until {until} is not a time; for a span use --for {until}", status=Exit.USAGE)
    lasting = None if span is None else span_of(span, "--for")
    end = None if until is None else typed_moment(until, "--until", session.now())

    def until_when(now: datetime) -> datetime | None:
        when = end if lasting is None else now + lasting
        if when is not None and when <= now:
            raise CommandError(f"{stamp(when)} is over already", status=Exit.USAGE)
        return when

    paused, before = _write_act(Control.PAUSE, kubeconfig, context, reason=reason, until=until_when)
    if before.pause is not None and before.pause.holds(paused.at):
        warn(f"this replaces a pause: {pause_words(before.pause)}")
    say([f"tainting {pause_words(paused)}"])
    tell_if_verbose(f"act {paused.act}")


def resume(*, context: Context = None, kubeconfig: Kubeconfig = None, _verbose: Verbose = False) -> None:
    """End a pause; open faults taint within seconds."""
    from konductor_like.model import Control

    resumed, before = _write_act(Control.RESUME, kubeconfig, context)
    if before.pause is None:
        say(["tainting unchanged (it was not paused)"])
    elif not before.pause.holds(resumed.at):
        say(["tainting unchanged (the pause was over already)"])
    else:
        say(["tainting resumed"])
        tell_if_verbose(f"act {resumed.act}")


def brake_status(
    *,
    output: TableOrJson = "table",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Show the brake: its bounds, the nodes that it holds back and why, and when its cool-down ends."""
    from konductor_like.cli import session
    from konductor_like.cli.status.document import brake_document
    from konductor_like.cli.status.report import collect, status_report
    from konductor_like.cluster.client import ReadOnlyKubeClient

    with session.connected(ReadOnlyKubeClient, kubeconfig, context) as (client, settings):
        report = status_report(collect(client, settings, session.now()))
    if output == "json":
        head = {"apiVersion": API_VERSION, "kind": "Brake", "time": stamp(report.now)}
        say_json(head | brake_document(report.brake, report.controller))
    else:
        say(brake_lines(report.brake, report.controller, report.now))


def brake_lines(brake: BrakeState, controller: ControllerReport, now: datetime) -> Iterator[str]:
    """Return the brake as text: a sentence, the bounds, and the nodes that it holds."""
    from konductor_like.cli.status.report import why_still_held
    from konductor_like.cli.status.text import brake_sentence, pace_sentence
    from konductor_like.policy.wording import why_held

    yield f"Brake: {brake_sentence(brake, now, controller.why_settings_unknown)}"
    bound = "not known" if controller.settings is None else str(brake.bound)
    scopes = [("fleet", str(brake.gpu_nodes), str(brake.out), bound)]
    scopes += [
        (f"pool {pool.pool}", str(pool.gpu_nodes), str(pool.out), str(pool.bound)) for pool in brake.pools
    ]
    yield from ("", *columns(("SCOPE", "GPU-NODES", "OUT", "BOUND"), scopes))
    if brake.pace is not None:
        yield from ("", f"Rate: {pace_sentence(brake.pace, now)}")
    if brake.held:
        still = "not known" if controller.settings is None else why_still_held(controller, now)
        held = [
            (
                item.node,
                fault_name(item.incident.key.rule),
                age((now - moment_of(item.incident.first_ns)).total_seconds()),
                why_held(item.why, brake, item.pool) if item.why else still,
            )
            for item in brake.held
        ]
        yield from ("", *columns(("HELD", "FAULT", "AGE", "WHY"), held))


def brake_reset(
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; kept on the Lease.", show_default=False)
    ] = "",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """End the brake's cool-down now, and restart its rate limit.

    The bounds stay in force. A node that a bound holds back waits until fewer nodes are out of service, or
    until the setting allows more.
    """
    from konductor_like.model import Control

    reset, _ = _write_act(Control.BRAKE_RESET, kubeconfig, context, reason=reason.strip())
    say(["brake reset"])
    tell_if_verbose(f"act {reset.act}")


def _write_act(
    control: Control,
    kubeconfig: str | None,
    context: str | None,
    *,
    reason: str = "",
    until: Callable[[datetime], datetime | None] = lambda _now: None,
) -> tuple[ControlAct, Controls]:
    """Write an act on the Lease; return the act, and the controls before it.

    A resume is written only if there is a pause. The act's time is the cluster's, because a laptop's wrong
    clock would end a pause too early. Raises CommandError if there is no Lease, or another KubeError.
    """
    from konductor_like.cli import session
    from konductor_like.cluster.client import KubeClient
    from konductor_like.cluster.errors import KubeNotFound
    from konductor_like.cluster.lease_annotations import add_control_act
    from konductor_like.model import Control, ControlAct
    from konductor_like.policy.wording import control_act_id

    with session.connected(KubeClient, kubeconfig, context) as (client, settings):
        namespace, name = session.lease_namespace(client, settings), settings.lease_name
        acts: list[ControlAct] = []

        def act_for(before: LeaseView) -> ControlAct | None:
            now, by = session.cluster_now(client), session.who()
            act_id = control_act_id(control.value, now, by, reason)
            acts.append(ControlAct(control, now, by, reason, until(now), act=act_id))
            is_needed = control is not Control.RESUME or before.controls.pause is not None
            return acts[-1] if is_needed else None

        try:
            before = add_control_act(client, namespace, name, act_for)
        except KubeNotFound as error:
            raise CommandError(
                f"there is no Lease {namespace}/{name}: no controller has ever run",
                hint="the controller creates the Lease when it starts; "
                "KONDUCTOR_NAMESPACE and KONDUCTOR_LEASE_NAME name it",
            ) from error
    return acts[-1], before.controls
