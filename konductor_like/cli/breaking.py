"""What ``breaker status`` prints."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from konductor_like.cli import clock
from konductor_like.cli.columns import age, columns, fault_name, moment
from konductor_like.cli.configuration import load_settings
from konductor_like.cli.document import API_VERSION, brake_document, stamp
from konductor_like.cli.observation import observe, reading_client
from konductor_like.cli.render import brake_sentence, pace_sentence
from konductor_like.cli.report import ControllerReport
from konductor_like.cli.streams import say
from konductor_like.model import BrakeState
from konductor_like.policy.wording import why_held


def show(kubeconfig: str | None, context: str | None, *, as_json: bool) -> None:
    """Read the cluster and say how the brake stands. Raises KubeError."""
    settings = load_settings()
    with reading_client(settings, kubeconfig, context) as client:
        report = observe(client, settings, clock.now()).report
    if as_json:
        say([json.dumps(document(report.brake, report.controller, report.now), indent=2)])
    else:
        say(lines(report.brake, report.controller, report.now))


def document(brake: BrakeState, controller: ControllerReport, now: datetime) -> dict[str, Any]:
    """The JSON form: what ``status`` says of the brake."""
    head = {"apiVersion": API_VERSION, "kind": "Brake", "time": stamp(now)}
    return head | brake_document(brake, controller)


def lines(brake: BrakeState, controller: ControllerReport, now: datetime) -> list[str]:
    """A sentence, the bounds, and what is held."""
    found = [
        f"Brake: {brake_sentence(brake, now, controller.why_unset)}",
        "",
        *columns(("SCOPE", "GPU-NODES", "OUT", "BOUND"), _rows(brake, known=controller.settings is not None)),
    ]
    if brake.pace is not None:
        found += ["", f"Rate: {pace_sentence(brake.pace, now)}"]
    if brake.held:
        held = [
            (
                item.node,
                fault_name(item.incident.key.rule),
                age((now - moment(item.incident.first_ns)).total_seconds()),
                why_held(item.why, brake, item.pool) if item.why else _free(controller, now),
            )
            for item in brake.held
        ]
        found += ["", *columns(("HELD", "FAULT", "AGE", "WHY"), held)]
    return found


def _free(controller: ControllerReport, now: datetime) -> str:
    """Why a node is held that nothing is known to hold."""
    if controller.settings is None:
        return "not known"
    if not controller.alive(now):
        return "nothing any more; it passes when a controller runs"
    return "nothing any more; it passes at the next look"


def _rows(brake: BrakeState, *, known: bool) -> Iterable[Sequence[str]]:
    yield ("fleet", str(brake.gpu_nodes), str(brake.out), str(brake.bound) if known else "not known")
    for pool in brake.pools:
        yield (f"pool {pool.pool}", str(pool.gpu_nodes), str(pool.out), str(pool.bound))
