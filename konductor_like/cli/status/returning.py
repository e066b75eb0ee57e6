"""Whether a tainted node returns by itself, as far as the Node and the controller's Lease tell. Pure."""

from __future__ import annotations

from datetime import datetime

from konductor_like.cli.columns import age
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.coverage import state_of
from konductor_like.model import BrakeState, CoverageState, Hearing, MetBy, NodeState, Snapshot, Source
from konductor_like.model.time import span_ns, unix_ns
from konductor_like.policy.returns import reasons, why_brake_keeps, why_stays


def why_not_returned(
    state: NodeState, controller: ControllerReport, brake: BrakeState, now: datetime
) -> str | None:
    """Return why a tainted node does not return by itself; None if it is not tainted, or nothing is known.

    Only the controller knows how long it has heard the node's kernel log since the reboot, and it may miss
    GPUs of which neither the Node nor its record tells.
    """
    if not state.tainted or controller.settings is None:
        return controller.why_settings_unknown if state.tainted else None
    known, policy = _known(state, controller, now), controller.policy
    return (
        next(iter(reasons(state, known, policy, now)), None)
        or why_brake_keeps(state, brake)
        or controller.why_not_running(now)
        or why_stays(state, known, policy, now)
    )


def _known(state: NodeState, controller: ControllerReport, now: datetime) -> Snapshot:
    """Return what the Node and the Lease tell of what speaks against the node's return.

    The snapshot takes the node as heard for long enough: how long, only the controller knows.
    """
    name, coverage, now_ns = state.name, controller.coverage, unix_ns(now)
    is_heard = state_of(name, coverage, unread=controller.unread_since(now) is not None)
    since_ns = max(
        (each.met_ns or 0 for each in state.record.incidents if each.met_by is MetBy.REBOOT), default=0
    )
    since_ns += span_ns(controller.stale_seconds)  # the reboot itself is no gap
    gaps = coverage.gaps if coverage is not None else ()
    has_gap = any(gap.concerns(name) and (gap.end_ns or now_ns) > since_ns for gap in gaps)
    heard = Hearing(state.machine.boot_id or "", 0, now_ns, has_gap)
    return Snapshot(
        {},
        controls=controller.controls,
        lost_boots=coverage.lost_boots if coverage is not None else {},
        read_ns={Source.KERNEL: now_ns},
        hearing={name: heard} if is_heard is CoverageState.MEASURED else {},
    )


def short_of_gpus(state: NodeState) -> str:
    """Return ``7 of 8 GPUs`` for a node with fewer than its machine had; empty if none is known to miss."""
    expected = state.gpus.capacity if state.record.gpus is None else state.record.gpus
    is_alike = state.gpus.comparable and state.gpus.layout in ("", state.record.gpu_layout)
    is_short = is_alike and state.gpus.allocatable < expected
    return f"{state.gpus.allocatable} of {expected} GPUs" if is_short else ""


def returns_when(state: NodeState, controller: ControllerReport, brake: BrakeState, now: datetime) -> str:
    """Return when a tainted node returns by itself; empty if it does not."""
    may_return = state.tainted and controller.policy.returns_by_reboot
    if not may_return or why_not_returned(state, controller, brake, now):
        return ""
    heard = f"its kernel log was heard for {age(controller.policy.return_quiet_seconds)} since the reboot"
    return f"returns by itself when {heard}, without a gap"
