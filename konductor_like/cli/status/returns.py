"""Returns by reboot, as ``status`` and ``explain`` show them: the controller's own policy gives the reasons.

What only the controller has in its memory is estimated from the Lease: when it first heard a node's present
boot, and whether it still reads older lines after a start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from konductor_like.cli.columns import stamp
from konductor_like.cli.session import ControllerReport
from konductor_like.model import BrakeState, CoverageState, Hearing, NodeState, Snapshot
from konductor_like.model.time import unix_ns
from konductor_like.policy.returns import is_stopped, known_returns, returns_left, stop_words, why_stays


@dataclass(frozen=True, slots=True)
class Returns:
    """The returns of the fleet at one moment."""

    now: datetime
    controller: ControllerReport
    brake: BrakeState
    snapshot: Snapshot

    @classmethod
    def of(
        cls,
        nodes: Mapping[str, NodeState],
        controller: ControllerReport,
        brake: BrakeState,
        now: datetime,
    ) -> Returns:
        """Return the returns of these nodes, which are all nodes of the cluster."""
        controls = controller.controls
        if controls.returned or controller.policy.returns_by_reboot:
            controls = replace(controls, returned=known_returns(controls.returned, nodes.values()))
        return cls(
            now,
            controller,
            brake,
            Snapshot(
                nodes, read_ns=controller.read_ns, controls=controls, lease_unread=not controller.readable
            ),
        )

    @property
    def by_reboot(self) -> bool:
        """Whether a reboot may return a node; without the controller's settings nobody knows."""
        return self.controller.settings is not None and self.controller.policy.returns_by_reboot

    @property
    def stopped(self) -> str:
        """Why no node of the fleet returns by itself, and what to do; empty if nodes may return."""
        controls = self.snapshot.controls
        if not self.by_reboot or not is_stopped(controls):
            return ""
        return f"{stop_words(controls)}; `konductor-like resume` allows returns again"

    def why_not(self, state: NodeState) -> str | None:
        """Return why a tainted node does not return by itself; None if it does, or is not tainted."""
        if not state.tainted:
            return None
        if self.controller.settings is None:
            return self.controller.why_settings_unknown
        snapshot = replace(self.snapshot, hearing=self._heard(state))
        policy = self.controller.policy
        why = why_stays(state, state.record, snapshot, policy, self.now, self.brake)
        return why or self.controller.why_not_running(self.now) or None

    def document(self) -> dict[str, Any]:
        """Return the ``returns`` of docs/reference/json.md."""
        controls, policy = self.snapshot.controls, self.controller.policy
        known = self.controller.settings is not None
        return {
            "byReboot": policy.returns_by_reboot if known else None,
            "stopped": bool(self.stopped) if known else None,
            "leftThisHour": returns_left(controls, policy, self.now) if self.by_reboot else None,
            "last": [
                {"node": each.name, "at": stamp(each.returned_at), "relapsedAt": stamp(each.relapsed_at)}
                for each in controls.returned
            ],
        }

    def _heard(self, state: NodeState) -> Mapping[str, Hearing]:
        """Return the hearing of a node whose kernel log arrives: as if since its last need was met."""
        coverage = self.controller.coverage
        if (
            coverage is None
            or state.machine.boot_id is None
            or coverage.of(state.name) is not CoverageState.MEASURED
            or state.name in coverage.ambiguous
            or self.controller.unread_since(self.now) is not None
        ):
            return {}
        met_ns = max((each.met_ns or 0 for each in state.record.incidents), default=0)
        has_gap = any(
            gap.concerns(state.name) and (gap.end_ns is None or gap.end_ns > met_ns) for gap in coverage.gaps
        )
        return {state.name: Hearing(state.machine.boot_id, met_ns, unix_ns(coverage.at), has_gap)}
