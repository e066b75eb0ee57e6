"""The guards that keep a tainted node out, as far as the Node and the controller's Lease tell. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from konductor_like.cli.session import ControllerReport
from konductor_like.model import BrakeState, CoverageState, Hearing, MetBy, NodeState, Snapshot, Source
from konductor_like.model.time import span_ns, unix_ns
from konductor_like.policy.guards import Blocker, Guard, blockers, published
from konductor_like.policy.health import coverage_of


def known_blockers(
    state: NodeState, controller: ControllerReport, brake: BrakeState, now: datetime
) -> Iterator[Blocker]:
    """Yield the guards that keep a tainted node out: those that the command sees, and what the Lease adds.

    These may be more than the controller's first guard, never fewer.
    """
    if controller.settings is None:
        yield Blocker(Guard.NOT_RUNNING, controller.why_settings_unknown)
        return
    yield from blockers(state, _known(state, controller, now), controller.policy, now, brake)
    if stopped := controller.why_not_running(now):
        yield Blocker(Guard.NOT_RUNNING, stopped)
    attempts = controller.attempts
    if state.name in attempts.kept_out:
        yield published(attempts.kept_out[state.name])
    elif attempts.kept_more:
        words = "the controller keeps more nodes out than its Lease can name: this may be one of them"
        yield Blocker(Guard.NOT_PUBLISHED, words)


def _known(state: NodeState, controller: ControllerReport, now: datetime) -> Snapshot:
    """Return what the Node and the Lease tell of what speaks against the node's return.

    The snapshot takes the node as heard for long enough: how long, only the controller knows.
    """
    name, coverage, now_ns = state.name, controller.coverage, unix_ns(now)
    is_heard = coverage_of(name, coverage, unread=controller.unread_since(now) is not None)
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
