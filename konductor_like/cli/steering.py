"""The work of ``pause``, ``resume`` and ``breaker reset``: a person's word goes on the Lease."""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import datetime, timedelta

from konductor_like.cli import clock, writing
from konductor_like.cli.configuration import load_settings
from konductor_like.cli.exits import Exit
from konductor_like.cli.failures import CommandError
from konductor_like.cli.streams import say, tell, warn
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.errors import KubeNotFound
from konductor_like.cluster.lease import read_lease
from konductor_like.cluster.lease_annotations import LeaseView, add_control_act
from konductor_like.model import Control, ControlAct
from konductor_like.policy.acts import steering_act
from konductor_like.policy.brakewords import pause_words, stamp
from konductor_like.settings import Settings


def pause_tainting(
    kubeconfig: str | None,
    context: str | None,
    reason: str,
    *,
    lasting: timedelta | None,
    until: datetime | None,
) -> None:
    """Write the pause, in place of one that is there. Raises KubeError or CommandError."""
    settings = load_settings()
    with closing(_client(settings, kubeconfig, context)) as client:
        now = _now(client, settings)
        end = _end(now, lasting) if lasting is not None else until
        if end is not None and end <= now:
            raise CommandError(f"{stamp(end)} is over already", status=Exit.USAGE)
        by = writing.who()
        pause = ControlAct(Control.PAUSE, now, by, reason, end, act=steering_act("pause", now, by, reason))
        before = _write(client, settings, pause)
    if before.controls.pause is not None and before.controls.pause.holds(now):
        warn(f"this replaces a pause: {pause_words(before.controls.pause)}")
    say([f"tainting {pause_words(pause)}"])
    _tell_act(pause.act)


def resume_tainting(kubeconfig: str | None, context: str | None) -> None:
    """Take the pause off the Lease. Raises KubeError or CommandError."""
    settings = load_settings()
    with closing(_client(settings, kubeconfig, context)) as client:
        now, by = _now(client, settings), writing.who()
        resume = ControlAct(Control.RESUME, now, by, act=steering_act("resume", now, by))
        before = _write(client, settings, resume, only_if_paused=True)
    pause = before.controls.pause
    if pause is None:
        say(["tainting unchanged (it was not paused)"])
    elif not pause.holds(now):
        say(["tainting unchanged (the pause was over already)"])
    else:
        say(["tainting resumed"])
        _tell_act(resume.act)


def rearm_brake(kubeconfig: str | None, context: str | None, reason: str) -> None:
    """Write the reset of the brake. Raises KubeError or CommandError."""
    settings = load_settings()
    with closing(_client(settings, kubeconfig, context)) as client:
        now, by = _now(client, settings), writing.who()
        name = steering_act("breaker-reset", now, by, reason)
        brake_reset = ControlAct(Control.BRAKE_RESET, now, by, reason, act=name)
        _write(client, settings, brake_reset)
    say(["brake reset"])
    _tell_act(brake_reset.act)


def _end(now: datetime, lasting: timedelta) -> datetime:
    try:
        return now + lasting
    except OverflowError:
        raise CommandError("--for is longer than time is", status=Exit.USAGE) from None


def _client(settings: Settings, kubeconfig: str | None, context: str | None) -> KubeClient:
    return KubeClient.connect(kubeconfig, context, settings.kube_timeout_seconds)


def _now(client: KubeClient, settings: Settings) -> datetime:
    """The time by the cluster's clock: a laptop's that is wrong would end a pause too early."""
    if _lease(client, settings) is None:
        raise _no_lease(client, settings)
    return clock.now() + timedelta(seconds=client.clock_ahead_seconds)


def _write(
    client: KubeClient, settings: Settings, act: ControlAct, *, only_if_paused: bool = False
) -> LeaseView:
    def act_for(before: LeaseView) -> ControlAct | None:
        return None if only_if_paused and before.controls.pause is None else act

    try:
        return add_control_act(client, _namespace(client, settings), settings.lease_name, act_for)
    except KubeNotFound as error:
        raise _no_lease(client, settings) from error


def _tell_act(act: str) -> None:
    if logging.getLogger("konductor_like").isEnabledFor(logging.DEBUG):
        tell(f"act {act}")


def _lease(client: KubeClient, settings: Settings) -> LeaseView | None:
    return read_lease(client, _namespace(client, settings), settings.lease_name)


def _namespace(client: KubeClient, settings: Settings) -> str:
    return settings.lease_namespace(client.namespace if client.in_cluster else None)


def _no_lease(client: KubeClient, settings: Settings) -> CommandError:
    return CommandError(
        f"there is no Lease {_namespace(client, settings)}/{settings.lease_name}: no controller has ever run",
        hint="the controller makes it when it starts; KONDUCTOR_NAMESPACE and KONDUCTOR_LEASE_NAME name it",
    )
