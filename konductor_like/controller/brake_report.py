"""What the brake says as a whole, in log and Event: when it begins to hold nodes, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from konductor_like.controller import logs
from konductor_like.model import BrakeState, EventReason, NodeState, Refusal
from konductor_like.model.time import stamp
from konductor_like.policy.brake import held_back
from konductor_like.policy.wording import why_held

_NAMES = 5


class BrakeReport:
    """Remembers only which nodes were held at the last look."""

    def __init__(self, fleet_event: Callable[[EventReason, str], None]) -> None:
        """``fleet_event`` sends an Event about the fleet; it returns at once and raises nothing."""
        self._fleet_event = fleet_event
        self._held: tuple[str, ...] = ()
        self._announced = False

    def begin(self, nodes: Mapping[str, NodeState]) -> None:
        """A leadership begins: what is held by the nodes' records was announced by whoever led before."""
        self._announced = any(held_back(state) for state in nodes.values())

    def deleted(self, names: Sequence[str], until: datetime) -> None:
        """Say which Nodes were deleted while they bore our taint; their room stays empty until then."""
        if not names:
            return
        deleted = "was deleted" if len(names) == 1 else "were deleted"
        message = f"{_some(names)} {deleted} with our taint: the room stays empty until {stamp(until)}."
        logs.warning(message, deleted=list(names[:50]))
        self._fleet_event(EventReason.DELETED, message)

    def tell(self, brake: BrakeState, now: datetime) -> None:
        """Say what is new."""
        held = tuple(item.node for item in brake.held)
        if held and held != self._held:
            logs.warning(
                f"The brake holds back {_some(held)}: {_why_held(brake)}",
                held=list(held[:50]),
                out=brake.out,
                bound=brake.bound,
            )
        elif self._held and not held:
            logs.info("The brake holds nothing any more.")
        self._held = held
        if held and not self._announced:
            number = f"{len(held)} node" + ("s" if len(held) > 1 else "")
            self._fleet_event(
                EventReason.HOLDING,
                f"Since {stamp(now)} the brake holds back {number}: {_some(held)}: {_why_held(brake)}",
            )
        elif self._announced and not held:
            self._fleet_event(EventReason.FREE, f"Since {stamp(now)} the brake holds nothing any more.")
        self._announced = bool(held)


def _why_held(brake: BrakeState) -> str:
    """Why, where all are held for one reason; and that releases help where they do."""
    reasons = {item.why for item in brake.held}
    first = brake.held[0].why
    if len(reasons) == 1 and first is not None and first is not Refusal.BRAKE:
        return f"{why_held(first, brake)}."
    told = f"{brake.out} of {brake.gpu_nodes} GPU nodes are out, {brake.bound} may be"
    if not brake.bound:
        return f"{told}: the settings allow no taint at all."
    return f"{told}. Releasing nodes makes room."


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
