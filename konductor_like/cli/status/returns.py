"""Returns by reboot, as ``status`` and ``explain`` show them: the controller's own policy gives the reasons.

What only the controller has in its memory is estimated from the Lease: when it first heard a node's present
boot, and whether it still reads older lines after a start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from konductor_like.cli.columns import stamp
from konductor_like.cli.session import ControllerReport
from konductor_like.model import BrakeState, Controls, CoverageState, Hearing, NodeState, Snapshot
from konductor_like.model.time import unix_ns
from konductor_like.policy.returns import is_stopped, known_returns, returns_left, stop_words, why_stays


@dataclass(frozen=True)
class Returns:
    """The returns of the fleet at one moment. ``nodes`` are all nodes of the cluster."""

    now: datetime
    nodes: Mapping[str, NodeState]
    controller: ControllerReport
    brake: BrakeState

    @property
    def by_reboot(self) -> bool:
        """Whether a reboot may return a node; without the controller's settings nobody knows."""
        return self.controller.policy.returns_by_reboot

    @cached_property
    def controls(self) -> Controls:
        """The controls with the returns that the Lease and the nodes' records show."""
        controls = self.controller.controls
        return replace(controls, returned=known_returns(controls.returned, self.nodes.values()))

    @property
    def stopped(self) -> str:
        """Why no node of the fleet returns by itself, and what to do; empty if nodes may return."""
        if not self.by_reboot or not is_stopped(controls := self.controls):
            return ""
        return f"{stop_words(controls)}; `konductor-like resume` allows returns again"

    def why_not(self, state: NodeState) -> str | None:
        """Return why a tainted node does not return by itself; None if it does, or is not tainted."""
        controller, policy = self.controller, self.controller.policy
        if not state.tainted or controller.settings is None:
            return controller.why_settings_unknown if state.tainted else None
        snapshot = Snapshot(
            self.nodes,
            read_ns=controller.read_ns,
            controls=self.controls if self.by_reboot else Controls(),
            hearing=self._heard(state),
        )
        why = why_stays(state, state.record, snapshot, policy, self.now, self.brake)
        return why or controller.why_not_running(self.now) or None

    def document(self) -> dict[str, Any]:
        """Return the ``returns`` of docs/reference/json.md."""
        known, controls = self.controller.settings is not None, self.controls
        left = returns_left(controls, self.controller.policy, self.now)
        return {
            "byReboot": self.by_reboot if known else None,
            "stopped": bool(self.stopped) if known else None,
            "leftThisHour": left if self.by_reboot else None,
            "last": [
                {"node": each.name, "at": stamp(each.returned_at), "relapsedAt": stamp(each.relapsed_at)}
                for each in controls.returned
            ],
        }

    def _heard(self, state: NodeState) -> Mapping[str, Hearing]:
        """Return the hearing of a node whose kernel log arrives: as if since its last need was met.

        The first gap that ends after that is the silence of the reboot itself.
        """
        coverage, boot_id, name = self.controller.coverage, state.machine.boot_id, state.name
        if coverage is None or boot_id is None or coverage.of(name) is not CoverageState.MEASURED:
            return {}
        if name in coverage.ambiguous or self.controller.unread_since(self.now) is not None:
            return {}
        met_ns = max((each.met_ns or 0 for each in state.record.incidents), default=0)
        ends = [
            gap.end_ns for gap in coverage.gaps if gap.concerns(name) and (gap.end_ns or met_ns) >= met_ns
        ]
        has_gap = None in ends or len(ends) > 1
        first_ns = max((end_ns for end_ns in ends if end_ns is not None), default=met_ns)
        return {name: Hearing(boot_id, first_ns, unix_ns(coverage.at), has_gap)}
