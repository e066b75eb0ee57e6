"""``konductor-like pause``, ``resume`` and ``brake``: what people tell the controller, on its Lease."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.columns import age, columns, fault_name, stamp
from konductor_like.cli.durations import is_span, span_of, typed_moment
from konductor_like.cli.errors import CommandError
from konductor_like.cli.options import Context, Kubeconfig, TableOrJson, Verbose, not_blank
from konductor_like.cli.output import API_VERSION, say, say_json, tell, warn
from konductor_like.exits import Exit
from konductor_like.model.time import moment_of

if TYPE_CHECKING:
    from konductor_like.cli.session import ControllerReport
    from konductor_like.cluster.client import KubeClient
    from konductor_like.cluster.lease_annotations import LeaseView
    from konductor_like.model import BrakeState, ControlAct


def pause(
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; everybody is shown it.", callback=not_blank)
    ],
    span: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="How long: 90s, 30m, 2h, 1d12h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Until when: 2026-05-06T18:00:00Z.")
    ] = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Let the controller taint nothing for a while, or until `resume`.

    What would be tainted is held, and passes afterwards if it is still true. Holds from the moment this
    returns, for every taint that is not under way.
    """
    from konductor_like.cli import session
    from konductor_like.model import Control, ControlAct
    from konductor_like.policy.wording import control_act_id, pause_words

    if span is not None and until is not None:
        raise CommandError("give --for or --until, not both", status=Exit.USAGE)
    lasting = None if span is None else span_of(span, "--for")
    if until is not None and is_span(until):
        raise CommandError(
            f"--until {until} is no time; for a span there is --for {until}", status=Exit.USAGE
        )
    end = None if until is None else typed_moment(until, "--until", session.now())
    with _controllers_lease(kubeconfig, context) as lease:
        now, by = lease.now, lease.by
        if lasting is not None:
            end = now + lasting
        if end is not None and end <= now:
            raise CommandError(f"{stamp(end)} is over already", status=Exit.USAGE)
        act = control_act_id("pause", now, by, reason)
        paused = ControlAct(Control.PAUSE, now, by, reason, end, act=act)
        before = lease.write(paused)
    if before.controls.pause is not None and before.controls.pause.holds(now):
        warn(f"this replaces a pause: {pause_words(before.controls.pause)}")
    say([f"tainting {pause_words(paused)}"])
    _tell_act(paused.act)


def resume(*, context: Context = None, kubeconfig: Kubeconfig = None, _verbose: Verbose = False) -> None:
    """End a pause: what is still true is acted upon within seconds."""
    from konductor_like.model import Control, ControlAct
    from konductor_like.policy.wording import control_act_id

    with _controllers_lease(kubeconfig, context) as lease:
        act = control_act_id("resume", lease.now, lease.by)
        resumed = ControlAct(Control.RESUME, lease.now, lease.by, act=act)
        before = lease.write(resumed, only_if_paused=True)
    paused = before.controls.pause
    if paused is None:
        say(["tainting unchanged (it was not paused)"])
    elif not paused.holds(resumed.at):
        say(["tainting unchanged (the pause was over already)"])
    else:
        say(["tainting resumed"])
        _tell_act(resumed.act)


def brake_status(
    *,
    output: TableOrJson = "table",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    _verbose: Verbose = False,
) -> None:
    """Show the brake: its bounds, what it holds back and why, when it arms itself again."""
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
    """A sentence, the bounds, and what is held."""
    from konductor_like.cli.status.report import why_still_held
    from konductor_like.cli.status.text import brake_sentence, pace_sentence
    from konductor_like.policy.wording import why_held

    yield f"Brake: {brake_sentence(brake, now, controller.why_unset)}"
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
    """Arm the brake again now: its cool-down ends and its rate counts anew.

    Its bounds hold as before; what they hold back needs room, or other settings.
    """
    from konductor_like.model import Control, ControlAct
    from konductor_like.policy.wording import control_act_id

    reason = reason.strip()
    with _controllers_lease(kubeconfig, context) as lease:
        act = control_act_id("brake-reset", lease.now, lease.by, reason)
        lease.write(ControlAct(Control.BRAKE_RESET, lease.now, lease.by, reason, act=act))
    say(["brake reset"])
    _tell_act(act)


@dataclass(frozen=True, slots=True)
class _Lease:
    """The controller's Lease, and a person who writes on it."""

    client: KubeClient
    namespace: str
    name: str
    now: datetime
    by: str

    def write(self, act: ControlAct, *, only_if_paused: bool = False) -> LeaseView:
        """Write an act; gives what the Lease said before. Raises KubeError."""
        from konductor_like.cluster.lease_annotations import add_control_act

        return add_control_act(
            self.client,
            self.namespace,
            self.name,
            lambda before: None if only_if_paused and before.controls.pause is None else act,
        )


@contextmanager
def _controllers_lease(kubeconfig: str | None, context: str | None) -> Iterator[_Lease]:
    """The Lease, and the time by the cluster's clock: a laptop's that is wrong would end a pause too early.

    Raises CommandError where there is no Lease.
    """
    from konductor_like.cli import session
    from konductor_like.cluster.client import KubeClient
    from konductor_like.cluster.errors import KubeNotFound
    from konductor_like.cluster.lease import read_lease

    with session.connected(KubeClient, kubeconfig, context) as (client, settings):
        namespace, name = session.lease_namespace(client, settings), settings.lease_name
        missing = CommandError(
            f"there is no Lease {namespace}/{name}: no controller has ever run",
            hint="the controller makes it when it starts; "
            "KONDUCTOR_NAMESPACE and KONDUCTOR_LEASE_NAME name it",
        )
        if read_lease(client, namespace, name) is None:
            raise missing
        try:
            yield _Lease(client, namespace, name, session.cluster_now(client), session.who())
        except KubeNotFound as error:
            raise missing from error


def _tell_act(act: str) -> None:
    if logging.getLogger("konductor_like").isEnabledFor(logging.DEBUG):
        tell(f"act {act}")
