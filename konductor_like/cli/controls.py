"""``konductor-like pause``, ``resume`` and ``brake``: show the brake, and write on the controller's Lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.columns import age, age_of, columns, count, fault_name, natural, stamp
from konductor_like.cli.durations import is_span, span_of, typed_moment
from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import examples
from konductor_like.cli.options import (
    By,
    Context,
    FormatOption,
    Kubeconfig,
    Unasked,
    Verbose,
    not_blank,
    short_reason,
    tell_if_verbose,
)
from konductor_like.cli.output import API_VERSION, say, say_document, warn
from konductor_like.exits import Exit
from konductor_like.model.time import moment_of

if TYPE_CHECKING:
    from konductor_like.cli.session import ControllerReport
    from konductor_like.cluster.api.client import KubeClient
    from konductor_like.cluster.lease.annotations import LeaseView
    from konductor_like.model import BrakeState, Control, ControlAct, Controls
    from konductor_like.settings import Settings

LeaseReason = Annotated[
    str,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Reason, kept on the Lease.",
        show_default=False,
        callback=short_reason,
    ),
]
_NO_PLACE = "Xid 14: it takes no place from a fault"


@examples(
    "pause --for 2h --reason 'switch maintenance in row 3'",
    "pause --until 2030-05-06T18:00:00Z --reason 'data center move'",
)
def pause(
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason, shown in status.", callback=not_blank)
    ],
    span: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="Duration: 90s, 30m, 2h, 1d12h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Until when: 2026-05-06T18:00:00Z.")
    ] = None,
    by: By = None,
    _yes: Unasked = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Pause tainting, for a while or until `resume`.

    Nodes that would be tainted are listed as held, and tainted when the pause ends if the fault still counts.
    When the command returns, the pause is in force for every taint except one that is being written.
    """
    from konductor_like.cli import session
    from konductor_like.cluster.api.client import KubeClient
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

    with session.connected(KubeClient, kubeconfig, context) as (client, settings):
        paused, before = _write_act(client, settings, Control.PAUSE, by, reason=reason, until=until_when)
        if before.pause is not None and before.pause.holds(paused.at):
            warn(f"this replaces a pause: {pause_words(before.pause)}")
        say([f"tainting {pause_words(paused)}"])
        _tell_more(client, settings, paused)


@examples("resume", "resume --reason 'the switch is back'")
def resume(
    *,
    reason: LeaseReason = "",
    by: By = None,
    _yes: Unasked = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """End a pause, and a stop of automatic returns; the brake's limits still apply.

    The command prints how many nodes the brake still holds, and why.
    """
    from konductor_like.cli import session
    from konductor_like.cluster.api.client import KubeClient
    from konductor_like.model import Control
    from konductor_like.policy.recovery.returns import is_stopped, relapses

    with session.connected(KubeClient, kubeconfig, context) as (client, settings):
        resumed, before = _write_act(client, settings, Control.RESUME, by, reason=reason)
        if before.pause is None:
            say(["tainting unchanged (it was not paused)"])
        elif not before.pause.holds(resumed.at):
            say(["tainting unchanged (the pause was over already)"])
        else:
            say(["tainting resumed"])
        if is_stopped(before):
            say([f"automatic returns resumed ({len(relapses(before))} relapses no longer count)"])
        _tell_more(client, settings, resumed)
        say(_still_held(client, settings))


def _still_held(client: KubeClient, settings: Settings) -> Iterator[str]:
    """Yield the line that counts the nodes that the brake holds without a pause, if it holds any."""
    from konductor_like.cli.status.report import collect
    from konductor_like.cluster.api.errors import KubeError
    from konductor_like.policy.wording import why_held

    try:
        brake = collect(client, settings).brake()
    except KubeError as error:
        warn(f"the nodes that the brake still holds are not known: {error}")
        return
    whys = [why_held(item.why, brake, item.pool) for item in brake.held if item.why is not None]
    if whys:
        yield f"the brake still holds {count(len(whys), 'node')}: {'; '.join(dict.fromkeys(whys))}"


@examples("brake status", "brake status -o json")
def brake_status(
    *,
    output: FormatOption = "table",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Show the brake: its limits, the nodes that it holds back, and its cool-down.

    `-o name` prints the nodes that it holds back.
    """
    from konductor_like.cli import session
    from konductor_like.cli.status.document import brake_document
    from konductor_like.cli.status.report import collect, status_report
    from konductor_like.cluster.api.client import ReadOnlyKubeClient

    with session.connected(ReadOnlyKubeClient, kubeconfig, context) as (client, settings):
        report = status_report(collect(client, settings))
    if output == "name":
        say(sorted({f"node/{held.node}" for held in report.brake.held}, key=natural))
    elif output != "table":
        head = {"apiVersion": API_VERSION, "kind": "Brake", "time": stamp(report.now)}
        say_document(head | brake_document(report.brake, report.controller), output)
    else:
        say(brake_lines(report.brake, report.controller, report.now))


def brake_lines(brake: BrakeState, controller: ControllerReport, now: datetime) -> Iterator[str]:
    """Return the brake as text: what holds tainting up, the limits, and the nodes that wait."""
    from konductor_like.cli.status.report import why_still_held
    from konductor_like.model import SkipReason
    from konductor_like.policy.wording import why_held

    yield from (f"{label + ':':<12} {text}" for label, text in _brake_facts(brake, controller, now))
    bound = "not known" if controller.settings is None else str(brake.bound)
    scopes = [("fleet", str(brake.gpu_nodes), str(brake.out), bound)]
    scopes += [
        (f"pool {pool.pool}", str(pool.gpu_nodes), str(pool.out), str(pool.bound)) for pool in brake.pools
    ]
    yield from ("", *columns(("SCOPE", "GPU-NODES", "OUT-OF-SERVICE", "LIMIT"), scopes))
    if brake.held:
        still = "not known" if controller.settings is None else why_still_held(controller, now)
        held = [
            (
                item.node,
                fault_name(item.incident.key.rule),
                age((now - moment_of(item.incident.first_ns)).total_seconds()),
                "tainting is paused"  # the line above says who paused it, and until when
                if item.why is SkipReason.PAUSED
                else why_held(item.why, brake, item.pool)
                if item.why
                else still,
            )
            for item in brake.held
        ]
        yield from ("", *columns(("HELD", "FAULT", "AGE", "WHY"), held))


def _brake_facts(brake: BrakeState, controller: ControllerReport, now: datetime) -> Iterator[tuple[str, str]]:
    from konductor_like.cli.status.text import controller_sentence, pace_sentence, pause_sentence
    from konductor_like.policy.fleet.brake import bound

    are = "is" if brake.out == 1 else "are"
    held = f"{len(brake.held) or 'none'} held"
    if controller.settings is None:
        of_all = f"{brake.out} of {count(brake.gpu_nodes, 'GPU node')} {are} out of service"
        yield "Brake", f"{of_all}; {held}; the limit is not known: {controller.why_settings_unknown}"
    else:
        policy, fleet = controller.policy, count(brake.gpu_nodes, "GPU node")
        is_capped = brake.bound < bound(brake.gpu_nodes, replace(policy, brake_max_nodes=None))
        share = f"{policy.brake_max_percent:g} % of {fleet}"
        share = f"KONDUCTOR_BRAKE_MAX_NODES, for {fleet}" if is_capped else share
        also = f"; {brake.unavailable} more are unavailable and count too" if brake.unavailable else ""
        tests = f"; {brake.tests} of them for a test alone ({_NO_PLACE})" if brake.tests else ""
        of_most = f"{brake.out} of at most {brake.bound} ({share}) {are} out of service"
        yield "Brake", f"{of_most}{tests}{also}; {held}"
    if brake.pause:
        yield "Paused", pause_sentence(brake.pause)
    if not controller.alive(now):
        yield (
            "Controller",
            f"no controller runs, so no node is tainted: {controller_sentence(controller, now)}",
        )
    if brake.rearms_at is not None:
        counts = "counts" if brake.cooling == 1 else "count"
        freed = f"{count(brake.cooling, 'node')} released or deleted recently still {counts}"
        until = f"until {stamp(brake.rearms_at)} (in {age_of(now, brake.rearms_at)})"
        yield "Cool-down", f"{freed} as out of service {until}; `konductor-like brake reset` ends it"
    if brake.pace is not None:
        tests = f"; {brake.pace.tests} of them for a test alone ({_NO_PLACE})" if brake.pace.tests else ""
        yield "Rate", f"{pace_sentence(brake.pace, now)}{tests}"


@examples("brake reset", "brake reset --reason 'the switch is repaired'")
def brake_reset(
    *,
    reason: LeaseReason = "",
    by: By = None,
    _yes: Unasked = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """End the brake's cool-down now, and restart its rate limit.

    The limits stay in force. A node that a limit holds back waits until fewer nodes are out of service, or
    until the setting allows more.
    """
    from konductor_like.cli import session
    from konductor_like.cluster.api.client import KubeClient
    from konductor_like.model import Control

    with session.connected(KubeClient, kubeconfig, context) as (client, settings):
        reset, _ = _write_act(client, settings, Control.BRAKE_RESET, by, reason=reason)
        say(["brake reset"])
        _tell_more(client, settings, reset)


def _tell_more(client: KubeClient, settings: Settings, act: ControlAct) -> None:
    """Warn if no controller runs that could apply the act; with ``-v`` print the act's id."""
    from konductor_like.cli import session

    controller = session.read_controller(client, settings)
    if controller.readable and not controller.alive(session.cluster_now(client)):
        warn("the controller does not run; it applies this when it starts")
    tell_if_verbose(f"audit id {act.act}")


def _write_act(
    client: KubeClient,
    settings: Settings,
    control: Control,
    claimed: str | None,
    *,
    reason: str = "",
    until: Callable[[datetime], datetime | None] = lambda _now: None,
) -> tuple[ControlAct, Controls]:
    """Write an act on the Lease; return the act, and the controls before it.

    The act's time is the cluster's, because a laptop's wrong clock would end a pause too early. Raises
    CommandError if there is no Lease, or another KubeError.
    """
    from konductor_like.cli import session
    from konductor_like.cluster.api.errors import KubeNotFound
    from konductor_like.cluster.lease.annotations import add_control_act
    from konductor_like.model import Control, ControlAct
    from konductor_like.policy.recovery.returns import settled_by_resume
    from konductor_like.policy.wording import control_act_id

    namespace, name = session.lease_namespace(client, settings), settings.lease_name

    def act_for(before: LeaseView) -> ControlAct:
        now, by = session.cluster_now(client), session.who(client, claimed)
        act_id = control_act_id(control.value, now, by, reason)
        relapses = settled_by_resume(before.controls) if control is Control.RESUME else ()
        return ControlAct(control, now, by, reason, until(now), relapses=relapses, act=act_id)

    try:
        return add_control_act(client, namespace, name, act_for)
    except KubeNotFound as error:
        raise CommandError(
            f"there is no Lease {namespace}/{name}: no controller has ever run",
            hint="the controller creates the Lease when it starts; "
            "KONDUCTOR_NAMESPACE and KONDUCTOR_LEASE_NAME name it",
        ) from error
